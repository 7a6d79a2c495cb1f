"""How fast the cluster simulator is on 69,351 real jobs, against a bound: a bare event heap in the same run.

    python -m benchmarks.cluster_simulator [TRACE]

``TRACE`` defaults to the ten merged ElasticFlow clusters next to the checkout; without it as many jobs are
generated. The bound pushes and pops the least that any event-driven simulator must: one arrival and one
completion per job.
"""

from __future__ import annotations

import heapq
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cluster.interface import ClusterPolicy, Machines
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.workloads.jobs import JobTrace

DEFAULT = Path(__file__).resolve().parents[2] / "shared/data/cluster/elasticflow/raw-traces.tar.gz"
MACHINES = Machines.of_sizes([8] * 128)
LIMIT = 10.0
POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fifo", {}),
    ("fifo", {"placement": "pack"}),
    ("fifo-easy", {}),
    ("sjf", {"blocking": False}),
)


def generated(jobs: int = 69_351) -> JobTrace:
    """Poisson arrivals, sizes of powers of two, log-normal run times; the same jobs each time."""
    rng = np.random.default_rng(0)
    return JobTrace.from_columns(
        name="generated",
        job=tuple(map(str, range(jobs))),
        submit=np.cumsum(rng.exponential(80.0, jobs)),
        gpus=2 ** rng.integers(0, 7, jobs),
        service=np.round(rng.lognormal(8.5, 1.5, jobs)) + 1,
        deadline=np.full(jobs, np.nan),
        model=("",) * jobs,
        tenant=("",) * jobs,
    )


def bare_events(trace: JobTrace) -> float:
    """CPU seconds to push and pop two events for each job."""
    started = time.process_time()
    heap = [(submit, 1, job) for job, submit in enumerate(trace.submit.tolist())]
    heapq.heapify(heap)
    service = trace.service.tolist()
    while heap:
        now, kind, job = heapq.heappop(heap)
        if kind:
            heapq.heappush(heap, (now + service[job], 0, job))
    return time.process_time() - started


def timed(trace: JobTrace, policy: ClusterPolicy) -> tuple[float, float]:
    """CPU seconds of the simulation, and the average completion time that it gives."""
    started = time.process_time()
    plan = simulate(trace, MACHINES, policy)
    spent = time.process_time() - started
    return spent, figures(plan, trace, MACHINES)["avg_jct"]


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    started = time.process_time()
    trace = open_file(path, "auto", WorkloadOptions()).reading.value if path.exists() else generated()
    reading, bound = time.process_time() - started, bare_events(trace)
    print(f"{len(trace)} jobs from {trace.name} read in {reading:.2f} CPU s; {MACHINES.devices} GPUs")
    print(f"bound, bare event heap: {bound:.2f} CPU s\n")
    print(f"{'policy':24} {'CPU s':>7} {'x bound':>8} {'jobs/s':>9} {'avg JCT, s':>12}  under {LIMIT:g} s")
    for name, knobs in POLICIES:
        policy = registry.create("cluster", name, knobs)
        assert isinstance(policy, ClusterPolicy)
        spent, jct = timed(trace, policy)
        label = name + "".join(f" {key}={value}" for key, value in knobs.items())
        row = f"{label:24} {spent:7.2f} {spent / bound:8.1f} {len(trace) / spent:9.0f} {jct:12.1f}"
        print(f"{row}  {'yes' if spent < LIMIT else 'NO'}", flush=True)


if __name__ == "__main__":
    main()
