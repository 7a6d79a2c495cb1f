"""Every list searches, sorts, chooses columns, counts and leaves as a file, from the page or with a token
from a terminal.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
import warnings
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.webapp.cast import Cast, experiment_with, ready, run_in, signed_in
from webapp.api.services import make_token
from webapp.compare.export_table import PART, LongTable
from webapp.compare.listing import Listing
from webapp.hosts.models import Host
from webapp.nightly.services import create_schedule, run_now
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def things(cast: Cast) -> dict[str, Any]:
    model = ready(cast.project)
    experiment = experiment_with(cast.project, model, succeeded=2, failed=1)
    Host.objects.create(name="near", slots=2, cores=8, devices=[{"name": "EPYC", "kind": "cpu"}])
    Host.objects.create(name="far", cores=64, memory_bytes=2**38)
    schedule = create_schedule(cast.project, cast.ada, "memory-gpt2", 2, 0)
    run_now(schedule)
    return {"model": model, "experiment": experiment, "schedule": schedule}


def addresses(cast: Cast, things: dict[str, Any]) -> list[str]:
    own = [
        "artifacts/",
        f"artifacts/{things['model'].pk}/",
        "experiments/",
        f"experiments/{things['experiment'].pk}/",
        f"compare/{things['experiment'].pk}/",
        "systems/",
        "systems/memory/vdnn-all/",
        "tables/",
        "nightly/",
        f"nightly/{things['schedule'].pk}/",
        "hosts/",
    ]
    return [cast.url(rest) for rest in own]


def read(client: Client, url: str, **headers: str) -> list[list[str]]:
    answer = client.get(url, headers=headers)
    assert answer.status_code == 200, url
    assert answer["Content-Type"] == "text/csv; charset=utf-8", url
    return list(csv.reader(io.StringIO(answer.content.decode())))


def test_every_list_offers_its_file_and_the_command_for_it(cast: Cast, things: dict[str, Any]) -> None:
    """Each offer is followed: the three files, and the curl with a token in place of a sign-in."""
    secret = make_token(cast.red, cast.ada, "terminal", "viewer")[1]
    client, nobody = signed_in(cast.vera), Client()
    followed = 0
    for url in addresses(cast, things):
        page = client.get(url).content.decode()
        for href in re.findall(r'<a href="([^"]*export=[^"]*)">(?:CSV|Markdown|LaTeX)', page):
            assert client.get(unescape(href)).status_code == 200, href
            followed += 1
        commands = re.findall(r"<pre[^>]*>(curl [^<]*)</pre>", page)
        assert commands, url
        for command in commands:
            address = shlex.split(unescape(command))[-1].removeprefix("http://testserver")
            assert read(nobody, address, authorization=f"Bearer {secret}"), address
    assert followed >= 3 * 10


def test_a_token_opens_files_of_its_own_team_and_nothing_else(cast: Cast, things: dict[str, Any]) -> None:
    blue = make_token(cast.foreign.team, cast.sly, "theirs", "admin")[1]
    red = make_token(cast.red, cast.ada, "ours", "admin")[1]
    url, client = cast.url("hosts/"), Client()

    def status(address: str, secret: str, method: str = "get") -> int:
        answer = getattr(client, method)(address, headers={"authorization": f"Bearer {secret}"})
        return int(answer.status_code)

    assert status(f"{url}?export=csv", red) == 200
    assert status(f"{url}?export=csv", blue) == 404
    assert status(f"{url}?export=csv", "lab_made-up") == 302
    assert status(url, red) == 302
    new = cast.url("experiments/new?export=csv")
    assert status(new, red, "post") == 302


def test_search_sort_and_columns_are_in_the_address_and_in_the_file(
    cast: Cast, things: dict[str, Any]
) -> None:
    client, hosts = signed_in(cast.vera), cast.url("hosts/")
    rows = read(client, f"{hosts}?export=csv&column=name&column=cores&sort=-cores")
    assert rows == [["Host", "Cores"], ["far", "64"], ["near", "8"]]
    assert read(client, f"{hosts}?export=csv&column=name&q=EAR")[1:] == [["near"]]
    devices = read(client, f"{hosts}?export=csv&table=devices-&devices-q=epyc&devices-column=name")
    assert devices == [["Device"], ["EPYC"]]
    page = client.get(f"{hosts}?q=nothing-like-it").content.decode()
    assert "0 rows" in page
    assert "Nothing matches" in page
    assert client.get(f"{hosts}?export=csv&table=other-").status_code == 404


def test_what_is_left_out_by_the_page_is_in_the_file(cast: Cast, things: dict[str, Any]) -> None:
    """Sixty runs are three pages; the file has them all, in SI units."""
    for number in range(60):
        run_in(things["experiment"], things["model"], "succeeded", seed=number)
    url = cast.url(f"artifacts/{things['model'].pk}/")
    rows = read(signed_in(cast.vera), f"{url}?export=csv&runs-page=2&runs-q=which+fits")
    assert len(rows) == 1 + 63
    page = signed_in(cast.vera).get(f"{url}?runs-page=2").content.decode()
    assert "page 2 of 4" in page


def test_figures_keep_their_unit_in_a_file(cast: Cast, things: dict[str, Any]) -> None:
    rows = read(signed_in(cast.vera), cast.url("hosts/?export=csv&column=memory_bytes&q=far"))
    assert rows == [["Memory (bytes)"], [str(2**38)]]


def test_a_file_has_what_the_tables_library_has_for_it(
    cast: Cast, things: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, seen = Listing.export_table, set()

    def compare(listing: Listing) -> LongTable:
        hidden = [bound.name for bound in listing.columns.iterall() if not bound.visible]
        _, *rows = listing.as_values(exclude_columns=hidden)
        found = own(listing)
        told = found.whole.rows
        assert [[str(cell) for cell in row] for row in told] == [[str(v) for v in row] for row in rows]
        assert all(cell is None or isinstance(cell, int | float | str) for row in told for cell in row)
        seen.add(type(listing))
        return found

    monkeypatch.setattr(Listing, "export_table", compare)
    client = signed_in(cast.vera)
    for url in addresses(cast, things):
        page = client.get(url).content.decode()
        for href in re.findall(r'<a href="([^"]*export=csv[^"]*)">CSV', page):
            assert client.get(unescape(href)).status_code == 200, href
    assert len(seen) >= 8


def test_a_long_file_is_sent_while_it_is_read(cast: Cast, things: dict[str, Any]) -> None:
    """What goes meanwhile is left out; what comes is not waited for."""
    experiment, model = things["experiment"], things["model"]
    Run.objects.filter(experiment=experiment).delete()
    common = {"project": cast.project, "experiment": experiment, "artifact": model, "state": "succeeded"}
    runs = [Run(**common, policy="vdnn_all", seed=seed) for seed in range(2 * PART + 10)]
    Run.objects.bulk_create(runs)
    url = cast.url(f"experiments/{experiment.pk}/?export=csv&sort=seed")
    with CaptureQueriesContext(connection) as queries:
        answer = signed_in(cast.vera).get(url)
    assert answer.streaming
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    of_runs = [query["sql"] for query in queries if "LIMIT 21" not in query["sql"]]
    assert sum('FROM "runs_run"' in sql for sql in of_runs) <= 3, "how many, which, and the first part"
    Run.objects.filter(pk__in=[run.pk for run in runs if run.seed in (5, 2 * PART + 5)]).delete()
    with CaptureQueriesContext(connection) as queries, warnings.catch_warnings(action="ignore"):
        heading, *rows = csv.reader(io.StringIO(b"".join(answer).decode()))
    assert len(queries) == 2, "a part each"
    assert [int(row[heading.index("Seed")]) for row in rows] == [
        seed for seed in range(2 * PART + 10) if seed != 2 * PART + 5
    ]
    assert {row[heading.index("Workload")] for row in rows} == {model.name}
