"""What a training step needs with another optimizer or precision of its type, without a capture of it.

Forward and backward pass do not know the optimizer: they are those of the captured step. What it keeps, and
what its update makes meanwhile, follow from the parameters' shapes (``profiling.update_memory``). Gradients
that are kept in float32 are there all the time; else those live in the passes are as captured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.summaries.memory_law import TERMS, MemoryLaw
from experiments.summaries.training_memory import PARTS
from experiments.workloads.ragged import Ints

#: Under which the law of a step holds its passes.
COMPOSED = "composed"
STATE, GRADIENTS, REST = (PARTS.index(part) for part in ("optimizer state", "gradients", PARTS[-1]))


@dataclass(frozen=True)
class UpdateMemory:
    """Bytes of an optimizer and its update.

    - ``state``: what it keeps on the device, master weights too; ``buffers``: gradients that are always kept.
    - ``passing``: the largest gradient on its way into such a buffer.
    - ``gradients``, ``temporaries``: what else is live at the worst moment of the update.
    - ``need``: what the largest operation of the update touches.
    """

    state: int
    buffers: int
    passing: int
    gradients: int
    temporaries: int
    need: int

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UpdateMemory:
        return cls(**{name: int(data[name]) for name in cls.__annotations__})


#: By precision and optimizer.
Updates = Mapping[str, Mapping[str, UpdateMemory]]


def updates_to_json(updates: Updates) -> dict[str, Any]:
    return {
        precision: {name: asdict(update) for name, update in found.items()}
        for precision, found in updates.items()
    }


def with_updates(law: Mapping[str, Any], updates: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a step's ``law``, its passes with ``updates`` measured after it."""
    passes = {COMPOSED: {**law[COMPOSED], "updates": dict(updates)}} if COMPOSED in law else {}
    return {**law, **passes}


@dataclass(frozen=True)
class ComposedLaw:
    """Passes of a captured step, and the ``updates`` that it may have: none until those are measured."""

    passes: MemoryLaw
    always: Ints
    updates: Updates

    def law(self, precision: str, optimizer: str) -> MemoryLaw | None:
        """Return the memory of the step so trained; ``None`` for a precision of another type."""
        update = self.updates.get(precision, {}).get(optimizer)
        if update is None:
            return None
        ending = self.always.copy()
        ending[GRADIENTS, 0] = update.gradients
        ending[REST, 0] += update.temporaries
        peaks = np.concatenate([self.passes.peaks, ending[None]])
        peaks[:, STATE] = 0
        peaks[:, STATE, 0] = update.state
        if update.buffers:
            peaks[:-1, GRADIENTS, 0] = update.buffers + np.minimum(peaks[:-1, GRADIENTS, 0], update.passing)
            peaks[-1, GRADIENTS, 0] = update.buffers
        needs = np.zeros((1, len(TERMS)), np.int64)
        needs[0, 0] = update.need
        return replace(self.passes, peaks=peaks, needs=np.concatenate([self.passes.needs, needs]))

    def to_json(self) -> dict[str, Any]:
        return {
            "passes": self.passes.to_json(),
            "always": self.always.tolist(),
            "updates": updates_to_json(self.updates),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ComposedLaw:
        """Return a stored one; ``BadInput`` for anything else."""
        try:
            always = np.array(data["always"], np.int64)
            updates = {
                str(precision): {str(name): UpdateMemory.from_json(row) for name, row in found.items()}
                for precision, found in data["updates"].items()
            }
            passes = data["passes"]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"{error}", "memory law", "passes, always and updates") from None
        if always.shape != (len(PARTS), len(TERMS)):
            raise BadInput(f"bytes of shape {always.shape}", "memory law", "bytes by part and term")
        return cls(MemoryLaw.from_json(passes), always, updates)
