"""What an optimizer is to a step: its state by parameter, and its update as tensor operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

State = Mapping[str, Tensor]
#: The state of a parameter before the first step; the flag says that it is a matrix between the embeddings
#: and the output, which some optimizers treat by a rule of their own.
Initial = Callable[[Tensor, bool], dict[str, Tensor]]


@dataclass(frozen=True)
class Part:
    """One parameter of an update, with its gradient and its state."""

    parameter: Tensor
    gradient: Tensor
    slots: State


@dataclass(frozen=True)
class Optimizer:
    """Its state and its update, as a step has them.

    - ``initial``: the state of one parameter by slot.
    - ``shared``: names of scalars that all parameters share, float32 of shape [].
    - ``prepare(shared)`` runs once a step, ``update(parameter, gradient, slots, prepared)`` for each
      parameter.
    - ``together``: updates of all parameters at once by the name of their form, ``foreach`` or ``fused``.
    - ``in_place``: the update of one parameter that leaves no temporaries, where the library has such a
      kernel.
    - ``paged_from``: values of the smallest state tensor that belongs to the host; 0: none does.
    """

    name: str
    initial: Initial
    shared: tuple[str, ...]
    prepare: Callable[[State], State]
    update: Callable[[Tensor, Tensor, State, State], None]
    together: Mapping[str, Callable[[Sequence[Part], State], None]] = field(default_factory=dict)
    in_place: Callable[[Tensor, Tensor, State, State], None] | None = None
    paged_from: int = 0

    @property
    def forms(self) -> tuple[str, ...]:
        """The values of the option ``update`` that it has."""
        fused = ("fused",) if self.in_place else ()
        return ("single", *self.together, *fused, "in-backward")


def keep_shared(shared: State) -> State:
    """Prepare nothing."""
    return shared


def zeros(*slots: str) -> Initial:
    """Return the initial state of an optimizer whose slots all have the parameter's shape and type."""

    def initial(parameter: Tensor, hidden: bool) -> dict[str, Tensor]:
        return {slot: torch.zeros_like(parameter) for slot in slots}

    return initial
