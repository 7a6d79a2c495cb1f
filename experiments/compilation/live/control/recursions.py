"""The forms of recursion over a binary tree. All take ``(root, features)`` and give the root's value."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from experiments.compilation.live.control.host import run_by_host
from experiments.core.errors import Infeasible
from experiments.models.control.constructs import Recursion

LEAF = -1


class StackTooSmall(Infeasible):
    """The tree is deeper than the stack has frames: an error, never a frame written over."""


class StackRecursion(nn.Module):
    """An explicit stack of ``frames`` frames: the host walks the tree, compiled bodies compute."""

    def __init__(self, recursion: Recursion, frames: int) -> None:
        super().__init__()
        self.leaf, self.combine, self.frames = recursion.leaf, recursion.combine, frames
        self.left, self.right = recursion.left.tolist(), recursion.right.tolist()

    @run_by_host
    def forward(self, root: int, features: Tensor) -> Tensor:
        waiting: list[list[int]] = []  # a frame: the node, and which of its children comes next
        values: list[Tensor] = []
        node = root
        while True:
            while self.left[node] != LEAF:
                self._push(waiting, node)
                node = self.left[node]
            values.append(self.leaf(features[node]))
            while waiting and waiting[-1][1]:
                waiting.pop()
                right = values.pop()
                values.append(self.combine(values.pop(), right))
            if not waiting:
                return values.pop()
            waiting[-1][1] = 1
            node = self.right[waiting[-1][0]]

    def _push(self, waiting: list[list[int]], node: int) -> None:
        # The value at the bottom of the tree has a frame too, so inner nodes fill one less.
        if len(waiting) + 1 >= self.frames:
            raise StackTooSmall(f"has no frame for the children of node {node}", f"stack of {self.frames}", 1)
        waiting.append([node, 0])


class Subtree(nn.Module):
    """``depth`` levels of calls in one graph: 2 ** depth values to one."""

    def __init__(self, combine: nn.Module, depth: int) -> None:
        super().__init__()
        self.combine, self.depth = combine, depth

    def forward(self, *values: Tensor) -> Tensor:
        while len(values) > 1:
            values = tuple(
                self.combine(left, right) for left, right in zip(values[::2], values[1::2], strict=True)
            )
        return values[0]


class UnrolledRecursion(nn.Module):
    """Python's own recursion, ``depth`` levels at a time where the tree is full so far down; else one."""

    def __init__(self, recursion: Recursion, depth: int) -> None:
        super().__init__()
        self.leaf, self.depth = recursion.leaf, depth
        self.left, self.right = recursion.left.tolist(), recursion.right.tolist()
        self.one, self.several = Subtree(recursion.combine, 1), Subtree(recursion.combine, depth)

    @run_by_host
    def forward(self, root: int, features: Tensor) -> Tensor:
        return self._value(root, features)

    @run_by_host
    def _value(self, node: int, features: Tensor) -> Tensor:
        if self.left[node] == LEAF:
            value: Tensor = self.leaf(features[node])
            return value
        below = self._below([node], self.depth)
        body = self.several if below else self.one
        values = [self._value(child, features) for child in below or self._below([node], 1)]
        made: Tensor = body(*values)
        return made

    def _below(self, nodes: Sequence[int], depth: int) -> list[int]:
        """Return the nodes ``depth`` levels below, left to right; none where a leaf is in the way."""
        found = list(nodes)
        for _ in range(depth):
            if any(self.left[node] == LEAF for node in found):
                return []
            found = [child for node in found for child in (self.left[node], self.right[node])]
        return found
