"""What a training step needs at any batch and sequence, from captures of three steps.

The ops of a step do not change with its sizes, and the bytes of each tensor are a constant times a power of
the batch and a power of the sequence. So what is live while an op runs is a sum of a few such terms, and the
peak is the largest of these sums over all ops. An op whose every term is at most another's can never be it:
of thousands a handful remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput
from experiments.summaries.training_memory import PARTS, parts_of
from experiments.workloads.paged_states import paged_states
from experiments.workloads.ragged import Ints
from experiments.workloads.step import PHASES, Step

#: Powers of the batch and of the sequence in the terms that are told apart.
TERMS = tuple((batch, sequence) for batch in (0, 1) for sequence in (0, 1, 2))
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MemoryLaw:
    """Bytes of the ops that can be the peak, and of those that can need most for themselves.

    ``peaks`` are bytes at the captured ``batch`` and ``sequence`` (0: it has none), by op, part
    (``training_memory.PARTS``) and term; ``needs`` by op and term.
    """

    batch: int
    sequence: int
    peaks: Ints
    needs: Ints

    def parts(self, batch: int, sequence: int = 0) -> dict[str, float]:
        """Return what the peak is made of at these sizes, in bytes."""
        found = self.peaks @ self._factors(batch, sequence)
        largest = found[int(np.argmax(found.sum(axis=1)))]
        return dict(zip(PARTS, largest.tolist(), strict=True))

    def peak(self, batch: int, sequence: int = 0) -> float:
        """Return the bytes of the step when nothing is moved or computed again."""
        return sum(self.parts(batch, sequence).values())

    def least(self, batch: int, sequence: int = 0) -> float:
        """Return the bytes of the largest op: no plan that keeps tensors whole can do with less."""
        return float((self.needs @ self._factors(batch, sequence)).max(initial=0.0))

    def _factors(self, batch: int, sequence: int) -> Floats:
        rows, tokens = batch / self.batch, sequence / self.sequence if self.sequence else 1.0
        return np.array([rows**first * tokens**second for first, second in TERMS])

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "sequence": self.sequence,
            "parts": list(PARTS),
            "terms": [list(term) for term in TERMS],
            "peaks": self.peaks.tolist(),
            "needs": self.needs.tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryLaw:
        """Return a stored law; ``BadInput`` for anything else."""
        try:
            peaks, needs = (np.array(data[name], np.int64) for name in ("peaks", "needs"))
            batch, sequence = int(data["batch"]), int(data["sequence"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"{error}", "memory law", "batch, sequence, peaks and needs") from None
        shapes = (peaks.shape[1:], needs.shape[1:])
        if shapes != ((len(PARTS), len(TERMS)), (len(TERMS),)) or batch < 1 or sequence < 0:
            raise BadInput(f"bytes of shape {shapes}", "memory law", "bytes by part and term")
        return cls(batch, sequence, peaks, needs)


@dataclass(frozen=True)
class StepLaws:
    """The law of a whole step, that of its passes alone, and the bytes ``always`` there by part and term.

    Of the passes no op is left out that could need most with other bytes for each gradient.
    """

    whole: MemoryLaw
    passes: MemoryLaw
    always: Ints


def laws_of(whole: Step, half_batch: Step, half_sequence: Step | None) -> StepLaws:
    """Return the laws of three steps: as asked for, with half its batch, and with half its sequence, if any.

    ``BadInput`` where the ops differ or a tensor does not scale with a power.
    """
    terms = _terms(whole, half_batch, half_sequence)
    always, live = _live(whole, terms)
    needs = _by_op(whole, terms)
    sizes = int(whole.facts["batch"]), int(whole.facts["sequence"]) if half_sequence else 0
    kept = _find_undominated(live.sum(axis=1))
    law = MemoryLaw(*sizes, live[kept], needs[_find_undominated(needs)])
    passes = whole.ops.phase < PHASES.index("optimizer")
    live, needs = live[passes], needs[passes]
    kept = _find_undominated(_with_gradients_apart(live))
    return StepLaws(law, MemoryLaw(*sizes, live[kept], needs[_find_undominated(needs)]), always)


def _with_gradients_apart(live: Ints) -> Ints:
    gradients = live[:, PARTS.index("gradients")]
    return np.concatenate([gradients, live.sum(axis=1) - gradients], axis=1)


def _terms(whole: Step, half_batch: Step, half_sequence: Step | None) -> tuple[Ints, Ints]:
    """The term of each tensor, and of each op's workspace."""
    for other in filter(None, (half_batch, half_sequence)):
        if other.ops.target != whole.ops.target or len(other.tensors) != len(whole.tensors):
            raise BadInput("runs other ops at half its size", whole.name, "ops that do not change with sizes")
    found = []
    for sizes, half_rows, half_tokens in zip(
        _sizes(whole), _sizes(half_batch), _sizes(half_sequence or whole), strict=True
    ):
        first = _powers(sizes, half_rows, 1, whole.name)
        second = _powers(sizes, half_tokens, 2, whole.name)
        found.append(first * 3 + second)
    return found[0], found[1]


