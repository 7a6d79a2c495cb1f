"""What a spec leaves open is settled by what fits and is fastest, on figures that a reader can work out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import pytest

from experiments.core.errors import BadInput, Infeasible
from experiments.core.knobs import open_knob
from experiments.core.spec import load_spec
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    Evaluation,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
)
from experiments.parallel.interface.open_counts import PipelineShapes, doubling, window_updates
from experiments.parallel.planning.settings import parts_that_may_fit, settle
from experiments.parallel.policies.ampnet import AmpNet
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.interleaved import Interleaved
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.policies.zero import Zero
from experiments.run import run
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain, cluster, estimate


@dataclass(frozen=True)
class Dial(ParallelPolicy):
    """A policy of one open knob, whose plan is as fast and as large as ``OUTCOMES`` says."""

    name: ClassVar[str] = "dial"
    at: int | None = open_knob("where the dial points", low=0)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        for numbers in ((0, 1), (1, 2, 3), (4,)) if self.at is None else ((self.at,),):
            yield [replace(self, at=number) for number in numbers]

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        if self.at == 3:
            raise BadInput("3 is not on the dial", "knobs.at")
        plan = DataParallel(micro_batches=1).place(model, cluster, batch, estimate)
        return replace(plan, notes={"at": self.at})


def dialed(outcomes: dict[int, float], policy: Dial | None = None) -> object:
    """What is settled where settings take so many seconds, negative ones lacking so many bytes."""
    model, hardware = chain(2), cluster(1, 1)
    asked: list[object] = []

    def evaluate(plan: ParallelPlan) -> Evaluation:
        asked.append(plan.notes["at"])
        found = outcomes[int(str(plan.notes["at"]))]
        if found < 0:
            raise Infeasible("is too large", "the dial", -found)
        return Evaluation(found, 0.0, 0.0, 0.0)

    given = replace(estimate(model, hardware), evaluate=evaluate)
    return settle(policy or Dial(), model, hardware, 1, given), asked


def test_of_the_first_round_with_one_that_fits_the_fastest_is_taken() -> None:
    """0 and 1 do not fit; 1 is not tried again, 3 is refused, and 4, though faster, is a round too late."""
    found, asked = dialed({0: -5, 1: -4, 2: 9.0, 4: 1.0})  # type: ignore[misc]
    assert found.plan.notes["at"] == 2
    assert found.knobs == {"at": 2}
    assert asked == [0, 1, 2]
    assert [row.to_json() for row in found.tried] == [
        {"at": 0, "refused": "the dial: is too large"},
        {"at": 1, "refused": "the dial: is too large"},
        {"at": 2, "step_time": 9.0},
        {"at": 3, "refused": "knobs.at: 3 is not on the dial"},
    ]


def test_of_equals_the_first_is_taken() -> None:
    found, _ = dialed({0: 7.0, 1: 7.0})  # type: ignore[misc]
    assert found.knobs == {"at": 0}


def test_a_knob_that_is_given_is_kept_and_nothing_is_tried() -> None:
    found, asked = dialed({4: -1}, Dial(at=4))  # type: ignore[misc]
    assert (found.plan.notes["at"], dict(found.knobs), asked, found.notes) == (4, {}, [], {})


def test_where_nothing_fits_the_leanest_setting_says_what_it_lacks() -> None:
    with pytest.raises(Infeasible, match=r"the leanest of 5 settings \(at 2\): the dial: is too") as refused:
        dialed({0: -5, 1: -4, 2: -3, 4: -8})
    assert refused.value.missing == 3


def test_depths_divide_the_devices_and_micro_batches_fill_them() -> None:
    """64 devices, stages for 37: 2 to 32. Of 512 samples a pipeline of 8 has 64; 32 micro-batches fill it."""
    shapes = PipelineShapes(devices=64, most=37, batch=512)
    filled, smallest = shapes.rounds()
    assert filled == [(2, 8), (4, 16), (8, 32), (16, 64), (32, 128)]
    assert smallest == [(2, 16), (4, 32), (8, 64), (16, 128), (32, 256)]
    assert shapes.deepest() == (32, 128)
    assert PipelineShapes(1, 37, 512).deepest() == (1, 4)
    assert PipelineShapes(7, 5, 14).depths() == [1]


def test_micro_batches_come_in_whole_rounds_where_samples_divide_so() -> None:
    """Of 24 samples six micro-batches are the fewest rounds of three that are at least twelve: twelve."""
    assert PipelineShapes(3, 3, 24, together=lambda stages: stages).deepest() == (3, 12)
    assert PipelineShapes(3, 3, 8, together=lambda stages: stages).deepest() == (3, 8)


def test_numbers_of_micro_batches_double() -> None:
    assert doubling(12) == [1, 2, 4, 12]
    assert doubling(64, 8) == [8, 16, 32, 64]
    assert doubling(4, 8) == [4]


def test_windows_of_long_updates_have_fewer() -> None:
    assert window_updates(4, 1) == 32
    assert window_updates(32, 16) == 8
    assert window_updates(64, 512) == 2


def test_a_pipeline_that_leaves_all_open_takes_few_stages_for_free_messages() -> None:
    """Eight equal layers on 4 devices, 16 samples: two pipelines of two stages with two samples a micro-batch
    take (4 + 1) slots of 8 layers of 3 s, one of four (16 + 3) of 2.
    """
    model, hardware = chain(8), cluster(1, 4)
    found = settle(OneForwardOneBackward(), model, hardware, 16, estimate(model, hardware))
    assert found.knobs == {"stages": 2, "micro_batches": 8, "recompute": False}
    assert [row.step_time for row in found.tried] == [(8 + 1) * 12, (16 + 3) * 6]


def test_recomputation_is_the_last_resort_and_what_is_asked_for_stays() -> None:
    """GPipe keeps all of a step's activations: 16 samples x 10 bytes on each of 2 devices; 100 are there."""
    model = chain(2, stash_bytes=10.0, output_bytes=1.0)
    hardware = cluster(1, 2, memory=100)
    found = settle(GPipe(stages=2), model, hardware, 16, estimate(model, hardware))
    assert found.knobs == {"micro_batches": 8, "recompute": True}
    assert [row.knobs["recompute"] for row in found.tried] == [False, False, True]
    with pytest.raises(Infeasible, match="60 bytes missing"):
        settle(GPipe(recompute=False), model, hardware, 16, estimate(model, hardware))


