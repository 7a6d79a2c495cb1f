"""One call of a model: what it gave, what it wrote, and what it left of the random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from experiments.compilation.live.backends.base import Inputs, Task
from experiments.compilation.live.model_state import HeldState, Values, snapshot, tensors_of
from experiments.compilation.live.reference import generator_state, seed_generator
from experiments.compilation.live.types import MISFITS


@dataclass(frozen=True)
class Side:
    """One of the things that are compared: what is called, whose gradients are taken, and what it holds."""

    call: Callable[..., Any]
    parameters: Mapping[str, Tensor]
    state: HeldState


@dataclass(frozen=True)
class CallResults:
    """What a call gave: tensors and other values by their names, and their structure.

    ``written`` is what it wrote to the model and to its inputs, ``generator`` the generator's state
    afterwards, ``drew`` whether it moved that, ``error`` what it raised instead, of the class ``raised``.
    """

    given: Values = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    structure: TreeSpec | None = None
    written: Values = field(default_factory=dict)
    generator: Tensor | None = None
    drew: bool = False
    error: str = ""
    raised: str = ""


def results(task: Task, side: Side, case: Inputs, seed: int) -> CallResults:
    """Call ``side`` on copies of ``case`` and put its model back; random ops draw from ``seed``.

    Results are the outputs by number and, in training, the loss and the gradients by parameter. The task's
    ``progress`` gets a sign of life first.
    """
    seed_generator(task.device, seed)
    before = generator_state(task.device)
    task.progress(0.0, "")
    batch = tuple(x.clone() for x in case)
    try:
        found = _train(side, batch) if task.training else _evaluate(side, batch)
    except MISFITS as error:
        line = " ".join(str(error).split())
        raised = type(error).__name__
        found = CallResults(error=f"raises {raised}: {line:.200}", raised=raised)
    finally:
        written = _find_written(side, batch, case)
    after = generator_state(task.device)
    drew = not torch.equal(before, after)
    return replace(found, written=written, generator=after, drew=drew)


def same_bits(one: CallResults, other: CallResults) -> bool:
    """Whether two calls gave and wrote the same, what is not a number included."""
    pairs = ((one.given, other.given), (one.written, other.written))
    alike = (one.structure, one.error, one.others.keys()) == (
        other.structure,
        other.error,
        other.others.keys(),
    )
    return alike and all(_same_values(ours, theirs) for ours, theirs in pairs)


def in_types_of(like: CallResults, found: CallResults) -> CallResults:
    """Return ``found`` with its results in the types that those of ``like`` have."""

    def cast(values: Values, named: Values) -> Values:
        return {name: x.to(named[name].dtype) if name in named else x for name, x in values.items()}

    return replace(found, given=cast(found.given, like.given), written=cast(found.written, like.written))


def _same_values(ours: Values, theirs: Values) -> bool:
    if ours.keys() != theirs.keys():
        return False
    pairs = ((value, theirs[name]) for name, value in ours.items())
    return all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
        for one, other in pairs
    )


def _find_written(side: Side, batch: Inputs, case: Inputs) -> Values:
    """Return what a call left in the model, which is put back, and in its inputs."""
    inputs = {
        input_name(number): now
        for number, (now, before) in enumerate(zip(batch, case, strict=True))
        if not torch.equal(now, before)
    }
    return {state_name(name): value for name, value in side.state.put_back().items()} | inputs


def output_name(number: int) -> str:
    """Return what an output is called."""
    return f"output {number}"


def input_name(number: int) -> str:
    """Return what an input is called that was written to."""
    return f"input {number} afterwards"


def state_name(name: str) -> str:
    """Return what a tensor of the model is called that was written to."""
    return f"{name} afterwards"


@torch.no_grad()
def _evaluate(side: Side, batch: Inputs) -> CallResults:
    leaves, structure = tree_flatten(side.call(*batch))
    named = {output_name(number): leaf for number, leaf in enumerate(leaves)}
    given = {name: leaf.detach().clone() for name, leaf in named.items() if isinstance(leaf, Tensor)}
    others = {name: leaf for name, leaf in named.items() if not isinstance(leaf, Tensor)}
    return CallResults(given, others, structure)


def _train(side: Side, batch: Inputs) -> CallResults:
    for value in side.parameters.values():
        value.grad = None
    with torch.enable_grad():
        loss = side.call(*batch)
        if loss.requires_grad:
            loss.backward()
    gradients = {gradient_name(name): value.grad for name, value in side.parameters.items()}
    for value in side.parameters.values():
        value.grad = None
    taken = {name: value for name, value in gradients.items() if value is not None}
    return CallResults({"loss": loss.detach().clone(), **taken})


def gradient_name(name: str) -> str:
    """Return what the gradient of a parameter is called."""
    return f"gradient of {name}"


def in_structure(call: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return ``call``, which gives the model's tensors in a row, giving them as the model does."""
    tensors = tensors_of(task.module)
    eager = Side(task.module, {}, HeldState(tensors, snapshot(tensors)))
    found = results(replace(task, training=False), eager, task.inputs, task.seed)
    structure = found.structure
    if structure is None:
        return call
    names = [output_name(number) for number in range(structure.num_leaves)]

    def give_as_eager(*inputs: Tensor) -> Any:
        row = (leaf for leaf in tree_leaves(call(*inputs)) if isinstance(leaf, Tensor))
        leaves = [found.others[name] if name in found.others else next(row) for name in names]
        return tree_unflatten(leaves, structure)

    return give_as_eager
