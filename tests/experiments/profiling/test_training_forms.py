"""A model's step in the forms that it is usually trained in: all of it, with adapters, with fewer bits."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from experiments.core.options import TRAINING_FORMS, WorkloadOptions
from experiments.core.progress import silent
from experiments.profiling.training_forms import capture_forms, in_form
from experiments.summaries.training_memory import bytes_at_peak
from experiments.workloads.model import ModelSource
from tests.experiments.captures import capture
from tests.experiments.configs import NO_DROPOUT

pytestmark = pytest.mark.torch

GPT = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 64,
    "n_head": 4,
    "n_positions": 16,
    "vocab_size": 50,
    **NO_DROPOUT,
}


def test_a_language_model_is_had_whole_with_adapters_and_in_fewer_bits() -> None:
    source = ModelSource("gpt", config=GPT, options=WorkloadOptions(batch=2, sequence=16))
    step = capture(source)
    found = capture_forms(source, step, silent)
    assert list(found) == ["full", "LoRA", "QLoRA"] and found["full"] is step
    parts = {name: bytes_at_peak(one) for name, one in found.items()}
    assert parts["full"]["frozen weights"] == 0
    assert 0 < parts["QLoRA"]["frozen weights"] < parts["LoRA"]["frozen weights"]
    assert parts["LoRA"]["optimizer state"] == parts["QLoRA"]["optimizer state"]
    assert all(sum(rows.values()) == found[name].live_peak for name, rows in parts.items())


def test_a_model_without_linear_layers_beside_its_head_is_trained_whole_alone() -> None:
    source = ModelSource("zoo:resnet18", zoo="resnet18", options=WorkloadOptions(batch=2, image=32))
    assert list(capture_forms(source, capture(source), silent)) == ["full"]


def test_adapters_that_were_asked_for_are_those_of_the_form() -> None:
    asked = WorkloadOptions(adapter="dora", adapter_rank=2, base="int8", batch=3)
    whole, lora, qlora = (in_form(asked, changes) for changes in TRAINING_FORMS.values())
    assert (whole.adapter, whole.adapter_rank, whole.base, whole.batch) == ("none", 8, "plain", 3)
    assert (lora.adapter, lora.adapter_rank, lora.base) == ("lora", 2, "plain")
    assert (qlora.adapter, qlora.base) == ("lora", "int8")
