"""``tiresias``: the simulator that Tiresias (NSDI'19) was published with, in whole seconds.

Something is decided at submissions, ends and awaited demotions. At one time ends come first, then
submissions, then demotions, one queue at a time, then all queues are walked. Preemption and starting cost
nothing; GPUs are counted. Durations are in whole seconds, fractions cut off.
"""

from __future__ import annotations

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, Performance
from experiments.cluster.planning.performance import FixedSpeed
from experiments.cluster.simulator.admission import find_oversized
from experiments.cluster.simulator.releases.tiresias.ledger import Ledger
from experiments.cluster.simulator.releases.tiresias.rigid import Habits, RigidRun
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
    ledger = Ledger(trace, machines, policy, performance or FixedSpeed(trace), seed, progress)
    return RigidRun(ledger, policy.begin(), find_oversized(trace, machines, policy), Habits()).run()
