"""Job traces written by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, Performance, violations
from experiments.cluster.planning.performance import performance_of
from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC, JobTrace


def jobs(*rows: tuple[float, int, float]) -> JobTrace:
    """Jobs named 0, 1, ... from ``(submit, gpus, service)`` rows."""
    submit, gpus, service = zip(*rows, strict=True)
    count = len(rows)
    return JobTrace.from_columns(
        name="by hand",
        job=tuple(map(str, range(count))),
        submit=np.array(submit, np.float64),
        gpus=np.array(gpus, np.int64),
        service=np.array(service, np.float64),
        deadline=np.full(count, np.nan),
        model=("",) * count,
        tenant=("",) * count,
    )


def suited(trace: JobTrace, policy: ClusterPolicy, machines: Machines) -> tuple[JobTrace, Performance]:
    """The trace with what ``policy`` cannot do without, and how fast its jobs run.

    Deadlines leave a job four times its length and a minute; names go round in threes.
    """
    jobs = range(len(trace))
    traits = {name: MADE[name](trace) for name in policy.needs if name in MADE}
    more: dict[str, object] = {"traits": {**trace.traits, **traits}}
    if "deadline" in policy.needs:
        more["deadline"] = trace.submit + 4 * trace.service + 60
    for name in ("model", "tenant"):
        if name in policy.needs:
            more[name] = tuple(f"{name} {job % 3}" for job in jobs)
    if policy.single_gpu:
        more["gpus"] = np.ones(len(trace), np.int64)
    trace = replace(trace, **more)  # type: ignore[arg-type]
    if policy.models:
        module = importlib.import_module(f"tests.experiments.cluster.profiles.{policy.models[0]}")
        trace = module.profiles_for(trace, machines)
    return trace, performance_of(trace, machines)


def _names(what: str) -> Callable[[JobTrace], object]:
    return lambda trace: tuple(f"{what} {job % 3}" for job in range(len(trace)))


#: Columns for policies that need them.
MADE: dict[str, Callable[[JobTrace], object]] = {
    "batch": lambda trace: 2 ** (np.arange(len(trace)) % 4 + 5),
    "iterations": lambda trace: trace.service * 2,
    "epochs": lambda trace: np.ceil(trace.service / 10),
    "user": _names("user"),
    "group": _names("group"),
    "name": _names("name"),
    "cpu": lambda trace: 2.0 * trace.gpus,
    "memory": lambda trace: 4e9 * trace.gpus,
    "gpu_share": lambda trace: np.where((np.arange(len(trace)) % 3 == 0) & (trace.gpus == 1), 0.5, 1.0),
    "suggested_nodes": lambda trace: ("",) * len(trace),
    "priority": lambda trace: np.arange(len(trace)) % 2.0,
    "class": lambda trace: tuple(OPPORTUNISTIC if job % 3 == 2 else GUARANTEED for job in range(len(trace))),
    "utilization": lambda trace: 0.4 + 0.3 * (np.arange(len(trace)) % 3),
    "weight": lambda trace: 1.0 + np.arange(len(trace)) % 2,
    "losses": lambda trace: tuple(
        tuple((step, 1 / (0.1 * step + 1)) for step in range(0, 100, 10)) for _ in range(len(trace))
    ),
}


def faults(plan: ClusterPlan, trace: JobTrace, machines: Machines, *, rigid: bool = True) -> list[str]:
    """What is impossible about a plan, by the trace's profiles."""
    return violations(plan, trace, machines, performance_of(trace, machines), rigid=rigid)
