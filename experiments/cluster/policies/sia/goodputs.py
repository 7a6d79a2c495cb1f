"""What each job would do in each configuration, over the least that it would do in any."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cluster.interface import ClusterView
from experiments.cluster.planning.agents import Agent
from experiments.cluster.planning.performance.oracle import DeviceTypeSpeed
from experiments.cluster.policies.sia.configurations import Configuration
from experiments.cluster.policies.sia.program import Offers


def adaptive(agent: Agent, options: Sequence[Configuration]) -> Offers:
    """Of a job that chooses its batch: its agent's goodput, on at most twice as many devices as measured.

    One that has measured nothing may have one device of any type.
    """
    most = agent.most_gpus(max((option.gpus for option in options), default=1))
    if agent.model is None:
        return {option: 1.0 for option in options if option.gpus == 1}
    tables = [agent.goodputs(several, most) for several in (False, True)]
    return _over_least(
        {option: float(tables[option.nodes > 1][option.gpus]) for option in options if option.gpus <= most},
        1.0,
    )


def rigid(job: int, model: DeviceTypeSpeed, view: ClusterView) -> Offers:
    """Of a job of fixed GPUs and batch: its measured speed on each type, its GPUs where it is slowest."""
    wanted = view.jobs.gpus[job]
    kinds = view.pool.machines.types
    return _over_least({Configuration(kind, wanted, 1): model.alone(job, kind) for kind in kinds}, wanted)


def _over_least(goodputs: Offers, least: float) -> Offers:
    """Goodputs in proportion, the least of them ``least``."""
    known = [goodput for goodput in goodputs.values() if goodput > 0]
    scale = least / min(known) if known else 0.0
    return {option: goodput * scale for option, goodput in goodputs.items() if goodput > 0}
