"""Packed samples: attention within documents of equal length, and no mask in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.core.spec import Workload  # noqa: E402
from experiments.models.build import build, chosen  # noqa: E402
from experiments.sources import layers_of  # noqa: E402
from experiments.workloads.aggregate import layer_graph  # noqa: E402
from experiments.workloads.hf import check_config  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.transformer import from_config  # noqa: E402
from experiments.workloads.transformer_layers import OPERATORS, transformer_layers  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.replays import assert_replays_eager  # noqa: E402

pytestmark = pytest.mark.torch

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
_LLAMA = {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 64}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 50},
    "gpt_neox": {**_SIZES, "intermediate_size": 64, "max_position_embeddings": 64},
    "opt": {**_SIZES, "ffn_dim": 64, "max_position_embeddings": 64, "word_embed_proj_dim": 32},
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "starcoder2": _LLAMA,
    "qwen2": _LLAMA,
    "gemma": {**_LLAMA, "head_dim": 16},
    "qwen3": {**_LLAMA, "head_dim": 16},
    "phi3": {**_LLAMA, "pad_token_id": 0},
}


def source(kind: str, **options: Any) -> ModelSource:
    asked = WorkloadOptions(**{"batch": 2, "sequence": 24, "dropout": False, **options})
    if kind.startswith("zoo:"):
        return ModelSource(kind, zoo=kind.removeprefix("zoo:"), options=asked)
    config, _ = check_config({"model_type": kind, **CONFIGS[kind]}, kind)
    return ModelSource(kind, config=config, options=asked)


def attention_flops(kind: str, **options: Any) -> float:
    step = capture(source(kind, **options))
    return float(step.ops.flops[["_scaled_dot_product" in target for target in step.ops.target]].sum())


@pytest.mark.parametrize("kind", [*CONFIGS, "zoo:gpt2-tiny"])
def test_a_packed_sample_is_its_documents_as_samples(kind: str) -> None:
    """Two samples of three documents of 8 tokens are six samples of 8: the same loss, bit for bit."""
    torch.manual_seed(0)
    packed: Any = build(source(kind, document=8)).module
    plain: Any = build(source(kind, batch=6, sequence=8)).module
    plain.load_state_dict(packed.state_dict())
    ids, target = torch.randint(0, 50, (2, 24)), torch.randint(0, 50, (2, 24))
    assert torch.equal(packed(ids, target), plain(ids.view(6, 8), target.view(6, 8)))


@pytest.mark.parametrize("kind", ["llama", "zoo:gpt2-tiny"])
def test_the_captured_step_of_documents_is_its_eager_step(kind: str) -> None:
    traced = trace(source(kind, document=8))
    assert_replays_eager(traced)


@pytest.mark.parametrize("kind", ["llama", "zoo:gpt2-tiny"])
def test_attention_falls_to_document_over_sequence_and_nothing_else_grows(kind: str) -> None:
    """Operations to a half; no copy and no mask."""
    assert 2 * attention_flops(kind, document=12) == attention_flops(kind)
    whole, packed = capture(source(kind)), capture(source(kind, document=12))
    assert packed.live_peak <= whole.live_peak + 24 * 8  # positions
    assert packed.facts["document"] == 12 and "document" not in whole.facts
    assert not any(shape[-2:] in ((24, 24), (12, 12)) for shape in packed.tensors.shape)
    copies = [step.ops.target.count("aten.clone.default") for step in (whole, packed)]
    assert copies[0] == copies[1]


@pytest.mark.parametrize("attention", ["math", "flash"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3", "phi3"])
def test_the_closed_form_has_the_products_of_the_captured_documents(kind: str, attention: str) -> None:
    asked = source(kind, document=8, attention=attention)
    model = replace(from_config(kind, asked.config, 24), document=8)
    ours = transformer_layers(model, batch=2, dtype="float32", granularity=OPERATORS)
    captured = layer_graph(capture(asked))
    assert ours.forward_flops.sum() == pytest.approx(captured.forward_flops.sum(), rel=1e-9)
    assert 2 * model.forward_flops == pytest.approx(captured.forward_flops.sum(), rel=1e-9)


def test_documents_reach_positions_that_the_sample_exceeds() -> None:
    """96 tokens of a model with 64 positions, in documents of 32."""
    with pytest.raises(BadInput, match="sequence 96 is too long"):
        build(source("gpt2", sequence=96))
    assert build(source("gpt2", sequence=96, document=32))
    with pytest.raises(BadInput, match=r"document 96 is too long.*at most 64"):
        build(source("gpt2", sequence=96, document=96))


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (source("llama", document=7), "options.document: document 7 does not divide sequence 24"),
        (source("zoo:gpt2-tiny", document=48), "document 48 does not divide sequence 24"),
        (ModelSource("mlp", zoo="mlp", options=WorkloadOptions(document=8)), "mlp has no sequence"),
        (
            ModelSource("lstm", zoo="lstm", options=WorkloadOptions(document=5)),
            "lstm has no causal attention",
        ),
        (
            ModelSource("bert", config={"model_type": "bert"}, options=WorkloadOptions(document=8)),
            "bert has no causal attention",
        ),
    ],
)
def test_documents_that_do_not_fit_are_named(asked: ModelSource, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        chosen(asked)


def test_the_closed_form_takes_the_documents_of_the_options() -> None:
    """Of a block's products only those of the attention fall, to a third."""
    graphs = [
        layers_of(
            Workload("zoo:gpt2-tiny", options=WorkloadOptions(batch=2, sequence=24, document=document)),
            None,
            granularity=OPERATORS,
        )[0]
        for document in (0, 8)
    ]
    ratios = graphs[1].forward_flops / np.where(graphs[0].forward_flops, graphs[0].forward_flops, 1)
    cores = [name.endswith(".attention") for name in graphs[0].layer]
    assert ratios[cores] == pytest.approx(1 / 3)
    assert set(ratios[~np.array(cores)]) == {0.0, 1.0}
    assert graphs[1].facts["document"] == 8


def test_the_closed_form_refuses_what_the_capture_refuses() -> None:
    for options, complaint in (
        (WorkloadOptions(sequence=24, document=7), "document 7 does not divide sequence 24"),
        (WorkloadOptions(sequence=24, images=2), "has no images beside text"),
    ):
        asked = Workload("zoo:gpt2-tiny", options=options)
        with pytest.raises(BadInput, match=complaint):
            layers_of(asked, None, granularity=OPERATORS)


def test_a_document_longer_than_a_window_is_refused() -> None:
    config = {"model_type": "mistral", **CONFIGS["mistral"], "sliding_window": 6}
    asked = ModelSource("m", config=config, options=WorkloadOptions(batch=2, sequence=24, document=8))
    with pytest.raises(BadInput, match="document 8 is longer than the window of 6 tokens"):
        capture(asked)
