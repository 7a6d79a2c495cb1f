"""BytePS: gradients are summed on every machine, on spare CPU machines too, each its best share of them.

Source: Jiang et al., "A Unified Architecture for Accelerating Distributed DNN Training in Heterogeneous
GPU/CPU Clusters", OSDI'20, section 4.1. "n" is the number of machines with GPUs, "k" that of machines
without, M is X and B is Bw here: a service on each GPU machine sums a share a of the gradients, one on each
CPU machine a share b. A GPU machine then moves X (1 + (n-2) a) each way, a CPU machine X n b; the least time
makes both equal. k = 0 is an all-reduce, k = n a parameter server on machines of its own. Weights are updated
by the workers, not by the services.

The simulator moves parts of at most ``part_bytes`` through the machines' adapters; the notes give the formula
too. Left open by the paper: how many parts are in flight (``in_flight``), and more CPU than GPU machines (the
rest stay idle). Not reproduced: copies between device and host memory, the sum's own time, unequal adapters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from experiments.core.errors import BadInput
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware, NodeGroup
from experiments.parallel.interface import (
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Synchronization,
    data_parallel_plan,
)
from experiments.parallel.interface.exchanges import SUMMATION
from experiments.parallel.planning.settings import accumulations
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class BytePs(ParallelPolicy):
    """Gradients summed by services on all machines, in the shares that are fastest.

    Spare CPU machines take their share.
    """

    name: ClassVar[str] = "byteps"
    mechanism: ClassVar[str] = "data parallel"
    keeps_whole: ClassVar[str] = "every device has all model states"

    cpu_machines: int = knob(
        0, "machines without GPUs, the last of the cluster, that only sum", low=0, high=4096
    )
    micro_batches: int | None = open_knob(
        "micro-batches accumulated on each device before the update", low=1, high=65536
    )
    part_bytes: float = knob(4 * 2**20, "a part of the gradients, at most", low=1, high=1e12, unit="bytes")
    in_flight: int = knob(64, "parts that are under way at once", low=1, high=1 << 20)

    def sync(self) -> Synchronization:
        return Synchronization(SUMMATION, bucket_bytes=self.part_bytes, in_flight=self.in_flight)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """As few micro-batches as fit."""
        machines = max(1, cluster.node_count - self.cpu_machines)
        devices = sum(node.device_count for node in cluster.nodes[:machines])
        return accumulations(self, batch // devices)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        machines = cluster.node_count - self.cpu_machines
        if machines < 1:
            raise BadInput(
                f"{self.cpu_machines} CPU machines of {cluster.node_count}", "knobs.cpu_machines", "fewer"
            )
        helpers = min(self.cpu_machines, machines)
        own, spare = optimal_shares(machines, helpers)
        shares = [own] * machines + [spare] * helpers
        sync = replace(self.sync(), servers=_first_devices(cluster, machines + helpers), shares=tuple(shares))
        workers = _without_helpers(cluster, machines)
        plan = data_parallel_plan(model, workers, batch, self.micro_batches or 1, sync)
        size = float(estimate.layer_parameters.sum()) * estimate.states.gradient
        return replace(plan, notes=_notes(machines, helpers, size, cluster.network.bandwidth))


def optimal_shares(machines: int, helpers: int) -> tuple[float, float]:
    """Return what a service on a GPU machine and one on a CPU machine sums: theorem 1.

    Together they sum to 1.
    """
    n, k = machines, helpers
    if n == 1:
        return 1.0, 0.0
    whole = n * n + k * n - 2 * k
    return (n - k) / whole, 2 * (n - 1) / whole


def optimal_seconds(machines: int, helpers: int, size: float, bandwidth: float) -> float:
    """Return what the busiest adapter takes to move its bytes.

    2n(n-1) X / ((n^2 + kn - 2k) B).
    """
    n, k = machines, helpers
    return 2 * n * (n - 1) * size / ((n * n + k * n - 2 * k) * bandwidth) if n > 1 else 0.0


def _first_devices(cluster: Hardware, machines: int) -> tuple[int, ...]:
    """The device that stands for each machine's service."""
    found, device = [], 0
    for node in cluster.nodes[:machines]:
        found.append(device)
        device += node.device_count
    return tuple(found)


def _without_helpers(cluster: Hardware, machines: int) -> Hardware:
    """The cluster's first machines; ``BadInput`` unless all have as many devices."""
    nodes = cluster.nodes[:machines]
    if any(node.device_count != nodes[0].device_count for node in nodes):
        raise BadInput("GPU machines have unequal numbers of devices", "hardware", "as many in each")
    groups = [NodeGroup(1, node) for node in nodes]
    return replace(cluster, groups=tuple(groups), stragglers=())


def _notes(machines: int, helpers: int, size: float, bandwidth: float) -> dict[str, float | Sequence[float]]:
    own, spare = optimal_shares(machines, helpers)
    parameter_server = machines * size / helpers / bandwidth if helpers else 0.0
    return {
        "share_of_gpu_machine": own,
        "share_of_cpu_machine": spare,
        "network_seconds": optimal_seconds(machines, helpers, size, bandwidth),
        "all_reduce_seconds": optimal_seconds(machines, 0, size, bandwidth),
        "parameter_server_seconds": parameter_server,
    }
