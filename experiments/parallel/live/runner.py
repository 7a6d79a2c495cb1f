"""Which runner carries a plan out: torch's own for replicas of whole models, our slots for
everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from experiments.core.errors import BadInput
from experiments.models.build import build
from experiments.parallel.interface import ParallelPlan, Stage
from experiments.parallel.interface.recomputation import recomputed_runs
from experiments.parallel.live.job import Job
from experiments.parallel.live.micro_batch_graph import trace_micro_batch
from experiments.parallel.live.model import Built
from experiments.parallel.live.modules import over_modules
from experiments.parallel.live.replicas import RankRunner, ReplicaRunner
from experiments.parallel.live.slots import SlotRunner
from experiments.parallel.live.tensor import refuse_uncuttable


def by_torch(plan: ParallelPlan) -> bool:
    """Return whether torch's DDP or FSDP2 do what the plan says.

    One stage, sharded layers only with FSDP2, and what is recomputed is a module at a time.
    """
    alone = all(len(run) == 1 for run in recomputed_runs(plan, 0))
    whole = len(plan.devices) == len(plan.workers) and plan.synchronization.kind == "all_reduce"
    return len(plan.stages) == 1 and (plan.zero >= 2 or (whole and alone))


def refuse_simulated_only(plan: ParallelPlan) -> None:
    """``plan`` is over modules. ``BadInput`` says what neither torch nor our slots carry out."""
    lone = all(len(run) == 1 for number in range(len(plan.stages)) for run in recomputed_runs(plan, number))
    piped = plan.zero >= 2 and len(plan.stages) > 1
    joined = bool(plan.joined)
    regathered, alone = plan.synchronization.regather, plan.synchronization.tensor_by_tensor
    hybrid = any(plan.sharing(stage) < plan.degree(stage) for stage in plan.stages)
    only = {
        "token slices": bool(plan.slices),
        "forward passes of several micro-batches (the exported graph has the shapes of one)": joined,
        "a training rule of its own": plan.training is not None,
        "ZeRO stage 2 or 3 in a pipeline (torch's FSDP2 wants modules, our slots keep whole weights)": piped,
        "ZeRO stage 2 or 3 and modules that are computed again together": plan.zero >= 2 and not lone,
        "weights that are gathered twice for a backward pass (FSDP2 gathers them once)": regathered,
        "weights that are gathered tensor by tensor (FSDP2 gathers a module's together)": alone,
        "copies of what ZeRO divides": hybrid,
        "an optimizer on the host": plan.host_optimizer,
    }
    for what, present in only.items():
        if present:
            raise BadInput(f"the plan has {what}", "spec.mode", "simulated")


def refuse(job: Job) -> None:
    """``BadInput`` where ``runner_for`` would have to; the model is built without values."""
    with torch.device("meta"):
        module = build(job.source, weights=False).module
    job = over_modules(job, module)
    refuse_simulated_only(job.plan)
    refuse_uncuttable(job.plan, job.layers, module)


def runner_for(job: Job, rank: int, made: Built) -> RankRunner:
    job = over_modules(job, made.module)
    refuse_simulated_only(job.plan)
    return (ReplicaRunner if by_torch(job.plan) else SlotRunner)(job, rank, made)


def passes_for(job: Job, made: Built) -> Callable[[], None]:
    """Return forward and backward passes of a micro-batch through the whole model.

    They leave no gradients: by the modules, or op by op of the exported graph, as the job's runner
    computes. Nothing is cut or recomputed.
    """
    job = over_modules(job, made.module)
    batch = made.micro_batch(0, job.plan.micro_batch_samples)
    compute = _modules(made, batch) if by_torch(job.plan) else _graph(job, made, batch)

    def passes() -> None:
        compute().backward()
        made.module.zero_grad()

    return passes


def _modules(made: Built, batch: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    return lambda: made.module(*batch)


def _graph(job: Job, made: Built, batch: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    """The loss, by all ops of the graph as one stage."""
    stages = (Stage(0, len(job.layers), (0,)),)
    whole = trace_micro_batch(
        made,
        replace(job.plan, stages=stages, shardings=(), recompute=(), checkpoints=(), saved=()),
        job.layers,
    )
    inputs = whole.module.graph.find_nodes(op="placeholder")

    def compute() -> Any:
        values: dict[fx.Node, Any] = dict(zip(inputs, batch, strict=True))
        whole.run(0, values)
        return values[whole.loss]

    return compute
