"""Addresses: a pool laid out ahead of time, and what an allocator that looks only at its holes would need.

A *stay* is a stretch of ops in which a tensor keeps one address.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step

#: Bytes of a granule of the allocators (the default of a plan's ``Pool``).
GRANULARITY = 512


@dataclass(frozen=True)
class Stay:
    """``tensor`` needs ``bytes`` at one address while ops ``[start, end)`` run."""

    tensor: int
    bytes: int
    start: int
    end: int


def stays_of(step: Step, absent: Mapping[int, Sequence[tuple[int, int]]] | None = None) -> list[Stay]:
    """The stays of a step in the order of their start, less the ops in which a tensor is away.

    ``absent`` has them as ``[start, end)`` by tensor.
    """
    found, count = [], len(step.ops)
    sizes, persistent = step.tensors.bytes.tolist(), step.persistent.tolist()
    first, last = step.first_use.tolist(), step.death.tolist()
    for tensor, size in enumerate(sizes):
        if not size or (last[tensor] < 0 and not persistent[tensor]):
            continue
        start, end = (0, count) if persistent[tensor] else (first[tensor], last[tensor] + 1)
        for away, back in sorted((absent or {}).get(tensor, ())):
            if away > start:
                found.append(Stay(tensor, size, start, away))
            start = back
        if end > start:
            found.append(Stay(tensor, size, start, end))
    return sorted(found, key=_Turn(step))


class _Turn:
    """Who asks first at an op: what is there when the step begins, what the op needs back, its results, what
    returns early.
    """

    def __init__(self, step: Step) -> None:
        self.step, self.persistent, self.first = step, step.persistent.tolist(), step.first_use.tolist()

    def __call__(self, stay: Stay) -> tuple[int, int, int]:
        tensor, op = stay.tensor, stay.start
        if not op and self.persistent[tensor]:
            return op, 0, tensor
        row = self.step.touched[op].tolist()
        if tensor not in row:
            return op, 3, tensor
        born = self.first[tensor] == op and not self.persistent[tensor]
        return op, 2 if born else 1, row.index(tensor)


def load_bound(stays: Sequence[Stay], ops: int) -> int:
    """The most bytes that stay at once: no pool is smaller."""
    change = np.zeros(ops + 1, np.int64)
    for stay in stays:
        change[stay.start] += stay.bytes
        change[stay.end] -= stay.bytes
    return int(np.cumsum(change).max(initial=0))


class AddressRange:
    """Free holes of a range of addresses, as (start, end), ascending."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.holes: list[tuple[int, int]] = [(0, size)]

    def take(self, size: int, fit: str) -> int | None:
        """The address of the first hole that holds ``size``, or of the smallest; ``None`` where none does."""
        fitting = ((end - start, i) for i, (start, end) in enumerate(self.holes) if end - start >= size)
        chosen = next(fitting, None) if fit == "first_fit" else min(fitting, default=None)
        if chosen is None:
            return None
        start, end = self.holes.pop(chosen[1])
        if end - start > size:
            insort(self.holes, (start + size, end))
        return start

    def exceed(self) -> int:
        """The address for something that must reach beyond the end.

        It is that of the last hole, which is then taken.
        """
        if self.holes and self.holes[-1][1] == self.size:
            return self.holes.pop()[0]
        return self.size

    def give(self, start: int, end: int) -> None:
        """Back to the free holes, joined with its neighbors; nothing beyond the end."""
        end = min(end, self.size)
        if start >= end:
            return
        index = bisect_left(self.holes, (start, end))
        if index < len(self.holes) and self.holes[index][0] == end:
            end = self.holes.pop(index)[1]
        if index and self.holes[index - 1][1] == start:
            start = self.holes.pop(index - 1)[0]
        insort(self.holes, (start, end))


