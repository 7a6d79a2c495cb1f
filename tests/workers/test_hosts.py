"""A second host: another folder, another cache, credentials of its own. It works like the lab's own."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from django.core.files.base import ContentFile

from tests.webapp.cast import Cast, make_cast
from tests.workers.crew import all_ended
from tests.workers.far import Lab
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import open_blob, store_upload
from webapp.hosts import joining
from webapp.hosts.models import Host, HostAccess
from webapp.runs.grid import Trial
from webapp.runs.models import Run
from webapp.runs.services import submit_experiment

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = b"submit,gpus,service\n0,1,60\n10,1,60\n"
TINY = {
    "model_type": "gpt2",
    "n_layer": 1,
    "n_embd": 64,
    "n_head": 4,
    "n_positions": 128,
    "vocab_size": 1000,
}


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT = tmp_path / "lab" / "files"
    return make_cast()


@pytest.fixture
def lab(cast: Cast, tmp_path: Path, settings) -> Iterator[Lab]:  # type: ignore[no-untyped-def]
    made = Lab(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.close()


def spec(family: str, policy: str, hardware: object, **options: object) -> dict:
    return {
        "family": family,
        "policy": policy,
        "knobs": {},
        "workload": {"format": "auto", "options": options},
        "hardware": hardware,
        "mode": "simulated",
        "seed": 0,
    }


def test_a_host_with_its_own_disk_reads_captures_and_runs_then_is_revoked(cast: Cast, lab: Lab) -> None:
    """One story, since starting a lab and a host takes seconds."""
    folder = lab.add_host(cast.project, "far")
    trace = store_upload(cast.project, cast.max, "jobs.csv", ContentFile(JOBS))
    model = store_upload(cast.project, cast.max, "config.json", ContentFile(json.dumps(TINY).encode()))
    cluster = {"cluster": {"nodes": 1, "devices_per_node": 1, "device": "t4"}}
    trials = [
        Trial(trace, spec("cluster", "fifo", cluster), ""),
        Trial(model, spec("memory", "baseline", "t4-16g", batch=1, sequence=8), ""),
    ]
    submit_experiment(cast.project, cast.max, name="", trials=trials, request={})
    every_run_ends()
    ended = list(Run.objects.values_list("kind", "state", "reason", "infrastructure_losses", "host__name"))
    assert {row[1:] for row in ended} == {("succeeded", "", 0, "far")}, ended
    assert {row[0] for row in ended} == {"inspect", "capture", "policy"}
    # The captured step was handed in: the lab has it, whole.
    step = Artifact.objects.get(source="derived").blob
    assert step is not None
    with open_blob(step) as stored:
        assert hashlib.sha256(stored.read()).hexdigest() == step.sha256
    assert len(list((folder / "cache" / "blobs").glob("??/*"))) == 3
    assert not (folder / "files").exists()
    credentials = json.loads((folder / "host.json").read_text())
    assert (folder / "host.json").stat().st_mode & 0o777 == 0o600
    may_touch_only_what_a_worker_must(credentials, Run.objects.filter(kind="policy").first())
    is_revoked(credentials, lab)


def every_run_ends(seconds: float = 300) -> None:
    told = ("kind", "policy", "state", "reason", "progress_step", "infrastructure_losses", "host__name")
    deadline = time.monotonic() + seconds
    while not all_ended(list(Run.objects.all())):
        assert time.monotonic() < deadline, list(Run.objects.values_list(*told))
        time.sleep(0.1)


def may_touch_only_what_a_worker_must(credentials: dict, ended: Run) -> None:
    forbidden = [
        "SELECT password FROM accounts_user",
        "SELECT * FROM django_session",
        "SELECT * FROM hosts_hostaccess",
        "SELECT outcome FROM runs_rundocument",
        "DELETE FROM runs_run",
        "UPDATE runs_run SET owner_id = NULL",
        "UPDATE artifacts_artifact SET trashed_at = now()",
        "INSERT INTO artifacts_blob VALUES ('a', 1, now())",
        "CREATE TABLE mine (id int)",
        f"INSERT INTO runs_runmetric (run_id, name, value) VALUES ('{ended.pk}', 'mfu', 1)"
        if ended.host is None
        else "CREATE ROLE mine",
    ]
    with psycopg.connect(credentials["database_url"], autocommit=True) as host:
        for statement in forbidden:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                host.execute(statement)
        # What has ended stays as it is, and so do other hosts.
        assert host.execute("UPDATE runs_run SET reason = 'x' WHERE state = 'succeeded'").rowcount == 0
        assert host.execute("UPDATE hosts_host SET slots = 9 WHERE name <> 'far'").rowcount == 0
    broker = redis.Redis.from_url(credentials["redis_url"])
    assert broker.publish(f"/{broker.get_connection_kwargs()['db']}.wake/wake", "look") >= 1
    for command in (
        ("GET", "x"),
        ("LPUSH", "celery", "x"),
        ("FLUSHALL",),
        ("KEYS", "*"),
        ("PUBLISH", "a", "b"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            broker.execute_command(*command)


def is_revoked(credentials: dict, lab: Lab) -> None:
    access = HostAccess.objects.get(host__name="far")
    joining.revoke(access)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(credentials["database_url"])
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis.from_url(credentials["redis_url"]).ping()
    assert Host.objects.get(name="far").role == credentials["role"]
