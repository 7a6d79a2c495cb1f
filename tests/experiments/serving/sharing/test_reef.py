"""REEF by hand: 60 compute units, a kernel of 40 blocks and 100 us, best-effort waves of 20 to 70 us."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import experiments.run
from experiments.core import registry
from experiments.core.spec import load_spec
from experiments.readers.reef_kernels import read_kernels
from experiments.serving.interface.sharing import Operator, SharedDevice, SharedModel
from experiments.serving.policies.reef.padding import Padding, pad, restart_point
from experiments.serving.simulator.sharing import SharingPlan, share, sharing_figures
from experiments.workloads.scenario import KernelFile

US = 1e-6
DEVICE = SharedDevice(units=60, memory=16 * 2**30, bandwidth=12e9)
KERNEL = Operator(100 * US, blocks=40, waves=(100 * US, 100 * US, 100 * US))
FILLER = Operator(1000 * US, blocks=500, waves=(20 * US, 30 * US, 45 * US, 70 * US))
FOLDER = Path(__file__).parents[5] / "shared/data/serving/reef"
DISB = Path(__file__).parents[5] / "shared/data/serving/disb/workloads"
needs_disb = pytest.mark.skipif(not DISB.is_dir(), reason="needs ../shared/data")
MODELS = ["alexnet", "bert", "densenet", "inception", "mobilenet", "resnet", "resnet152", "resnet18", "vgg"]


def run(models: list[SharedModel], arrivals: list[float], duration: float, **knobs: object) -> SharingPlan:
    policy = registry.create("serving", "reef", knobs)
    asked = [(time, 0) for time in arrivals]
    return share(DEVICE, models, [True] * len(models), policy.begin(DEVICE, models), asked, duration)


def test_120_blocks_pad_a_kernel_and_the_rest_is_what_is_left() -> None:
    assert pad(KERNEL, FILLER, 500, 60, merged=3) == Padding(40, 120)
    assert pad(KERNEL, FILLER, 20, 60, merged=3) == Padding(40, 20)
    assert pad(KERNEL, FILLER, 500, 60, merged=0) is None


def test_100_blocks_are_two_waves_on_50_units() -> None:
    assert Operator(1.0, blocks=100, waves=(1.0,)).demand(60) == 50
    assert Operator(1.0).demand(60) == 60, "of a layer nobody tells the blocks"


def test_it_goes_on_at_kernel_4_where_20_were_launched_and_12_cleared() -> None:
    assert restart_point(0, 20, 12, 4) == 4
    assert restart_point(6, 20, 12, 4) == 6


def test_the_fifth_padding_ends_a_kernel_of_500_blocks() -> None:
    models = [
        SharedModel("asked", "real_time", (KERNEL,) * 5),
        SharedModel("rest", "best_effort", (FILLER,)),
    ]
    plan = run(models, [0.0], 600 * US)
    padded = [span for span in plan.spans if span.model == 1 and span.units == 20]
    assert len(padded) == 5
    assert plan.requests[0].answered == pytest.approx(5 * 100.5 * US)
    assert plan.passes[1] == 1


@pytest.mark.parametrize("queue", [1, 4, 16])
def test_a_reset_does_not_depend_on_what_runs(queue: int) -> None:
    for length in (50 * US, 500 * US, 5.0):
        models = [
            SharedModel("asked", "real_time", (KERNEL,)),
            SharedModel("rest", "best_effort", (Operator(length),) * 40),
        ]
        [request] = run(models, [333 * US], 0.01, queue=queue).requests
        assert request.started - request.arrival == pytest.approx((5 + (queue + 1) * 7) * US)


@pytest.mark.parametrize(("preemption", "waited"), [("reset", 40), ("REEF-N", 500), ("wait", 1000)])
def test_waiting_for_two_kernels_of_500_us_takes_a_millisecond(preemption: str, waited: float) -> None:
    models = [
        SharedModel("asked", "real_time", (KERNEL,)),
        SharedModel("rest", "best_effort", (Operator(500 * US),) * 40),
    ]
    queue = 1 if preemption == "wait" else 4
    [request] = run(models, [500.001 * US], 0.01, preemption=preemption, queue=queue).requests
    assert request.started - request.arrival == pytest.approx(waited * US, rel=1e-4)


def test_what_may_not_have_finished_is_computed_again() -> None:
    models = [
        SharedModel("asked", "real_time", (KERNEL,)),
        SharedModel("rest", "best_effort", (Operator(100 * US),) * 6),
    ]
    plan = run(models, [550 * US], 0.002, padding=False)
    after = next(span for span in plan.spans if span.model == 1 and span.start > 600 * US)
    assert after.first == 2, "six are launched, none is in the host queue, four may have been in the device's"


def model(name: str, service_class: str) -> SharedModel:
    file, profile = FOLDER / f"{name}.json", FOLDER / f"{name}.profile.json"
    if not file.exists():
        pytest.skip("REEF's kernel profiles are not here")
    kernels = read_kernels(KernelFile(file.name, file.read_bytes(), profile.read_bytes()))
    rows = tuple(Operator(one.seconds, one.bytes, one.blocks, one.waves) for one in kernels)
    return SharedModel(f"{name} {service_class}", service_class, rows)


@pytest.mark.parametrize("name", MODELS)
def test_nine_models_meet_the_papers_bounds(name: str) -> None:
    asked, rest = model(name, "real_time"), model("resnet152", "best_effort")
    arrivals = (np.arange(12) * 3.3 * asked.seconds + 0.0101).tolist()
    duration = arrivals[-1] + 3 * asked.seconds
    both, alone = run([asked, rest], arrivals, duration), run([asked], arrivals, duration)
    figures = sharing_figures(both, alone, [asked, rest], duration)
    assert both.fault == ""
    assert figures["preemption_latency_p99"] <= 40 * US * (1 + 1e-9)
    without_stops = [one.answered - one.started for one in both.requests]
    assert max(without_stops) <= 1.02 * asked.seconds
    assert figures["best_effort_throughput"] > 0


def figures_of(workload: str, tmp_path: Path, policy: str, **knobs: object) -> dict[str, float]:
    """Two seconds of a workload of the authors' benchmark, on their kernels."""
    told = json.loads((DISB / f"{workload}.json").read_text())
    file = tmp_path / f"{workload}.json"
    file.write_text(json.dumps({**told, "time": 2}))
    spec = {"family": "serving", "policy": policy, "knobs": knobs, "hardware": "mi50-16g"}
    workload_of = {"source": str(file), "options": {"extra": str(FOLDER)}}
    outcome = experiments.run.run(load_spec({**spec, "workload": workload_of}))
    assert outcome.status == "ok"
    return {name: told["value"] for name, told in outcome.metrics.items()}


