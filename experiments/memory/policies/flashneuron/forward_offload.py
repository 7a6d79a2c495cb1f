"""FlashNeuron's choice: which saved tensors leave in the forward pass, in order of their first use there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.core.errors import Infeasible
from experiments.memory.interface.activations import last_forward_op
from experiments.memory.interface.paged import PagedStep


@dataclass(frozen=True)
class Write:
    """A tensor to write out in the forward pass, and since when it is idle.

    ``tensor`` is idle from op ``start`` on, the beginning of its last gap that begins no later than the
    loss.
    """

    tensor: int
    start: int


def bytes_for_saved(paged: PagedStep, capacity: int) -> int:
    """Return the bytes left for saved tensors next to the global ones and the largest op.

    ``Infeasible`` when there are none.
    """
    line = capacity - paged.global_bytes - paged.largest_op
    if line <= 0:
        what = f"persistent tensors take {paged.global_bytes} bytes and the largest op {paged.largest_op}"
        raise Infeasible(f"{what}: nothing is left of {capacity}", "the whole step", -line)
    return line


def candidates(paged: PagedStep) -> list[int]:
    """Local tensors of the forward ops, the loss apart, that are read after the loss; in touch order."""
    loss = last_forward_op(paged.step)
    seen: dict[int, None] = {}
    for row in paged.touched[:loss]:
        seen.update(dict.fromkeys(row))
    return [t for t in seen if not paged.is_global[t] and not paged.transient[t] and paged.death[t] > loss]


def last_forward_gap(paged: PagedStep, tensor: int) -> int | None:
    """Start of the last gap of ``tensor`` that begins no later than the loss; ``None`` where it has none."""
    loss, uses = last_forward_op(paged.step), paged.uses[tensor]
    starts = [a + 1 for a, b in pairwise(uses) if b > a + 1 and a + 1 <= loss]
    return starts[-1] if starts else None


def choose(paged: PagedStep, order: Sequence[int], line: int) -> tuple[list[Write], int]:
    """Take tensors in ``order`` until the rest fits ``line`` bytes; the writes and the bytes of the rest."""
    rest = sum(paged.bytes[tensor] for tensor in order)
    chosen = []
    for tensor in order:
        if rest < line:
            break
        start = last_forward_gap(paged, tensor)
        if start is not None:
            chosen.append(Write(tensor, start))
            rest -= paged.bytes[tensor]
    if rest > line:
        raise Infeasible(
            f"saved tensors that cannot leave take {rest} bytes of {line}", "the forward pass", rest - line
        )
    return chosen, rest
