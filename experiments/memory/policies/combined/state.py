"""Where the model's state is: how much of the update runs on the host, and what that leaves on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.hardware.host_adam import FUSED_ADAM
from experiments.memory.interface import MemoryMove, Offload, PlaceTensor, Recompute
from experiments.memory.planning.host_update import (
    Update,
    parameter_count,
    parameters_back,
    update_moves,
    update_of,
)
from experiments.memory.planning.parameter_streaming import stretches
from experiments.memory.policies.combined.copies import Absence
from experiments.memory.policies.combined.update_parts import UpdateParts, parts_of
from experiments.workloads.step import Step


@dataclass
class StatePlaces:
    """The update of ``step`` in parts, of which the first so many run on the host."""

    step: Step
    update: Update | None = field(init=False)
    parts: UpdateParts = field(init=False)
    _firsts: dict[int, Update] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.update = update_of(self.step)
        self.parts = parts_of(self.step, self.update) if self.update else UpdateParts((), {}, ())

    @property
    def count(self) -> int:
        return len(self.parts.parts)

    def on_host(self, count: int) -> Update | None:
        """The first ``count`` parts of the update as one; ``None`` for none."""
        if count and count not in self._firsts:
            self._firsts[count] = self.parts.first(count)
        return self._firsts.get(count)

    def host_seconds(self, count: int) -> float:
        """How long the first ``count`` parts take on the host, by the authors' kernel of ZeRO-Offload."""
        part = self.on_host(count)
        if part is None or self.update is None:
            return 0.0
        whole = self.update.bytes_of(self.step, self.update.parameters)
        share = part.bytes_of(self.step, part.parameters) / whole if whole else 1.0
        return FUSED_ADAM * share * parameter_count(self.step, self.update)

    def update_seconds(self, count: int) -> float:
        """How long the update takes with ``count`` parts on the host, concurrently with the device."""
        if self.update is None:
            return 0.0
        part = self.on_host(count)
        on_device = sorted(set(self.update.ops) - set(part.ops if part else ()))
        return max(self.host_seconds(count), float(self.step.ops.seconds[on_device].sum()))

    def persistent_bytes(self, count: int, streamed: bool) -> int:
        """Persistent bytes that stay on the device."""
        part = self.on_host(count)
        if part is None:
            return self.step.persistent_bytes
        away = (*part.states, *(part.parameters if streamed else ()))
        return self.step.persistent_bytes - part.bytes_of(self.step, away)

    @property
    def fewest_bytes(self) -> int:
        """Persistent bytes on the device with all that can be on the host there."""
        return self.persistent_bytes(self.count, streamed=True)

    def count_with(self, share: float) -> int:
        """Return how many parts hold this share of all states."""
        sizes = [part.bytes_of(self.step, part.states) for part in self.parts.parts]
        total, wanted = 0, share * sum(sizes)
        for count, size in enumerate(sizes):
            if total >= wanted:
                return count
            total += size
        return len(sizes)

    # --- moves ----------------------------------------------------------------------------------------------

    def moves(self, count: int, streamed: bool, reruns: Sequence[Recompute]) -> list[MemoryMove]:
        """States on the host, gradients sent to it, parameters back from it; streamed ones given up."""
        part = self.on_host(count)
        if part is None:
            return []
        moves = update_moves(self.step, part, self.host_seconds(count))
        moves += self.parts.shared_moves(count)
        if not streamed:
            return [*moves, *parameters_back(self.step, part)]
        uses = stretches(self.step, part, reruns)
        moves += [PlaceTensor(0, tensor) for tensor in part.parameters]
        return [*moves, *(Offload(use.last + 1, use.tensor, use.last) for use in uses)]

    def absences(self, count: int, reruns: Sequence[Recompute]) -> list[Absence]:
        """The absences of streamed parameters, before each stretch that uses one and after the last."""
        part = self.on_host(count)
        gone: dict[int, int] = {}
        found = []
        size = self.step.tensors.bytes
        for use in stretches(self.step, part, reruns) if part else ():
            found.append(Absence(use.tensor, int(size[use.tensor]), gone.get(use.tensor, 0), use.first))
            gone[use.tensor] = use.last + 1
        ops = len(self.step.ops)
        return [*found, *(Absence(t, int(size[t]), begin, ops) for t, begin in gone.items())]
