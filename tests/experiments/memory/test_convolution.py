"""Convolution algorithms: what they cost, and vDNN's order of trials among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core.progress import silent
from experiments.core.spec import load_workload
from experiments.hardware import resolve
from experiments.memory.interface import Algorithm, MemoryPlan, violations
from experiments.memory.planning.convolution import (
    ConvolutionShape,
    Rates,
    algorithms,
    convolution_of,
    fastest,
    fft,
    winograd,
)
from experiments.memory.policies.vdnn import VdnnAll, VdnnDyn
from experiments.memory.simulator import Simulator
from experiments.sources import step_of
from experiments.workloads.step import Step
from tests.experiments.memory.steps import machine, plan_of

#: The second convolution of VGG-16 at batch 256.
CONV = ConvolutionShape(256, 64, 224, 224, 64, 3, 3, 224, 224, 4)
RATES = Rates(flops=6.6e12, bytes=336e9)


def test_fft_keeps_the_spectra_of_inputs_outputs_and_filters() -> None:
    # 226 is padded to 256: spectra of 256 x 129 complex values of 8 bytes, for N C + N K + C K maps.
    found = fft(CONV, RATES)
    assert found is not None
    assert found.workspace == (2 * 256 * 64 + 64 * 64) * 256 * 129 * 8
    assert found.seconds < CONV.flops / RATES.flops


def test_winograd_multiplies_16_times_where_direct_does_36_times() -> None:
    found = winograd(CONV, RATES)
    assert found is not None
    assert found.seconds == pytest.approx(CONV.flops * 16 / 36 / 0.7 / RATES.flops)
    assert found.workspace == 16 * 64 * 64 * 4


@pytest.mark.parametrize(
    "other",
    [replace(CONV, p=112, q=112), replace(CONV, r=1, s=1), replace(CONV, h=512, w=512, p=512, q=512)],
    ids=["stride 2", "1 x 1", "larger than 256"],
)
def test_what_fft_cannot_do(other: ConvolutionShape) -> None:
    assert fft(other, RATES) is None


@pytest.fixture(scope="module")
def vgg() -> Step:
    pytest.importorskip("torch")
    workload = load_workload({"source": "zoo:vgg16", "options": {"batch": 256, "optimizer": "sgd"}})
    return step_of(workload, resolve("titan-x-12g").device, silent)[0]


@pytest.mark.torch
def test_every_convolution_of_vgg_is_known_with_its_passes(vgg: Step) -> None:
    found = algorithms(vgg, "cudnn4")
    assert len(found) == 26
    assert convolution_of(vgg, min(found)) == ConvolutionShape(256, 3, 224, 224, 64, 3, 3, 224, 224, 4)
    forward = [op for op in found if vgg.phase_of(op) == "forward"]
    backward = [op for op in found if vgg.phase_of(op) == "backward"]
    pairs = list(zip(forward[1:], reversed(backward[:-1]), strict=True))
    for one, other in pairs:
        assert convolution_of(vgg, one) == convolution_of(vgg, other)
        assert found[other][-1].seconds == pytest.approx(2 * found[one][-1].seconds, rel=0.01)


@pytest.mark.torch
def test_the_order_of_trials(vgg: Step) -> None:
    """(b) none + p while it fits, then conv and all with p, then greedily, then with the smallest; never
    illegal.
    """
    choices = algorithms(vgg, "cudnn4")
    largest = max(fastest(options).workspace for options in choices.values())
    seen = []
    for room in (2**40, 26 * 10**9, 20 * 10**9, 15 * 10**9, 12 * 10**9):
        on = machine(room, bandwidth=12e9)
        plan = plan_of(VdnnDyn(library="cudnn4"), vgg, on)
        assert violations(plan, vgg, on) == []
        assert Simulator(vgg, on).run(plan).peak_bytes <= room
        seen.append((plan.notes["offloads"], plan.notes.get("algorithms", "m")))
    assert seen[0] == ("none", "p")
    assert seen[-1][1] in ("greedy", "m")
    kinds = [
        ("none", "p"),
        ("conv", "p"),
        ("all", "p"),
        ("conv", "greedy"),
        ("all", "greedy"),
        ("conv", "m"),
        ("all", "m"),
    ]
    assert [kinds.index(entry) for entry in seen] == sorted(kinds.index(entry) for entry in seen)
    plan = plan_of(VdnnDyn(library="cudnn4"), vgg, machine(2**40))
    assert {move.workspace for move in plan.moves if isinstance(move, Algorithm)} == {largest}


@pytest.mark.torch
def test_without_a_library_a_step_is_as_timed(vgg: Step) -> None:
    assert not any(isinstance(move, Algorithm) for move in plan_of(VdnnAll(), vgg, machine(2**40)).moves)
    assert plan_of(VdnnDyn(), vgg, machine(2**40)).moves == MemoryPlan().moves
