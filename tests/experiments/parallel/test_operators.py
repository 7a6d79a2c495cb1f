"""Operators of graphs that only have layers: a batch, or what a profile's descriptions tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import Link, resolve
from experiments.parallel.interface import violations
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.policies.mesh_tensorflow import MeshTensorFlow
from experiments.sources import layers_of
from experiments.workloads.ragged import Ragged
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import transformer_layers
from tests.experiments.parallel.builders import chain, cluster, estimate


def test_a_layer_of_which_nothing_is_known_has_a_batch() -> None:
    model = chain(2, batch=4, output_bytes=8.0, parameter_bytes=100.0)
    first, second = operators_of(model)
    assert second.sizes == (("batch", 4),) and second.kind == "layer"
    assert [(o.dims, o.source, o.parameter, o.bytes) for o in second.operands] == [
        (("batch",), 0, -1, 32.0),
        ((), -1, 1, 100.0),
    ]
    doubled = operators_of(model, 8)[1]
    assert doubled.size["batch"] == 8 and [o.bytes for o in doubled.operands] == [64.0, 100.0]
    assert first.share == 1.0


def test_descriptions_of_a_profile_tell_channels_and_pictures() -> None:
    """Two samples: a convolution to 4 channels of 3 x 3, a norm, all 36 features to 10 classes."""
    kinds = ("Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))", "BatchNorm2d(4)", "View()")
    model = replace(
        chain(4, batch=2),
        kind=(*kinds, "Linear(in_features=36, out_features=10, bias=True)"),
        output_bytes=np.array([36, 36, 36, 10]) * 2 * 4.0,
        parameter_bytes=np.array([448.0, 32, 0, 1480]),
        predecessors=Ragged.of([[], [0], [1], [2]]),
    )
    convolution, norm, view, linear = operators_of(model)
    assert convolution.size == {"batch": 2, "channel": 4, "height": 3, "width": 3, "channel.in": 3}
    assert convolution.halo == (("height", 2), ("width", 2))
    assert norm.kind == "normalization" and norm.operands[1].dims == ("channel",)
    assert view.output == ("batch", "channel") and view.operands[0].dims == ("batch", "channel", "", "")
    assert linear.size == {"batch": 2, "channel": 10, "channel.in": 36} and linear.contracted == (
        "channel.in",
    )


def test_every_layer_of_every_real_profile_is_an_operator(shared_data: Path) -> None:
    for path in sorted((shared_data / "parallel" / "pipedream_profiles").glob("*.txt")):
        if "LICENSE" in path.name:
            continue
        model, _ = layers_of(Workload(str(path)), None)
        found = operators_of(model)
        assert [operator.layer for operator in found] == list(range(len(model)))
        for operator in found:
            for operand in operator.operands:
                assert operand.source < 0 or len(operand.dims) == len(found[operand.source].output)


@pytest.mark.parametrize("granularity", ["operators", "blocks"])
def test_a_transformer_known_by_its_sizes_has_the_operators_of_its_paper(granularity: str) -> None:
    """Two blocks of 8 heads of 8: Megatron's cuts over two devices, two all-reduces of b s h values each way
    a block.
    """
    sizes = Transformer("two", 2, 64, 8, 8, 256, 32, 8, vocabulary=100)
    graph = transformer_layers(sizes, batch=4, dtype="float16", granularity=granularity)
    model = replace(graph, forward_seconds=np.ones(len(graph)), backward_seconds=2 * np.ones(len(graph)))
    hardware = cluster(1, 2, link=Link("fast", 1e6, 0.0, True, "test"))
    plan = MeshTensorFlow(model_axis=2).place(model, hardware, 4, estimate(model, hardware, "float16"))
    assert violations(plan, model, hardware) == []
    sent = [(c.kind, c.bytes) for sharding in plan.shardings for c in sharding.forward]
    assert [c for c in sent if c[1] == 32 * 64 * 2] == [
        ("all_reduce", 32 * 64 * 2.0)
    ] * 5  # and the embedding
    back = [
        c.kind for s in plan.shardings for c in s.backward if c.per == "sample" and c.bytes == 32 * 64 * 2
    ]
    assert back == ["all_reduce"] * 5  # and the logits
    parameters = sum(operand.bytes for o in operators_of(model) for operand in o.parameters)
    assert parameters == sizes.parameters * 2 + 100 * 64 * 2  # the tied table is read twice


def test_norms_of_heads_and_a_fused_gate_are_operators_too() -> None:
    """Two blocks of 4 heads of 16, a Qwen3's norms and a Phi-3's one product to twice the width."""
    shape = Transformer("q", 2, 32, 4, 16, 48, 8, 2, 50, gated=True, rms=True, rotary=True, bias="none")
    for sizes in (
        replace(shape, fused_qkv=False, head_norms=True),
        replace(shape, fused_gate=True),
    ):
        graph = transformer_layers(sizes, batch=4, dtype="float16", granularity="operators")
        model = replace(graph, forward_seconds=np.ones(len(graph)), backward_seconds=np.ones(len(graph)))
        found = operators_of(model)
        assert sum(operand.bytes for o in found for operand in o.parameters) == (
            sizes.parameters * 2 + 50 * 32 * 2
        )
        norms = {o.name.rpartition(".")[2]: o for o in found if o.name.startswith("blocks.1.")}
        assert norms["expand"].size["feedforward"] == (96 if sizes.fused_gate else 48)
        assert ("query_norm" in norms) == sizes.head_norms
        hardware = cluster(1, 2, link=Link("fast", 1e6, 0.0, True, "test"))
        plan = MeshTensorFlow(model_axis=2).place(model, hardware, 4, estimate(model, hardware, "float16"))
        assert violations(plan, model, hardware) == []


def test_replicas_divide_the_rows_that_experts_were_dealt() -> None:
    """Two samples of 16 tokens, 8 experts that take 8 rows each: on two devices an expert
    computes 4 on each.
    """
    options, hardware = WorkloadOptions(batch=2, sequence=16), resolve("v100-32g")
    model, _ = layers_of(Workload("zoo:moe", options=options), hardware.device)
    costs = OperatorCosts(estimate(model, cluster(1, 2)), 2)
    replicated = costs.data_parallel()
    assert replicated is not None
    of_experts = [
        n for n, axes in enumerate(costs.axes) if "experts" in axes.names and "batch" not in axes.names
    ]
    assert of_experts
    for number in of_experts:
        parts = costs.choices[number][replicated[number]]
        divided = dict(zip(costs.axes[number].names, parts, strict=True))
        assert (divided["capacity"], divided["experts"]) == (2, 1)
