"""Options of a workload: how a file is read, and what step of a model is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.precision import BASES, PRECISIONS

DTYPES = ("float64", "float32", "float16", "bfloat16")
OPTIMIZERS = (
    *("sgd", "momentum", "adam", "adamw", "adamw8bit", "paged_adamw", "paged_adamw8bit", "adamw4bit"),
    *("adafactor", "muon", "galore_adamw"),
)

#: Attention that closed forms know; that of 2024 is for one generation of devices.
FLASH_3 = "flash3"
PLANNED_ATTENTION = ("flash1", FLASH_3, "flash-copied")
#: Losses of all logits that parallel plans in closed form know (``workloads.transformer_rows``).
PLANNED_LOSSES = ("compiled", "divided")

#: In lists of linear layers: every one but the model's head.
ALL_LINEAR = "all-linear"

#: How a model is usually trained: all of it, adapters alone, and those with the rest in 4 bits.
TRAINING_FORMS: Mapping[str, Mapping[str, str]] = {
    "full": {},
    "LoRA": {"adapter": "lora", "base": "plain", "base_targets": ALL_LINEAR},
    "QLoRA": {"adapter": "lora", "base": "nf4"},
}


@dataclass(frozen=True)
class FineTuning:
    """Which part of a model a step trains, and in what form. The defaults are the plain step of all of it."""

    frozen: str = knob(
        "",
        "parameters without gradient or state: patterns of their names by comma, * for any text",
        words=True,
    )
    loss: str = knob(
        "whole",
        "a language model's loss: of all logits at once, of kept 16-bit logits chunk by chunk, head and loss "
        "chunk by chunk; in parallel plans also compiled, or by DTensor of logits divided among devices",
        choices=("whole", "chunked", "fused", *PLANNED_LOSSES),
    )
    loss_chunks: int = knob(8, "chunks of tokens of a loss that is chunked or fused", low=1, high=2**24)
    logits: str = knob(
        "model",
        "type of a whole loss's logits: the model's, or a float32 copy (chunks always have one)",
        choices=("model", "float32"),
    )
    adapter: str = knob(
        "none",
        "a small trained part beside linear layers of the frozen model",
        choices=("none", "lora", "dora"),
    )
    adapter_rank: int = knob(8, "numbers that a layer's adapter goes through", low=1, high=2**16)
    adapter_targets: str = knob(
        ALL_LINEAR, "layers with an adapter: names by comma; all-linear leaves out the head", words=True
    )
    adapter_dropout: float = knob(0.0, "dropout before the adapter", low=0.0, high=0.99)
    adapter_dtype: str | None = knob(None, "type of the adapter's weights; the model's", choices=DTYPES)
    base: str = knob(
        "plain",
        "how the frozen weights beside adapters are stored",
        choices=BASES,
    )
    base_targets: str = knob(
        ALL_LINEAR,
        "layers whose weights are stored so: names by comma; all-linear leaves out the head",
        words=True,
    )
    dropout: bool | None = knob(
        None, "a configuration's own dropout, whose masks training keeps; false leaves it out"
    )
    update: str = knob(
        "single",
        "form of the optimizer's update: one parameter after another, all at once with temporaries of all, "
        "one kernel without temporaries, or each parameter in the backward pass",
        choices=("single", "foreach", "fused", "in-backward"),
    )
    optimizer_rank: int = knob(128, "rank of galore_adamw's projection", low=1, high=2**16)
    accumulate: int = knob(1, "equal parts of a batch whose gradients are added up", low=1, high=2**24)
    autocast: str = knob(
        "none",
        "16-bit type of products of a model in float32, with a copy of each weight",
        choices=("none", "bfloat16", "float16"),
    )

    @property
    def changes(self) -> dict[str, Any]:
        """Return the options that are not at their default."""
        found = {field.name: (getattr(self, field.name), field.default) for field in fields(FineTuning)}
        return {name: value for name, (value, default) in found.items() if value != default}

    def refuse_changes(self, source: str, why: str, but: Sequence[str] = ()) -> None:
        """Raise ``BadInput`` for the first option that is not at its default, ``but`` some."""
        for name, value in self.changes.items():
            if name in but:
                continue
            raise BadInput(f"{name} {value!r:.80} of {source}: {why}", f"options.{name}", "it left out")


@dataclass(frozen=True)
class WorkloadOptions(FineTuning):
    """How a workload is read or a model is built. ``None`` means: the workload's own default."""

    batch: int | None = knob(None, "samples per step", low=1, high=2**24)
    sequence: int | None = knob(None, "tokens per sample", low=1, high=2**22)
    image: int | None = knob(None, "pixels per side of an input image", low=8, high=4096)
    images: int = knob(1, "images of a sample, of a model that reads images and text", low=1, high=1024)
    document: int = knob(
        0, "tokens of a packed sample's documents, which attention stays within; 0: one", low=0, high=2**22
    )
    dtype: str | None = knob(None, "parameter and activation type", choices=DTYPES)
    precision: str | None = knob(
        None,
        "what training keeps for each parameter; 16-bit types are mixed unless told",
        choices=PRECISIONS,
    )
    optimizer: str | None = knob(None, "optimizer of the step", choices=OPTIMIZERS)
    training: bool = knob(True, "a training step; false: one forward pass")
    attention: str = knob(
        "auto",
        "attention backend; of transformers in closed form flash1, flash3: fused kernels of 2022, of 2024; "
        "flash-copied: keys and values copied next to one another behind a product that makes all three",
        choices=("auto", "math", "flash", *PLANNED_ATTENTION),
    )
    steps: int | None = knob(None, "steps of the whole training job, for jct", low=1, high=10**9)
    limit: int | None = knob(None, "keep only the first jobs or requests", low=1, high=10**8)
    rate: float | None = knob(
        None, "scale arrivals to this many per second", low=1e-9, high=1e9, unit="arrivals/s"
    )
    slo_scale: float | None = knob(
        None, "objectives of a trace's requests or models, times this", low=1e-6, high=1e6
    )
    window: str | None = knob(
        None, "only these jobs count, by their place in the order of submission, as in 4000:5000"
    )
    model: str | None = knob(None, "the model that serves a request trace, as a source")
    vocabulary: int | None = knob(
        None,
        "words of a transformer whose sheet has none (adds embedding, logits and loss)",
        low=1,
        high=2**24,
    )
    kernels: str = knob(
        "auto",
        "element-wise kernels: eager (one for each operation) or compiled (as torch.compile fuses them); "
        "of a transformer that is not captured also fused by hand, or compiled with products in float8",
        choices=("auto", "fused", "eager", "compiled", "float8"),
    )
    extra: str | None = knob(
        None, "a side file of the workload (g10_extra, throughput table, substitution rules, adapter_config)"
    )


#: Options that a trace of jobs or requests has; all others are of a model's step.
OF_TRACES = ("limit", "rate", "slo_scale", "window", "model", "dtype", "extra")

#: Options that say nothing about the step itself: steps that differ in no other option are one capture.
NOT_OF_THE_STEP = (
    *("steps", "limit", "rate", "slo_scale", "window", "model", "vocabulary", "kernels", "extra"),
)
