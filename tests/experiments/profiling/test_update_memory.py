"""What a step needs with any optimizer and precision, next to a capture of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

from experiments.core.options import OPTIMIZERS, WorkloadOptions
from experiments.core.precision import FULL, MIXED, MIXED_FP32_GRADS, PRECISIONS, PURE
from experiments.core.progress import silent
from experiments.profiling.capture import capture
from experiments.profiling.memory_law import tell_law, tell_updates
from experiments.summaries.composed_law import COMPOSED, ComposedLaw, with_updates
from experiments.summaries.memory_law import MemoryLaw
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step
from tests.variants import variants

pytestmark = pytest.mark.torch

SIZES = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "vocab_size": 1000}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
MODELS = {
    "gpt2": ModelSource("zoo:gpt2-tiny", zoo="gpt2-tiny"),
    "llama": ModelSource("llama", config={"model_type": "llama", **SIZES, **HEADS}),
    "qwen2": ModelSource(
        "qwen", config={"model_type": "qwen2", "tie_word_embeddings": True, **SIZES, **HEADS}
    ),
}
CASES = {
    "gpt2": [(FULL, "adamw"), *((MIXED, name) for name in OPTIMIZERS)],
    "llama": [*zip(PRECISIONS[1:], ("adamw", "adamw8bit", "sgd", "muon"), strict=True)],
    "qwen2": [(MIXED_FP32_GRADS, "adamw"), (MIXED, "adam"), (PURE, "adamw")],
}


def with_options(source: ModelSource, **options: object) -> ModelSource:
    return replace(source, options=WorkloadOptions(**options))  # type: ignore[arg-type]


def law_with_updates(source: ModelSource, step: Step) -> dict[str, Any]:
    """As a page has it: the law first, its passes' updates after it."""
    law = tell_law(source, step, silent)
    assert not law.get(COMPOSED, {}).get("updates")
    return with_updates(law, tell_updates(source, step))


@pytest.mark.parametrize("model", variants(*MODELS))
def test_it_agrees_with_captures_within_three_percent(model: str) -> None:
    """At a size where the passes need most, and at one where the update does."""
    composed: dict[bool, ComposedLaw] = {}
    for precision in (FULL, MIXED)[model != "gpt2" :]:
        source = with_options(MODELS[model], batch=2, sequence=64, precision=precision)
        step = capture(source)
        composed[precision == FULL] = ComposedLaw.from_json(law_with_updates(source, step)[COMPOSED])
    off = {}
    for case, (precision, optimizer) in enumerate(CASES[model]):
        law = composed[precision == FULL].law(precision, optimizer)
        assert law is not None
        batch, sequence = ((1, 16), (8, 60))[case % 2]
        sizes = {"batch": batch, "sequence": sequence}
        step = capture(with_options(MODELS[model], precision=precision, optimizer=optimizer, **sizes))
        off[precision, optimizer] = law.peak(batch, sequence) / step.live_peak - 1
        assert law.least(batch, sequence) == pytest.approx(step.op_need.max(), rel=0.03)
    paged = {case: off.pop(case) for case in list(off) if case[1].startswith("paged")}
    assert max(map(abs, off.values())) < 0.03, off
    assert all(-0.6 < one <= 0 for one in paged.values())


def test_a_precision_of_another_type_is_not_told() -> None:
    source = with_options(MODELS["gpt2"], batch=2, sequence=16)
    step = capture(source)
    law = law_with_updates(source, step)
    composed = ComposedLaw.from_json(law[COMPOSED])
    assert composed.law(MIXED, "adamw") is None
    own = composed.law(FULL, str(step.facts["optimizer"]))
    assert own is not None and own.parts(5, 40) == MemoryLaw.from_json(law).parts(5, 40)


def test_gradients_that_are_added_up_are_not_composed() -> None:
    source = with_options(MODELS["gpt2"], batch=2, sequence=16, accumulate=2)
    step = capture(source)
    assert COMPOSED not in law_with_updates(source, step)
    assert tell_updates(source, step) == {}
