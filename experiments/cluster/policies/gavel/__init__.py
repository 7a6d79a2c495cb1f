"""Gavel, OSDI'20: any objective as a division of time among jobs, aware of how fast each type of device is
for whom.

A policy is a linear program over shares ``X[job, type]``: of the time of each type no more is given than
there is, of each job's time no more than all (section 4). Rounds turn shares into gangs: who has had least of
its share comes first (section 5). Without ``heterogeneity`` all types are taken to be alike; with ``packing``
two jobs of equally many GPUs may share them, at the speeds measured for both together.

Left out: the estimate of pairs' speeds from a few measured ones (section 6; tables are complete here), and
placement as a part of the program (section 4.4: speeds are those on one node).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.cluster.interface import ClusterPolicy, Decider, Divider, rules_of
from experiments.cluster.planning.queue_shares import FastestQueueShares, QueueShares
from experiments.cluster.policies.gavel.timesharing import TimeSharing
from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS

FIFO = "fifo"
#: Objectives that are linear programs (``objectives``).
PROGRAMS = ("max_min", "makespan", "ftf", "throughput", "cost", "hierarchical")
#: Google's prices of one preemptible device for an hour, in dollars, as the release has them.
PRICES = "v100=0.74, p100=0.43, k80=0.135"
#: Two jobs share devices under ``fifo`` only where that is worth so many devices.
THRESHOLD = 1.5


@dataclass(frozen=True)
class Gavel(ClusterPolicy):
    """Divides time on each type of device by an objective, and gives it out in rounds."""

    name: ClassVar[str] = "gavel"
    mechanism: ClassVar[str] = "fair division"
    gpus_only: ClassVar[bool] = True
    effort: ClassVar[str] = SECONDS
    sees: ClassVar[frozenset[str]] = frozenset({"throughput", "weight", "deadline", "tenant"})
    quick: ClassVar[Mapping[str, Any]] = {"round_length": 7.0, "reset_interval": 20.0}

    rules: str = rules_of("gavel")
    objective: str = knob(
        "max_min",
        "what a division is good for: the least, normalized, per GPU and weight; the last end; the worst "
        "ratio to an equal share; all speeds; all speeds by price; fairness of tenants, then of their jobs; "
        "the order of submission",
        choices=(*PROGRAMS, FIFO),
    )
    heterogeneity: bool = knob(True, "look at how fast each type is for each job")
    packing: bool = knob(False, "let two jobs share devices")
    inside: str = knob(
        "fairness", "under hierarchical: how a tenant's jobs share its part", choices=("fairness", "fifo")
    )
    prices: str = knob(
        PRICES, "under cost: dollars for a device's hour where the cluster does not tell", words=True
    )
    round_length: float = knob(360.0, "time between preemptions", low=1e-3, high=86400.0, unit="s")
    reset_interval: float = knob(1920.0, "how long a division holds at least", low=0.0, high=1e9, unit="s")

    def __post_init__(self) -> None:
        if self.packing and not self.heterogeneity:
            raise BadInput("needs speeds, which heterogeneity=false hides", "knobs.packing", "one of the two")
        self.price_by_type()

    @property
    def round_seconds(self) -> float:
        return self.round_length

    def price_by_type(self) -> Mapping[str, float]:
        """The prices by type, as ``prices`` spells them."""
        found = {}
        for part in filter(None, map(str.strip, self.prices.split(","))):
            kind, _, price = part.partition("=")
            try:
                found[kind.strip()] = float(price)
            except ValueError:
                raise BadInput(f"{part!r:.40} is no price", "knobs.prices", "as in v100=0.74") from None
            if not 0 < found[kind.strip()] < 1e6:
                raise BadInput(f"{part!r:.40} is out of range", "knobs.prices", "dollars above 0")
        return found

    def divider(self, seed: int) -> Divider:
        if self.objective != FIFO:
            from experiments.cluster.policies.gavel.objectives import OBJECTIVES  # scipy takes a while

            return OBJECTIVES[self.objective](self)
        if self.heterogeneity:
            return FastestQueueShares(packs=self.packing, threshold=THRESHOLD)
        return QueueShares(seed, mended=True)

    def begin(self) -> Decider:
        return TimeSharing(self)
