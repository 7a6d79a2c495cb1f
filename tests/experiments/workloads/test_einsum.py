"""Named dimensions of captured operators: a GPT block reads as Megatron's paper draws it, a convolution has
halos.
"""

from __future__ import annotations

import functools

import pytest

from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.sources import layers_of
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph


@functools.cache
def captured(name: str, batch: int, sequence: int | None = None) -> LayerGraph:
    return layers_of(Workload(f"zoo:{name}", options=WorkloadOptions(batch=batch, sequence=sequence)), None)[
        0
    ]


def of_layer(model: LayerGraph, layer: str) -> list[Operator]:
    number = model.layer.index(layer)
    return [operator for operator in model.einsums if operator.layer == number]


def test_a_block_of_gpt_has_the_loops_of_its_paper() -> None:
    """Width 64, 4 heads of 16, 4 x 64 in the feed-forward layer; batch 2, 32 tokens."""
    norm, qkv, attention, project, add, *_, expand, gelu, contract, _ = of_layer(
        captured("gpt2-tiny", 2, 32), "blocks.0"
    )
    assert norm.statistics == ("hidden",) and norm.light
    assert qkv.sizes == (("batch", 2), ("sequence", 32), ("heads", 192), ("hidden", 64))
    assert (qkv.output, qkv.contracted) == (("batch", "sequence", "heads"), ("hidden",))
    assert attention.size["heads"] == 4 and attention.whole == ("keys", "head_size")
    assert [operand.dims for operand in attention.operands] == [
        ("batch", "sequence", "heads"),
        ("batch", "keys", "heads"),
        ("batch", "keys", "heads"),
    ]
    assert (project.output[-1], project.contracted) == ("hidden", ("heads", "head_size"))
    assert add.light and add.contracted == ()
    assert (expand.output[-1], gelu.output[-1], contract.contracted) == ("feedforward",) * 2 + (
        ("feedforward",),
    )


def test_sources_and_bytes_are_those_of_the_graph() -> None:
    model = captured("gpt2-tiny", 2, 32)
    norm, qkv, attention, *_ = of_layer(model, "blocks.0")
    assert model.einsums[qkv.operands[0].source] is norm
    assert qkv.operands[1].bytes == 192 * 64 * 4 and qkv.operands[1].dims == ("heads", "hidden")
    assert sum(operand.bytes for operand in attention.operands) == qkv.output_bytes
    assert sum(operator.share for operator in of_layer(model, "blocks.0")) == pytest.approx(1)


def test_the_first_token_of_each_sample_is_a_part_of_all_rows() -> None:
    """BERT's pooler reads one of 16 rows of 768 floats of two samples; which, nothing says."""
    model = captured("bert-base", 2, 16)
    pooler = next(o for o in model.einsums if o.kind == "einsum" and "" in o.operands[0].dims)
    read = pooler.operands[0]
    assert model.einsums[read.source].output[:2] == ("batch", "sequence")
    assert read.dims == ("batch", "", pooler.contracted[0]) and read.bytes == 2 * 768 * 4
    made = [(operand, model.einsums[operand.source]) for o in model.einsums for operand in o.operands]
    assert all(len(o.dims) == len(by.output) for o, by in made if o.source >= 0 and by.output)


def test_tied_parameters_have_one_number() -> None:
    model = captured("gpt2-tiny", 2, 32)
    (head,) = of_layer(model, "head")
    table = next(o for o in of_layer(model, "tokens") if o.kind == "embedding")
    assert head.parameters[0].parameter == table.parameters[0].parameter
    assert table.contracted == ("vocabulary",) and head.output[-1] == "vocabulary"
    softmax, loss = of_layer(model, "loss")
    assert softmax.statistics == ("vocabulary",)
    assert loss.output == () and loss.contracted == ("batch", "sequence", "vocabulary")


def test_experts_are_a_dimension_with_a_dispatch_before_and_a_combination_after() -> None:
    """8 experts, 2 x 16 tokens, two for each token: each expert takes 8."""
    kinds = {operator.name: operator for operator in of_layer(captured("moe", 2, 16), "blocks.1")}
    index, expand, combine = kinds["index"], kinds["bmm"], kinds["index_add"]
    assert index.kind == "dispatch" and index.operands[0].dims == ("capacity", "", "hidden")
    assert expand.sizes[:2] == (("experts", 8), ("capacity", 8))
    assert expand.operands[1].dims == ("experts", "hidden", "feedforward")
    assert combine.output == ("batch", "sequence", "hidden")
    assert combine.contracted == ("experts",) and combine.operands[2].dims == ("experts", "batch", "hidden")


def test_a_convolution_sums_over_channels_and_reaches_beyond_its_part() -> None:
    """AlexNet's second: 64 to 192 channels, 5 x 5 with stride 1, so 4 rows more than the own ones."""
    first, second = [o for o in captured("alexnet", 2).einsums if o.kind == "convolution"][:2]
    assert second.output == ("batch", "channel", "height", "width")
    assert second.contracted == ("channel.in",) and second.size["channel.in"] == first.size["channel"]
    assert second.halo == (("height", 4), ("width", 4))
    linear = next(o for o in captured("alexnet", 2).einsums if o.kind == "einsum")
    assert linear.contracted == ("channel.in", "height", "width")