def online(stays: Sequence[Stay], capacity: int, fit: str) -> dict[Stay, int]:
    """Addresses as an allocator gives them that serves stays in their order.

    What finds no hole reaches beyond the end.
    """
    pool, found = AddressRange(capacity // GRANULARITY * GRANULARITY), dict[Stay, int]()
    ends = sorted(stays, key=lambda stay: (stay.end, stay.start, stay.tensor))
    done = 0
    for stay in stays:
        while ends[done].end <= stay.start:
            pool.give(found[ends[done]], found[ends[done]] + round_up(ends[done].bytes))
            done += 1
        address = pool.take(round_up(stay.bytes), fit)
        found[stay] = pool.exceed() if address is None else address
    return found


def round_up(size: int) -> int:
    """Allocators hand out whole granules."""
    return -(-size // GRANULARITY) * GRANULARITY


def largest_first(stay: Stay) -> tuple[int, ...]:
    return -stay.bytes, stay.start, stay.tensor


def longest_first(stay: Stay) -> tuple[int, ...]:
    return stay.start - stay.end, -stay.bytes, stay.tensor


def pack(
    stays: Sequence[Stay],
    fit: str,
    fixed: Collection[int] = (),
    key: Callable[[Stay], tuple[int, ...]] = largest_first,
) -> dict[int, int]:
    """One address for each tensor, laid out ahead.

    They are placed in the order of ``key`` over the stretch from first stay to last (SmartPool: the largest
    first), each in a hole between those that it meets at some time. The tensors ``fixed`` (those that live on
    from step to step) are placed first.
    """
    spans: dict[int, list[Stay]] = {}
    for stay in stays:
        spans.setdefault(stay.tensor, []).append(stay)
    whole = {t: Stay(t, rows[0].bytes, rows[0].start, rows[-1].end) for t, rows in spans.items()}
    order = sorted(spans, key=lambda t: (t not in fixed, *key(whole[t])))
    placed = [(rank, stay) for rank, tensor in enumerate(order) for stay in spans[tensor]]
    ranks = np.array([rank for rank, _ in placed], np.int64)
    starts = np.array([stay.start for _, stay in placed], np.int64)
    ends = np.array([stay.end for _, stay in placed], np.int64)
    sizes = np.array([round_up(spans[tensor][0].bytes) for tensor in order], np.int64)
    addresses = np.zeros(len(order), np.int64)
    for rank, tensor in enumerate(order):
        before = int(np.searchsorted(ranks, rank))
        meets = np.zeros(before, np.bool_)
        for stay in spans[tensor]:
            meets |= (starts[:before] < stay.end) & (stay.start < ends[:before])
        others = ranks[:before][meets]
        addresses[rank] = _hole(addresses[others], sizes[others], int(sizes[rank]), fit)
    return dict(zip(order, addresses.tolist(), strict=True))


def _hole(addresses: Ints, sizes: Ints, size: int, fit: str) -> int:
    """Where ``size`` bytes fit between (or above) ranges that may overlap one another."""
    order = np.argsort(addresses, kind="stable")
    starts = addresses[order]
    tops = np.concatenate(([0], np.maximum.accumulate(starts + sizes[order])))
    rooms = starts - tops[:-1]
    holes = np.nonzero(rooms >= size)[0]
    if not len(holes):
        return int(tops[-1])
    chosen = holes[0] if fit == "first_fit" else holes[np.argmin(rooms[holes])]
    return int(tops[chosen])


def pool_bytes(addresses: Mapping[Stay, int]) -> int:
    """The highest end of any stay."""
    return max((address + stay.bytes for stay, address in addresses.items()), default=0)


def packed_bytes(stays: Sequence[Stay], addresses: Mapping[int, int]) -> int:
    """The highest end of any tensor of a pool laid out ahead."""
    return max((addresses[stay.tensor] + stay.bytes for stay in stays), default=0)


@dataclass(frozen=True)
class Overflow:
    """The highest address that was needed, and the tensors that ended above the limit."""

    end: int
    tensors: tuple[int, ...]


def overflow(
    step: Step, absent: Mapping[int, Sequence[tuple[int, int]]], capacity: int, fit: str
) -> Overflow | None:
    """What an allocator would have passed ``capacity`` with; ``None`` where it stays within."""
    addresses = online(stays_of(step, absent), capacity, fit)
    above = {stay.tensor for stay, address in addresses.items() if address + stay.bytes > capacity}
    return Overflow(pool_bytes(addresses), tuple(sorted(above))) if above else None
