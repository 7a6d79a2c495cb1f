"""A study of schedulers (policies x loads x seeds) on one host and on two, each with its own cache: the same
rows to the byte, in about half the time, also when a host is killed on the way. ``./lab harden study``.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.db.models import Max, Min

from experiments.core import jsonio
from experiments.core.spec import load_outcome
from tests.figures import tell
from tests.webapp.cast import Cast, make_cast
from tests.workers.crew import reap_until, until
from tests.workers.far import Lab
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.runs.grid import Trial
from webapp.runs.models import Experiment, Run
from webapp.runs.services import submit_experiment

#: Jobs of each trace; nothing where nobody asked.
JOBS = int(os.environ.get("LAB_STUDY", "0"))
LIMIT = 1500
POLICIES, GAPS, SEEDS = ("fifo", "srtf", "tiresias", "themis"), (120, 240, 480), range(3)
PARTS = ("status", "metrics", "series", "plan", "violations")
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(LIMIT + 120),
    pytest.mark.skipif(not JOBS, reason="minutes; ./lab harden study"),
]


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "lab" / "files", tmp_path / "lab" / "cache"
    return make_cast()


@pytest.fixture
def lab(cast: Cast, tmp_path: Path) -> Iterator[Lab]:
    made, done = Lab(tmp_path), threading.Event()
    reaper = threading.Thread(target=reap_until, args=(done,), daemon=True)
    try:
        made.start()
        reaper.start()
        yield made
    finally:
        done.set()
        reaper.join()
        made.close()


def test_two_hosts_give_the_rows_of_one_in_about_half_the_time(cast: Cast, lab: Lab) -> None:
    traces = [store_upload(cast.project, cast.max, f"{gap}.csv", jobs(gap)) for gap in GAPS]
    lab.add_host(cast.project, "one", slots=1)
    alone = carry_out(cast, traces)
    lab.add_host(cast.project, "two", slots=1)
    both = carry_out(cast, traces)
    hosts = Counter(both.runs.values_list("host__name", flat=True))
    killed = submit(cast, traces)
    until(lambda: killed.runs.filter(state="running", host__name="two").exists(), LIMIT, "two is at work")
    lab.kill_host("two")
    lab.start_host("two", slots=1)
    await_end(killed)
    lost = sum(killed.runs.values_list("infrastructure_losses", flat=True))
    tell(
        **{"runs": alone.runs.count(), "by host": dict(hosts), "attempts lost": lost},
        **{"one host (s)": seconds(alone), "two hosts (s)": seconds(both), "one killed (s)": seconds(killed)},
    )
    assert rows(alone) == rows(both) == rows(killed)
    assert len(rows(alone)) == len(POLICIES) * len(GAPS) * len(SEEDS) and set(hosts) == {"one", "two"}
    assert lost >= 1


def submit(cast: Cast, traces: Sequence[Artifact]) -> Experiment:
    trials = [
        Trial(*row, "")
        for row in itertools.product(traces, itertools.starmap(spec, itertools.product(POLICIES, SEEDS)))
    ]
    return submit_experiment(cast.project, cast.max, name="", trials=trials, request={})


def jobs(gap: int) -> ContentFile[bytes]:
    """One job every ``gap`` seconds on average, of 1 to 8 GPUs for up to three hours."""
    draw = random.Random(gap)
    rows = "".join(
        f"{gap * row + draw.randrange(gap)},{2 ** draw.randrange(4)},{draw.randrange(60, 10800)}\n"
        for row in range(JOBS)
    )
    return ContentFile(f"submit,gpus,service\n{rows}".encode())


def spec(policy: str, seed: int) -> dict[str, object]:
    return {
        "family": "cluster",
        "policy": policy,
        "knobs": {},
        "workload": {"format": "auto", "options": {}},
        "hardware": {"cluster": {"nodes": 16, "devices_per_node": 8, "device": "v100-16g"}},
        "mode": "simulated",
        "seed": seed,
    }


def carry_out(cast: Cast, traces: Sequence[Artifact]) -> Experiment:
    experiment = submit(cast, traces)
    await_end(experiment)
    return experiment


def await_end(experiment: Experiment) -> None:
    until(lambda: not experiment.runs.exclude(state__in=Run.FINAL).exists(), LIMIT, "every run ended")


def seconds(experiment: Experiment) -> float:
    """From the first start to the last end."""
    span = experiment.runs.aggregate(first=Min("started_at"), last=Max("finished_at"))
    return round((span["last"] - span["first"]).total_seconds(), 1)


def rows(experiment: Experiment) -> dict[str, list[str]]:
    """What every run gave, by its spec."""
    found = {}
    for run in experiment.runs.select_related("document"):
        assert run.state == "succeeded", run.reason
        outcome = load_outcome(run.document.outcome).to_json()
        found[jsonio.canonical(run.spec)] = [jsonio.canonical(outcome[part]) for part in PARTS]
    assert len(found) == experiment.runs.count()
    return found
