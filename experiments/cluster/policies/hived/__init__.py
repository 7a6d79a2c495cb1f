"""HiveD, OSDI'20: tenants own cells of the cluster's topology, not numbers of GPUs.

A guaranteed job is scheduled inside its tenant's virtual cluster, on as few and as near devices as that has
(``virtual``). Only then its cells are bound to physical ones, by buddy allocation (``cells``), where fewest
opportunistic GPUs are in the way. Opportunistic jobs use what is free of all and give way at once. Inside a
virtual cluster a higher ``priority`` preempts a lower one. Nodes that are down are avoided by splitting
larger cells as far as that takes nobody's away; what cannot be had so is its owner's loss.

With ``preemption_grace`` victims run on for that long, or until they end, while their preemptor has reserved
the cells (``preemption``). A higher priority takes cells that are reserved too; who waited for them waits for
others, and victims whose devices nobody wants any more stay where they are.

A job that names ``suggested_nodes`` is bound to no others; while it waits for them, its tenant's other jobs
pass it.

At ``reconfigure_at`` tenants own ``new_virtual_clusters``. A job keeps its devices where its tenant has cells
around them; others go on as opportunistic ones until they end or give way.

Cells are nodes and their halves down to one device; racks are not cells here. A cell brings its part of the
host: processors and memory that jobs ask for are not looked at, types of devices only where tenants own cells
of types. Without ``virtual_clusters`` all tenants share one that owns every node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.cluster.interface import ClusterPolicy, Decider
from experiments.cluster.policies.hived.cluster import Cluster
from experiments.cluster.policies.hived.deciders import Change, Scheduler
from experiments.cluster.policies.hived.virtual import quotas_of
from experiments.core.errors import BadInput
from experiments.core.knobs import knob


@dataclass(frozen=True)
class HiveD(ClusterPolicy):
    """Gives every tenant its own cells whenever it wants them, whoever uses the cluster meanwhile."""

    name: ClassVar[str] = "hived"
    mechanism: ClassVar[str] = "guarantees"
    gpus_only: ClassVar[bool] = True
    sees: ClassVar[frozenset[str]] = frozenset({"tenant", "class", "priority", "suggested_nodes"})
    rejects: ClassVar[bool] = True

    virtual_clusters: str = knob(
        "",
        "cells of each tenant, as name:GPUs of a cell x cells (@type), as in a:4x2, b:8x1@V100; "
        "a level or type that no node has is refused; empty: all share one",
        words=True,
    )

    preemption_grace: float = knob(
        0.0,
        "time that preempted jobs have to leave; their preemptor has reserved the cells meanwhile, and is "
        "canceled by a higher priority",
        low=0.0,
        high=86400.0,
        unit="s",
    )

    ignore_suggested: bool = knob(
        False,
        "where no suggested node (column suggested_nodes of the trace) can take a job, others do; else it "
        "waits, or is refused where they never can",
    )

    reconfigure_at: float | None = knob(
        None,
        "when new_virtual_clusters begin to hold; running jobs without cells go on as opportunistic ones",
        low=0.0,
        high=1e12,
        unit="s",
    )
    new_virtual_clusters: str = knob(
        "", "cells of each tenant from reconfigure_at on, as virtual_clusters", words=True
    )

    def __post_init__(self) -> None:
        quotas_of(self.virtual_clusters)
        quotas_of(self.new_virtual_clusters, "new_virtual_clusters")
        if bool(self.new_virtual_clusters.strip()) != (self.reconfigure_at is not None):
            what = "new_virtual_clusters and reconfigure_at are given together"
            raise BadInput(what, "knobs.reconfigure_at", "both or neither")

    def begin(self) -> Decider:
        cluster = Cluster(quotas_of(self.virtual_clusters))
        change = None
        if self.reconfigure_at is not None:
            change = Change(self.reconfigure_at, quotas_of(self.new_virtual_clusters, "new_virtual_clusters"))
        return Scheduler(cluster, self.preemption_grace, self.ignore_suggested, change)
