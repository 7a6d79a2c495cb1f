"""Eager in float64, whatever types the model's own lines name, and how far its own rounding would move it.

A dispatch mode below autograd computes in float64 where eager computes in fewer bits: casts and factories
that name float32 give float64, and what is float32 all the same is widened before it is read. Numbers are
drawn in the type that eager draws them in, so that both draw alike.

With ``roundoff`` what an op reads and what it gives is moved by a random multiple of it, as rounding would
(Monte Carlo arithmetic: Parker, Pierce and Eggert, "Monte Carlo arithmetic: how to gamble with floating point
and win", Computing in Science and Engineering 2000). How far that moves a result is what any order of the
same arithmetic may be off by: little where nothing cancels, much where much does. Ops that choose, compare or
copy do not round.
"""

from __future__ import annotations

import copy
import functools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from experiments.compilation.live.accumulation import axes_added_up, random_walk
from experiments.compilation.live.backends.base import Inputs, Task
from experiments.core.progress import Progress, run_reporting, silent

#: Types of fewer bits, and what the reference computes in instead.
WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
#: Ops that choose, compare, copy or make whole numbers.
WITHOUT_ROUNDING = frozenset(
    (
        *("abs", "ceil", "clamp", "clamp_max", "clamp_min", "floor", "neg", "relu", "round", "sign", "trunc"),
        *("amax", "amin", "argmax", "argmin", "max", "maximum", "min", "minimum", "sort", "topk", "where"),
        *("eq", "ge", "gt", "isinf", "isnan", "le", "lt", "ne", "nonzero", "threshold_backward"),
        *("bitwise_and", "bitwise_not", "bitwise_or", "logical_and", "logical_not", "logical_or"),
        *("_to_copy", "cat", "clone", "constant_pad_nd", "copy", "flip", "repeat", "roll", "stack"),
        *("embedding", "gather", "index", "index_put", "index_select", "masked_fill", "scatter"),
        *("max_pool2d_with_indices", "select_scatter", "slice_scatter", "tril", "triu"),
        *("arange", "empty", "empty_like", "fill", "full", "full_like", "ones", "ones_like"),
        *("scalar_tensor", "zeros", "zeros_like"),
    )
)
#: Running statistics that a normalization writes although its schema does not say so, by place.
WRITTEN_IN_SILENCE = dict.fromkeys(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"), (3, 4))
#: Normal numbers that are drawn once, by 16 bits; what is larger meets them several times.
NOISE = 1 << 16
#: An odd number near 2**32 over the golden ratio: a product with it spreads bits over the upper ones.
SPREAD = -1_640_531_527
#: A GPU may read the operands of these with the 10 bits of TF32 where the model says float32.
CONVOLUTIONS = frozenset(("convolution", "_convolution", "cudnn_convolution", "convolution_backward"))
TF32_ROUNDOFF = 2.0**-11
#: Products by name, and the FLOPs from which on one may take a processor a second in float64.
PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))
LONG = 1e10


def reference_task(task: Task) -> Task:
    """Return the task with a copy of its module, and its batch, in float64."""
    return replace(task, module=copy.deepcopy(task.module).double(), inputs=widened(task.inputs))


def widened(case: Inputs) -> Inputs:
    """Return the real and complex numbers of an input in twice the usual bits."""
    return tuple(x.to(WIDER.get(x.dtype, x.dtype)) for x in case)


def places_written(op: Any) -> frozenset[int]:
    """Return the places of the arguments that an op writes to, said by its schema or not."""
    name = op._schema.name.removeprefix("aten::")
    said = (n for n, one in enumerate(op._schema.arguments) if one.alias_info and one.alias_info.is_write)
    return frozenset((*said, *WRITTEN_IN_SILENCE.get(name, ())))


def own_dtype(task: Task) -> torch.dtype:
    """Return the type that the model computes in: that of its parameters, else of its batch."""
    held = (*task.module.parameters(), *task.module.buffers(), *task.inputs)
    return next((x.dtype for x in held if x.is_floating_point()), torch.float32)


class InFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes in float64 what the model would compute in fewer bits, moved by ``roundoff``.

    ``progress`` gets signs of life while a long product is computed, and may raise to cancel.
    """

    def __init__(
        self,
        own: torch.dtype,
        device: str,
        roundoff: float = 0.0,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._own, self._device, self._roundoff, self._progress = own, device, roundoff, progress
        self._offsets = random.Random(seed)
        if roundoff:
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn(NOISE, generator=generator, dtype=torch.float64) * roundoff
            # From any offset on there are ``NOISE`` numbers in a row.
            self._noise_twice = noise.to(device).repeat(2)

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in op.tags:
            return self._compute(op, args, keywords)
        before = generator_state(self._device)
        found = self._compute(op, args, keywords)
        if torch.equal(before, generator_state(self._device)):
            return found
        set_generator_state(self._device, before)
        return self._draw(op, args, keywords)

    def _compute(self, op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if any(
            result.alias_info is not None and not result.alias_info.is_write for result in op._schema.returns
        ):
            return op(*args, **keywords)
        if "dtype" in keywords:
            keywords = {**keywords, "dtype": WIDER.get(keywords["dtype"], keywords["dtype"])}
        written = places_written(op)
        read, keywords = tree_map(_widen, (args, keywords))
        read = tuple(args[place] if place in written else value for place, value in enumerate(read))
        if not self._roundoff or op._schema.name.removeprefix("aten::").rstrip("_") in WITHOUT_ROUNDING:
            return self._apply(op, read, keywords)
        moved = self._moved_once(
            read, axes_added_up(op, read, keywords), coarser(op, self._own, self._device)
        )
        moved = tuple(args[place] if place in written else value for place, value in enumerate(moved))
        found = self._apply(op, moved, keywords)
        return found if op._schema.is_mutable else tree_map(self._moved, found)

    def _apply(self, op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Carry out an op; a long product in another thread, while this one reports."""
        if _product_flops(op, args) < LONG:
            return op(*args, **keywords)
        work = torch.no_grad()(functools.partial(op, *args, **keywords))
        return run_reporting(work, lambda: self._progress(0.0, ""))

    def _draw(self, op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Draw numbers in the type that eager draws them in."""
        narrow = op(*tree_map(self._narrow, args), **tree_map(self._narrow, keywords))
        return args[0].copy_(narrow) if op._schema.is_mutable else tree_map(_widen, narrow)

    def _narrow(self, value: Any) -> Any:
        wide = isinstance(value, Tensor) and value.dtype == torch.float64
        return value.to(self._own) if wide else value

    def _moved_once(self, read: Any, axes: Sequence[int], coarser: float) -> Any:
        """Move what an op reads, which it adds up over ``axes``, by ``coarser`` times the roundoff.

        A number that it reads at two places is one number at both (x - x is 0).
        """
        shape = read[0].shape if read and isinstance(read[0], Tensor) else None
        known: dict[int, Any] = {}

        def moved(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in known:
                known[id(value)] = self._moved(value, axes if value.shape == shape else (), coarser)
            return known[id(value)]

        return tree_map(moved, read)

    def _moved(self, value: Any, axes: Sequence[int] = (), coarser: float = 1.0) -> Any:
        if not isinstance(value, Tensor) or value.dtype != torch.float64:
            return value
        steps = (self._draw_by_place(value) + self._draw_by_number(value)) * (coarser * math.sqrt(0.5))
        moved = value.addcmul(value, steps)
        return moved.addcmul(value, random_walk(self._draw_by_place(value), axes)) if axes else moved

    def _draw_by_place(self, value: Tensor) -> Tensor:
        """Return a multiple of the roundoff for each place."""
        start, count = self._offsets.randrange(NOISE), value.numel()
        noise = self._noise_twice[NOISE - start : 2 * NOISE - start]
        steps = noise[:count] if count <= NOISE else noise.repeat(-(-count // NOISE))[:count]
        return steps.view(value.shape)

    def _draw_by_number(self, value: Tensor) -> Tensor:
        """Return a multiple of the roundoff for each number, the same wherever it stands.

        Equal numbers come of equal arithmetic and round alike: in their mean nothing averages out.
        """
        bits = value.float().view(torch.int32) ^ self._offsets.randrange(1 << 31)
        places = bits.mul_(SPREAD).bitwise_right_shift_(16).bitwise_and_(NOISE - 1)
        return self._noise_twice.index_select(0, places.reshape(-1)).view(value.shape)


def coarser(op: Any, own: torch.dtype, device: str) -> float:
    """Return by how much ``op`` rounds its operands more than numbers of type ``own`` are rounded."""
    if device != "cuda" or own != torch.float32:
        return 1.0
    name = op._schema.name.removeprefix("aten::")
    convolves = name in CONVOLUTIONS and torch.backends.cudnn.allow_tf32
    multiplies = name in PRODUCTS and torch.backends.cuda.matmul.allow_tf32
    return TF32_ROUNDOFF / (torch.finfo(own).eps / 2) if convolves or multiplies else 1.0


def _product_flops(op: Any, args: tuple[Any, ...]) -> float:
    """Return the FLOPs of a product of matrices; 0 for any other op."""
    if op._schema.name.removeprefix("aten::") not in PRODUCTS:
        return 0.0
    one, other = [value for value in args if isinstance(value, Tensor)][-2:]
    return 2.0 * one.numel() * other.shape[-1]


def _widen(value: Any) -> Any:
    return value.to(WIDER[value.dtype]) if isinstance(value, Tensor) and value.dtype in WIDER else value


def generator_state(device: str) -> Tensor:
    """Return the state of the generator that random ops on ``device`` draw from."""
    return torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


def seed_generator(device: str, seed: int) -> None:
    """Seed the generator of ``device``.

    Without a GPU ``torch.manual_seed`` keeps a call for each kind of accelerator, with its stack as text.
    """
    if device == "cuda":
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def set_generator_state(device: str, state: Tensor) -> None:
    """Put the generator of ``device`` back to ``state``."""
    if device == "cuda":
        torch.cuda.set_rng_state(state)
    else:
        torch.set_rng_state(state)