def _sizes(step: Step) -> tuple[Ints, Ints]:
    return step.tensors.bytes, step.ops.workspace


def _powers(whole: Ints, half: Ints, most: int, name: str) -> Ints:
    """The power of two between ``half`` and ``whole``, up to ``most``."""
    found = np.full(len(whole), -1)
    for power in range(most, -1, -1):
        found[whole == half * 2**power] = power
    if (found < 0).any():
        at = int(np.argmin(found))
        what = f"{whole[at]} bytes are {half[at]} at half the size"
        raise BadInput(what, name, "tensors that grow with a power of batch and sequence")
    return found


def _live(step: Step, terms: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Bytes that are always there, and those live while each op runs, by part and term; workspace counts
    with the last part. What a paged optimizer keeps on the host is there for its update.
    """
    of_part = np.full(len(step.tensors), len(PARTS) - 1)
    for part, chosen in parts_of(step).items():
        of_part[chosen] = PARTS.index(part)
    change = np.zeros((len(step.ops) + 1, len(PARTS), len(TERMS)), np.int64)
    stays = step.persistent.copy()
    stays[paged_states(step)] = False
    local = np.flatnonzero(~stays & (step.death >= 0))
    place = of_part[local], terms[0][local]
    np.add.at(change, (step.first_use[local], *place), step.tensors.bytes[local])
    np.add.at(change, (step.death[local] + 1, *place), -step.tensors.bytes[local])
    always = np.flatnonzero(stays)
    beginning = np.zeros(change.shape[1:], np.int64)
    np.add.at(beginning, (of_part[always], terms[0][always]), step.tensors.bytes[always])
    change[0] += beginning
    live = np.cumsum(change[:-1], axis=0)
    last = np.full(len(step.ops), len(PARTS) - 1)
    np.add.at(live, (np.arange(len(step.ops)), last, terms[1]), step.ops.workspace)
    return beginning, live


def _by_op(step: Step, terms: tuple[Ints, Ints]) -> Ints:
    """Bytes of each op's own tensors and workspace, by term."""
    found = np.zeros((len(step.ops), len(TERMS)), np.int64)
    ops = np.repeat(np.arange(len(step.ops)), np.diff(step.touched.offsets))
    touched = step.touched.values
    np.add.at(found, (ops, terms[0][touched]), step.tensors.bytes[touched])
    np.add.at(found, (np.arange(len(step.ops)), terms[1]), step.ops.workspace)
    return found


def _find_undominated(rows: Ints) -> Ints:
    """Indices of rows of which no other is at least as large in every column; of equal rows one."""
    _, first = np.unique(rows, axis=0, return_index=True)
    order = first[np.argsort(-rows[first].sum(axis=1), kind="stable")]
    kept: list[int] = []
    for index in order.tolist():
        if not (rows[kept] >= rows[index]).all(axis=1).any():
            kept.append(index)
    return np.array(sorted(kept), np.int64)
