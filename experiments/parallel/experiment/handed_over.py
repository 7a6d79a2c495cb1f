"""What ranks of a plan hand over in a step: as the simulator says, and as torch's runners do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.progress import Progress, part
from experiments.core.spec import RunSpec
from experiments.parallel.experiment.placed import place, source_of
from experiments.parallel.simulator import simulate


@dataclass(frozen=True)
class HandedOver:
    """Bytes that a rank hands over in a step by kind, as the simulator says and as its runner does.

    ``padding`` is what FSDP2 adds, which gives every rank equally many whole rows of each tensor: ZeRO, which
    divides flat buffers, has none.
    """

    rank: int
    simulated: Mapping[str, float]
    counted: Mapping[str, int]
    padding: Mapping[str, float] = field(default_factory=dict)

    def kinds(self) -> list[tuple[str, float, int]]:
        """Simulated with its padding, and counted."""
        names = sorted({*self.simulated, *self.counted})
        return [
            (name, self.simulated.get(name, 0.0) + self.padding.get(name, 0.0), self.counted.get(name, 0))
            for name in names
        ]

    @property
    def agrees(self) -> bool:
        """To the byte; the simulator's shares of layers are fractions."""
        return all(round(simulated) == counted for _, simulated, counted in self.kinds())

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "agrees": self.agrees}


def communication(
    spec: RunSpec, policy: Policy, ranks: Sequence[int], progress: Progress
) -> list[HandedOver]:
    """What some ranks of the plan hand over in a step, simulated and counted.

    It is counted under torch's fake process group.
    """
    placed = place(spec, policy, part(progress, 0.0, 0.5))
    devices = placed.plan.devices
    source = source_of(spec, placed.loaded)
    for rank in ranks:
        if not 0 <= rank < len(devices):
            raise BadInput(f"rank {rank}", "--ranks", f"from 0 to {len(devices) - 1}")
    found = simulate(placed.plan, placed.estimate).communication_by_kind
    fake = registry.load_module("parallel", "live.fake")
    more = fake.padding(placed.plan, placed.estimate.model, source) - 1
    rows = []
    for done, rank in enumerate(ranks):
        progress(0.5 + 0.5 * done / len(ranks), f"rank {rank}")
        simulated = dict(found[devices[rank]])
        padding = {kind: size * more for kind, size in simulated.items() if more}
        counted = fake.plan_handed_over_bytes(placed.plan, placed.estimate.model, source, spec.seed, rank)
        rows.append(HandedOver(rank, simulated, counted, padding))
    return rows
