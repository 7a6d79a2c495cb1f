"""Precision of a training step: what is kept for each parameter, where activations have the step's ``dtype``.

Sources: Micikevicius et al., "Mixed Precision Training", ICLR'18 (a float32 master copy of 16-bit weights);
Rajbhandari et al., "ZeRO", SC'20, section 3.1 (2 + 2 + 12 bytes with Adam) and figure 1 (bytes by stage);
Megatron-Core's distributed optimizer (2 + 4 + 12 bytes where 16-bit gradients are kept and reduced in
float32); nanotron's gradient accumulators and DeepSpeed's bfloat16 optimizer (2 + 2 + 4 + 12: both).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.units import DTYPE_BYTES

#: Everything in one type; 16-bit weights, gradients and moments; 16-bit weights and gradients with float32
#: master weights and moments; the same with gradients kept and reduced in float32; the same, and the 16-bit
#: gradients stay in buckets of their own beside those. The names say bf16, the 16-bit type is the step's
#: ``dtype``.
FULL, PURE, MIXED, MIXED_FP32_GRADS = "fp32", "bf16-pure", "bf16-mixed", "bf16-mixed-fp32-grads"
MIXED_BOTH_GRADS = "bf16-mixed-both-grads"
PRECISIONS = (FULL, PURE, MIXED, MIXED_FP32_GRADS, MIXED_BOTH_GRADS)
#: Of them, those that add gradients up in float32, and those whose optimizer updates a float32 master copy of
#: the weights.
WITH_FP32_GRADS = (MIXED_FP32_GRADS, MIXED_BOTH_GRADS)
WITH_MASTER = (MIXED, *WITH_FP32_GRADS)
#: How the frozen weights beside adapters may be stored: in the step's type, or in fewer bits.
BASES = ("plain", "int8", "nf4", "nf4-double")
#: What the bytes of a parameter are for.
PARTS = ("weights", "gradients", "16-bit gradients", "master weights", "optimizer state")
#: Tensors of a parameter's shape and type that an optimizer keeps; the state of others follows from a
#: captured step.
OPTIMIZER_MOMENTS: Mapping[str, int] = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class StateBytes:
    """Bytes for one parameter: its weight, its gradient and all that the optimizer keeps.

    The optimizer's are K in ZeRO's paper; ``master`` of them are the float32 copy of a 16-bit weight.
    ``gradient`` are those that are reduced; ``bucket`` holds another copy as backward passes make it.
    """

    weight: float
    gradient: float
    optimizer: float
    master: float = 0.0
    bucket: float = 0.0

    @property
    def gradients(self) -> float:
        """Bytes of all copies of a gradient."""
        return self.gradient + self.bucket

    @property
    def total(self) -> float:
        return self.weight + self.gradients + self.optimizer

    @property
    def parts(self) -> dict[str, float]:
        """Bytes of a parameter by what they are for, without the parts that it does not have."""
        sizes = (self.weight, self.gradient, self.bucket, self.master, self.optimizer - self.master)
        return {name: size for name, size in zip(PARTS, sizes, strict=True) if size}

    def with_optimizer_on_host(self, zero: int) -> StateBytes:
        """Return what stays on a device whose host updates the weights (ZeRO-Offload, ATC'21, section 4).

        From stage 2 on gradients go to the host as they are reduced.
        """
        if zero >= 2:
            return replace(self, gradient=0.0, bucket=0.0, optimizer=0.0, master=0.0)
        return replace(self, optimizer=0.0, master=0.0)

    def on_device(self, parameters: float, zero: int, degree: int) -> float:
        """Return the bytes of model states on each of ``degree`` devices: ZeRO's figure 1.

        Stage 1 divides the optimizer state, stage 2 the gradients too, stage 3 the weights too.
        """
        weight = self.weight / (degree if zero >= 3 else 1)
        gradients = self.gradients / (degree if zero >= 2 else 1)
        optimizer = self.optimizer / (degree if zero >= 1 else 1)
        return parameters * (weight + gradients + optimizer)


def state_bytes(dtype: str, optimizer: str, precision: str) -> StateBytes:
    """Return the bytes of a parameter's states.

    ``("bfloat16", "adam", "bf16-mixed")`` gives 2 + 2 + 12 bytes, with float32 gradients 2 + 4 + 12, with
    both 2 + 4 + 2 + 12, ``"bf16-pure"`` 2 + 2 + 4, and ``("float32", "adam", "fp32")`` 4 + 4 + 8.
    ``BadInput`` for an optimizer whose state is not a number of such tensors.
    """
    if optimizer not in OPTIMIZER_MOMENTS:
        what = f"the state of {optimizer!r} follows from a captured step alone"
        raise BadInput(what, "options.optimizer", "one of " + ", ".join(OPTIMIZER_MOMENTS))
    size, moments = DTYPE_BYTES[dtype], OPTIMIZER_MOMENTS[optimizer]
    if precision not in WITH_MASTER:
        return StateBytes(size, size, size * moments)
    gradient = 4 if precision in WITH_FP32_GRADS else size
    bucket = size if precision == MIXED_BOTH_GRADS else 0
    return StateBytes(size, gradient, 4 + 4 * moments, master=4, bucket=bucket)


def states_note(states: StateBytes, precision: str) -> dict[str, Any]:
    """Return what a run says of its model states: the precision, and bytes for each parameter by part."""
    return {"states": {"precision": precision, "bytes_per_parameter": states.parts}}


def states_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``states_note`` of a step by its facts; nothing where they do not say how it trains."""
    dtype, optimizer, precision = (facts.get(name) for name in ("dtype", "optimizer", "precision"))
    if dtype not in DTYPE_BYTES or precision not in PRECISIONS:
        return {}
    states = _states(str(dtype), str(optimizer), str(precision), facts)
    if states is None:
        return {}
    if facts.get("update") == "in-backward":
        states = replace(states, gradient=0)
    note = states_note(states, str(precision))
    if "trained_parameters" in facts:
        note["states"]["trained"] = facts["trained_parameters"] / facts["parameters"]
    if "base" in facts:
        note["states"]["base"] = facts["base"]
    return note


def _states(dtype: str, optimizer: str, precision: str, facts: Mapping[str, Any]) -> StateBytes | None:
    """Bytes by the optimizer, or by what a captured step keeps of it; ``None`` where neither is known."""
    if optimizer in OPTIMIZER_MOMENTS:
        return state_bytes(dtype, optimizer, precision)
    kept, trained = facts.get("optimizer_bytes"), facts.get("trained_parameters", facts.get("parameters"))
    if kept is None or not trained:
        return None
    return replace(state_bytes(dtype, "sgd", precision), optimizer=kept / trained)


def describe_states(note: Mapping[str, Any]) -> str:
    """Return states in words: ``4 weights + 4 gradients + 8 optimizer state = 16 bytes a parameter``."""
    parts: Mapping[str, float] = note["bytes_per_parameter"]
    sizes = " + ".join(f"{size:g} {name}" for name, size in parts.items())
    whole = f"{sizes} = {sum(parts.values()):g} bytes a parameter ({note['precision']})"
    trained = note.get("trained")
    if not trained:
        return whole
    base = f", in layers with {note['base']} of fewer bytes" if "base" in note else ""
    return f"{whole}; {trained:.2%} of them trained, the others weights alone{base}"


def states_in_words(provenance: Mapping[str, Any]) -> str:
    """Return what a run's provenance says of its model states.

    Empty where it says nothing, or nothing that a run of ours says: outcomes come from a sandbox.
    """
    note = provenance.get("states")
    if not isinstance(note, Mapping) or note.get("precision") not in PRECISIONS:
        return ""
    parts = note.get("bytes_per_parameter")
    if not isinstance(parts, Mapping) or not set(parts) <= set(PARTS):
        return ""
    sized = all(isinstance(size, int | float) for size in (*parts.values(), note.get("trained", 1)))
    return describe_states(note) if sized and note.get("base", BASES[0]) in BASES else ""


def default_precision(dtype: str, fp32_gradients: bool = False) -> str:
    """Return what a training step of ``dtype`` keeps unless it is told: 16-bit types are mixed.

    ``fp32_gradients`` asks for Megatron-Core's form, which has them for bfloat16 (a float16 gradient is
    scaled, and stays in 16 bits there).
    """
    if DTYPE_BYTES[dtype] > 2:
        return FULL
    return MIXED_FP32_GRADS if fp32_gradients and dtype == "bfloat16" else MIXED


def dtype_for(dtype: str | None, precision: str | None, usual: str) -> str:
    """Return the type of weights and activations, by what is given and what is ``usual`` for the model.

    ``BadInput`` where type and precision contradict one another.
    """
    if precision is None:
        return dtype or usual
    wide = precision == FULL
    if dtype is None:
        fitting = (DTYPE_BYTES[usual] > 2) == wide
        return usual if fitting else "float32" if wide else "bfloat16"
    if (DTYPE_BYTES[dtype] > 2) != wide:
        expected = "float32 or float64" if wide else "bfloat16 or float16"
        raise BadInput(f"precision {precision!r} with dtype {dtype!r}", "options.precision", expected)
    return dtype
