"""Operators of a transformer: counts and traffic by hand, and against what torch counts on modules written
here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.core.errors import BadInput
from experiments.workloads.kernels import Product, Work
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import BLOCKS, OPERATORS, transformer_layers

pytestmark = pytest.mark.torch

#: 4 tokens of width 8, 2 heads of 4, 32 in the feed-forward layer, 10 words.
GPT = Transformer("gpt", 1, 8, 2, 4, 32, 4, 2, vocabulary=10, positions=4)
#: The same widths as Llama has them: 4 heads of 2 share 2 keys, three matrices, no biases, an output layer
#: of its own.
LLAMA = Transformer(
    "llama",
    layers=1,
    hidden=8,
    heads=4,
    head_size=2,
    feedforward=12,
    sequence=4,
    kv_heads=2,
    vocabulary=10,
    tied=False,
    gated=True,
    rms=True,
    rotary=True,
    bias="none",
    fused_qkv=False,
)


def operators(model: Transformer, dtype: str = "float16", **options: Any) -> LayerGraph:
    return transformer_layers(model, batch=1, dtype=dtype, granularity=OPERATORS, **options)


def row(graph: LayerGraph, name: str) -> int:
    return graph.layer.index(name)


def work(graph: LayerGraph, name: str) -> Work:
    (found,) = graph.work[row(graph, name)]
    return found


# --- against torch ----------------------------------------------------------------------------------


class Attention(nn.Module):
    """Queries by keys, softmax, by values; on two-dimensional tensors, scores unscaled (a scale is no
    product).
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        width, bias = model.attention_width, model.bias == "all"
        self.qkv = nn.Linear(model.hidden, width + 2 * model.kv_width, bias=bias)
        self.project = nn.Linear(width, model.hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        model = self.model
        q, k, v = self.qkv(x).split((model.attention_width, model.kv_width, model.kv_width), dim=1)
        queries = q.unflatten(1, (model.heads, -1)).transpose(0, 1)
        keys, context = (t.unflatten(1, (model.kv_heads, -1)).transpose(0, 1) for t in (k, v))
        if model.heads > model.kv_heads:
            times = model.heads // model.kv_heads
            keys, context = keys.repeat_interleave(times, 0), context.repeat_interleave(times, 0)
        scores = torch.softmax(torch.bmm(queries, keys.transpose(1, 2)), dim=-1)
        return self.project(torch.bmm(scores, context).transpose(0, 1).flatten(1))


class Plain(nn.Sequential):
    def __init__(self, model: Transformer) -> None:
        inner = nn.Linear(model.hidden, model.feedforward)
        super().__init__(inner, nn.GELU(), nn.Linear(model.feedforward, model.hidden))


class Gated(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(model.hidden, model.feedforward, bias=False) for _ in range(2))
        self.down = nn.Linear(model.feedforward, model.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        norm = nn.RMSNorm if model.rms else nn.LayerNorm
        self.norm1, self.norm2 = norm(model.hidden), norm(model.hidden)
        self.attention = Attention(model)
        self.mlp = Gated(model) if model.gated else Plain(model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Whole(nn.Module):
    """Words, blocks, norm and logits of one sample."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.words = nn.Embedding(model.vocabulary, model.hidden)
        self.places = nn.Parameter(torch.zeros(model.positions, model.hidden)) if model.positions else None
        self.blocks = nn.Sequential(*(Block(model) for _ in range(model.layers)))
        self.norm = nn.RMSNorm(model.hidden) if model.rms else nn.LayerNorm(model.hidden)
        self.head = nn.Linear(model.hidden, model.vocabulary, bias=False)
        if model.tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        return self.head(self.norm(self.blocks(x if self.places is None else x + self.places)))


MODELS = [
    GPT,
    LLAMA,
    replace(GPT, layers=3, vocabulary=37, sequence=4, tied=False),
    replace(LLAMA, layers=2, kv_heads=1, head_size=6, feedforward=20, sequence=7, tied=True),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}-{model.layers}")
def test_parameters_are_those_of_the_module(model: Transformer) -> None:
    count = sum(p.numel() for p in Whole(model).parameters())
    assert model.parameters == count
    assert operators(model).parameter_bytes.sum() == 2 * count


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}-{model.layers}")
def test_flops_are_those_that_torch_counts_in_both_passes(model: Transformer) -> None:
    """Forward by kind of work; the backward pass twice that, for every input of a block has a gradient."""
    module = Whole(model)
    with FlopCounterMode(display=False) as forward:
        logits = module(torch.arange(model.sequence) % model.vocabulary)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    graph = operators(model)
    assert graph.forward_flops.sum() == model.forward_flops == forward.get_total_flops()
    assert graph.backward_flops.sum() == backward.get_total_flops()
    counted = forward.get_flop_counts()["Global"]
    pairs = sum(graph.forward_flops[i] for i, kind in enumerate(graph.kind) if kind == "attention")
    assert pairs == counted[torch.ops.aten.bmm]


def saved_values(module: nn.Module, *shape: int) -> int:
    """Values that autograd keeps of activations, each tensor once; weights and the statistics of norms left
    out.
    """
    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in weights and tensor.shape[-1:] != (1,):
            kept[place] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(torch.randn(shape, requires_grad=True))
    return sum(t.untyped_storage().nbytes() // t.element_size() for t in kept.values())


def kept_values(graph: LayerGraph, *names: str) -> float:
    return sum(float(graph.stash_bytes[row(graph, f"blocks.0.{name}")]) for name in names) / 4


def test_what_a_block_keeps_is_what_autograd_keeps() -> None:
    """Per token 16 values of the width, and the attention matrix once: 16 x 4 x 8 + 2 x 4 x 4 = 544."""
    names = ("norm1", "qkv", "attention", "projection", "norm2", "expand", "activation", "contract")
    graph = operators(GPT, "float32")
    assert kept_values(graph, *names) == 544 == saved_values(Block(GPT), 4, 8)


def test_what_a_gated_mlp_keeps_is_what_autograd_keeps() -> None:
    """The input once, though two products read it; gate, its SiLU, up and their product: 4 x (8 + 4 x 12) =
    224.

    A compiled kernel makes the SiLU again: 4 x (8 + 3 x 12)."""
    names = ("expand", "up", "activation", "contract")
    eager, compiled = (operators(LLAMA, "float32", kernels=kernels) for kernels in ("eager", "compiled"))
    assert kept_values(eager, *names) == 224 == saved_values(Gated(LLAMA), 4, 8)
    assert kept_values(compiled, *names) == 224 - 4 * 12


def test_an_input_that_several_products_read_is_kept_once() -> None:
    """Query, key and value read one tensor of 4 x 8 values: the first of them keeps it."""
    graph = operators(LLAMA)
    kept = [graph.stash_bytes[row(graph, f"blocks.0.{name}")] for name in ("query", "key", "value")]
    assert kept == [4 * 8 * 2, 0, 0]


# --- by hand ----------------------------------------------------------------------------------------


def test_the_rows_of_a_gpt_read_each_other_in_order() -> None:
    graph = operators(GPT)
    assert graph.layer[0] == "embedding" and graph.layer[-3:] == ("norm", "logits", "loss")
    reads = {
        graph.layer[i].removeprefix("blocks.0."): [graph.layer[j].removeprefix("blocks.0.") for j in before]
        for i, before in enumerate(graph.predecessors.lists())
    }
    assert reads["norm1"] == ["embedding"]
    assert reads["residual1"] == ["embedding", "projection"], "the residual reads what the block was given"
    assert reads["residual2"] == ["residual1", "contract"]
    assert reads["norm"] == ["residual2"]


def test_the_rows_of_a_llama_turn_queries_and_keys_but_not_values() -> None:
    graph = operators(LLAMA)
    names = [name.removeprefix("blocks.0.") for name in graph.layer]
    assert names[1:7] == ["norm1", "query", "key", "value", "rotary", "attention"]
    reads = graph.predecessors.lists()
    assert [names[i] for i in reads[names.index("rotary")]] == ["query", "key", "value"]
    assert [names[i] for i in reads[names.index("attention")]] == ["value", "rotary"]
    assert [names[i] for i in reads[names.index("activation")]] == ["expand", "up"]
    # Queries are 4 x 2 wide, keys 2 x 2: what is turned is 12 values for each of 4 tokens of 2 bytes.
    assert graph.output_bytes[names.index("rotary")] == 12 * 4 * 2


def test_products_have_the_shapes_of_their_matrices() -> None:
    graph = operators(LLAMA)
    shapes = {
        name: work(graph, f"blocks.0.{name}").products
        for name in ("query", "key", "attention", "expand", "contract")
    }
    assert shapes["query"] == (Product(4, 8, 8),)
    assert shapes["key"] == (Product(4, 8, 4),)
    # Each of 4 heads: queries (4 x 2) by keys (2 x 4), scores (4 x 4) by values (4 x 2); no weight in either.
    assert shapes["attention"] == (Product(4, 2, 4, 4, weight=False), Product(4, 4, 2, 4, weight=False))
    assert (shapes["expand"], shapes["contract"]) == ((Product(4, 8, 12),), (Product(4, 12, 8),))


@pytest.mark.parametrize(
    ("kernels", "norm", "gelu", "residual", "loss"),
    [
        # A stream of 4 x 8 values of 2 bytes: so many bytes for each; the inner layer is 4 x 32, logits 4 x
        # 10.
        ("fused", (4, 10), (4, 8), (6, 8), (30, 14)),
        ("eager", (4, 10), (4, 6), (6, 6), (18, 20)),
        ("compiled", (4, 8), (4, 6), (4, 4), (18, 20)),
    ],
)
def test_traffic_is_bytes_for_each_value(
    kernels: str,
    norm: tuple[int, int],
    gelu: tuple[int, int],
    residual: tuple[int, int],
    loss: tuple[int, int],
) -> None:
    graph = operators(GPT, kernels=kernels)

    def traffic(name: str) -> tuple[float, float]:
        found = work(graph, name)
        return found.forward_traffic, found.backward_traffic

    assert traffic("blocks.0.norm1") == (norm[0] * 32, norm[1] * 32)
    assert traffic("blocks.0.activation") == (gelu[0] * 128, gelu[1] * 128)
    assert traffic("blocks.0.residual1") == (residual[0] * 32, residual[1] * 32)
    assert traffic("loss") == (loss[0] * 40, loss[1] * 40)


def test_values_of_four_bytes_move_twice_the_bytes_except_for_the_loss() -> None:
    """The loss works on float32 whatever the model is stored in."""
    half, whole = operators(GPT, "float16"), operators(GPT, "float32")
    for name, times in (("blocks.0.norm1", 2), ("blocks.0.attention", 2), ("embedding", 2), ("loss", 1)):
        assert work(whole, name).forward_traffic == times * work(half, name).forward_traffic, name
    assert whole.stash_bytes[row(whole, "loss")] == half.stash_bytes[row(half, "loss")] == 4 * 4 * 10


def test_an_attention_matrix_in_memory_is_read_and_written_by_its_softmax() -> None:
    """2 heads of 4 x 4 entries: 4 bytes each, with dropout 9; and once 4 bytes for each of 4 x 8 values of
    context.
    """
    assert work(operators(GPT), "blocks.0.attention").forward_traffic == 4 * 32 + 4 * 32
    dropout = operators(replace(GPT, dropout=True))
    assert work(dropout, "blocks.0.attention").forward_traffic == 9 * 32 + 4 * 32
    assert work(dropout, "blocks.0.attention").backward_traffic == 11 * 32 + 4 * 32
    fused = work(operators(GPT, fused_attention=True), "blocks.0.attention")
    assert (fused.forward_traffic, fused.launches, fused.causal) == (0, 0, True)


def test_dropout_keeps_masks_of_a_byte() -> None:
    """Behind the words, in both residuals (4 x 8 each); in attention a mask and a second matrix (2 x 4 x 4
    x 3).
    """
    plain, dropout = operators(GPT), operators(replace(GPT, dropout=True))
    more = dict(zip(plain.layer, (dropout.stash_bytes - plain.stash_bytes).tolist(), strict=True))
    assert {name: size for name, size in more.items() if size} == {
        "embedding": 32,
        "blocks.0.attention": 96,
        "blocks.0.residual1": 32,
        "blocks.0.residual2": 32,
    }


def test_gradients_of_a_weight_are_added_once_whatever_the_batch() -> None:
    """6 bytes for each parameter of the product: 8 x 24 weights and 24 biases; normed scales are not
    counted.
    """
    assert work(operators(GPT), "blocks.0.qkv").gradient_traffic == 6 * (8 * 24 + 24)
    assert work(operators(GPT), "blocks.0.norm1").gradient_traffic == 0
    assert work(operators(GPT), "logits").gradient_traffic == 0, "tied logits have no weight of their own"


def test_float8_products_read_and_cast_their_inputs_first_but_logits_stay() -> None:
    """5 bytes forward and 8 backward for each of 4 x 8 values of 2 bytes."""
    graph = operators(GPT, kernels="float8")
    qkv = work(graph, "blocks.0.qkv")
    assert (qkv.dtype, qkv.forward_traffic, qkv.backward_traffic) == ("float8", 5 * 32, 8 * 32)
    assert (work(graph, "logits").dtype, work(graph, "logits").forward_traffic) == ("", 0)
    assert work(graph, "blocks.0.attention").dtype == ""


def test_kernels_that_nobody_has_are_named() -> None:
    with pytest.raises(BadInput, match="unknown kernels 'magic'"):
        operators(GPT, kernels="magic")


def test_a_model_without_words_is_its_blocks() -> None:
    graph = operators(replace(GPT, vocabulary=0, positions=0))
    assert graph.layer[0] == "blocks.0.norm1" and graph.layer[-1] == "blocks.0.residual2"
    assert graph.predecessors.lists()[0] == [] and graph.facts["tied"] == []
    assert [graph.layer[i] for i in graph.predecessors.lists()[4]] == ["blocks.0.projection"]


def test_tied_words_are_read_by_the_logits() -> None:
    """80 words' values of 2 bytes, owned by the first row and read by the last but one."""
    assert operators(GPT).facts["tied"] == [[0, len(operators(GPT)) - 2, 160.0]]
    blocks = transformer_layers(GPT, batch=1, dtype="float16", granularity=BLOCKS)
    assert blocks.facts["tied"] == [[0, 3, 160.0]]
    assert operators(LLAMA).facts["tied"] == []


def test_a_batch_multiplies_values_but_neither_weights_nor_works() -> None:
    one, three = operators(GPT), transformer_layers(GPT, batch=3, dtype="float16", granularity=OPERATORS)
    for column in ("forward_flops", "backward_flops", "output_bytes", "stash_bytes"):
        assert (getattr(three, column) == 3 * getattr(one, column)).all(), column
    assert (three.parameter_bytes == one.parameter_bytes).all() and three.work == one.work


def _kept(graph: LayerGraph, name: str) -> float:
    return float(graph.stash_bytes[graph.layer.index(name)])


@pytest.mark.parametrize(("loss", "bytes_per_logit"), [("whole", 12), ("compiled", 4), ("divided", 16)])
def test_a_loss_of_all_logits_keeps_what_its_kernels_store(loss: str, bytes_per_logit: int) -> None:
    """4 tokens, 10 words: three float32 values; a 16-bit logit and its gradient; four float32 values."""
    graph = transformer_layers(
        LLAMA, batch=1, dtype="bfloat16", granularity=OPERATORS, kernels="compiled", loss=loss
    )
    assert _kept(graph, "loss") == 40 * bytes_per_logit


def test_options_name_the_losses_that_closed_forms_have() -> None:
    from experiments.core.options import PLANNED_LOSSES
    from experiments.workloads.transformer_rows import WHOLE_LOSSES

    assert tuple(WHOLE_LOSSES) == PLANNED_LOSSES


def test_copied_keys_and_values_stay_beside_the_product_that_made_them() -> None:
    """4 tokens: query, key and value of 8 values each, and key and value once more, 2 bytes each."""
    ways = {"batch": 1, "dtype": "bfloat16", "granularity": OPERATORS, "fused_attention": True}
    plain, copied = (transformer_layers(GPT, **ways, copies_keys=copies) for copies in (False, True))
    name = "blocks.0.attention"
    assert _kept(copied, name) - _kept(plain, name) == 4 * (8 + 8) * 2
