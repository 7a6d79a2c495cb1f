"""Live jobs whose batch Pollux chooses: what they trained is accounted for, and a simulation is at hand."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from experiments.cluster.experiment.measured import calibrate_host  # noqa: E402
from experiments.cluster.interface import (  # noqa: E402
    Allocation,
    ClusterPolicy,
    ClusterView,
    Gang,
    violations,
)
from experiments.cluster.interface.log import COMPLETED, MOVED  # noqa: E402
from experiments.cluster.interface.measurements import Measurement  # noqa: E402
from experiments.cluster.live import LiveCluster, Slots, batch_calibration  # noqa: E402
from experiments.cluster.live.adaptive_batch import AdaptiveBatch  # noqa: E402
from experiments.cluster.live.checkpoint import load, save  # noqa: E402
from experiments.cluster.live.models import training_task  # noqa: E402
from experiments.cluster.live.replica import Replica  # noqa: E402
from experiments.core import registry  # noqa: E402
from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.progress import silent  # noqa: E402
from experiments.core.spec import load_spec  # noqa: E402
from experiments.run import run  # noqa: E402
from tests.experiments.cluster.test_live_noise import jobs_and_speed  # noqa: E402
from tests.experiments.cluster.traces import jobs  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
CORE = sorted(os.sched_getaffinity(0))[0]
INITIAL = 32


def adaptive(work: float, *division: int, rank: int = 0, ranks: int = 1) -> AdaptiveBatch:
    """A job in this process whose initial batch has 64 samples."""
    return AdaptiveBatch(Replica(training_task("mlp", 3), "cpu", rank, ranks), work, division)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As training processes have it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights(batch: AdaptiveBatch) -> Any:
    return torch.nn.utils.parameters_to_vector(batch.replica.model.parameters()).detach()


@pytest.mark.usefixtures("one_thread")
def test_a_job_that_goes_on_from_its_checkpoint_has_done_no_step_twice(tmp_path: Path) -> None:
    """Thirty steps of 64 samples, then of twice as many in two parts until the work of 100.5 is done."""
    whole, losses = adaptive(100.5, 64, 0), []
    while whole.done < whole.work:
        if whole.steps == 30:
            whole.divide((64, 1))
        if whole.steps == 50:
            save(tmp_path / "state.pt", whole.replica, whole)
        whole.train()
        losses.append(whole.loss)
    assert whole.samples == 64 * 30 + 2 * 64 * (whole.steps - 30)
    assert 30 + 70.5 / 2 <= whole.steps < 100, "twice the batch is worth up to two steps"
    assert fmean(losses[-10:]) < fmean(losses[:10])
    again = adaptive(100.5, 64, 1)
    load(tmp_path / "state.pt", again.replica, again)
    assert again.steps == 50
    while again.done < again.work:
        again.train()
    assert (again.steps, again.samples, again.noise) == (whole.steps, whole.samples, whole.noise)
    assert torch.equal(weights(again), weights(whole))


def test_two_processes_compute_the_parts_that_one_would_accumulate() -> None:
    alone = adaptive(10, 64, 1)
    halves = [adaptive(10, 64, 0, rank=rank, ranks=2) for rank in (0, 1)]
    found = []
    for batch in (alone, *halves):
        torch.manual_seed(5)
        batch._accumulate()
        found.append(batch.row)
    together, *rows = found
    assert torch.allclose(sum(rows), together, atol=1e-6)


class Doubling:
    """Runs a job on two slots, and at twice the batch once it has measured itself; sees each batch once."""

    def __init__(self) -> None:
        self.seen: list[Measurement] = []

    def allocate(self, view: ClusterView) -> Allocation:
        soon = view.now + 0.05
        if 0 in view.waiting:
            return Allocation((Gang(0, (0, 1)),), wake_at=soon)
        measured = view.measured(0) if 0 in view.running else None
        if measured is None:
            return Allocation(wake_at=soon)
        if not self.seen or measured.each > self.seen[0].each:
            self.seen.append(measured)
        elif len(self.seen) == 1:  # its processes are still to take it up
            return Allocation(wake_at=soon)
        if len(self.seen) > 1:
            return Allocation()
        return Allocation((Gang(0, (0, 1), batch=2 * INITIAL),), wake_at=soon)


def test_two_processes_change_their_batch_between_two_steps(tmp_path: Path) -> None:
    policy = registry.create("cluster", "pollux", {})
    assert isinstance(policy, ClusterPolicy)
    made, speed = jobs_and_speed(2.0)
    live = LiveCluster(made, Slots([CORE, CORE]), policy, speed, tmp_path)
    live.decider = decider = Doubling()
    plan = live.run()
    assert violations(plan, made.trace, live.slots.machines(), speed, rigid=False) == []
    first, second = plan.executions
    assert (first.ended, second.ended) == (MOVED, COMPLETED)
    assert first.work + second.work == made.steps[0] == 100
    before, after = decider.seen
    assert (before.gpus, before.each, after.each) == (2, INITIAL // 2, INITIAL)
    assert 0 < before.sync < before.step
    assert plan.facts["losses"] == 0
    trained = plan.facts["trained"]["0"]
    initial = (2 * INITIAL * trained["steps"] - trained["samples"]) / INITIAL
    assert initial == math.floor(initial) >= first.work, "steps are of one batch or of the other"
    assert trained["steps"] < 100 <= trained["samples"] / INITIAL


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [({"autoscale": True}, "this host is one node"), ({"node_mtbf": 10.0}, "does not fail when it is told")],
)
def test_what_cannot_be_live_is_refused_before_anything_starts(
    tmp_path: Path, knobs: dict[str, Any], reason: str
) -> None:
    policy = registry.create("cluster", "pollux", knobs)
    assert isinstance(policy, ClusterPolicy)
    with pytest.raises(BadInput, match=reason):
        calibrate_host(jobs((0, 1, 1)), policy, 0, tmp_path, silent)


def test_a_simulation_by_a_calibration_stands_beside_what_pollux_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_calibration, "SECONDS", 0.2)
    path = tmp_path / "jobs.csv"
    path.write_text("job,submit,gpus,service,model\na,0,4,0.8,mlp\n")
    knobs = {"slots": 1, "interval": 1.0, "population": 10, "generations": 6}
    workload = {"source": str(path), "format": "jobs-csv"}
    spec = {"family": "cluster", "policy": "pollux", "workload": workload, "knobs": knobs}
    done = run(load_spec({**spec, "hardware": "local", "mode": "measured"}))
    assert done.status == "ok", done.reason
    told = done.provenance
    seen = {name: entry["value"] for name, entry in done.metrics.items()}
    assert seen["jct_error_mean"] == pytest.approx(told["predicted"]["avg_jct"] / seen["avg_jct"] - 1)
    # The job fills its service by the steps that were timed, however busy the host.
    start = told["performance"]["start_seconds"]
    assert told["predicted"]["avg_jct"] == pytest.approx(0.8 + start, rel=0.5)
    assert set(told["performance"]["batches"]) == {"mlp"}
    assert set(told["performance"]["batches"]["mlp"]["steps"]) == {
        f"{each} on each of 1" for each in (8, 64, 256)
    }
    assert told["engine"]["trained"]["a"]["samples"] >= 64 * told["trace"]["steps"]["a"]
