"""How fast the cluster simulator is on 69,351 real jobs, against a bound: a bare event heap in the same run.

    python -m benchmarks.cluster_simulator [TRACE] [POLICY ...]

``TRACE`` defaults to the ten merged ElasticFlow clusters next to the checkout; without it as many jobs are
generated. The bound pushes and pops the least that any event-driven simulator must: one arrival and one
completion per job. Goals are for the whole command; the seconds here are those of simulation and figures.
The largest memory is that of the whole process so far.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import time
from collections.abc import Sequence
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
#: Policy, knobs, jobs from the first one on (``None``: all) and the goal in CPU seconds, where there is one.
POLICIES: tuple[tuple[str, dict[str, Any], int | None, float | None], ...] = (
    ("fifo", {}, None, 5.0),
    ("fifo", {"placement": "pack"}, None, 5.0),
    ("sjf", {}, None, 5.0),
    ("sjf", {"blocking": False}, None, 5.0),
    ("fifo-easy", {}, None, 12.0),
    ("srtf", {}, None, 10.0),
    ("tiresias", {}, None, 10.0),
    ("las", {}, None, 20.0),
    ("drf", {}, 20_000, None),
    ("faabric", {}, 20_000, None),
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
    """CPU seconds of the simulation and its figures, and the average completion time that it gives."""
    started = time.process_time()
    plan = simulate(trace, MACHINES, policy)
    found = figures(plan, trace, MACHINES)
    return time.process_time() - started, found["avg_jct"]


def _read_arguments() -> tuple[Path, Sequence[str]]:
    """The trace, and the policies that were asked for."""
    known = dict.fromkeys(name for name, *_ in POLICIES)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "trace", nargs="?", type=Path, help="a file of jobs; else the ten clusters, or drawn ones"
    )
    parser.add_argument("policies", nargs="*", metavar="policy", help=", ".join(known))
    asked = parser.parse_args()
    if asked.trace and not asked.trace.exists():
        parser.error(f"there is no trace {asked.trace}")
    if unknown := set(asked.policies) - known.keys():
        parser.error(f"not timed here: {', '.join(sorted(unknown))}; these are: {', '.join(known)}")
    return asked.trace or DEFAULT, asked.policies


def main() -> None:
    path, wanted = _read_arguments()
    started = time.process_time()
    trace = open_file(path, "auto", WorkloadOptions()).reading.value if path.exists() else generated()
    reading, bound = time.process_time() - started, bare_events(trace)
    print(f"{len(trace)} jobs from {trace.name} read in {reading:.2f} CPU s; {MACHINES.devices} GPUs")
    print(f"bound, bare event heap: {bound:.2f} CPU s\n")
    print(f"{'policy':24} {'jobs':>7} {'CPU s':>7} {'x bound':>8} {'avg JCT, s':>12} {'MiB':>6}  goal")
    for name, knobs, limit, goal in POLICIES:
        if wanted and name not in wanted:
            continue
        policy = registry.create("cluster", name, knobs)
        assert isinstance(policy, ClusterPolicy)
        jobs = trace if limit is None else trace.first(limit)
        spent, jct = timed(jobs, policy)
        label = name + "".join(f" {key}={value}" for key, value in knobs.items())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        row = f"{label:24} {len(jobs):7} {spent:7.2f} {spent / bound:8.1f} {jct:12.1f} {memory:6.0f}"
        met = "" if goal is None else f"{goal:g} s: {'met' if spent < goal else 'MISSED'}"
        print(f"{row}  {met}", flush=True)


if __name__ == "__main__":
    main()
