"""A configuration's own dropout is kept in training, its masks are memory, and ``dropout`` false leaves it
out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.workloads.hf import MODEL_TYPES, USUAL_DROPOUTS, dropouts  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.transformer import from_config  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402

pytestmark = pytest.mark.torch

GPT = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 16, "vocab_size": 50}
RATES = {"resid_pdrop": 0.1, "embd_pdrop": 0.2, "attn_pdrop": 0.3}
BERT = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 50,
    "max_position_embeddings": 16,
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 50,
    "max_position_embeddings": 16,
}


def of(config: dict[str, Any], **options: Any) -> ModelSource:
    return ModelSource("model", config=config, options=WorkloadOptions(batch=2, sequence=16, **options))


def drawn(source: ModelSource) -> int:
    """Ops of the source's step that draw dropout."""
    return capture(source).ops.target.count("aten.native_dropout.default")


@pytest.mark.parametrize(("attention", "pairs"), [("flash", 0), ("math", 2)])
def test_masks_of_a_byte_are_kept_and_drawn_as_eager_training_draws(attention: str, pairs: int) -> None:
    traced = trace(of({**GPT, **RATES}, attention=attention))
    step = traced.step
    drawn = [op for op, target in enumerate(step.ops.target) if target == "aten.native_dropout.default"]
    assert step.ops.random.nonzero()[0].tolist() == drawn
    masks = [int(step.tensors.bytes[step.outputs[op].tolist()[1]]) for op in drawn]
    assert sorted(masks) == [2 * 16 * 32] * (1 + 2 * 2) + [2 * 4 * 16 * 16] * pairs
    assert step.facts["dropout"] is True
    ours, plain = traced.make_inputs(), traced.make_inputs()
    torch.manual_seed(5)
    with torch.no_grad():
        loss = traced.graph_module(*ours)
    torch.manual_seed(5)
    assert torch.equal(loss, traced.eager(*plain)) and all(map(torch.equal, ours, plain))


@pytest.mark.parametrize("config", [GPT, BERT], ids=["gpt2", "bert"])
def test_it_is_that_of_the_type_where_the_configuration_names_none(config: dict[str, Any]) -> None:
    """Embedding, and behind attention and the feed-forward part of each of two blocks."""
    kept, left_out = of(config), of(config, dropout=False)
    assert drawn(kept) == 5 and drawn(left_out) == 0
    assert drawn(replace(kept, options=replace(kept.options, training=False))) == 0


def test_the_options_three_values() -> None:
    named = {**GPT, **RATES}
    assert drawn(of(named)) == drawn(of(named, dropout=True)) == 5
    assert drawn(of({**GPT, **dict.fromkeys(RATES, 0.0)})) == 0


def test_a_model_without_dropout_is_the_same_step_and_refuses_to_be_asked_for_it() -> None:
    assert capture(of(LLAMA)).ops.target == capture(of(LLAMA, dropout=False)).ops.target
    zoo = ModelSource("zoo:gpt2-tiny", zoo="gpt2-tiny", options=WorkloadOptions(batch=2, dropout=True))
    for source in (of(LLAMA, dropout=True), zoo):
        with pytest.raises(BadInput, match="has no dropout") as caught:
            build(source)
        assert caught.value.where == "options.dropout"


@pytest.mark.parametrize("kind", [name for name, kind in MODEL_TYPES.items() if not kind.parts])
def test_the_types_usual_rates_are_those_of_transformers(kind: str) -> None:
    theirs = transformers.AutoConfig.for_model(kind).to_dict()
    found = set(dropouts({"model_type": kind, **theirs}))
    usual = USUAL_DROPOUTS.get(kind, {})
    assert {name: theirs[name] for name in found} == usual and set(dropouts({"model_type": kind})) == found


def test_the_closed_form_follows_the_same_rule() -> None:
    assert from_config("gpt", GPT, 16).dropout
    assert not from_config("gpt", {**GPT, **dict.fromkeys(RATES, 0.0)}, 16).dropout
    assert not from_config("llama", LLAMA, 16).dropout
