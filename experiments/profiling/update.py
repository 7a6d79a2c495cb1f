"""The update of a step: which form it has, what it may not be joined with, and its operations.

Forms (option ``update``): ``single``, one parameter after another, each gradient free after its own;
``foreach`` and ``fused``, all parameters at once, with the gradients held until the end; ``in-backward``,
each parameter as soon as the backward pass has its gradient, which is free at once.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.precision import WITH_FP32_GRADS
from experiments.profiling.optimizers import MASTER, OPTIMIZERS
from experiments.profiling.optimizers.optimizer import Optimizer, Part, State

IN_BACKWARD, FOREACH = "in-backward", "foreach"
RANKED = "galore_adamw"


class UpdateObserver(Protocol):
    """Told of the phases and parameters of an update."""

    def phase(self, name: str) -> None: ...
    def parameter(self, name: str) -> None: ...


def optimizer_of(name: str, options: WorkloadOptions, precision: str, parts: int) -> Optimizer:
    """Return the optimizer called ``name``; ``BadInput`` where the options of its update contradict.

    ``parts`` of the batch run before one update.
    """
    _refuse_without_training(options)
    if options.optimizer_rank != WorkloadOptions.optimizer_rank and name != RANKED:
        raise BadInput(
            f"optimizer_rank {options.optimizer_rank} with optimizer {name!r}, which has none",
            "options.optimizer_rank",
            f"optimizer {RANKED}, or the rank left out",
        )
    optimizer = OPTIMIZERS[name](options.optimizer_rank)
    if options.update not in optimizer.forms:
        what = f"update {options.update!r} with optimizer {name!r}, which has no such form"
        raise BadInput(what, "options.update", "one of " + ", ".join(optimizer.forms))
    if options.update == IN_BACKWARD:
        _refuse_held_gradients(precision, parts)
    return optimizer


def _refuse_without_training(options: WorkloadOptions) -> None:
    for name in ("update", "accumulate"):
        if name in options.changes and not options.training:
            what = f"{name} {options.changes[name]!r} with training false, which updates nothing"
            raise BadInput(what, f"options.{name}", "a training step, or the option left out")


def _refuse_held_gradients(precision: str, parts: int) -> None:
    """An update in the backward pass keeps no gradient for a later one to be added to."""
    if parts > 1:
        what = f"update {IN_BACKWARD!r} with gradients of {parts} parts of the batch to be added up"
        raise BadInput(what, "options.update", "the batch in one part, or update single, foreach or fused")
    if precision in WITH_FP32_GRADS:
        what = f"update {IN_BACKWARD!r} with precision {precision!r}, which holds the gradients"
        raise BadInput(what, "options.update", "a precision without float32 gradients")


@dataclass(frozen=True)
class Update:
    """The update of one step on its tensors; ``observer`` is told what is updated."""

    optimizer: Optimizer
    form: str
    parameters: Mapping[str, Tensor]
    state: State
    observer: UpdateObserver

    @torch.no_grad()
    def run(self, gradients: Mapping[str, Tensor | None]) -> None:
        """Update all that have a gradient: an unused head is left alone, as ``torch.optim`` does."""
        self.observer.phase("optimizer")
        found = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        if self.form in self.optimizer.together:
            self._run_together(found)
            return
        for name, gradient in found.items():
            self._run_one(name, gradient)

    @torch.no_grad()
    def run_in_backward(self, name: str, gradient: Tensor) -> None:
        """Update the parameter ``name`` while the backward pass goes on."""
        self.observer.phase("optimizer")
        self._run_one(name, gradient)
        self.observer.phase("backward")

    def _run_one(self, name: str, gradient: Tensor) -> None:
        prepared = self.shared_values
        self.observer.parameter(name)
        part = self._part(name, gradient)
        update = self.optimizer.update
        if self.form == "fused" and self.optimizer.in_place is not None:
            update = self.optimizer.in_place
        update(part.parameter, part.gradient, part.slots, prepared)
        if f"{name}.{MASTER}" in self.state:
            self.parameters[name].copy_(part.parameter)

    def _run_together(self, gradients: Mapping[str, Tensor]) -> None:
        prepared = self.shared_values
        parts = [self._part(name, gradient) for name, gradient in gradients.items()]
        self.optimizer.together[self.form](parts, prepared)
        masters = [name for name in gradients if f"{name}.{MASTER}" in self.state]
        if masters:
            weights = [self.parameters[name] for name in masters]
            torch._foreach_copy_(weights, [self.state[f"{name}.{MASTER}"] for name in masters])
        if self.form == FOREACH:
            _hold(list(gradients.values()))

    def _part(self, name: str, gradient: Tensor) -> Part:
        """What is updated: the float32 copy of a weight where there is one, with a gradient in float32."""
        slots = self._slots[name]
        master = self.state.get(f"{name}.{MASTER}")
        if master is not None:
            return Part(master, gradient.float(), slots)
        return Part(self.parameters[name], gradient, slots)

    @functools.cached_property
    def shared_values(self) -> State:
        """What one step has once for all parameters."""
        return self.optimizer.prepare({name: self.state[name] for name in self.optimizer.shared})

    @functools.cached_property
    def _slots(self) -> dict[str, dict[str, Tensor]]:
        """The state of each parameter by slot."""
        found: dict[str, dict[str, Tensor]] = {name: {} for name in self.parameters}
        for key, value in self.state.items():
            name = _owner(key, found)
            if name:
                found[name][key.removeprefix(f"{name}.")] = value
        return found


def _owner(key: str, names: Mapping[str, object]) -> str:
    """The parameter whose name ``key`` begins with; empty for a shared scalar."""
    name = key.rpartition(".")[0]
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name


def _hold(gradients: Sequence[Tensor]) -> None:
    """Keep ``gradients`` until here without moving data, as a training loop does until the next step."""
    for gradient in gradients:
        gradient.view(gradient.shape)
