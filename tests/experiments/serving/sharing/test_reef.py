"""REEF by hand: 60 compute units, a kernel of 40 blocks and 100 us, best-effort waves of 20 to 70 us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.core import registry
from experiments.readers.reef_kernels import read_kernels
from experiments.serving.interface.sharing import Operator, SharedDevice, SharedModel
from experiments.serving.policies.reef.padding import Padding, pad, restart_point, units_of
from experiments.serving.simulator.sharing import SharingPlan, share, sharing_figures
from experiments.workloads.scenario import KernelFile

US = 1e-6
DEVICE = SharedDevice(units=60, memory=16 * 2**30, bandwidth=12e9)
KERNEL = Operator(100 * US, blocks=40, waves=(100 * US, 100 * US, 100 * US))
FILLER = Operator(1000 * US, blocks=500, waves=(20 * US, 30 * US, 45 * US, 70 * US))
FOLDER = Path(__file__).parents[5] / "shared/data/serving/reef"
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
    assert units_of(100, 60) == 50


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
    figures = sharing_figures(both, alone, [asked, rest])
    assert both.fault == ""
    assert figures["preemption_latency_p99"] <= 40 * US * (1 + 1e-9)
    without_stops = [one.answered - one.started for one in both.requests]
    assert max(without_stops) <= 1.02 * asked.seconds
    assert figures["best_effort_throughput"] > 0
