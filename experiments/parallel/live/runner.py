"""Which runner carries a plan out: torch's own for replicas of whole models, our slots for everything else."""

from __future__ import annotations

from experiments.core.errors import BadInput
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.live.job import Job
from experiments.parallel.live.model import Built
from experiments.parallel.live.replicas import ReplicaRunner, Runner
from experiments.parallel.live.slots import SlotRunner


def replicas_only(plan: ParallelPlan) -> bool:
    """Whether every device has the whole model: one stage, nothing cut."""
    return len(plan.stages) == 1 and len(plan.devices) == len(plan.workers)


def refuse_simulated_only(plan: ParallelPlan) -> None:
    only = {
        "recomputed layers": bool(plan.recompute),
        "token slices": bool(plan.slices),
        "a training rule of its own": plan.training is not None,
        "ZeRO stage 2 or 3 beside cut layers or stages": plan.zero >= 2 and not replicas_only(plan),
    }
    for what, present in only.items():
        if present:
            raise BadInput(f"the plan has {what}", "spec.mode", "simulated")


def runner_for(job: Job, rank: int, made: Built) -> Runner:
    refuse_simulated_only(job.plan)
    return (ReplicaRunner if replicas_only(job.plan) else SlotRunner)(job, rank, made)
