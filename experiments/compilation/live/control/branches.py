"""The forms of a branch.

All take ``(predicate, *operands)`` and give one side's result, as ``Branch`` does.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

from experiments.models.control.constructs import Branch


class Owned(nn.Module):
    """A side that hands out memory of its own, where it might give an operand back unchanged."""

    def __init__(self, side: nn.Module) -> None:
        super().__init__()
        self.side = side

    def forward(self, *operands: Tensor) -> Tensor:
        made: Tensor = self.side(*operands)
        return made.clone()


class CondBranch(nn.Module):
    """One op of the graph that branches.

    torch refuses a side that returns an operand, so such a side copies it.
    """

    def __init__(self, branch: Branch, copied: Sequence[bool]) -> None:
        super().__init__()
        sides = (branch.taken, branch.otherwise)
        self.taken, self.otherwise = (
            Owned(side) if copies else side for side, copies in zip(sides, copied, strict=True)
        )

    def forward(self, predicate: Tensor, *operands: Tensor) -> Tensor:
        made: Tensor = torch.cond(predicate, self.taken, self.otherwise, operands)
        return made


class BothSides(nn.Module):
    """Both sides run, one result is kept. Only for sides that do nothing else: the policy sees to that."""

    def __init__(self, branch: Branch) -> None:
        super().__init__()
        self.taken, self.otherwise = branch.taken, branch.otherwise

    def forward(self, predicate: Tensor, *operands: Tensor) -> Tensor:
        return torch.where(predicate, self.taken(*operands), self.otherwise(*operands))


class AheadBranch(nn.Module):
    """Small ops of both sides run before the host decides; each side goes on from their results."""

    def __init__(self, taken: tuple[nn.Module, nn.Module], otherwise: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.ahead_taken, self.taken = taken
        self.ahead_otherwise, self.otherwise = otherwise

    def forward(self, predicate: Tensor, *operands: Tensor) -> Tensor:
        early = self.ahead_taken(*operands), self.ahead_otherwise(*operands)
        if bool(predicate):
            made: Tensor = self.taken(*operands, *early[0])
        else:
            made = self.otherwise(*operands, *early[1])
        return made


def split_ahead(side: fx.GraphModule, moved: Sequence[str]) -> tuple[nn.Module, nn.Module]:
    """Return ``side`` in two.

    The ops called ``moved``, and the rest, which takes their results after its own operands.
    """
    early, late = copy.deepcopy(side), copy.deepcopy(side)
    needed = [
        node.name for node in _nodes_named(side, moved) if any(user.name not in moved for user in node.users)
    ]
    _keep_only(early, needed)
    _take(late, needed)
    return early, late


def _nodes_named(module: fx.GraphModule, names: Sequence[str]) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.name in names]


def _keep_only(module: fx.GraphModule, results: Sequence[str]) -> None:
    """Cut ``module`` down to what these nodes need; it returns them as a tuple."""
    by_name = {node.name: node for node in module.graph.nodes}
    output = next(iter(reversed(module.graph.nodes)))
    output.args = (tuple(by_name[name] for name in results),)
    _finish(module)


def _take(module: fx.GraphModule, names: Sequence[str]) -> None:
    """Make these nodes arguments, after those that there are."""
    last = [node for node in module.graph.nodes if node.op == "placeholder"][-1]
    for name in names:
        node = next(entry for entry in module.graph.nodes if entry.name == name)
        with module.graph.inserting_after(last):
            last = module.graph.placeholder(f"ahead_{name}")
        node.replace_all_uses_with(last)
    output = next(iter(reversed(module.graph.nodes)))
    output.args = (output.args[0][0],)
    _finish(module)


def _finish(module: fx.GraphModule) -> None:
    module.graph.set_codegen(fx.graph.CodeGen())
    for node in reversed(list(module.graph.nodes)):
        if node.op not in ("placeholder", "output") and not node.users:
            module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()
