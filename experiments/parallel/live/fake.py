"""What a rank of any number would hand over: the runners themselves, on fake tensors under torch's fake
process group.

No other rank exists and no tensor has memory, so a plan for thousands of devices is counted on one core.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore

from experiments.core.errors import BadInput
from experiments.models.build import DTYPES, build, chosen
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.live.handover_counter import HandoverCounter
from experiments.parallel.live.job import Job
from experiments.parallel.live.model import built
from experiments.parallel.live.modules import over_modules
from experiments.parallel.live.runner import by_torch, runner_for
from experiments.parallel.live.slots import SlotRunner
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource


def plan_handed_over_bytes(
    plan: ParallelPlan, model: LayerGraph, source: ModelSource, seed: int, rank: int
) -> dict[str, int]:
    """``handed_over_bytes`` for a plan."""
    return handed_over_bytes(Job(plan, model.layer, source, seed, Path()), rank)


def handed_over_bytes(job: Job, rank: int) -> dict[str, int]:
    """Bytes by kind that ``rank`` hands to its backend in the job's first step, its update included.

    DDP's reducer reads real memory: replicas of stage 0 go through the slots, which sum the same gradients.
    """
    if job.plan.zero >= 2 and len(job.plan.workers[0].devices) > 1:
        what = "ZeRO stage 2 or 3 beside cut layers: FSDP2 joins the two meshes with real tensors"
        raise BadInput(f"the plan has {what}", "the fake process group", "either alone")
    with _group(rank, job.ranks), _default_dtype(DTYPES[chosen(job.source).dtype]), _fakes():
        made = built(job.source, job.seed, "cpu")
        job = over_modules(job, made.module)
        if _by_fsdp(job.plan):
            made = replace(made, module=_on_meta(job.source))
        runner = (runner_for if job.plan.zero else SlotRunner)(job, rank, made)
        with HandoverCounter() as mode:
            runner.step()
    return dict(sorted(mode.bytes.items()))


def _fakes() -> FakeTensorMode:
    """Weights that FSDP2 divided on "meta" become fake where they are first touched."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def _by_fsdp(plan: ParallelPlan) -> bool:
    return plan.zero > 0 and by_torch(plan)


def _on_meta(source: ModelSource) -> nn.Module:
    """FSDP2 makes as many views of each parameter as there are ranks: on "meta" they cost little, as fake
    tensors a lot.
    """
    with unset_fake_temporarily(), torch.device("meta"):
        return build(source, weights=False).module


def padding(plan: ParallelPlan, model: LayerGraph, source: ModelSource) -> float:
    """How many times as many bytes as the weights have FSDP2 exchanges; 1 for every other runner.

    It divides tensors by whole rows, as many for every rank, and fills up the last.
    """
    module = _on_meta(source)
    plan = over_modules(Job(plan, model.layer, source, 0, Path()), module).plan
    if not _by_fsdp(plan):
        return 1.0
    shapes, ranks = [parameter.shape for parameter in module.parameters()], len(plan.devices)
    exchanged = sum(-(-rows // ranks) * ranks * math.prod(rest) for rows, *rest in shapes)
    return exchanged / sum(map(math.prod, shapes))


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _group(rank: int, ranks: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
