"""One forward, one backward in turn on replicated stages (1F1B-RR): PipeDream, SOSP'19, section 3.2.

Mini-batch b goes to replica b mod r of a stage, for both passes. So many are admitted at first that the
pipeline is full: for each replica of the input stage ceil(devices / replicas) (NOAM); a later stage holds as
many as the devices from it on can work on, by the same rule. Then each worker runs a backward and a forward
pass in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.parallel.interface import BACKWARD, FORWARD, Slot


def in_flight(replicas: Sequence[int]) -> list[int]:
    """Return the mini-batches that each replica of a stage holds at once in steady state.

    ``[1, 1, 1, 1]`` gives 4, 3, 2, 1.
    """
    return [-(-sum(replicas[stage:]) // count) for stage, count in enumerate(replicas)]


def replica_order(stage: int, replica: int, replicas: int, held: int, mini_batches: int) -> tuple[Slot, ...]:
    """What one replica runs, in order: forwards, then backward and forward in turn, then the rest.

    There are ``held`` forwards.
    """
    mine = range(replica, mini_batches, replicas)
    slots = [Slot(FORWARD, number, stage) for number in mine[:held]]
    for position, number in enumerate(mine):
        slots.append(Slot(BACKWARD, number, stage))
        slots += [Slot(FORWARD, later, stage) for later in mine[position + held : position + held + 1]]
    return tuple(slots)
