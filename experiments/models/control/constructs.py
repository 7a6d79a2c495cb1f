"""Loops, branches and recursion as modules: run as plain Python here, found and put into other forms by
compilers.

Each construct holds its bodies as modules and its control flow in ``forward`` alone, so that what decides is
apart from what computes. The forms that a compiler may put in their place have the same arguments and
results.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]


def at_step(series: Tensor, step: int | Tensor) -> Tensor:
    """``series[step]``, also where ``step`` is a tensor of no dimensions (inside a loop on the device)."""
    if isinstance(step, int):
        return series[step]
    return series.index_select(0, step.reshape(1)).squeeze(0)


class Loop(nn.Module):
    """Repeats ``state = body(step, *invariants, *state)`` while ``condition(*state)`` holds.

    At most ``trips`` times: the length of the first invariant where it is not given. ``condition``, a module,
    is asked before each trip; without one the number of trips is known before the loop starts.
    """

    def __init__(self, body: nn.Module, trips: int | None = None, condition: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.trips = trips
        self.condition = condition

    def count(self, invariants: State) -> int:
        """The most trips for these invariants."""
        return len(invariants[0]) if self.trips is None else self.trips

    def forward(self, invariants: State, state: State) -> State:
        for step in range(self.count(invariants)):
            if self.condition is not None and not bool(self.condition(*state)):
                break
            state = self.body(step, *invariants, *state)
        return state


class Branch(nn.Module):
    """``taken(*operands)`` where the predicate holds, else ``otherwise(*operands)``.

    The predicate is one truth value in a tensor.
    """

    def __init__(self, taken: nn.Module, otherwise: nn.Module) -> None:
        super().__init__()
        self.taken = taken
        self.otherwise = otherwise

    def forward(self, predicate: Tensor, *operands: Tensor) -> Tensor:
        chosen: Tensor = self.taken(*operands) if bool(predicate) else self.otherwise(*operands)
        return chosen


class Recursion(nn.Module):
    """The value of a binary tree's root, from those of its leaves.

    ``leaf(features[node])``, or ``combine`` of the two children's values. The tree is data: ``left`` and
    ``right`` hold each node's children, -1 for a leaf. Nodes may stand in any order.
    """

    left: Tensor
    right: Tensor

    def __init__(
        self, leaf: nn.Module, combine: nn.Module, left: Sequence[int], right: Sequence[int]
    ) -> None:
        super().__init__()
        self.leaf = leaf
        self.combine = combine
        self.register_buffer("left", torch.tensor(left))
        self.register_buffer("right", torch.tensor(right))

    def forward(self, root: int, features: Tensor) -> Tensor:
        left, right = int(self.left[root]), int(self.right[root])
        if left < 0:
            value: Tensor = self.leaf(features[root])
            return value
        combined: Tensor = self.combine(self(left, features), self(right, features))
        return combined


CONSTRUCTS = (Loop, Branch, Recursion)
