"""Pollux' setting as its authors simulated it: 16 nodes of 4 T4, 160 jobs in 8 hours, eight workloads.

    python -m benchmarks.cluster_pollux [DATA] [POLICY ...]

``DATA`` defaults to ``data/cluster/pollux`` next to the checkout. Mean completion times stand beside those
that the authors' program gives, with jobs simulated in a CPU second (theirs: Tiresias 9.3, Optimus 2.6,
Pollux up to half an hour for a workload). On each workload Pollux is to be ahead of Tiresias and that ahead
of Optimus.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.cluster.interface import ClusterPolicy, Machines
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.simulator import figures
from experiments.cluster.simulator.releases import engine_of
from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.readers.job_profiles import open_profiles
from experiments.workloads.jobs import JobTrace

DEFAULT = Path(__file__).resolve().parents[2] / "shared/data/cluster/pollux"
MACHINES = Machines.of_sizes([4] * 16)
#: Mean completion times of workloads 1 to 8 (petuum/adaptdl, branch osdi21-artifact, its summaries).
PUBLISHED: Mapping[str, Sequence[float]] = {
    "pollux": (2088.769, 3322.944, 2188.494, 2720.981, 2673.7, 2446.131, 3616.144, 2951.906),
    "tiresias": (2473.65, 5144.962, 3876.256, 3280.262, 3501.012, 3469.694, 5479.913, 5079.706),
    "optimus": (4087.062, 6913.875, 3944.006, 5967.75, 5656.25, 5301.875, 7290.856, 6293.794),
}


def simulated(trace: JobTrace, policy: str) -> tuple[float, float]:
    """The mean completion time, and the CPU seconds that it took."""
    made = registry.create("cluster", policy, {"rules": "pollux"})
    assert isinstance(made, ClusterPolicy)
    performance = performance_of(trace, MACHINES)
    started = time.process_time()
    plan = engine_of("pollux")(trace, MACHINES, made, performance)
    return figures(plan, trace, MACHINES)["avg_jct"], time.process_time() - started


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    policies = sys.argv[2:] or list(PUBLISHED)
    runs = open_profiles(folder / "traces")
    means: dict[str, list[float]] = {policy: [] for policy in policies}
    print("policy     workload   published      ours   error   CPU s  jobs/CPU s")
    for number in range(1, 9):
        file = folder / f"workloads/workload-{number}.csv"
        trace = replace(open_file(file, "pollux", WorkloadOptions()).reading.value, profiles=runs)
        for policy in policies:
            mean, seconds = simulated(trace, policy)
            means[policy].append(mean)
            published = PUBLISHED[policy][number - 1]
            error = mean / published - 1
            row = f"{policy:10} {number:8}  {published:10.2f}  {mean:8.2f}  {error:+6.2%}  {seconds:6.2f}"
            print(f"{row}  {len(trace) / seconds:10.1f}", flush=True)
    if set(policies) == set(PUBLISHED):
        rows = zip(means["pollux"], means["tiresias"], means["optimus"], strict=True)
        ahead = sum(pollux < tiresias < optimus for pollux, tiresias, optimus in rows)
        print(f"Pollux < Tiresias < Optimus on {ahead} of 8 workloads")


if __name__ == "__main__":
    main()
