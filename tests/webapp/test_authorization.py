"""Everybody x every route x every method, and foreign ids in paths, queries and bodies: from the URLconf.

The surprise is always the same: things of the red team have POISON in their names, and nobody else ever reads
it or changes anything of theirs. What must work does: each kind of cell has its control.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from django.apps import apps
from django.db import transaction

from tests.webapp.api.calls import SPEC, outcome_of
from tests.webapp.asker import Asker
from tests.webapp.authorization_rules import (
    ADMINISTRATOR,
    API,
    EVERYBODY,
    MEMBERS,
    NONE_OF_THEM,
    SAFE,
    SIGNED_IN,
    TOKEN,
    Rule,
    rule_of,
)
from tests.webapp.cast import signed_in
from tests.webapp.over_asgi import Answer, Views
from tests.webapp.pages_read import Offered, offered_by
from tests.webapp.populated import POISON, Populated
from tests.webapp.routes import METHODS, Route, routes
from webapp.accounts.models import Role
from webapp.accounts.roles import allows

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(3600)]
#: What each may in the red team; who has no role is a stranger there.
ROLES = {"ada": Role.ADMIN, "max": Role.MEMBER, "vera": Role.VIEWER}
STRANGERS = ("sly", "bob", "gone", "root")
TOKENS = {"viewer": Role.VIEWER, "member": Role.MEMBER, "admin": Role.ADMIN}
NO_TOKENS = ("revoked", "made up")
EVERYBODY_ELSE = (*ROLES, *STRANGERS, "nobody", *TOKENS, "foreign", *NO_TOKENS)
#: Who asks where a method is none of the address, whoever asks.
FEW = ("vera", "sly", "nobody", "member")
#: What sends a stream, and what ends the session that asks.
APART = ("runs:events", "account_logout")


class Counting(Asker):
    """``cells`` counts what was asked, by kind; ``opened`` says which routes answered who may."""

    def __init__(self, lab: Populated) -> None:
        super().__init__(lab, Views())
        self.cells = Counter[str]()
        self.opened = defaultdict[str, bool](bool)

    def cell(self, kind: str, actor: str, method: str, address: str, **more: Any) -> Answer:
        self.cells[kind] += 1
        return self.ask(actor, method, *address.partition("?")[::2], **more)


@pytest.fixture(scope="module")
def asker(lab: Populated) -> Counting:
    return Counting(lab)


def known_routes() -> list[Route]:
    """One for each address: the API has several at one."""
    return list({route.pattern: route for route in routes() if route.name not in APART}.values())


def to_login(answer: Answer) -> bool:
    return answer.status == 302 and answer.headers["location"].startswith("/accounts/")


def good_body(route: Route) -> dict[str, Any]:
    """What an operation of the API takes, so that only who asks decides."""
    bodies = {"runs": SPEC, "outcomes": outcome_of({}), "experiments": {"name": "", "runs": [SPEC]}}
    name = route.pattern.removeprefix(API)
    return as_json(bodies[name]) if name in bodies else {}


def as_json(value: Any) -> dict[str, Any]:
    return {"body": json.dumps(value).encode(), "content_type": "application/json"}


def test_every_route_has_a_rule_and_a_new_one_fails() -> None:
    assert len(known_routes()) > 85
    for route in routes():
        rule_of(route)
    with pytest.raises(KeyError, match="has no rule"):
        rule_of(Route("billing/", "billing"))


def test_every_actor_at_every_route_by_every_method(lab: Populated, asker: Counting) -> None:
    wrong = [line for route in known_routes() for line in _walk(asker, lab, route, rule_of(route))]
    assert not wrong, "\n".join(wrong)
    assert asker.cells["control"] > 200
    assert sum(asker.opened.values()) > len(known_routes()) / 2
    assert sum(asker.cells.values()) > 4000


def _walk(asker: Counting, lab: Populated, route: Route, rule: Rule) -> Iterator[str]:
    address, body = route.address(lab.red), good_body(route)
    control = {MEMBERS: "max" if rule.owned else "ada", TOKEN: "admin", ADMINISTRATOR: "root"}.get(
        rule.who, "ada"
    )
    if rule.who == NONE_OF_THEM:
        yield from _walk_for_nobody(asker, address)
        return
    for method in METHODS:
        sent = body if method == "post" else {}
        good = asker.cell("control", control, method, address, **sent)
        asker.opened[route.pattern] |= good.status < 400
        if good.status >= 500 or good.status in (401, 403):
            yield f"{method} {address} by {control}, who may: {good.status}"
        for actor in FEW if good.status == 405 else EVERYBODY_ELSE:
            if actor == control or not _is_telling(actor, method, good.status):
                continue
            answer = asker.cell(rule.who, actor, method, address, **sent)
            if not _is_right(rule, actor, method, good.status, answer):
                yield f"{method} {address} by {actor}: {answer.status}"


def _walk_for_nobody(asker: Counting, address: str) -> Iterator[str]:
    for method in METHODS:
        for actor in EVERYBODY_ELSE:
            answer = asker.cell(NONE_OF_THEM, actor, method, address)
            if answer.status not in (400, 401, 403, 404, 405) and not to_login(answer):
                yield f"{method} {address} by {actor}: {answer.status}"


def _is_telling(actor: str, method: str, good: int) -> bool:
    """Of those who may look only the lowest role does so in full: pages take time."""
    if good >= 300 or actor not in ROLES or method not in ("get", "head"):
        return True
    return (actor, method) == ("vera", "get")


def _is_right(rule: Rule, actor: str, method: str, good: int, answer: Any) -> bool:
    """Whether the answer is that of the rule, where who may got ``good``."""
    status = answer.status
    if status == 405 or good == 405:
        return rule.who == EVERYBODY or status == good or status in (401, 403, 404) or to_login(answer)
    if rule.who == MEMBERS:
        return _is_right_for_member(rule, actor, method, good, answer)
    if rule.who == TOKEN:
        return _is_right_for_token(rule, actor, method, good, status)
    if rule.who == ADMINISTRATOR:
        return status == 404
    if rule.who == SIGNED_IN and actor not in (*ROLES, *STRANGERS):
        return to_login(answer)
    return status < 500


def _is_right_for_member(rule: Rule, actor: str, method: str, good: int, answer: Any) -> bool:
    need = rule.read if method in SAFE else rule.write
    if actor in STRANGERS:
        return answer.status == 404
    if actor not in ROLES:  # a token opens no page
        return to_login(answer)
    if not allows(ROLES[actor], need):
        return answer.status == 403
    return answer.status == (404 if rule.owned else good)


def _is_right_for_token(rule: Rule, actor: str, method: str, good: int, status: int) -> bool:
    if actor == "foreign":
        return status in (404, 200, 201, 422)  # lists of its own; what it reads of others, the next tests ask
    if actor not in TOKENS:
        return status == 401
    need = rule.read if method in SAFE else rule.write
    return status == good if allows(TOKENS[actor], need) else status in (403, 422)


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


def test_foreign_ids_in_a_path_lead_nowhere(lab: Populated, asker: Counting) -> None:
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
                answer = asker.cell("path", "foreign" if is_token else "sly", method, address)
                if answer.status not in (404, 405) or POISON in answer.text:
                    wrong.append(f"{method} {address}: {answer.status}")
    assert not wrong, "\n".join(wrong)
    assert fingerprint(lab) == before
    assert asker.cells["path"] > 400


def offers_of(lab: Populated, asker: Counting, actor: str, things: dict[str, Any]) -> dict[Any, Offered]:
    """Every form and link on the pages of a team, once for each set of fields."""
    found = {}
    for route in known_routes():
        address = route.address(things)
        if rule_of(route).who != MEMBERS or address.endswith("docs"):
            continue
        answer = asker.cell("crawl", actor, "get", address)
        if answer.status == 200 and "html" in answer.headers["content-type"]:
            for one in offered_by(answer.text, address):
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


def test_foreign_ids_in_queries_and_bodies_of_pages_lead_nowhere(lab: Populated, asker: Counting) -> None:
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
        for pairs in with_foreign_ids(offer, lab):
            encoded = urlencode(pairs)
            asked = f"{address}?{encoded}" if offer.method == "get" else address
            sent = {} if offer.method == "get" else {"body": encoded.encode()}
            answer = asker.cell(offer.method, "sly", offer.method, asked, **sent)
            if answer.status >= 500 or POISON in answer.text:
                wrong.append(f"{offer.method} {address} {encoded[:200]}: {answer.status}")
    assert not wrong, "\n".join(wrong)
    assert fingerprint(lab) == before
    assert asker.cells["get"] > 100 and asker.cells["post"] > 50


def test_foreign_ids_in_requests_to_the_api_lead_nowhere(lab: Populated, asker: Counting) -> None:
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
            answer = asker.cell("api", "foreign", "post", f"/{API}{path}", **as_json(body))
            if answer.status != 422 or POISON in answer.text:
                wrong.append(f"{path} {spec['workload']}: {answer.status}")
    for path in ("runs", "artifacts", "experiments", "policies", "hardware", "hosts"):
        for query in (
            "",
            *(f"?project={red['project']}", f"?after={red['run']}", f"?after={red['artifact']}"),
            f"?after={red['experiment']}",
        ):
            answer = asker.cell("api", "foreign", "get", f"/{API}{path}{query}")
            if answer.status >= 500 or POISON in answer.text:
                wrong.append(f"{path}{query}: {answer.status}")
    assert not wrong, "\n".join(wrong)
    assert fingerprint(lab) == before


def test_what_the_walks_look_for_is_there_to_be_found(lab: Populated, asker: Counting) -> None:
    """The controls: members read POISON on pages and in the API, and a change changes the fingerprint."""
    who = {MEMBERS: "vera", TOKEN: "viewer"}
    read = [
        route.name
        for route in known_routes()
        if rule_of(route).who in who
        and POISON in asker.cell("control", who[rule_of(route).who], "get", route.address(lab.red)).text
    ]
    assert len(read) > 20
    own = f"/t/red/vision/compare/{lab.red['experiment']}/pin"
    before = fingerprint(lab)
    with transaction.atomic():
        assert signed_in(lab.cast.max).post(own, {"run": str(lab.red["run"])}).status_code == 302
        assert fingerprint(lab) != before
        transaction.set_rollback(True)
    assert fingerprint(lab) == before


def test_a_token_opens_no_page_whatever_it_asks_for(lab: Populated, asker: Counting) -> None:
    """``?export=`` at every address: a file of a table, or what who is not signed in gets."""
    files = 0
    for route in known_routes():
        if rule_of(route).who != MEMBERS:
            continue
        for export in ("csv", "", "x"):
            answer = asker.cell("export", "member", "get", f"{route.address(lab.red)}?export={export}")
            is_file = "content-disposition" in answer.headers and "csv" in answer.headers["content-type"]
            files += is_file
            assert is_file or to_login(answer) or answer.status in (404, 405), route.pattern

    assert files >= 12


def test_there_were_as_many_cells_as_promised(asker: Counting) -> None:
    assert sum(asker.cells.values()) > 5000


def test_the_files_of_uploads_are_the_labs_alone(lab: Populated) -> None:
    from django.conf import settings

    found = list(Path(settings.MEDIA_ROOT).rglob("*"))
    assert found
    assert {oct(one.stat().st_mode & 0o777) for one in found} == {"0o600", "0o700"}
