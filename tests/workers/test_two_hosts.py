"""The proof that hosts may be elsewhere: two folders, two caches, one host behind a slow network that is cut,
its worker killed in mid-run. Nothing is rejected, nothing lost, every figure as on one host.

The suite carries out a small share; ``LAB_TWO_HOSTS=50,200`` the whole (uploads, runs).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.db.models import QuerySet, Sum

from experiments.core import jsonio
from experiments.core.spec import load_outcome, load_spec
from experiments.run import run as carry_out
from tests.figures import tell
from tests.webapp.cast import Cast, make_cast
from tests.workers.crew import reap_until, until
from tests.workers.far import Lab
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.runs import turns
from webapp.runs.grid import Trial
from webapp.runs.models import Run
from webapp.runs.services import submit_experiment
from workers import assignment

ASKED = os.environ.get("LAB_TWO_HOSTS", "")
#: Seconds until all has ended.
LIMIT = 3000 if ASKED else 150
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(LIMIT + 120)]

UPLOADS, RUNS = (int(word) for word in (ASKED or "3,4").split(","))
#: Seconds for which the network is cut: longer than a lease.
CUT = 60 if ASKED else 8
#: 200 ms there and back, 2 MB/s each way.
SLOW = {"delay": 0.1, "rate": 2e6} if ASKED else {"delay": 0.02, "rate": 2e6}
CLUSTER = {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "a100-40g"}}


def config(number: int) -> bytes:
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 128, "vocab_size": 1000 + number}
    return json.dumps({"model_type": "gpt2", **sizes}).encode()


def jobs(number: int) -> bytes:
    rows = "".join(f"{10 * row},{1 + (row + number) % 4},{60 + number}\n" for row in range(200))
    return f"submit,gpus,service\n{rows}".encode()


def requests(number: int) -> bytes:
    rows = "".join(f"{row},{100 + number},{5 + row % 7}\n" for row in range(100))
    return f"arrival,prompt,output\n{rows}".encode()


def operators(number: int) -> bytes:
    return f"M0 matmul m=65536 n=2 k={1024 + 8 * number}\n".encode()


#: Family, policies, hardware, options, and what the workload is. One upload in five is a model.
KINDS: tuple[tuple[str, tuple[str, ...], Any, dict[str, Any], Any], ...] = (
    ("cluster", ("fifo", "srtf", "las", "sjf"), CLUSTER, {}, jobs),
    ("serving", ("orca", "dynamic_batching", "static_batching"), CLUSTER, {"model": "zoo:gpt2"}, requests),
    ("parallel", ("gpipe", "zero", "data_parallel"), CLUSTER, {"batch": 8, "sequence": 64}, config),
    ("memory", ("baseline", "checkpoint"), "t4-16g", {"batch": 2, "sequence": 16}, config),
    ("compilation", ("roller",), "v100-16g", {}, operators),
)


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "lab" / "files", tmp_path / "lab" / "cache"
    return make_cast()


@pytest.fixture
def lab(cast: Cast, tmp_path: Path, settings) -> Iterator[Lab]:  # type: ignore[no-untyped-def]
    made = Lab(tmp_path, idle_seconds=LIMIT)
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_two_hosts_one_of_them_slow_cut_and_killed_lose_and_reject_nothing(
    cast: Cast, lab: Lab, tmp_path: Path
) -> None:
    began = time.monotonic()
    lab.add_host(cast.project, "far", **SLOW)
    submit(cast)
    reaping = threading.Event()
    reaper = threading.Thread(target=reap_until, args=(reaping,), daemon=True)
    reaper.start()
    until(lambda: in_hand("far"), LIMIT, "the far host is at work")
    lab.kill_host("far")
    until(lambda: Run.objects.filter(infrastructure_losses__gt=0).exists(), LIMIT, "what it had is given up")
    lab.start_host("far")
    until(lambda: in_hand("far"), LIMIT, "and again")
    for proxy in lab.networks["far"]:
        proxy.cut()
    lab.add_host(cast.project, "near")
    time.sleep(CUT)
    until(lambda: runs_to_end().filter(host__name="near").exists(), LIMIT, "the near host is at work")
    for proxy in lab.networks["far"]:
        proxy.mend()
    until(lambda: not runs_to_end().exclude(state__in=Run.FINAL).exists(), LIMIT, "every run ended")
    reaping.set()
    reaper.join()
    found = Counter(runs_to_end().values_list("kind", "state", "host__name"))
    losses = Run.objects.aggregate(lost=Sum("infrastructure_losses"))["lost"]
    report(found, time.monotonic() - began, losses)
    assert {state for _, state, _ in found} == {"succeeded"}, unlike("succeeded")
    assert set(Artifact.objects.values_list("state", flat=True)) == {"ready"}
    assert losses >= 2  # killed once, cut off once
    assert {host for _, _, host in found} >= ({"near", "far"} if ASKED else {"near"})
    different = [run.pk for run in Run.objects.filter(kind="policy") if not is_the_same_here(run, tmp_path)]
    assert different == []


def runs_to_end() -> QuerySet[Run]:
    """All but the other forms of captured steps, which a host measures in ``test_hosts``."""
    return Run.objects.exclude(priority=turns.IDLE)


def submit(cast: Cast) -> None:
    """``UPLOADS`` files, each of another content, and ``RUNS`` runs on them in turn."""
    files = [store_upload(cast.project, cast.max, *named(number)) for number in range(UPLOADS)]
    trials = [trial(files[number % UPLOADS], number % UPLOADS, number // UPLOADS) for number in range(RUNS)]
    submit_experiment(cast.project, cast.max, name="", trials=trials, request={})


def named(number: int) -> tuple[str, ContentFile[bytes]]:
    family, *_, content = kind_of(number)
    ending = {"cluster": "csv", "serving": "csv", "compilation": "txt"}.get(family, "json")
    return f"{family}-{number}.{ending}", ContentFile(content(number))


def kind_of(number: int) -> tuple[str, tuple[str, ...], Any, dict[str, Any], Any]:
    # Captures take long: two models alone are trained step by step.
    kind = KINDS[number % len(KINDS)]
    return KINDS[2] if kind[0] == "memory" and number > 10 else kind


def trial(artifact: Artifact, number: int, again: int) -> Trial:
    family, policies, hardware, options, _ = kind_of(number)
    spec = {
        "family": family,
        "policy": policies[again % len(policies)],
        "knobs": {},
        "workload": {"format": "auto", "options": options},
        "hardware": hardware,
        "mode": "simulated",
        "seed": again // len(policies),
    }
    return Trial(artifact, spec, "")


def report(found: Counter[tuple[str, str, str]], seconds: float, losses: int) -> None:
    told = {
        "uploads": UPLOADS,
        "runs": RUNS,
        "seconds": round(seconds),
        "attempts lost and taken up again": losses,
        "ended": dict(sorted((" ".join(map(str, key)), count) for key, count in found.items())),
    }
    tell(**told)


def unlike(state: str) -> list[tuple[str, ...]]:
    return list(Run.objects.exclude(state=state).values_list("kind", "policy", "state", "reason"))


def in_hand(host: str) -> bool:
    return Run.objects.filter(state="running", host__name=host).exists()


def is_the_same_here(run: Run, tmp_path: Path) -> bool:
    """Whether this process, with the lab's own files, gives the very figures that are stored."""
    work = tmp_path / str(run.pk)
    work.mkdir()
    given = assignment.assign(run, work, 2**31)
    assert isinstance(given, assignment.Assignment)
    here = carry_out(load_spec(json.loads((work / "spec.json").read_text())))
    stored = load_outcome(run.document.outcome)
    parts = ("status", "metrics", "series", "plan", "violations")
    return all(
        jsonio.canonical(here.to_json()[part]) == jsonio.canonical(stored.to_json()[part]) for part in parts
    )
