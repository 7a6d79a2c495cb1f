"""Which devices a new stage takes: DAPPLE's three policies (PPoPP'21, section 4.2.2).

``used`` counts the taken devices of each machine, which are always its first ones. Machines are looked at in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Used = tuple[int, ...]


def fresh_first(used: Used, per_machine: int, count: int) -> Used:
    """Take machines that nobody uses, then the others: a stage stays within machines."""
    order = sorted(range(len(used)), key=lambda machine: (used[machine] > 0, machine))
    return _filled(used, per_machine, count, order)


def append_first(used: Used, per_machine: int, count: int) -> Used:
    """Take machines that are partly used, then fresh ones: no device is left alone."""
    order = sorted(range(len(used)), key=lambda machine: (used[machine] == 0, machine))
    return _filled(used, per_machine, count, order)


def scatter_first(used: Used, per_machine: int, count: int) -> Used:
    """Take one at a time from the machine with most left: every stage is on every machine."""
    now = list(used)
    for _ in range(count):
        now[min(range(len(now)), key=lambda machine: (now[machine], machine))] += 1
    return tuple(now)


POLICIES: tuple[Callable[[Used, int, int], Used], ...] = (fresh_first, append_first, scatter_first)


def _filled(used: Used, per_machine: int, count: int, order: Sequence[int]) -> Used:
    now = list(used)
    for machine in order:
        taken = min(count, per_machine - now[machine])
        now[machine] += taken
        count -= taken
    return tuple(now)


def choices(used: Used, per_machine: int, count: int) -> list[Used]:
    """Return what is used afterwards, by each policy; equal outcomes once.

    ``count`` devices are left.
    """
    return list(dict.fromkeys(policy(used, per_machine, count) for policy in POLICIES))


def devices(before: Used, after: Used, per_machine: int) -> tuple[int, ...]:
    """Return the devices taken between two states, numbered over the cluster."""
    return tuple(
        machine * per_machine + local
        for machine, (first, last) in enumerate(zip(before, after, strict=True))
        for local in range(first, last)
    )