def test_a_stage_of_zero_is_raised_until_states_fit() -> None:
    """2,000 parameters in float32 with Adam: 8,000 bytes of weights, as many of gradients, 16,000 of state.

    Four devices divide the state (20,000 left), gradients too (14,000 and one layer's before they are
    reduced), or all (8,000 and three layers' that are gathered or reduced).
    """
    model = chain(8, parameter_bytes=1000.0)
    for memory, stage in ((20_000, 1), (15_000, 2), (11_000, 3)):
        hardware = cluster(1, 4, memory=memory)
        found = settle(Zero(bucket_bytes=1), model, hardware, 4, estimate(model, hardware))
        assert found.knobs == {"stage": stage, "micro_batches": 1, "recompute": False}


def test_windows_of_different_lengths_are_compared_by_update() -> None:
    """Both take a slot of six layers an update once they run; the longer window must not count as slower."""
    model, hardware = chain(4), cluster(1, 2)
    found = settle(AmpNet(), model, hardware, 8, estimate(model, hardware))
    assert found.tried[0].step_time == pytest.approx(8 * 6 * (32 + 1) / 32)


def test_parts_that_cannot_fit_are_not_tried() -> None:
    """Two devices of 100 bytes and 16 samples of 2 x 20 bytes: four parts need 160 of 200, two 320."""
    model = chain(2, stash_bytes=20.0)
    given = estimate(model, cluster(1, 2, memory=100))
    first = next(parts_that_may_fit(GPipe(), 16, given))
    assert [policy.micro_batches for policy in first] == [4]


def test_a_run_says_how_its_open_knobs_were_settled_and_can_be_repeated_from_that() -> None:
    row = {
        "family": "parallel",
        "policy": "interleaved",
        "workload": {"source": "package:sixteen-equal-layers.txt", "options": {"batch": 8}},
        "hardware": {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "a100-80g"}},
    }
    left_open = run(load_spec(row))
    settled = left_open.provenance["settled"]
    assert left_open.spec["knobs"]["stages"] is None
    assert set(settled) == {"stages", "micro_batches", "recompute"}
    assert {key: value for key, value in left_open.provenance["tried"][0].items() if key in settled} != {}
    named = run(load_spec({**row, "knobs": settled}))
    assert (named.metrics, named.plan) == (left_open.metrics, left_open.plan)
    assert "settled" not in named.provenance
    assert Interleaved(**settled).chunks == 2
