"""Mixtures of experts in closed form: published counts, counts by hand, and what plain torch keeps."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from experiments.core.errors import BadInput
from experiments.models.parameters import count_parameters
from experiments.summaries import summary
from experiments.summaries.model import rules_of_thumb
from experiments.workloads.hf import check_config
from experiments.workloads.kernels import Cut, Product, shapes
from experiments.workloads.layers import LayerGraph
from experiments.workloads.mixture import LatentAttention, Mixture
from experiments.workloads.model import ModelSource
from experiments.workloads.published import PUBLISHED
from experiments.workloads.transformer import Transformer, from_config, has_closed_form
from experiments.workloads.transformer_layers import OPERATORS, transformer_layers

#: 6 tokens of width 8; 3 experts of inner width 5, 2 for each token: 4 tokens an expert.
SMALL = Transformer(
    "small",
    layers=1,
    hidden=8,
    heads=2,
    head_size=4,
    feedforward=20,
    sequence=6,
    kv_heads=2,
    gated=True,
    rms=True,
    bias="none",
    mixture=Mixture(experts=3, chosen=2, width=5),
)
#: Total and active parameters in billions: the model cards and papers.
COUNTS = {
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (140.6, 39.1),
    "qwen1.5-moe-a2.7b": (14.3, 2.7),
    "qwen2-57b-a14b": (57.4, 14.2),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22),
    "deepseek-v2-lite": (15.7, 2.7),
    "deepseek-v2": (236, 21),
    "deepseek-v3": (671, 37),
}


def operators(model: Transformer, dtype: str = "float32") -> LayerGraph:
    return transformer_layers(model, batch=1, dtype=dtype, granularity=OPERATORS, kernels="eager")


def part(graph: LayerGraph, name: str) -> int:
    return graph.layer.index(f"blocks.0.{name}")


def published(name: str) -> Transformer:
    config, _ = check_config(PUBLISHED[name].config, name)
    return from_config(name, config, 4096)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_counts_are_the_published_ones(name: str) -> None:
    """As many digits as are published, but the last may be cut instead of rounded."""
    model, (total, active) = published(name), COUNTS[name]
    assert model.parameters / 1e9 == pytest.approx(total, abs=0.06 if total < 200 else 0.6)
    assert model.active_parameters / 1e9 == pytest.approx(active, abs=0.07 if active < 20 else 0.6)


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(COUNTS))
def test_parameters_are_those_of_the_module(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config, _ = check_config(PUBLISHED[name].config, name)
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    assert published(name).parameters == sum(values.numel() for values in built.parameters())


def test_flops_are_those_of_the_experts_that_a_token_passes() -> None:
    """A router of 8 x 3, and two of three experts of 3 x 8 x 5, for each of 6 tokens; attention beside it."""
    graph = operators(SMALL)
    router, expand, contract = (
        graph.forward_flops[part(graph, name)] for name in ("router", "experts_expand", "experts_contract")
    )
    assert router == 2 * 6 * 8 * 3
    assert expand == 2 * (6 * 2) * 8 * (2 * 5) and contract == 2 * (6 * 2) * 5 * 8
    assert graph.forward_flops.sum() == SMALL.forward_flops
    assert graph.parameter_bytes.sum() == 4 * SMALL.parameters
    assert SMALL.parameters - SMALL.active_parameters == 3 * 8 * 5


def test_experts_are_grouped_products_of_their_own_tokens() -> None:
    """12 copies of tokens over 3 experts, 4 each; on 3 devices that share them each has one expert."""
    graph = operators(SMALL)
    (work,) = graph.work[part(graph, "experts_expand")]
    assert work.products == (Product(4, 8, 10, 3),)
    whole = shapes(work.products[0], 1, Cut(), "forward")
    own = shapes(work.products[0], 3, Cut(parts=3, experts=3), "forward")
    assert (whole.m, whole.n, whole.k, whole.count) == (4, 10, 8, 3)
    assert (own.m, own.n, own.k, own.count) == (12, 10, 8, 1)
    # As columns and rows: each device has the part of the weights that it adds gradients to.
    assert Cut(parts=3, experts=3).weights(3) == 3
    # What has a single weight is divided by tokens alone.
    assert shapes(Product(6, 8, 4), 3, Cut(parts=3, experts=3), "forward").m == 6


class Experts(nn.Module):
    """Every expert takes equally many copies; batched products stand for grouped ones."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        assert model.mixture is not None
        self.mixture = mixture = model.mixture
        self.router = nn.Linear(model.hidden, mixture.experts, bias=False)
        self.gate, self.up = (
            nn.Parameter(torch.randn(mixture.experts, model.hidden, mixture.width)) for _ in range(2)
        )
        self.down = nn.Parameter(torch.randn(mixture.experts, mixture.width, model.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        copies = len(x) * self.mixture.chosen
        scores = self.router(x).softmax(-1)
        experts = torch.arange(copies) * self.mixture.experts // copies
        tokens = torch.arange(copies) % len(x)
        taken = x[tokens].view(self.mixture.experts, -1, x.shape[1])
        inner = nn.functional.silu(taken @ self.gate) * (taken @ self.up)
        made = (inner @ self.down).view(copies, -1) * scores[tokens, experts].unsqueeze(1)
        return made.view(self.mixture.chosen, *x.shape).sum(0)


@pytest.mark.torch
def test_what_a_mixture_keeps_is_what_autograd_keeps() -> None:
    """The input of 6 x 8, scores of 6 x 3; of 12 copies the input of 8, four inner values of 5, what the
    experts made (8), a weight, and an index of 8 bytes: 48 + 18 + 12 x (8 + 20 + 8 + 1) + 24 = 534 values.

    Indices are left out of what torch keeps.
    """
    weights: set[int] = set()
    module = Experts(SMALL)
    weights |= {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights and tensor.is_floating_point():
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(torch.randn(6, 8, requires_grad=True))
    values = sum(t.untyped_storage().nbytes() // 4 for t in kept.values())
    graph = operators(SMALL)
    names = ("router", "dispatch", "experts_expand", "experts_activation", "experts_contract", "combine")
    ours = sum(graph.stash_bytes[part(graph, name)] for name in names) / 4
    assert ours - 24 == values == 48 + 18 + 12 * (8 + 20 + 8 + 1)


def test_traffic_of_dispatch_and_combine() -> None:
    """12 copies of 8 values of 2 bytes: each read and written; back, weighed by itself and added up."""
    graph = operators(SMALL, "bfloat16")
    (dispatch,), (combine,) = (graph.work[part(graph, name)] for name in ("dispatch", "combine"))
    assert (dispatch.forward_traffic, dispatch.backward_traffic) == (4 * 12 * 8, 4 * 12 * 8)
    assert combine.forward_traffic == 6 * 12 * 8 + 2 * 6 * 8
    assert combine.backward_traffic == 10 * 12 * 8 + 2 * 6 * 8


def test_the_fullest_of_some_experts() -> None:
    """8 experts, one with thrice the mean: the others share 5 of 8 parts, 5/7 each."""
    mixture = Mixture(experts=8, chosen=2, width=1)
    assert mixture.load(8, 3.0) == 3.0
    assert mixture.load(4, 3.0) == pytest.approx((3 + 5 / 7) / 2)
    assert mixture.load(1, 3.0) == pytest.approx(1.0)
    assert mixture.load(8, 1.0) == mixture.load(2, 1.0) == 1.0


def test_nodes_that_a_token_reaches_are_those_of_all_draws() -> None:
    """Every choice of 3 of 8 experts on 4 nodes; and of 2 of 4 groups, of 3 experts of these."""
    draws = [{expert // 2 for expert in chosen} for chosen in itertools.combinations(range(8), 3)]
    mean = sum(map(len, draws)) / len(draws)
    assert Mixture(8, 3, 1).nodes_reached(4) == pytest.approx(mean)
    limited = [
        {expert // 2 for expert in chosen}
        for groups in itertools.combinations(range(4), 2)
        for chosen in itertools.combinations([e for e in range(8) if e // 2 in groups], 3)
    ]
    mean = sum(map(len, limited)) / len(limited)
    assert Mixture(8, 3, 1, groups=4, chosen_groups=2).nodes_reached(4) == pytest.approx(mean) == 2


def test_latent_attention_by_hand() -> None:
    """DeepSeek-V2, section 2.1: a token's keys and values are one vector of 4 and a turned key of 2."""
    latent = LatentAttention(query=6, key_value=4, plain=3, rotary=2, value=7)
    assert latent.weights(hidden=8, heads=2) == 6 * (8 + 2 * 5) + 8 * (4 + 2) + 4 * 2 * (3 + 7)
    assert LatentAttention(0, 4, 3, 2, 7).weights(8, 2) == 8 * 2 * 5 + 8 * (4 + 2) + 4 * 2 * (3 + 7)
    assert latent.norm_parameters == 6 + 4


def test_a_missing_size_is_named() -> None:
    config = {
        name: value for name, value in PUBLISHED["mixtral-8x7b"].config.items() if "per_tok" not in name
    }
    assert has_closed_form(PUBLISHED["mixtral-8x7b"].config) and not has_closed_form(config)
    with pytest.raises(BadInput, match="num_experts_per_tok is missing"):
        from_config("mixtral", config, 4096)


def test_a_mixtures_page_counts_all_parameters_and_those_of_a_token() -> None:
    """Rules of thumb of dense models say nothing of it."""
    config = PUBLISHED["mixtral-8x7b"].config
    source = ModelSource("mixtral", config=config)
    told = summary(source)
    values = {card["label"]: card["value"] for card in told["cards"]}
    assert sum(one.parameters for one in count_parameters(source)) == 46_702_792_704
    assert values["parameters that a token passes"] == 12_879_925_248
    assert rules_of_thumb(source, 46_702_792_704, 8, 1024) == []
    assert summary(ModelSource("mixtral", config={"model_type": "mixtral"}))["closed_form"] is False