@needs_disb
def test_the_authors_workloads_leave_real_time_passes_alone_and_fill_the_rest(tmp_path: Path) -> None:
    """DISB A: passes at regular times next to one best-effort model; B: without a pause between them."""
    ours = figures_of("A", tmp_path, "reef")
    assert ours["realtime_overhead"] <= 0.02
    assert ours["preemption_latency_p99"] <= 40 * US * (1 + 1e-9)
    assert ours["best_effort_throughput"] > 40
    padded, bare = figures_of("B", tmp_path, "reef"), figures_of("B", tmp_path, "reef", padding=False)
    assert padded["realtime_overhead"] <= 0.02 and padded["best_effort_throughput"] > 20
    assert bare["best_effort_throughput"] == 0, "without a pause padding alone finds room"


@needs_disb
@pytest.mark.parametrize("workload", ["C", "D", "E", "REAL"])
def test_five_real_time_models_among_five_others_are_hardly_later(workload: str, tmp_path: Path) -> None:
    """A pass takes up to 2 % longer, as of the nine models; who waits for others waits that for each."""
    ours = figures_of(workload, tmp_path, "reef")
    assert ours["realtime_overhead"] <= 0.03
    assert ours["best_effort_throughput"] > 20


@needs_disb
def test_streams_share_as_recorded_servers_do(tmp_path: Path) -> None:
    """Triton, TensorRT and TensorFlow Serving without priorities: in A real-time answers are at most a fifth
    later, since kernels of one request leave units free; in D, with ten models at once, each is late by more
    than its own time, and DenseNet does not keep up.
    """
    assert 0 < figures_of("A", tmp_path, "multi_stream")["realtime_overhead"] < 0.2
    crowded = figures_of("D", tmp_path, "multi_stream")
    assert crowded["realtime_overhead"] > 1
    recorded = {
        (system, workload): {
            row["clientName"]: row["analyzers"][0]
            for row in json.loads((DISB.parent / f"results/{system}.{workload}.json").read_text())["results"]
        }
        for system in ("triton", "trt", "tfs")
        for workload in "AD"
    }
    for (system, workload), rows in recorded.items():
        late = [
            row["avgTotalLatency(us)"] / row["standAloneTotalLatency(us)"] - 1
            for name, row in rows.items()
            if name.endswith("_rt")
        ]
        assert sum(late) / len(late) < 0.2 if workload == "A" else sum(late) / len(late) > 1, system
