"""A claim is one statement, and gives the run as it stands in the database with all that its trial needs."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from tests.workers.crew import project, queue_runs
from webapp.artifacts.models import Artifact, Blob
from webapp.hosts.models import Host
from webapp.runs import lifecycle
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    return Host.objects.create(name="one", device_kinds=["cpu"])


def columns_of(row: Run | Artifact | Blob) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_the_claimed_run_is_what_the_database_has_with_its_artifact_and_blob(host: Host) -> None:
    (run,) = queue_runs(project(), "")
    blob = Blob.objects.create(sha256="a" * 64, size=12)
    artifact = Artifact.objects.create(project=run.project, name="n", blob=blob, summary={"layers": [1, 2]})
    Run.objects.filter(pk=run.pk).update(artifact=artifact, spec={"knobs": {"x": 0.5}}, progress_step="old")
    with CaptureQueriesContext(connection) as asked:
        claim = lifecycle.claim(host, ["cpu"], "limits")
        assert claim is not None and claim.run.artifact is not None and claim.run.artifact.blob is not None
    assert [query["sql"].split()[0] for query in asked][-1:] == ["EXECUTE"] and len(asked) <= 2
    with CaptureQueriesContext(connection) as again:
        assert lifecycle.claim(host, ["cpu"], "limits") is None
    assert len(again) == 1
    stored = Run.objects.get(pk=run.pk)
    assert columns_of(claim.run) == columns_of(stored)
    assert columns_of(claim.run.artifact) == columns_of(Artifact.objects.get(pk=artifact.pk))
    assert columns_of(claim.run.artifact.blob) == columns_of(blob)
    assert (stored.state, stored.attempt, stored.host_id) == ("running", 1, host.pk)
    assert (stored.sandbox_tier, stored.progress_step) == ("limits", "")
    assert stored.lease_until is not None and stored.started_at is not None
    assert (stored.lease_until - stored.started_at).total_seconds() == 30


def test_a_run_about_no_artifact_and_one_without_a_file_are_claimed(host: Host) -> None:
    bare, of_the_zoo = queue_runs(project(), "", "")
    model = Artifact.objects.create(project=bare.project, name="gpt2", zoo="gpt2")
    Run.objects.filter(pk=bare.pk).update(artifact=None)
    Run.objects.filter(pk=of_the_zoo.pk).update(artifact=model)
    first, second = (lifecycle.claim(host, [], "limits") for _ in range(2))
    assert first is not None and first.run.artifact is None
    assert second is not None and second.run.artifact == model and second.run.artifact.blob is None


def test_what_a_slot_takes_differs_from_claim_to_claim(host: Host) -> None:
    """Statements are kept by what they ask for: kinds, host and what is taken now."""
    quick, long, bound = queue_runs(project(), "", "", "")
    Run.objects.filter(pk=long.pk).update(effort="minutes", priority=9)
    Run.objects.filter(pk=bound.pk).update(spec={"host": "two"}, priority=8)
    other = Host.objects.create(name="two")
    found = [
        lifecycle.claim(asking, [], "limits", among)
        for asking, among in ((host, ~Q(effort="minutes")), (host, Q()), (host, Q()), (other, Q()))
    ]
    assert [claim and claim.run.pk for claim in found] == [quick.pk, long.pk, None, bound.pk]


def test_the_next_of_many_that_wait_is_the_first_entry_of_an_index(host: Host) -> None:
    first, *_ = queue_runs(project(), *[""] * 5)
    rows = list(Run.objects.filter(pk=first.pk).values())
    later = [{**rows[0], "id": uuid.uuid4(), "turn": 10 + number} for number in range(3000)]
    Run.objects.bulk_create([Run(**row) for row in later])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_run")
    with CaptureQueriesContext(connection) as asked:
        claim = lifecycle.claim(host, [], "limits")
    assert claim is not None and claim.run.pk == first.pk
    executed = asked[len(asked) - 1]["sql"]
    assert "run_turns" in (plan := explain(executed)) and "Sort" not in plan, plan


def test_the_sixth_claim_of_a_host_and_those_after_it_share_a_plan() -> None:
    """Postgres plans for given values five times; with a parameter in the choice it would go on to."""
    host = Host.objects.create(name="no other test has prepared for it")
    queue_runs(project(), *[""] * 9)
    taken = [lifecycle.claim(host, [], f"tier {number}") for number in range(9)]
    assert [claim and claim.run.sandbox_tier for claim in taken] == [f"tier {number}" for number in range(9)]
    assert len({claim.run.pk for claim in taken if claim}) == 9
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements ORDER BY prepare_time DESC"
        )
        assert cursor.fetchone() == (4, 5)


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_made_anew_prepares_anew(host: Host) -> None:
    queue_runs(project(), "", "")
    assert lifecycle.claim(host, [], "limits")
    connection.close()
    assert lifecycle.claim(host, [], "limits")


def explain(query: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + query.replace("%", "%%"), [])
        return "\n".join(line for (line,) in cursor.fetchall())
