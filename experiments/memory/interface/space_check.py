"""What can be wrong with the way a plan wants device memory to be managed, whatever the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.memory.interface.plan import Drop, MemoryMove, MemoryPlan, Offload, Prefetch
from experiments.memory.interface.space import BACKINGS, EVICTIONS, POOLS, MemoryPool, Paging
from experiments.workloads.step import Step


def paging_faults(paging: Paging, moves: Sequence[MemoryMove], step: Step) -> list[str]:
    """Return complaints about ``paging`` and its hints.

    A paged device takes ``Prefetch`` of a tensor before an op.
    """
    return [*_paging(paging, step)] + [
        f"{move.action} before op {move.at}: a paged device takes prefetches of tensors before ops only"
        for move in moves
        if not (
            isinstance(move, Prefetch)
            and 0 <= move.at < len(step.ops)
            and 0 <= move.tensor < len(step.tensors)
        )
    ]


def _paging(paging: Paging, step: Step) -> Iterator[str]:
    if paging.backing not in BACKINGS:
        yield f"paging: backing {paging.backing!r} is none of {', '.join(BACKINGS)}"
    if paging.eviction not in EVICTIONS:
        yield f"paging: eviction {paging.eviction!r} is none of {', '.join(EVICTIONS)}"
    counts = ("block_bytes", "coalesced", "iterations", "window", "degree", "line_bytes", "ratio")
    yield from (f"paging: {name} {value}" for name in counts if (value := getattr(paging, name, 1)) < 1)
    yield from (
        f"paging: prefers tensor {tensor} of {len(step.tensors)}"
        for tensor in paging.preferred
        if not 0 <= tensor < len(step.tensors)
    )


def hint_faults(plan: MemoryPlan, step: Step) -> list[str]:
    """Return complaints about moves that are hints to a published release.

    It ignores them where they make no sense; they must name what there is.
    """
    return [
        f"{move.action} before op {move.at}: a release takes offloads, prefetches and drops of tensors"
        for move in plan.moves
        if not (
            isinstance(move, Offload | Prefetch | Drop)
            and 0 <= move.at <= len(step.ops)
            and 0 <= move.tensor < len(step.tensors)
        )
    ]


def pool_faults(pool: MemoryPool, step: Step) -> list[str]:
    """Complaints about ``pool`` on ``step``; those about tensors only where all of them exist."""
    if pool.kind not in POOLS:
        return [f"pool: {pool.kind!r} is none of {', '.join(POOLS)}"]
    if pool.granularity < 1:
        return [f"pool: granularity {pool.granularity}"]
    named = [*pool.high, *(tensor for tensor, _ in (*pool.serves, *pool.offsets))]
    count = len(step.tensors)
    strangers = [tensor for tensor in named if not 0 <= tensor < count]
    if strangers:
        return [f"pool: names tensor {strangers[0]} of {count}"]
    return [*_offsets(pool), *_classes(pool, step)]


def _offsets(pool: MemoryPool) -> Iterator[str]:
    for tensor, address in pool.offsets:
        if address < 0 or address % pool.granularity:
            yield f"pool: tensor {tensor} at address {address}, not a multiple of {pool.granularity}"


def _classes(pool: MemoryPool, step: Step) -> Iterator[str]:
    if pool.kind == "classes" and not pool.classes:
        yield "pool: no classes"
    for size, count in pool.classes:
        if size < 1 or count < 0:
            yield f"pool: {count} objects of {size} bytes"
    for tensor, kind in pool.serves:
        size = int(step.tensors.bytes[tensor])
        if not 0 <= kind < len(pool.classes):
            yield f"pool: tensor {tensor} is served by class {kind} of {len(pool.classes)}"
        elif pool.classes[kind][0] < size:
            yield f"pool: tensor {tensor} of {size} bytes is served by objects of {pool.classes[kind][0]}"
