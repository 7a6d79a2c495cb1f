"""``pollux``: the simulator that Pollux (OSDI'21) was published with, in ticks of 60 s.

A tick is a job's progress, then a decision: a job waits at least for the tick after its submission. A job
that gets devices, also its first ones, or others than it has, makes no progress for 30 s; what is taken away
costs nothing. Within a tick a job's progress jumps to the end of its epoch, which is rounded to a whole
second, and it ends at the end of its last. Nodes, not single devices, decide what is another allocation. The
makespan is counted from the trace's zero.

How fast jobs train is told by Pollux' folder of measurements alone (``goodput``), with the limits that the
release has for single applications. Not reproduced: interference among jobs that span nodes (off as
released).
"""

from __future__ import annotations

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, Performance
from experiments.cluster.planning.performance import GoodputSpeed
from experiments.cluster.simulator.admission import find_oversized
from experiments.cluster.simulator.releases.pollux.applications import LIMITS
from experiments.cluster.simulator.releases.pollux.ticks import TickRun
from experiments.cluster.simulator.releases.tiresias.ledger import Ledger
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, silent
from experiments.workloads.jobs import JobTrace


def simulate(
    trace: JobTrace,
    machines: Machines,
    policy: ClusterPolicy,
    performance: Performance | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> ClusterPlan:
    """Run all jobs of ``trace`` as the release does and return the log of what ran where."""
    if not isinstance(performance, GoodputSpeed):
        what = f"{policy.name} under the rules of pollux asks what training is worth by placement and epoch"
        raise BadInput(what, trace.name, "Pollux' folder of measurements (traces) as options.extra")
    ledger = Ledger(trace, machines, policy, performance.limited(LIMITS), seed, progress)
    return TickRun(ledger, policy.begin(), find_oversized(trace, machines, policy)).run()
