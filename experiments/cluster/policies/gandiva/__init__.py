"""Gandiva, OSDI'18: introspective scheduling by affinity, time slices, packing and migration.

A job that arrives gets devices of its own: on nodes that have jobs of as many GPUs already, else on empty
ones, else on others (``homes``). Where none are free it shares those with the fewest jobs, and jobs that
share take turns in slices; changing over takes ``switch_time``, in which the devices idle (``turns``). Two
jobs that share are tried together on their devices, the least busy first, and stay so while their measured
rates sum to more than one job alone; pairs whose speeds nobody knows are not tried. When jobs leave, waiting
ones move to what fell free and jobs are brought back together on fewer nodes. In a search over
hyper-parameters (jobs of one ``group`` with ``losses``) a job ends as soon as a sibling is ahead of it
(``search``), and is told as rejected, with the reason.

With ``grow`` idle devices are lent to jobs whose speed on more GPUs is known, until somebody waits
(``growth``).

Chosen here: what changes over at which second, that packed jobs get half a device each, and that a job may
grow when a table of its trace says how fast it then is. With ``empty_nodes`` the jobs of the least loaded
node move to others that have jobs and room for all of them, when a job leaves and nobody waits
(``emptying``); each pays ``migration_cost``, and the node is free for a job that needs all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.cluster.interface import ClusterPolicy, Decider
from experiments.cluster.policies.gandiva.turns import Turns
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS


@dataclass(frozen=True)
class Gandiva(ClusterPolicy):
    """Lets jobs take turns on devices, packs them where rates say so, and moves them to regain locality."""

    name: ClassVar[str] = "gandiva"
    mechanism: ClassVar[str] = "share devices"
    gpus_only: ClassVar[bool] = True
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    effort: ClassVar[str] = SECONDS
    sees: ClassVar[frozenset[str]] = frozenset({"utilization", "group", "losses", "throughput"})
    rejects: ClassVar[bool] = True

    slice_length: float = knob(
        60.0, "time for which a job runs in its turn", low=1e-3, high=86400.0, unit="s"
    )
    switch_time: float = knob(
        1.0, "time in which a job is suspended and the next one resumed", low=0.0, high=3600.0, unit="s"
    )
    migration_cost: float | None = knob(
        5.0, "time without progress when a job moves to other nodes", low=0.0, high=86400.0, unit="s"
    )
    packing: bool = knob(True, "whether two jobs that share devices are tried on them at once")
    resize_cost: float | None = knob(
        5.0,
        "time without progress when a job is lent devices or gives them back",
        low=0.0,
        high=86400.0,
        unit="s",
    )
    grow: bool = knob(False, "whether idle devices are lent to jobs that can use more")
    empty_nodes: bool = knob(
        False, "whether jobs leave the least loaded node for others when a job has ended and nobody waits"
    )
    early_stopping: bool = knob(True, "whether a job of a search ends once a sibling's loss is ahead")

    @property
    def shares_devices(self) -> bool:
        return self.packing

    @property
    def keeps_sizes(self) -> bool:
        return not self.grow

    def begin(self) -> Decider:
        return Turns(
            self.slice_length,
            self.switch_time,
            self.packing,
            self.early_stopping,
            self.grow,
            self.empty_nodes,
        )
