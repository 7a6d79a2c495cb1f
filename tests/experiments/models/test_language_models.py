"""Language models that people bring as a config.json: published sizes, and steps that replay bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.workloads.hf import check_config  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.transformer import from_config, has_closed_form  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.replays import assert_replays_eager  # noqa: E402

pytestmark = pytest.mark.torch


def _config(kind: str, hidden: int, inner: int, layers: int, heads: int, kv: int, vocabulary: int) -> Any:
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
    }


#: Sizes as in the published config.json, and the number of parameters on the model's page.
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "gemma-2b": (
        {**_config("gemma", 2048, 16384, 18, 8, 1, 256000), "head_dim": 256, "hidden_act": "gelu"},
        2_506_172_416,
    ),
    "gemma-7b": (
        {**_config("gemma", 3072, 24576, 28, 16, 16, 256000), "head_dim": 256},
        8_537_680_896,
    ),
    "qwen3-0.6b": (
        {**_config("qwen3", 1024, 3072, 28, 16, 8, 151936), "head_dim": 128, "tie_word_embeddings": True},
        596_049_920,
    ),
    "qwen3-1.7b": (
        {**_config("qwen3", 2048, 6144, 28, 16, 8, 151936), "head_dim": 128, "tie_word_embeddings": True},
        1_720_574_976,
    ),
    "qwen3-8b": (
        {**_config("qwen3", 4096, 12288, 36, 32, 8, 151936), "head_dim": 128, "tie_word_embeddings": False},
        8_190_735_360,
    ),
    "phi-3-mini-4k": (
        {**_config("phi3", 3072, 8192, 32, 32, 32, 32064), "sliding_window": 2047, "rope_scaling": None},
        3_821_079_552,
    ),
}
_SMALL = ("hidden_size", 32), ("intermediate_size", 48), ("num_hidden_layers", 2), ("vocab_size", 50)
SMALL: dict[str, dict[str, Any]] = {
    "gemma": {**dict(_SMALL), "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16},
    "qwen3": {**dict(_SMALL), "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    "phi3": {**dict(_SMALL), "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0},
    "llama": {**dict(_SMALL), "num_attention_heads": 4, "num_key_value_heads": 2},
    "mistral": {**dict(_SMALL), "num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt_neox": {**dict(_SMALL), "num_attention_heads": 4},
}


def small(kind: str, **options: Any) -> ModelSource:
    chosen = {"batch": 2, "sequence": 8, **options}
    config, _ = check_config({"model_type": kind, **SMALL[kind]}, kind)
    return ModelSource(kind, config=config, options=WorkloadOptions(**chosen))


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_configuration_has_its_published_size(name: str) -> None:
    """Told by transformers on no device, by our builder and by the closed form."""
    published, parameters = PUBLISHED[name]
    config, _ = check_config(published, name)
    source = ModelSource(name, config=config, options=WorkloadOptions(batch=1, sequence=8))
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**published))
        ours = build(source, weights=False).module
    assert sum(value.numel() for value in theirs.parameters()) == parameters
    assert sum(value.numel() for value in ours.parameters()) == parameters
    assert has_closed_form(config) and from_config(name, config, 8).parameters == parameters


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_the_captured_step_of_a_language_model_is_its_eager_step(kind: str) -> None:
    """Loss, weights and optimizer state, bit for bit after two steps."""
    traced = trace(small(kind))
    assert_replays_eager(traced)


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_a_forward_pass_has_the_flops_that_torch_counts(kind: str) -> None:
    """Its counter knows no fused attention of a CPU, hence the plain one."""
    source = small(kind, training=False, attention="math")
    model = build(source)
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.module(tokens)
    assert capture(source).flops == counter.get_total_flops()
    assert 2 * from_config(kind, source.config, 8).forward_flops == counter.get_total_flops()


def test_a_captured_causal_attention_reads_no_mask_and_no_repeated_keys() -> None:
    """Four heads of queries, two of keys; values are a view of what their product made."""
    step = capture(small("qwen3", sequence=24))
    op = next(op for op, target in enumerate(step.ops.target) if "_scaled_dot_product" in target)
    shapes = [step.tensors.shape[tensor] for tensor in step.inputs[op].tolist()]
    assert shapes == [(2, 4, 24, 16), (2, 2, 24, 16), (2 * 24, 2 * 16)]
    assert not any(shape[-2:] == (24, 24) for shape in step.tensors.shape)
