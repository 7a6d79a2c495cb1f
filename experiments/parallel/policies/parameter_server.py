"""Parameter servers (Li et al., OSDI'14) with bulk, asynchronous or stale synchronous consistency (Ho et al.,
NIPS'13).

Followed: sections 3.1-3.4 of the former (parameters in ranges, which are the unit of push, pull and version;
workers that pull, compute and push; a bounded delay between iterations), the bound on clocks by worker of the
latter: iteration c starts when the slowest worker has done c - s. ``bsp`` updates once with the mean of all
workers, ``ssp`` and ``asp`` with each push.

Left open by the papers: where servers run (here devices of their own, the last of the cluster, or with
``servers=0`` every device besides its work) and how rates follow staleness. Not reproduced: copies of ranges
on other servers, filters, and working sets of sparse models, which a dense model does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    Learning,
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Synchronization,
    Training,
)
from experiments.parallel.interface.parameter_servers import PARAMETER_SERVER
from experiments.parallel.planning.servers import range_bytes, roles, server_plan
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class ParameterServer(LivePolicy, ParallelPolicy):
    """Workers pull parameters from servers and push gradients, as far apart as consistency allows."""

    name: ClassVar[str] = "parameter_server"
    mechanism: ClassVar[str] = "parameter servers"
    keeps_whole: ClassVar[str] = "every worker has all weights and gradients, and its samples at once"

    processes: int = knob(3, "processes of a measured run, servers included", low=2, high=64)
    consistency: str = knob("ssp", "bulk, stale or not synchronous", choices=("bsp", "ssp", "asp"))
    staleness: int = knob(2, "iterations that a worker may be ahead of the slowest (ssp)", low=0, high=10**6)
    servers: int | None = knob(
        None,
        "devices that serve and do not compute; 0: all do both (simulated); empty: as few as leave equal "
        "workers",
        low=0,
        high=4096,
    )
    iterations: int = knob(
        32, "iterations of each worker in the window that is carried out", low=1, high=65536
    )
    range_bytes: float = knob(
        4 * 2**20,
        "parameters of a range; more where a server would have more than eight",
        low=1,
        high=1e12,
        unit="bytes",
    )
    slow_worker: float = knob(1.0, "how many times longer the last worker takes", low=1.0, high=1000.0)
    rate: float = knob(0.1, "learning rate (measured)", low=0.0, high=1e3)

    def sync(self) -> Synchronization:
        bound = {"bsp": 0, "ssp": self.staleness, "asp": None}[self.consistency]
        return Synchronization(PARAMETER_SERVER, bucket_bytes=self.range_bytes, staleness=bound)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        share = roles(cluster, self.servers, batch)
        takes = [[worker] for worker in range(len(share.workers))]
        size = range_bytes(self.range_bytes, share, estimate)
        sync = replace(self.sync(), servers=share.servers, bucket_bytes=size)
        training = Training(Learning(rate=self.rate))
        plan = server_plan(model, batch, self.iterations, share, takes, sync, training)
        if self.slow_worker == 1.0:
            return plan
        return replace(
            plan, workers=(*plan.workers[:-1], replace(plan.workers[-1], slow=(self.slow_worker,)))
        )
