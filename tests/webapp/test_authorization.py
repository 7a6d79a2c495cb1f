"""Everybody x every route x every method, and foreign ids in paths, queries and bodies: from the URLconf.

The surprise is always the same: things of the red team have POISON in their names, and nobody else ever reads
it or changes anything of theirs. What must work does: each kind of cell has its control.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.apps import apps
from django.db import transaction
from django.test import Client

from tests.webapp.api.test_api import SPEC, outcome_of
from tests.webapp.authorization_rules import API, EVERYBODY, MEMBERS, SAFE, SIGNED_IN, TOKEN, Rule, rule_of
from tests.webapp.cast import signed_in
from tests.webapp.pages_read import Offered, offered_by
from tests.webapp.populated import POISON, Populated, populated
from tests.webapp.routes import METHODS, Route, routes
from webapp.accounts.models import Role, User
from webapp.accounts.roles import allows

pytestmark = pytest.mark.django_db
#: What each may in the red team; who has no role is a stranger there.
ROLES = {"ada": Role.ADMIN, "max": Role.MEMBER, "vera": Role.VIEWER}
STRANGERS = ("sly", "bob", "gone", "root")
TOKENS = {"viewer": Role.VIEWER, "member": Role.MEMBER}
NO_TOKENS = ("revoked", "made up")
#: What sends a stream, and what ends the session that asks.
APART = ("runs:events", "account_logout")


@pytest.fixture(autouse=True)
def files_of_its_own() -> None:
    """Those of the whole file of tests stay."""


@pytest.fixture(scope="module")
def lab(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Populated]:
    with django_db_blocker.unblock(), populated(tmp_path_factory.mktemp("files")) as found:
        yield found


class Asker:
    """Asks as anybody, and takes back what was changed; ``cells`` counts what was asked, by kind."""

    def __init__(self, lab: Populated) -> None:
        people = {name: getattr(lab.cast, name) for name in ("ada", "max", "vera", "sly")}
        people["bob"] = User.objects.get(username="bob")
        people["gone"] = User.objects.create_user("gone", password="pw")
        people["root"] = User.objects.create_superuser("root", password="pw")
        self.sessions = {name: signed_in(user).cookies["sessionid"].value for name, user in people.items()}
        self.secrets, self.client, self.cells = lab.secrets, Client(), Counter[str]()

    def ask(self, kind: str, actor: str, method: str, address: str, *body: Any, **more: Any) -> Any:
        self.cells[kind] += 1
        self.client.cookies.clear()
        if actor in self.sessions:
            self.client.cookies["sessionid"] = self.sessions[actor]
        headers = {"authorization": f"Bearer {self.secrets[actor]}"} if actor in self.secrets else {}
        with transaction.atomic():
            answer = getattr(self.client, method)(address, *body, headers=headers, **more)
            transaction.set_rollback(True)
        return answer


@pytest.fixture(scope="module")
def asker(lab: Populated) -> Asker:
    return Asker(lab)


def known_routes() -> list[Route]:
    """One for each address: the API has several at one."""
    return list({route.pattern: route for route in routes() if route.name not in APART}.values())


def to_login(answer: Any) -> bool:
    return answer.status_code == 302 and answer["Location"].startswith("/accounts/")


def text_of(answer: Any) -> str:
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return content.decode("utf-8", "replace")


def good_body(route: Route) -> tuple[Any, ...]:
    """What an operation of the API takes, so that only who asks decides."""
    bodies = {"runs": SPEC, "outcomes": outcome_of({}), "experiments": {"name": "", "runs": [SPEC]}}
    name = route.pattern.removeprefix(API)
    return (json.dumps(bodies[name]), "application/json") if name in bodies else ()


def test_every_route_has_a_rule_and_a_new_one_fails() -> None:
    assert len(known_routes()) > 85
    for route in routes():
        rule_of(route)
    with pytest.raises(KeyError, match="has no rule"):
        rule_of(Route("billing/", "billing"))


def test_every_actor_at_every_route_by_every_method(lab: Populated, asker: Asker) -> None:
    wrong = [line for route in known_routes() for line in _walk(asker, lab, route, rule_of(route))]
    assert not wrong, "\n".join(wrong)
    assert asker.cells["control"] > 200
    assert sum(asker.cells.values()) > 5000


def _walk(asker: Asker, lab: Populated, route: Route, rule: Rule) -> Iterator[str]:
    address, body = route.address(lab.red), good_body(route)
    control = {MEMBERS: "max" if rule.owned else "ada", TOKEN: "member", SIGNED_IN: "ada"}.get(
        rule.who, "ada"
    )
    for method in METHODS:
        sent = body if method == "post" else ()
        good = asker.ask("control", control, method, address, *sent)
        if good.status_code >= 500 or (good.status_code in (401, 403, 404) and rule.who != EVERYBODY):
            yield f"{method} {address} by {control}, who may: {good.status_code}"
        for actor in (*ROLES, *STRANGERS, "nobody", *TOKENS, "foreign", *NO_TOKENS):
            if actor == control or (method == "head" and actor in ROLES):
                continue
            answer = asker.ask(rule.who, actor, method, address, *sent)
            if not _is_right(rule, actor, method, good.status_code, answer):
                yield f"{method} {address} by {actor}: {answer.status_code}"


def _is_right(rule: Rule, actor: str, method: str, good: int, answer: Any) -> bool:
    """Whether the answer is that of the rule, where who may got ``good``."""
    status = answer.status_code
    if status == 405 or good == 405:
        return status == good or (rule.who == TOKEN and status == 401)
    if rule.who == MEMBERS:
        return _is_right_for_member(rule, actor, method, good, answer)
    if rule.who == TOKEN:
        return _is_right_for_token(actor, method, good, status)
    if rule.who == SIGNED_IN and actor not in (*ROLES, *STRANGERS):
        return to_login(answer)
    return status < 500


def _is_right_for_member(rule: Rule, actor: str, method: str, good: int, answer: Any) -> bool:
    need = rule.read if method in SAFE else rule.write
    if actor in STRANGERS:
        return answer.status_code == 404
    if actor not in ROLES:  # a token opens no page
        return to_login(answer)
    if not allows(ROLES[actor], need):
        return answer.status_code == 403
    return answer.status_code == (404 if rule.owned else good)


def _is_right_for_token(actor: str, method: str, good: int, status: int) -> bool:
    if actor == "foreign":
        return status in (404, 200, 201, 422)  # lists of its own; what it reads of others, the next tests ask
    if actor not in TOKENS:
        return status == 401
    return status == good if method in SAFE or allows(TOKENS[actor], Role.MEMBER) else status in (403, 422)


def fingerprint(lab: Populated) -> str:
    """Everything that the red team has."""
    found = []
    for model in apps.get_models():
        names = {field.name for field in model._meta.fields}
        if {"team", "project"} & names:
            of = {"team": lab.cast.red} if "team" in names else {"project": lab.cast.project}
            rows = model.objects.filter(**of).order_by("pk").values_list()  # type: ignore[attr-defined]
            found.append((model.__name__, [tuple(map(str, row)) for row in rows]))
    return repr(found)


def test_foreign_ids_in_a_path_lead_nowhere(lab: Populated, asker: Asker) -> None:
    """Each part of an address of Sly's own, by itself and all after the project, is the red team's."""
    wrong, before = [], fingerprint(lab)
    for route in known_routes():
        is_token = rule_of(route).who == TOKEN
        parts = [
            part for part in route.parts if part in lab.red and part not in ("family", "policy", "suite")
        ]
        foreign = [{part: lab.red[part]} for part in parts]
        foreign += [{name: value for name, value in lab.red.items() if name not in ("team", "project")}]
        if not parts or rule_of(route).who not in (MEMBERS, TOKEN):
            continue
        for values in foreign if set(parts) - {"team", "project"} else foreign[:-1]:
            for key in [key for key in lab.red if key.endswith(":" + next(iter(values)))]:
                values = {**values, key: lab.red[key]}
            address = route.address({**lab.blue, **values})
            for method in ("get", "post", "patch", "delete"):
                answer = asker.ask("path", "foreign" if is_token else "sly", method, address)
                if answer.status_code not in (404, 405) or POISON in text_of(answer):
                    wrong.append(f"{method} {address}: {answer.status_code}")
    assert not wrong, "\n".join(wrong)
    assert fingerprint(lab) == before
    assert asker.cells["path"] > 400


def offers_of(lab: Populated, asker: Asker, actor: str, things: dict[str, Any]) -> dict[Any, Offered]:
    """Every form and link on the pages of a team, once for each set of fields."""
    found = {}
    for route in known_routes():
        address = route.address(things)
        if rule_of(route).who != MEMBERS or address.endswith("docs"):
            continue
        answer = asker.ask("crawl", actor, "get", address)
        if answer.status_code == 200 and "html" in answer["Content-Type"]:
            for one in offered_by(text_of(answer), address):
                if f"/t/{things['team']}/" in one.address:
                    found[one.method, one.address, tuple(sorted({name for name, _ in one.fields}))] = one
    return found


#: Names of fields that hold an id, whatever they hold at the moment.
IDS = (
    "artifact",
    "artifacts",
    "run",
    "experiment",
    "key",
    "baseline",
    "pinned",
    "option:model",
    "option:extra",
)


def with_foreign_ids(offer: Offered, lab: Populated) -> Iterator[list[tuple[str, str]]]:
    """The fields with one of them naming a thing of the red team; also where the offer has no such field."""
    own = {str(value): name for name, value in lab.blue.items()}
    names = {name: own.get(value) for name, value in offer.fields if value in own or name in IDS}
    for name, kind in names.items():
        red = lab.red[kind] if kind else lab.red["run" if "run" in name else "artifact"]
        values = [red, *lab.red["artifacts"]] if name in ("artifacts", "artifact") else [red]
        spelled = [f"artifact:{red}"] if name.startswith("option:") else values
        for value in spelled:
            yield [(n, v) for n, v in offer.fields if n != name] + [(name, str(value))]


def test_foreign_ids_in_queries_and_bodies_of_pages_lead_nowhere(lab: Populated, asker: Asker) -> None:
    """Every form and link that Sly's own pages offer, naming what is the red team's."""
    wrong, before = [], fingerprint(lab)
    offers = offers_of(lab, asker, "sly", lab.blue)
    extra = [
        {"run": lab.red["run"]},
        {"artifact": lab.red["artifact"]},
        {"experiment": lab.red["experiment"]},
    ]
    for route in known_routes():
        if rule_of(route).who == MEMBERS:
            address = route.address(lab.blue)
            for fields in extra:
                pairs = [(name, str(value)) for name, value in fields.items()]
                offers[address, str(fields)] = Offered("get", address, pairs)
                offers[address, str(fields), "post"] = Offered("post", address, pairs)
    for offer in offers.values():
        address = urlsplit(offer.address).path
        for pairs in (*with_foreign_ids(offer, lab),):
            fields: dict[str, list[str]] = {}
            for name, value in pairs:
                fields.setdefault(name, []).append(value)
            answer = asker.ask(offer.method, "sly", offer.method, address, fields, follow=True)
            if answer.status_code >= 500 or POISON in text_of(answer):
                wrong.append(f"{offer.method} {address} {str(fields)[:200]}: {answer.status_code}")
    assert not wrong, "\n".join(wrong)
    assert fingerprint(lab) == before
    assert asker.cells["get"] > 100 and asker.cells["post"] > 50


def test_foreign_ids_in_requests_to_the_api_lead_nowhere(lab: Populated, asker: Asker) -> None:
    red, before, wrong = lab.red, fingerprint(lab), []
    sources = [f"artifact:{pk}" for pk in red["artifacts"]] + [f"sha256:{red['sha256']}"]
    specs = [{**SPEC, "workload": {"source": source, "options": {"batch": 8}}} for source in sources]
    specs += [
        {**SPEC, "workload": {"source": "zoo:gpt2", "options": {name: source}}}
        for source in sources
        for name in ("model", "extra")
    ]
    for spec in specs:
        for path, body in (("runs", spec), ("experiments", {"name": "", "runs": [spec]})):
            answer = asker.ask(
                "api", "foreign", "post", f"/{API}{path}", json.dumps(body), "application/json"
            )
            if answer.status_code != 422 or POISON in text_of(answer):
                wrong.append(f"{path} {spec['workload']}: {answer.status_code}")
    for path in ("runs", "artifacts", "experiments", "policies", "hardware", "hosts"):
        for query in (
            "",
            *(f"?project={red['project']}", f"?after={red['run']}", f"?after={red['artifact']}"),
            f"?after={red['experiment']}",
        ):
            answer = asker.ask("api", "foreign", "get", f"/{API}{path}{query}")
            if answer.status_code >= 500 or POISON in text_of(answer):
                wrong.append(f"{path}{query}: {answer.status_code}")
    assert not wrong, "\n".join(wrong)
    assert fingerprint(lab) == before


def test_what_the_walks_look_for_is_there_to_be_found(lab: Populated, asker: Asker) -> None:
    """The controls: members read POISON on pages and in the API, and a change changes the fingerprint."""
    read = [
        route.name
        for route in known_routes()
        if rule_of(route).who in (MEMBERS, TOKEN)
        and POISON
        in text_of(
            asker.ask(
                "control",
                "member" if rule_of(route).who == TOKEN else "max",
                "get",
                route.address(lab.red),
            )
        )
    ]
    assert len(read) > 25
    own = f"/t/red/vision/compare/{lab.red['experiment']}/pin"
    before = fingerprint(lab)
    with transaction.atomic():
        assert signed_in(lab.cast.max).post(own, {"run": str(lab.red["run"])}).status_code == 302
        assert fingerprint(lab) != before
        transaction.set_rollback(True)
    assert fingerprint(lab) == before


def test_a_token_opens_no_page_whatever_it_asks_for(lab: Populated, asker: Asker) -> None:
    """``?export=`` at every address: a file of a table, or what who is not signed in gets."""
    files = 0
    for route in known_routes():
        if rule_of(route).who != MEMBERS:
            continue
        for export in ("csv", "", "x"):
            answer = asker.ask("export", "member", "get", f"{route.address(lab.red)}?export={export}")
            is_file = answer.has_header("Content-Disposition") and "text/csv" in answer["Content-Type"]
            files += is_file
            assert is_file or to_login(answer) or answer.status_code in (404, 405), route.pattern

    assert files >= 12


def test_the_files_of_uploads_are_the_labs_alone(lab: Populated) -> None:
    from django.conf import settings

    found = list(Path(settings.MEDIA_ROOT).rglob("*"))
    assert found
    assert {oct(one.stat().st_mode & 0o777) for one in found} == {"0o600", "0o700"}
