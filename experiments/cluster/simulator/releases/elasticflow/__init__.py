"""``elasticflow``: the simulator that ElasticFlow (ASPLOS'23) was published with, in slots of 60 s.

Something is decided at submissions, ends and, for Tiresias, demotions; after a decision all that falls within
60 s happens together, 60 s after it. Only one event that is left alone is not put off so. A job met its
deadline when its end, not the event at which it was noticed, is no later.

Rigid policies run for the trace's durations on the GPUs asked for (Tiresias' loop), elastic ones for its
steps by the throughput table (``elastic``). GPUs are counted: where they are changes nothing. Not reproduced:
which GPUs the release's own placement takes.
"""

from __future__ import annotations

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, Performance
from experiments.cluster.interface.shares import SharePlanner
from experiments.cluster.planning.performance import FixedSpeed, TableSpeed
from experiments.cluster.simulator.admission import find_oversized
from experiments.cluster.simulator.releases.elasticflow.elastic import SLOT, ElasticRun
from experiments.cluster.simulator.releases.elasticflow.overheads import overhead
from experiments.cluster.simulator.releases.tiresias.ledger import Ledger
from experiments.cluster.simulator.releases.tiresias.rigid import Habits, RigidRun
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
    decider = policy.begin()
    ledger = Ledger(trace, machines, policy, performance or FixedSpeed(trace), seed, progress)
    if not isinstance(decider, SharePlanner):
        oversized = find_oversized(trace, machines, policy)
        return RigidRun(ledger, decider, oversized, Habits(SLOT, True, overhead)).run()
    if not isinstance(performance, TableSpeed):
        what = f"{policy.name} under the rules of elasticflow asks how fast jobs run by GPU count"
        raise BadInput(what, trace.name, "a throughput folder of ElasticFlow as options.extra")
    return ElasticRun(ledger, decider, performance).run()
