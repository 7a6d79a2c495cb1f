"""A whole training (or inference) step as one function of tensors: the thing that is traced, replayed and
timed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.core.errors import BadInput
from experiments.core.precision import MIXED_FP32_GRADS
from experiments.models.build import DTYPES, Chosen, build, chosen
from experiments.models.model import Model, Objective
from experiments.models.parts import own_attributes
from experiments.profiling.optimizers import GRADIENT, MASTER, OPTIMIZERS, Optimizer, initial_state
from experiments.workloads.model import ModelSource

ATTENTION = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}


class Observer(Protocol):
    """Told what part of the step runs next (see ``recorder``)."""

    def phase(self, name: str) -> None: ...
    def begin_backward(self) -> None: ...
    def watch(self, module: nn.Module) -> contextlib.AbstractContextManager[None]: ...
    def loss(self, loss: Tensor) -> None: ...
    def gradients(self, gradients: Sequence[Tensor | None]) -> None: ...
    def parameter(self, name: str) -> None: ...


class Unobserved:
    """The observer of a plain eager run."""

    def phase(self, name: str) -> None: ...
    def begin_backward(self) -> None: ...
    def watch(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def loss(self, loss: Tensor) -> None: ...
    def gradients(self, gradients: Sequence[Tensor | None]) -> None: ...
    def parameter(self, name: str) -> None: ...


@dataclass(frozen=True)
class Leaf:
    """One tensor argument of the step; ``kind`` is one of those that outlive it."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Program:
    """``program(*tensors)`` runs the step on tensors in the order of ``leaves`` and returns loss or output.

    Parameters, optimizer state and buffers are updated in place, as an eager step does. With
    ``micro_batches`` the batch is cut along its samples; the loss is the mean over the parts, and their
    gradients are added up. ``frozen`` parameters have neither gradient nor state.
    """

    model: Model
    options: Chosen
    optimizer: Optimizer
    parameters: dict[str, Tensor]
    state: dict[str, Tensor]
    buffers: dict[str, Tensor]
    micro_batches: int = 1
    frozen: frozenset[str] = frozenset()

    def __call__(self, *tensors: Tensor, observer: Observer | None = None) -> Tensor:
        watcher = observer or Unobserved()
        parameters, state, buffers, batch = self._split(tensors)
        if not self.options.training:
            with torch.no_grad():
                return self._forward(parameters, buffers, batch, watcher)
        losses: list[Tensor] = []
        gradients: Sequence[Tensor | None] | None = None
        kept = self._gradient_buffers(state)
        for share in self._shares(batch):
            loss, found = self._backward(parameters, buffers, share, watcher, kept, not losses)
            losses.append(loss)
            gradients = found if gradients is None or kept else _added(gradients, found)
        assert gradients is not None
        watcher.gradients(gradients)
        self._update(parameters, gradients, state, watcher)
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _shares(self, batch: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
        """The micro-batches, one after another."""
        specs = zip(batch, self.model.batch(training=True), strict=True)
        return zip(*(value.chunk(self.micro_batches, spec.samples) for value, spec in specs), strict=True)

    def _backward(
        self,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        batch: Sequence[Tensor],
        watcher: Observer,
        kept: Mapping[str, Tensor],
        first: bool,
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """This micro-batch's part of the loss, and its gradients: the sums so far where they are ``kept``."""
        leaves = {name: value.detach() for name, value in parameters.items()}
        trained = [leaves[name].requires_grad_() for name in self._trained]
        for name, buffer in kept.items():
            leaf: Any = leaves[name]
            leaf.register_hook(functools.partial(_accumulate, buffer, first))
        held: list[Any] = []
        with self._holding(held, watcher):
            loss = self._forward(leaves, buffers, batch, watcher)
        if self.micro_batches > 1:
            loss = loss / self.micro_batches
        watcher.loss(loss)
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        loss = loss.detach()
        _touch(held)
        if kept:
            made = zip(kept.values(), gradients, strict=True)
            return loss, [None if gradient is None else buffer for buffer, gradient in made]
        return loss, gradients

    @property
    def _trained(self) -> list[str]:
        """Names of the parameters that have gradients, in order."""
        return [name for name in self.parameters if name not in self.frozen]

    @functools.cached_property
    def weight_counts(self) -> dict[str, int]:
        """The number of weights that each parameter holds: its elements, unless its module says otherwise."""
        elements = {name: value.numel() for name, value in self.parameters.items()}
        return elements | own_attributes(self.model.module, "weight_counts")

    @property
    def trained_parameters(self) -> int:
        """The number of weights that the step updates."""
        return sum(self.weight_counts[name] for name in self._trained)

    def _gradient_buffers(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The float32 buffers that each backward pass adds to; empty where gradients are the pass's own."""
        if self.options.precision != MIXED_FP32_GRADS:
            return {}
        return {name: state[f"{name}.{GRADIENT}"] for name in self._trained}

    @contextlib.contextmanager
    def _holding(self, outputs: list[Any], watcher: Observer) -> Iterator[None]:
        """What the model's body returns meanwhile is put into ``outputs``, and ``watcher`` hears of a loss
        that makes gradients itself.
        """
        module = self.model.module
        if isinstance(module, Objective):
            module.outputs, module.begin_backward = outputs, watcher.begin_backward
        try:
            yield
        finally:
            if isinstance(module, Objective):
                module.outputs = module.begin_backward = None

    def _split(
        self, tensors: Sequence[Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], list[Tensor]]:
        rest = iter(tensors)
        parameters, state, buffers = (
            {name: next(rest) for name in names} for names in (self.parameters, self.state, self.buffers)
        )
        return parameters, state, buffers, list(rest)

    def _forward(
        self,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        batch: Sequence[Tensor],
        watcher: Observer,
    ) -> Tensor:
        watcher.phase("forward")
        kernel = ATTENTION.get(self.options.attention)
        with sdpa_kernel(kernel) if kernel else contextlib.nullcontext(), watcher.watch(self.model.module):
            values = {**parameters, **buffers}
            out: Tensor = torch.func.functional_call(self.model.module, values, tuple(batch))
        return out

    @torch.no_grad()
    def _update(
        self,
        parameters: Mapping[str, Tensor],
        gradients: Sequence[Tensor | None],
        state: Mapping[str, Tensor],
        watcher: Observer,
    ) -> None:
        """A parameter without a gradient (an unused head) is left alone, as ``torch.optim`` does."""
        watcher.phase("optimizer")
        prepared = self.optimizer.prepare({name: state[name] for name in self.optimizer.shared})
        for name, gradient in zip(self._trained, gradients, strict=True):
            value = parameters[name]
            if gradient is None:
                continue
            watcher.parameter(name)
            slots = {slot: state[f"{name}.{slot}"] for slot in self.optimizer.slots}
            master = state.get(f"{name}.{MASTER}")
            if master is not None:
                self.optimizer.update(master, gradient.float(), slots, prepared)
                value.copy_(master)
            else:
                self.optimizer.update(value, gradient, slots, prepared)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arguments in order: parameters, optimizer state, buffers, batch."""
        named = (
            *(("parameter", entry) for entry in self.parameters.items()),
            *((self._state_kind(entry[0]), entry) for entry in self.state.items()),
            *(("buffer", entry) for entry in self.buffers.items()),
        )
        held = [Leaf(name, kind, tuple(value.shape), value.dtype) for kind, (name, value) in named]
        specs = self.model.batch(self.options.training)
        dtype = DTYPES[self.options.dtype]
        return (
            *held,
            *(Leaf(spec.name, "input", spec.shape, torch.int64 if spec.high else dtype) for spec in specs),
        )

    def _state_kind(self, name: str) -> str:
        """A shared scalar belongs to no parameter: it is a buffer of the step."""
        if name in self.optimizer.shared:
            return "buffer"
        return "gradient_buffer" if name.rpartition(".")[2] == GRADIENT else "optimizer_state"


def program(source: ModelSource, device: str = "cpu", weights: bool = True) -> Program:
    """The step of ``source`` with its tensors on ``device``; fake ones when a fake mode is active."""
    options = chosen(source)
    model = build(source, weights)
    dtype = DTYPES[options.dtype]
    given = dict(model.module.named_parameters())
    dtypes = own_attributes(model.module, "own_dtypes")
    parameters = {name: _moved(value, device, dtypes.get(name, dtype)) for name, value in given.items()}
    buffers = {name: _moved(value, device, dtype) for name, value in model.module.named_buffers()}
    optimizer = OPTIMIZERS[options.optimizer]
    frozen = frozenset(name for name, value in given.items() if not value.requires_grad)
    trained = {name: value for name, value in parameters.items() if name not in frozen}
    state = initial_state(optimizer, trained, given, options.precision) if options.training else {}
    batch = options.geometry.batch
    if batch % source.micro_batches:
        what = f"a batch of {batch} is not {source.micro_batches} equal micro-batches"
        raise BadInput(what, source.name, "a divisor of the batch")
    return Program(model, options, optimizer, parameters, state, buffers, source.micro_batches, frozen)


def _moved(value: Tensor, device: str, dtype: torch.dtype) -> Tensor:
    """On ``device``, and in ``dtype`` where it holds real numbers. ``Module.to`` cannot do this to fake
    tensors.
    """
    return value.detach().to(device, dtype if value.is_floating_point() else None)


def _accumulate(buffer: Tensor, first: bool, gradient: Tensor) -> None:
    """Add a parameter's gradient to its float32 buffer as soon as the pass has made it."""
    with torch.no_grad():
        buffer.copy_(gradient) if first else buffer.add_(gradient)


def _touch(held: Any) -> None:
    """Use every tensor in ``held`` without moving data: it lives until here.

    Training loops hold the model's output (logits) in a variable while the backward pass runs, needed or not.
    """
    if isinstance(held, Tensor):
        with torch.no_grad():
            held.view(held.shape)
    elif isinstance(held, Mapping):
        _touch(list(held.values()))
    elif isinstance(held, list | tuple):
        for part in held:
            _touch(part)


def _added(sums: Sequence[Tensor | None], more: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of two micro-batches, the later into the earlier where that has memory of its own, as
    ``.grad``.
    """
    found: list[Tensor | None] = []
    for total, gradient in zip(sums, more, strict=True):
        if total is None or gradient is None:
            found.append(gradient if total is None else total)
        elif total.untyped_storage().nbytes() == total.numel() * total.element_size():
            found.append(total.add_(gradient))
        else:
            found.append(total + gradient)
    return found


def fake_program(source: ModelSource, device: str = "cpu") -> tuple[Program, list[Tensor]]:
    """The step and its arguments as fake tensors: shapes without memory, for a model of any size."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = program(source, device, weights=False)
        batch = [
            spec.empty(DTYPES[made.options.dtype], device) for spec in made.model.batch(made.options.training)
        ]
    return made, [*made.parameters.values(), *made.state.values(), *made.buffers.values(), *batch]


def real_inputs(source: ModelSource, seed: int, device: str = "cpu") -> list[Tensor]:
    """Arguments of the step with real values: weights as the model initializes them, zeroed optimizer state
    and a random batch, all a function of ``seed`` and the same on every device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = program(source)
    generator = torch.Generator().manual_seed(seed)
    dtype = DTYPES[made.options.dtype]
    batch = [spec.sample(dtype, generator) for spec in made.model.batch(made.options.training)]
    values = [*made.parameters.values(), *made.state.values(), *made.buffers.values(), *batch]
    return [value.to(device) for value in values]
