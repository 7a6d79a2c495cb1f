"""A search over all Megatron plans of a cluster: t x p x d x v x micro-batch x recomputation x ZeRO, in
closed form.

Every combination of the candidate degrees is looked at: most are refused by arithmetic alone, the rest
evaluated a few thousand at a time. The best so far (the incumbent), a lower bound and why each of the others
was rejected are kept.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from experiments.core.errors import Infeasible
from experiments.core.integers import divisors
from experiments.core.units import human
from experiments.parallel.interface import PlanningEstimate
from experiments.parallel.interface.engines import ENGINES
from experiments.parallel.planning.degrees.analytic import Analytic
from experiments.parallel.planning.degrees.columns import Columns
from experiments.parallel.planning.transformers.plan import RECOMPUTATION, Degrees
from experiments.parallel.planning.transformers.shardings import EXCHANGES
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats
from experiments.workloads.transformer import Transformer

#: Why a plan was not chosen, by the number kept for it.
REASONS = (
    "chosen",
    "devices do not divide by tensor x pipeline x context",
    "heads do not divide by tensor",
    "an end counts as more blocks than its chunk has",
    "samples do not divide by replicas x micro-batch",
    "chunks need micro-batches in whole rounds over the pipeline",
    "sequence parallelism needs tensor parallelism",
    "ZeRO 2 and 3 exchange with every micro-batch, which no pipeline hides",
    "experts need sequence parallelism where there is tensor parallelism",
    "not evaluated: the search ended at its bound",
    "does not fit the devices' memory",
    "slower than the incumbent",
)
CHOSEN, BEYOND, MEMORY, SLOWER = 0, len(REASONS) - 3, len(REASONS) - 2, len(REASONS) - 1
#: Plans evaluated between two reports of progress, and the largest micro-batch that is tried.
CHUNK, LARGEST_MICRO_BATCH = 8192, 64

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DegreeSearchResult:
    """The best plan with its predicted figures, and for every plan why it was rejected.

    ``bound`` are the seconds below which no plan can be: all FLOPs of the model at the devices' peak.
    ``evaluated`` are the plans whose time and memory were computed.
    """

    best: Degrees
    step_time: float
    peak_memory: float
    bound: float
    plans: Columns
    reason: Ints
    evaluated: int

    @property
    def ended_early(self) -> bool:
        """Whether the bound kept plans from being evaluated."""
        return bool((self.reason == BEYOND).any())

    def rejections(self) -> dict[str, int]:
        """How many plans were rejected for each reason."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {
            name: int(count)
            for name, count in zip(REASONS, counts, strict=True)
            if count and name != REASONS[CHOSEN]
        }

    def why(self, layout: Degrees) -> str:
        """Return the reason kept for ``layout``; ``KeyError`` for one that was not a candidate."""
        plans = self.plans
        columns = (plans.tensor, plans.pipeline, plans.interleaved, plans.micro_batch, plans.expert)
        same = np.logical_and.reduce(
            [
                column == value
                for column, value in zip(
                    (*columns, self.plans.recompute, self.plans.zero, self.plans.sequence),
                    (
                        layout.tensor,
                        layout.pipeline,
                        layout.interleaved,
                        layout.micro_batch,
                        layout.expert,
                        RECOMPUTATION.index(layout.recompute),
                        layout.zero,
                        int(layout.sequence),
                    ),
                    strict=True,
                )
            ]
        )
        places = np.flatnonzero(same)
        if not len(places):
            raise KeyError(layout)
        return REASONS[int(self.reason[places[0]])]


def divisors_up_to(most: int, number: int) -> list[int]:
    """Return the divisors of ``number`` up to ``most``, ascending."""
    return [part for part in divisors(number) if part <= most]


