"""The constructs of a module as records, and the module with its constructs in the forms of a variant."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from experiments.compilation.interface import Graph, control
from experiments.compilation.interface.control import ControlLevel, Variant, returns_input, small_ops
from experiments.compilation.live.control.branches import AheadBranch, BothSides, CondBranch, split_ahead
from experiments.compilation.live.control.loops import FullLoop, HostLoop, UnrolledLoop, WhileLoop
from experiments.compilation.live.control.recursions import StackRecursion, UnrolledRecursion
from experiments.compilation.live.export import NoOneGraph, export, records
from experiments.models.control.constructs import CONSTRUCTS, Branch, Loop, Recursion


@dataclass
class ObservedConstruct:
    """A construct, the arguments it was first called with, and how often each side ran."""

    path: str
    module: nn.Module
    arguments: tuple[Any, ...] = ()
    sides: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, fx.GraphModule | None] = field(default_factory=dict)


@torch.no_grad()
def observe(module: nn.Module, cases: list[tuple[Tensor, ...]]) -> list[ObservedConstruct]:
    """Return every construct that the cases reach, outer ones first, with the sides that they took."""
    found = [
        ObservedConstruct(path, part) for path, part in module.named_modules() if isinstance(part, CONSTRUCTS)
    ]
    handles = [handle for seen in found for handle in _watch(seen)]
    try:
        for case in cases:
            module(*case)
    finally:
        for handle in handles:
            handle.remove()
    return [seen for seen in found if seen.arguments]


def _watch(seen: ObservedConstruct) -> list[Any]:
    def remember_arguments(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        seen.arguments = seen.arguments or arguments

    handles = [seen.module.register_forward_pre_hook(remember_arguments)]
    if isinstance(seen.module, Branch):
        for side in ("taken", "otherwise"):
            seen.sides[side] = 0
            handles.append(getattr(seen.module, side).register_forward_pre_hook(_counter(seen.sides, side)))
    return handles


def _counter(counts: dict[str, int], name: str) -> Callable[..., None]:
    def count(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        counts[name] += 1

    return count


def program_of(found: list[ObservedConstruct]) -> control.ControlProgram:
    """Return the records of what was observed."""
    return control.ControlProgram(tuple(_record(seen) for seen in found))


def _record(seen: ObservedConstruct) -> control.Construct:
    module = seen.module
    if isinstance(module, Loop):
        invariants, state = seen.arguments
        step = torch.zeros((), dtype=torch.int64, device=(*state, *invariants)[0].device)
        body = _body(seen, "body", (step, *invariants, *state))
        return control.ControlLoop(seen.path, body, module.count(invariants), module.condition is not None)
    if isinstance(module, Branch):
        operands = seen.arguments[1:]
        return control.ControlBranch(
            seen.path, _body(seen, "taken", operands), _body(seen, "otherwise", operands)
        )
    assert isinstance(module, Recursion)
    root, features = seen.arguments
    depth, calls = _extent(module, root)
    value = module.leaf(features[root])
    return control.ControlRecursion(seen.path, _body(seen, "combine", (value, value.clone())), depth, calls)


def _extent(tree: Recursion, root: int) -> tuple[int, int]:
    """Calls below the first on the longest way down, and calls in all."""
    left, right = tree.left.tolist(), tree.right.tolist()
    deepest, calls, waiting = 0, 0, [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        deepest, calls = max(deepest, depth), calls + 1
        if left[node] >= 0:
            waiting += [(left[node], depth + 1), (right[node], depth + 1)]
    return deepest, calls


def _body(seen: ObservedConstruct, name: str, arguments: tuple[Tensor, ...]) -> Graph | None:
    """Return a body's records; its graph is kept for forms that take it apart.

    ``None``: its own flow depends on data.
    """
    try:
        graph_module = export(getattr(seen.module, name), arguments)
    except NoOneGraph:
        seen.bodies[name] = None
        return None
    seen.bodies[name] = graph_module
    return records(graph_module)


def in_form(module: nn.Module, found: list[ObservedConstruct], variant: Variant, small: int) -> nn.Module:
    """Return a copy of ``module``, sharing its tensors, whose constructs ``variant`` carries out."""
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    made = copy.deepcopy(module, shared)
    # Inner constructs first: an outer one's form takes the inner forms with its body.
    for seen in reversed(found):
        level = variant.of(kind_of(seen.module))
        if not _as_written(level):
            _put(made, seen.path, _form(made.get_submodule(seen.path), seen, level, small))
    return made


def kind_of(construct: nn.Module) -> str:
    if isinstance(construct, Loop):
        return control.LOOP
    return control.RECURSION if isinstance(construct, Recursion) else control.BRANCH


def _as_written(level: ControlLevel) -> bool:
    return level.kind == control.BRANCH and level.form == "host"


def _put(module: nn.Module, path: str, form: nn.Module) -> None:
    owner, _, name = path.rpartition(".")
    setattr(module.get_submodule(owner), name, form)


def _form(construct: nn.Module, seen: ObservedConstruct, level: ControlLevel, small: int) -> nn.Module:
    if isinstance(construct, Loop):
        forms: Mapping[str, Callable[[], nn.Module]] = {
            "host": lambda: HostLoop(construct, construct.count(seen.arguments[0])),
            "unroll": lambda: UnrolledLoop(construct, level.factor, construct.count(seen.arguments[0])),
            "full": lambda: FullLoop(construct),
            "while_loop": lambda: WhileLoop(construct),
        }
        return forms[level.form]()
    if isinstance(construct, Recursion):
        if level.form == "stack":
            return StackRecursion(construct, level.factor)
        return UnrolledRecursion(construct, level.factor or 1)
    assert isinstance(construct, Branch)
    if level.form == "both":
        return BothSides(construct)
    if level.form == "cond":
        return CondBranch(construct, [_copies(seen.bodies[side]) for side in ("taken", "otherwise")])
    return AheadBranch(_split(seen, "taken", small), _split(seen, "otherwise", small))


def _copies(body: fx.GraphModule | None) -> bool:
    return body is None or returns_input(records(body))


def _split(seen: ObservedConstruct, side: str, small: int) -> tuple[nn.Module, nn.Module]:
    body = seen.bodies[side]
    if body is None:
        return Nothing(), getattr(seen.module, side)
    return split_ahead(body, small_ops(records(body), small))


class Nothing(nn.Module):
    """Nothing computed before the branch."""

    def forward(self, *operands: Tensor) -> tuple[()]:
        return ()
