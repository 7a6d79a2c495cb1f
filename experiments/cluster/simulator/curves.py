"""The curves of a cluster plan: devices held, jobs waiting and GPUs wanted over time, completion times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.cluster.interface import ClusterPlan, Machines
from experiments.cluster.interface.log import COMPLETED
from experiments.cluster.simulator.fairness import finish_time_unfairness
from experiments.cluster.simulator.figures import Outcomes, gpus_wanted
from experiments.cluster.simulator.steps import Bools, cumulate, means, step_function
from experiments.core.spec import Series
from experiments.workloads.jobs import JobTrace
from experiments.workloads.step import Floats

#: Points of a curve; a longer one is averaged over as many equal stretches of time.
MAX_POINTS = 1000
#: Points of a distribution.
QUANTILES = 200


def curves(plan: ClusterPlan, trace: JobTrace, machines: Machines) -> Mapping[str, Series]:
    """Return devices held, jobs waiting and GPUs wanted over time, and completion times.

    Times are in s from the first submission.
    """
    log = plan.executions
    if not len(log):
        return {}
    outcomes = Outcomes.of(plan, trace)
    start, end, ended, left = outcomes.start, outcomes.end, outcomes.ended, outcomes.left
    origin = float(trace.submit[0])
    present = sample(*step_function(trace.submit, left, np.ones(len(trace))), origin)
    held = sample(*step_function(start, end, outcomes.devices), origin)
    wanted = sample(*step_function(trace.submit, left, gpus_wanted(trace)), origin)
    stopped = end[outcomes.ending != COMPLETED]
    waiting = cumulate(*_waiting(trace.submit, start, stopped, left[list(plan.rejected)]))
    unfairness = finish_time_unfairness(ended, left, trace, machines.devices)
    return {
        "utilization": Series("fraction", held[0].tolist(), (held[1] / max(1, machines.devices)).tolist()),
        "queue_length": Series("jobs", *_lists(sample(*waiting, origin))),
        "jobs_in_system": Series("jobs", *_lists(present)),
        "demand": Series("GPUs", *_lists(wanted)),
        "jct_distribution": _distribution(ended - trace.submit, "s"),
        **{
            f"jct_distribution.{name}": _distribution((ended - trace.submit)[of_size], "s")
            for name, of_size in sizes_of(trace).items()
        },
        "fairness_distribution": _distribution(unfairness, ""),
        **_deadlines_met(ended, trace),
    }


def sizes_of(trace: JobTrace) -> Mapping[str, Bools]:
    """Which jobs have how many GPUs, where there are jobs of more than one class."""
    classes = {"1_gpu": (0, 1), "2_to_8_gpus": (1, 8), "over_8_gpus": (8, np.inf)}
    found = {name: (trace.gpus > low) & (trace.gpus <= high) for name, (low, high) in classes.items()}
    there = {name: jobs for name, jobs in found.items() if jobs.any()}
    return there if len(there) > 1 else {}


def _distribution(values: Floats, unit: str) -> Series:
    """The share of values that are no larger, over at most ``QUANTILES`` of those that are known."""
    known = values[~np.isnan(values)]
    shares = np.linspace(0, 1, min(len(known), QUANTILES)) if len(known) else np.empty(0)
    places = np.quantile(known, shares).tolist() if len(known) else []
    return Series("fraction", places, shares.tolist(), unit)


#: Of a deadline: the time until it over the time that the job takes.
SLACKS = (0.0, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, np.inf)


def _deadlines_met(ended: Floats, trace: JobTrace) -> Mapping[str, Series]:
    """The share of deadlines met, by how many times over the job fits before its own."""
    has = ~np.isnan(trace.deadline) & (trace.service > 0)
    if not has.any():
        return {}
    slack = (trace.deadline - trace.submit)[has] / trace.service[has]
    met = (ended <= trace.deadline)[has]
    place = np.searchsorted(SLACKS, slack, side="right") - 1
    there = np.unique(place[place >= 0])
    shares = [float(met[place == one].mean()) for one in there]
    return {"deadlines_met": Series("fraction", [SLACKS[one] for one in there], shares, "times its service")}


def _lists(curve: tuple[Floats, Floats]) -> tuple[list[float], list[float]]:
    return curve[0].tolist(), curve[1].tolist()


def _waiting(submit: Floats, start: Floats, stopped: Floats, refused: Floats) -> tuple[Floats, Floats]:
    """Changes of the number of jobs waiting: submitted or stopped, and neither on devices nor refused."""
    times = np.concatenate((submit, stopped, start, refused))
    change = np.ones(len(times))
    change[len(submit) + len(stopped) :] = -1
    return times, change


def sample(times: Floats, levels: Floats, origin: float) -> tuple[Floats, Floats]:
    """The step function itself, or its means over ``MAX_POINTS`` equal stretches where it has more points."""
    if len(times) <= MAX_POINTS:
        return times - origin, levels
    edges = np.linspace(times[0], times[-1], MAX_POINTS + 1)
    return edges[:-1] - origin, means(times, levels, edges)
