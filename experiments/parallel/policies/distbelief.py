"""DistBelief (Dean et al., NeurIPS'12): Downpour SGD and the batches of Sandblaster L-BFGS on sharded
parameter servers.

``downpour``: section 4.1. Replicas fetch parameters every ``n_fetch`` iterations and push accumulated
gradients every ``n_push``, without waiting for either unless ``wait`` is set; shards update on arrival, with
Adagrad by parameter. ``sandblaster``: section 4.2. A batch is cut in ``portions``, much smaller than a
replica's share; a free replica takes the next, at the end those of slow replicas are executed once more by
free ones and the first answer wins; parameters are fetched once a batch and all replicas' gradients make one
update.

Left open by the paper: how a replica's model is split over machines (here it is whole on one device), and
convergence. Not reproduced: warm start with one replica; the L-BFGS directions themselves, which never leave
the servers (the traffic and the times of a batch do not depend on them), so that Sandblaster is simulated
only. ``slow_worker`` makes the last replica slow.
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
from experiments.parallel.planning.servers import (
    Roles,
    even_shares_seconds,
    range_bytes,
    roles,
    server_plan,
    taken_when_free,
)
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class DistBelief(LivePolicy, ParallelPolicy):
    """Replicas that fetch and push when they like (Downpour), or share a batch (Sandblaster).

    Sandblaster's replicas take small portions of a batch.
    """

    name: ClassVar[str] = "distbelief"
    mechanism: ClassVar[str] = "parameter servers"
    keeps_whole: ClassVar[str] = "every replica has all weights and gradients, and its samples at once"

    processes: int = knob(3, "processes of a measured run, servers included", low=2, high=64)
    method: str = knob("downpour", "asynchronous SGD or batches", choices=("downpour", "sandblaster"))
    servers: int | None = knob(
        None,
        "devices that hold a shard and do not compute; empty: as few as leave equal workers",
        low=1,
        high=4096,
    )
    iterations: int = knob(32, "iterations of each replica, or batches (sandblaster)", low=1, high=65536)
    n_fetch: int = knob(1, "iterations between fetches (downpour)", low=1, high=65536)
    n_push: int = knob(1, "iterations between pushes (downpour)", low=1, high=65536)
    wait: bool = knob(False, "wait for what is fetched and pushed (downpour)")
    portions: int = knob(16, "portions of a batch (sandblaster)", low=1, high=65536)
    slow_worker: float = knob(1.0, "how many times longer the last replica takes", low=1.0, high=1000.0)
    rate: float = knob(0.003, "learning rate of Adagrad (measured)", low=0.0, high=1e3)

    def sync(self) -> Synchronization:
        if self.method == "sandblaster":
            return Synchronization(PARAMETER_SERVER)
        return Synchronization(
            PARAMETER_SERVER,
            staleness=None,
            fetch_every=self.n_fetch,
            push_every=self.n_push,
            fetch_ahead=not self.wait,
        )

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        samples = batch if self.method == "downpour" else 0  # portions are handed out, however many work
        share = roles(cluster, self.servers, samples)
        size = range_bytes(self.sync().bucket_bytes, share, estimate)
        sync = replace(self.sync(), servers=share.servers, bucket_bytes=size)
        takes: list[tuple[int, ...]] = [(worker,) for worker in range(len(share.workers))]
        notes: dict[str, object] = {}
        if self.method == "sandblaster":
            takes, notes = self._portions(batch, share, estimate)
        optimizer = "adagrad" if self.method == "downpour" else "sgd"
        training = Training(Learning(optimizer, self.rate))
        plan = server_plan(model, batch, self.iterations, share, takes, sync, training)
        slow = (self.slow_worker,) if self.slow_worker != 1.0 else ()
        last = replace(plan.workers[-1], slow=slow)
        return replace(plan, workers=(*plan.workers[:-1], last), notes=notes)

    def _portions(
        self, batch: int, share: Roles, estimate: PlanningEstimate
    ) -> tuple[list[tuple[int, ...]], dict[str, object]]:
        each = float(estimate.layer_seconds.sum()) * batch / self.portions
        seconds = [each * estimate.slowdown(device) for device in share.workers]
        seconds[-1] *= self.slow_worker
        found = taken_when_free(self.portions, seconds)
        notes: dict[str, object] = {
            "batch_time": found.seconds,
            "even_shares_time": even_shares_seconds(self.portions, seconds),
            "duplicated": found.duplicated,
        }
        return list(found.taken), notes