def candidates(estimate: PlanningEstimate, batch: int, fixed: Degrees) -> Columns:
    """Return every combination of degrees.

    Tensor inside a node, a pipeline up to one block a stage and chunks of one block at least, which need not
    divide the blocks, micro-batches, what is recomputed, ZeRO stages, sequence parallelism, devices that
    share experts. The rest is as
    ``fixed`` says.
    """
    sizes, devices = _sizes(estimate), estimate.cluster.device_count
    counted = sizes.layers + fixed.embedding_blocks + fixed.head_blocks
    rows = itertools.product(
        divisors_up_to(estimate.cluster.node.device_count, devices),
        _pipelines(counted, devices),
        divisors_up_to(LARGEST_MICRO_BATCH, batch),
        range(len(RECOMPUTATION) - 1),
        range(4),
        range(2),
        divisors_up_to(devices, sizes.mixture.experts) if sizes.mixture else [1],
    )
    flat = ((tensor, *pipeline, *others) for tensor, pipeline, *others in rows)
    table = np.fromiter(itertools.chain.from_iterable(flat), np.int64).reshape(-1, 8)
    tensor, pipeline, chunks, micro_batch, recompute, zero, sequence, expert = table.T
    whole = np.ones(len(table), np.int64)
    joined = expert // np.gcd(expert, tensor * fixed.context)
    return Columns(
        tensor=tensor,
        pipeline=pipeline,
        replicas=devices // (tensor * pipeline * fixed.context * joined),
        interleaved=chunks,
        micro_batch=micro_batch,
        context=whole * fixed.context,
        recompute=recompute,
        zero=zero,
        sequence=sequence,
        overlap=whole * fixed.overlap,
        overlap_products=whole * fixed.overlap_products,
        overlap_gradients=whole * fixed.overlap_gradients,
        shard=whole * 0,
        context_exchange=whole * EXCHANGES.index(fixed.context_exchange),
        context_balanced=whole * fixed.context_balanced,
        overlap_messages=whole * fixed.overlap_messages,
        embedding_blocks=whole * fixed.embedding_blocks,
        head_blocks=whole * fixed.head_blocks,
        first_extra=whole * fixed.first_extra,
        expert=expert,
        skew=np.full(len(table), fixed.skew),
        node=whole * fixed.node,
        engine=whole * ENGINES.index(fixed.engine),
        keep_gathered=whole * fixed.keep_gathered,
        capacity=np.full(len(table), fixed.capacity),
        host=whole * fixed.host_optimizer,
    )


