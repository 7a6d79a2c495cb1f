"""A whole training (or inference) step as one function of tensors: the thing that is traced, replayed and
timed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.core.errors import BadInput
from experiments.models.build import DTYPES, Chosen, build, chosen
from experiments.models.model import Model, Objective
from experiments.models.parts import own_attributes
from experiments.profiling.autocast import casting, refuse_narrow
from experiments.profiling.optimizers import BUCKET, GRADIENT, initial_state
from experiments.profiling.optimizers.matrices import hidden_matrices
from experiments.profiling.optimizers.optimizer import Optimizer
from experiments.profiling.update import IN_BACKWARD, Update, optimizer_of
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


class GradientSums:
    """Gradients of several backward passes, added up as each is made, as ``.grad`` is.

    ``buffers`` hold them in float32 from the start, where the precision has such, and ``buckets`` those of a
    pass as it makes them.
    """

    def __init__(self, buffers: Mapping[str, Tensor], buckets: Mapping[str, Tensor]) -> None:
        self.buffers, self.buckets = buffers, buckets
        self.found: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, name: str, gradient: Tensor) -> None:
        """Add the gradient of one pass, into the memory of the first where that is its own."""
        first = name not in self.found
        if name in self.buckets:
            gradient = self.buckets[name].copy_(gradient)
        if self.buffers:
            buffer = self.buffers[name]
            self.found[name] = buffer.copy_(gradient) if first else buffer.add_(gradient)
        elif first:
            self.found[name] = gradient
        elif self._is_own(name):
            self.found[name].add_(gradient)
        else:
            self.found[name] = self.found[name] + gradient

    def _is_own(self, name: str) -> bool:
        """The sum of ``name`` fills its memory, and no other lies there."""
        total = self.found[name]
        home = total.untyped_storage()
        if home.nbytes() != total.numel() * total.element_size():
            return False
        others = (value for other, value in self.found.items() if other != name)
        return all(value.untyped_storage()._cdata != home._cdata for value in others)

    def over(self, gradients: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
        """The sums of all passes; the last pass's ``gradients`` where nothing was added up."""
        return {name: self.found.get(name, gradient) for name, gradient in gradients.items()}


@dataclass(frozen=True)
class Program:
    """``program(*tensors)`` runs the step on tensors in the order of ``leaves`` and returns loss or output.

    Parameters, optimizer state and buffers are updated in place, as an eager step does. With
    ``micro_batches`` the batch is cut along its samples; the loss is the mean over the parts, and their
    gradients are added up. ``frozen`` parameters have neither gradient nor state. ``form`` is that of the
    update.
    """

    model: Model
    options: Chosen
    optimizer: Optimizer
    parameters: dict[str, Tensor]
    state: dict[str, Tensor]
    buffers: dict[str, Tensor]
    micro_batches: int = 1
    frozen: frozenset[str] = frozenset()
    form: str = "single"
    autocast: str = "none"

    def __call__(self, *tensors: Tensor, observer: Observer | None = None) -> Tensor:
        watcher = observer or Unobserved()
        parameters, state, buffers, batch = self._split(tensors)
        if not self.options.training:
            with torch.no_grad():
                return self._forward(parameters, buffers, batch, watcher)
        update = Update(self.optimizer, self.form, parameters, state, watcher)
        sums = GradientSums(self._slots(state, GRADIENT), self._slots(state, BUCKET))
        losses: list[Tensor] = []
        for share in self._shares(batch):
            loss, gradients = self._backward(parameters, buffers, share, watcher, self._hooks(update, sums))
            losses.append(loss)
        gradients = sums.over(gradients)
        watcher.gradients(list(gradients.values()))
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        if self.form != IN_BACKWARD:
            update.run(gradients)
        return loss

    def _hooks(self, update: Update, sums: GradientSums) -> dict[str, Callable[[Tensor], None]]:
        """What is done with the gradient of each parameter as soon as the backward pass has made it."""
        if self.form == IN_BACKWARD:
            return {name: functools.partial(update.run_in_backward, name) for name in self._trained_names}
        if sums.buffers or self.micro_batches > 1:
            return {name: functools.partial(sums.add, name) for name in self._trained_names}
        return {}

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
        hooks: Mapping[str, Callable[[Tensor], None]],
    ) -> tuple[Tensor, dict[str, Tensor | None]]:
        """This micro-batch's part of the loss, and its gradients by parameter."""
        leaves = {name: value.detach() for name, value in parameters.items()}
        trained = [leaves[name].requires_grad_() for name in self._trained_names]
        for name, hook in hooks.items():
            leaf: Any = leaves[name]
            leaf.register_hook(hook)
        held: list[Any] = []
        with self._holding(held, watcher):
            loss = self._forward(leaves, buffers, batch, watcher)
        if self.micro_batches > 1:
            loss = loss / self.micro_batches
        watcher.loss(loss)
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        loss = loss.detach()
        _touch(held)
        return loss, dict(zip(self._trained_names, gradients, strict=True))

    @property
    def _trained_names(self) -> list[str]:
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
        return sum(self.weight_counts[name] for name in self._trained_names)

    def _slots(self, state: Mapping[str, Tensor], slot: str) -> dict[str, Tensor]:
        """``slot`` of each parameter; empty where the precision keeps no such gradients."""
        named = {name: f"{name}.{slot}" for name in self._trained_names}
        return {name: state[key] for name, key in named.items() if key in state}

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
        with (
            sdpa_kernel(kernel) if kernel else contextlib.nullcontext(),
            watcher.watch(self.model.module),
            casting(self.autocast, list(parameters.values())),
        ):
            values = {**parameters, **buffers}
            out: Tensor = torch.func.functional_call(self.model.module, values, tuple(batch))
        return out

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
        return "gradient_buffer" if name.rpartition(".")[2] in (GRADIENT, BUCKET) else "optimizer_state"


