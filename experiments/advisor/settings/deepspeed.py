"""DeepSpeed's configuration. Source of its keys: docs/_pages/config-json.md of deepspeedai/DeepSpeed."""

from __future__ import annotations

import json
from typing import Any

from experiments.advisor.settings.recipe import Recipe

#: Optimizers that DeepSpeed names as the options do.
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW"}

#: The stage for an optimizer on the host where nothing is divided: stage 0 offloads nothing.
OFFLOADING = 2


def text(recipe: Recipe) -> str:
    """Return the JSON."""
    layout, options = recipe.layout, recipe.options
    found: dict[str, Any] = {
        "train_batch_size": layout.micro_batch * recipe.micro_batches * recipe.replicas,
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": recipe.micro_batches,
    }
    if recipe.is_mixed:
        found["bf16" if options.dtype == "bfloat16" else "fp16"] = {"enabled": True}
    if recipe.reduces_in_float32:
        found["data_types"] = {"grad_accum_dtype": "fp32"}
    found["zero_optimization"] = _zero(recipe)
    if layout.tensor > 1:
        found["tensor_parallel"] = {"autotp_size": layout.tensor}
    if layout.expert > 1:
        found["expert_parallel"] = {"enabled": True, "autoep_size": layout.expert}
    return json.dumps(found, indent=2)


def _zero(recipe: Recipe) -> dict[str, Any]:
    offloads = recipe.layout.host_optimizer
    found: dict[str, Any] = {"stage": recipe.layout.zero or (OFFLOADING if offloads else 0)}
    if recipe.layout.zero >= 2:
        found |= {"overlap_comm": True, "contiguous_gradients": True}
    if offloads:
        found["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return found


def notes(recipe: Recipe) -> tuple[str, ...]:
    layout = recipe.layout
    found = []
    if recipe.layout.recompute != "none":
        found.append("Checkpointing is the model's: gradient_checkpointing_enable() of Transformers.")
    if layout.pipeline > 1:
        stages = f"PipelineModule(layers, num_stages={layout.pipeline})"
        found.append(f"Pipelines are set in code, {stages}; chunks of a stage in turn have no setting.")
    if layout.context > 1:
        found.append("Sequences divided among devices have no setting in this file.")
    return (*found, *recipe.others)