def _pipelines(blocks: int, devices: int) -> list[tuple[int, int]]:
    """Return the devices of a pipeline with the chunks that each can have."""
    found = [(p, v) for p in divisors_up_to(blocks, devices) for v in range(1, blocks // p + 1)]
    return [(p, v) for p, v in found if p > 1 or v == 1]


def search(
    estimate: PlanningEstimate,
    batch: int,
    fixed: Degrees = Degrees(),  # noqa: B008 - frozen
    most: int = sys.maxsize,
) -> DegreeSearchResult:
    """The fastest plan that fits; ``Infeasible`` with the bytes that the leanest one lacks when none does.

    At ``most`` so many plans are evaluated, the first of the table first.
    """
    return _judge(estimate, batch, evaluate_all(estimate, batch, fixed, most))


@dataclass(frozen=True)
class EvaluatedPlans:
    """Every plan with its seconds of a step and bytes on the fullest device.

    Infinite where they were not computed, for a ``reason`` by its number.
    """

    plans: Columns
    reason: Ints
    step_time: Floats
    peak_memory: Floats


def evaluate_all(
    estimate: PlanningEstimate,
    batch: int,
    fixed: Degrees = Degrees(),  # noqa: B008 - frozen
    most: int = sys.maxsize,
) -> EvaluatedPlans:
    """Return the figures of every combination of degrees that divides devices, heads, blocks and samples."""
    plans = candidates(estimate, batch, fixed)
    reason = _arithmetic_faults(plans, estimate, batch)
    usable = np.flatnonzero(reason == CHOSEN)
    reason[usable[most:]] = BEYOND
    usable = usable[:most]
    usable = usable[np.lexsort((plans.interleaved[usable], plans.pipeline[usable]))]
    time, memory = np.full(len(plans), np.inf), np.full(len(plans), np.inf)
    analytic = Analytic(estimate, batch)
    for start in range(0, len(usable), CHUNK):
        part = usable[start : start + CHUNK]
        figures = analytic.figures(select(plans, part))
        time[part], memory[part] = figures.step_time, figures.peak_memory
        done = min(start + CHUNK, len(usable))
        estimate.progress(done / len(usable), f"{done} of {len(usable)} plans evaluated")
    return EvaluatedPlans(plans, reason, time, memory)


def select(plans: Columns, places: Sequence[int] | Ints) -> Columns:
    return Columns(*(getattr(plans, name)[places] for name in Columns.__dataclass_fields__))


def _sizes(estimate: PlanningEstimate) -> Transformer:
    assert estimate.model.transformer is not None
    return estimate.model.transformer


def _arithmetic_faults(plans: Columns, estimate: PlanningEstimate, batch: int) -> Ints:
    """For each plan the first rule of arithmetic that it breaks, or 0."""
    sizes, devices = _sizes(estimate), estimate.cluster.device_count
    replicas = np.maximum(plans.replicas, 1)
    samples = replicas * plans.joined * plans.micro_batch
    micro_batches = batch // samples
    rules: list[Flags] = [
        devices % (plans.tensor * plans.pipeline * plans.context * plans.joined) != 0,
        sizes.heads % plans.tensor != 0,
        (plans.pipeline > 1) & _ends_outgrow_chunks(plans, sizes.layers),
        batch % samples != 0,
        (plans.interleaved > 1) & (micro_batches % plans.pipeline != 0),
        (plans.sequence == 1) & (plans.tensor == 1),
        (plans.zero >= 2) & (plans.pipeline > 1),
        (plans.sequence == 0) & (plans.tensor > 1) & (sizes.mixture is not None),
    ]
    return np.select(rules, list(range(1, len(rules) + 1)), CHOSEN)


def _ends_outgrow_chunks(plans: Columns, layers: int) -> Flags:
    """Whether embedding or head counts as more blocks than the first or the last chunk has."""
    counted = layers + plans.embedding_blocks + plans.head_blocks
    first = counted // plans.pipeline // plans.interleaved
    last = np.ceil(np.ceil(counted / plans.pipeline) / plans.interleaved)
    outgrown: Flags = (plans.embedding_blocks > first) | (plans.head_blocks + plans.first_extra > last)
    return outgrown


def _judge(estimate: PlanningEstimate, batch: int, found: EvaluatedPlans) -> DegreeSearchResult:
    plans, reason, time, memory = found.plans, found.reason, found.step_time, found.peak_memory
    capacity = min(device.memory_bytes for device in set(estimate.devices))
    evaluated = int(np.isfinite(time).sum())
    fits = memory <= capacity
    if not fits.any():
        _refuse_all(memory, capacity, evaluated if (reason == BEYOND).any() else 0)
    best = int(np.argmin(np.where(fits, time, np.inf)))
    kept = np.where((reason == CHOSEN) & ~fits, MEMORY, reason)
    kept = np.where((kept == CHOSEN) & (np.arange(len(plans)) != best), SLOWER, kept)
    model = estimate.model
    peak = sum(device.peak(estimate.dtype) for device in estimate.devices)
    return DegreeSearchResult(
        best=plans.layout(best),
        step_time=float(time[best]),
        peak_memory=float(memory[best]),
        bound=model.flops * batch / model.batch / peak,
        plans=plans,
        reason=kept,
        evaluated=evaluated,
    )


def _refuse_all(memory: Floats, capacity: int, bound: int) -> None:
    """``bound`` is that at which the search ended; 0 where it ended by itself."""
    least = float(memory.min())
    if not np.isfinite(least):
        raise Infeasible("no combination of degrees divides devices, heads, blocks and samples", "search")
    missing = least - capacity
    among = f" of the first {bound}, at which the search ended (knob evaluations)," if bound else ""
    needs = f"{human(least, 'bytes')} of {human(capacity, 'bytes')}"
    raise Infeasible(
        f"the leanest plan{among} needs {needs}: {missing:.0f} bytes missing",
        "search",
        missing,
    )


def by_rule(estimate: PlanningEstimate, batch: int, asked: Degrees, open_degrees: Sequence[str]) -> Degrees:
    """Return the degrees that are left open by SC'21's takeaways.

    As little tensor parallelism as fits, at most a node of it, then as few pipeline stages as fit; the
    devices that remain are replicas. Experts are shared by as many devices as divide both them and a node, by
    more where that does not fit. The last that divides where none fits.
    """
    sizes, devices = _sizes(estimate), estimate.cluster.device_count
    tensors = divisors_up_to(estimate.cluster.node.device_count, sizes.heads)
    tensors = tensors if "tensor" in open_degrees else [asked.tensor]
    pipelines = _stages_by_rule(sizes.layers, devices) if "pipeline" in open_degrees else [asked.pipeline]
    order = [(t, 1) for t in tensors if 1 in pipelines]
    order += [(tensors[-1], p) for p in pipelines if p > 1]
    experts = sizes.mixture.experts if sizes.mixture else 1
    inside = math.gcd(experts, estimate.cluster.node.device_count)
    shared = [e for e in divisors(experts) if e >= inside] if "expert" in open_degrees else [asked.expert]
    choices = [
        replace(asked, tensor=t, pipeline=p, expert=e, sequence=asked.sequence or (experts > 1 and t > 1))
        for e in shared
        for t, p in order
    ]
    choices = [choice for choice in choices if usable_layout(choice, devices, batch)]
    if not choices:
        return asked
    figures = Analytic(estimate, batch).figures(Columns.of(choices, devices))
    fits = np.flatnonzero(figures.peak_memory <= estimate.devices[0].memory_bytes)
    return choices[int(fits[0])] if len(fits) else choices[-1]


def _stages_by_rule(layers: int, devices: int) -> list[int]:
    """Return the stages in the order in which they are tried: equal ones, then such as differ by a block."""
    equal = divisors(layers)
    return [*equal, *(stages for stages in divisors_up_to(layers, devices) if stages not in equal)]


def usable_layout(layout: Degrees, devices: int, batch: int) -> bool:
    whole = layout.mesh.devices * layout.pipeline
    samples = max(1, devices // whole) * layout.mesh.joined * layout.micro_batch
    if devices % whole or batch % samples:
        return False
    micro_batches = batch // samples
    return layout.interleaved == 1 or (layout.pipeline > 1 and micro_batches % layout.pipeline == 0)