def program(source: ModelSource, device: str = "cpu", weights: bool = True) -> Program:
    """The step of ``source`` with its tensors on ``device``; fake ones when a fake mode is active."""
    options = chosen(source)
    model = build(source, weights)
    dtype = DTYPES[options.dtype]
    given = dict(model.module.named_parameters())
    dtypes = own_attributes(model.module, "own_dtypes")
    parameters = {name: _moved(value, device, dtypes.get(name, dtype)) for name, value in given.items()}
    buffers = {name: _moved(value, device, dtype) for name, value in model.module.named_buffers()}
    parts = source.micro_batches * source.options.accumulate
    optimizer = optimizer_of(options.optimizer, source.options, options.precision, parts)
    frozen = frozenset(name for name, value in given.items() if not value.requires_grad)
    trained = {name: value for name, value in parameters.items() if name not in frozen}
    hidden = hidden_matrices(model.module)
    state = initial_state(optimizer, trained, given, options.precision, hidden) if options.training else {}
    _refuse_uneven(source, options.geometry.batch, parts)
    refuse_narrow(source.options.autocast, options.dtype, options.precision)
    forms = (source.options.update, source.options.autocast)
    return Program(model, options, optimizer, parameters, state, buffers, parts, frozen, *forms)


def _refuse_uneven(source: ModelSource, batch: int, parts: int) -> None:
    if batch % parts == 0:
        return
    if source.options.accumulate == 1:
        what = f"a batch of {batch} is not {parts} equal micro-batches"
        raise BadInput(what, source.name, "a divisor of the batch")
    again = f" of {source.micro_batches} micro-batches each" if source.micro_batches > 1 else ""
    what = f"batch {batch} is not accumulate {source.options.accumulate} equal parts{again}"
    raise BadInput(what, "options.accumulate", "a divisor of the batch")


def _moved(value: Tensor, device: str, dtype: torch.dtype) -> Tensor:
    """On ``device``, and in ``dtype`` where it holds real numbers. ``Module.to`` cannot do this to fake
    tensors.
    """
    return value.detach().to(device, dtype if value.is_floating_point() else None)


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


def fake_program(source: ModelSource, device: str = "cpu") -> tuple[Program, list[Tensor]]:
    """The step and its arguments as fake tensors: shapes without memory, for a model of any size."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = program(source, device, weights=False)
        batch = [
            spec.empty(DTYPES[made.options.dtype], device) for spec in made.model.batch(made.options.training)
        ]
    return made, [*made.parameters.values(), *made.state.values(), *made.buffers.values(), *batch]


def real_inputs(source: ModelSource, seed: int, device: str = "cpu") -> list[Tensor]:
    """Arguments of the step with real values.

    Weights as the model initializes them, zeroed optimizer state and a random batch, all a function of
    ``seed`` and the same on every device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = program(source)
    generator = torch.Generator().manual_seed(seed)
    dtype = DTYPES[made.options.dtype]
    batch = [spec.sample(dtype, generator) for spec in made.model.batch(made.options.training)]
    values = [*made.parameters.values(), *made.state.values(), *made.buffers.values(), *batch]
    return [value.to(device) for value in values]
