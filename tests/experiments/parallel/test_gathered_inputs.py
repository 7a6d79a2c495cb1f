"""Inputs that sequence parallelism gathers: gathered again for the weights' gradients, or kept whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.hardware import resolve
from experiments.parallel.interface import PlanningEstimate, Sharding, model_estimate
from experiments.parallel.planning.degrees.analytic import Analytic
from experiments.parallel.planning.degrees.columns import Columns
from experiments.parallel.planning.transformers.plan import Degrees, megatron_plan
from experiments.parallel.planning.transformers.shardings import WorkerMesh, megatron_shardings
from experiments.parallel.simulator import evaluate, simulate
from experiments.workloads.kernel_times import timed_by_kernels
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import OPERATORS, transformer_layers

SMALL = Transformer("small", 2, 1024, 8, 128, 4096, 1024, 8, vocabulary=512, rotary=True)
#: Bytes of a sample's 1,024 tokens of 1,024 values.
WHOLE = 2 * 1024 * 1024


def estimate_of(batch: int) -> PlanningEstimate:
    cluster = resolve({"cluster": {"nodes": 1, "devices_per_node": 4, "device": "a100-80g"}})
    graph = transformer_layers(
        SMALL, batch=batch, dtype="bfloat16", granularity=OPERATORS, fused_attention=True
    )
    return model_estimate(timed_by_kernels(graph, cluster.device), cluster, evaluate)


def sharding_of(estimate: PlanningEstimate, part: str, keep: bool) -> Sharding:
    layer = estimate.model.layer.index(f"blocks.0.{part}")
    mesh = WorkerMesh(tensor=4, sequence=True, keep_gathered=keep)
    return next(iter(megatron_shardings(estimate.model, mesh, [layer])))


def test_an_input_that_stays_whole_is_not_gathered_in_the_backward_pass() -> None:
    """The first product of each pair keeps four parts of its input instead of one; nothing else changes."""
    estimate = estimate_of(1)
    again, kept = (sharding_of(estimate, "expand", keep) for keep in (False, True))
    assert [c.kind for c in again.backward] == ["all_gather", "reduce_scatter"]
    assert [c.kind for c in kept.backward] == ["reduce_scatter"]
    assert (again.activations, kept.activations) == (4, 1)
    assert again.forward == kept.forward
    assert sharding_of(estimate, "contract", True) == sharding_of(estimate, "contract", False)


@pytest.mark.parametrize("recompute", ["none", "blocks"])
def test_it_saves_time_and_costs_three_parts_of_what_both_products_of_a_block_read(recompute: str) -> None:
    """Of both blocks and the head, or of the one block that is computed again at a time, and the head."""
    estimate = estimate_of(2)
    layout = Degrees(tensor=4, sequence=True, micro_batch=2, recompute=recompute, overlap=False)
    layouts = [replace(layout, keep_gathered=keep) for keep in (False, True)]
    found = [simulate(megatron_plan(estimate.model, estimate.cluster, 2, one), estimate) for one in layouts]
    inputs = 2 * (2 if recompute == "none" else 1) + 1
    more = found[1].peak_memory - found[0].peak_memory
    assert more == pytest.approx(inputs * 2 * WHOLE * 3 / 4 * (1 + estimate.fragmentation), rel=1e-6)
    assert found[1].step_time < found[0].step_time
    closed = Analytic(estimate, 2).figures(Columns.of(layouts, 4))
    assert closed.peak_memory == pytest.approx([one.peak_memory for one in found], rel=0.01)
    assert closed.step_time == pytest.approx([one.step_time for one in found], rel=0.03)
