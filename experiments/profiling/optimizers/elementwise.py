"""SGD, momentum, Adam and AdamW as tensor operations, so that a whole step can be traced.

``torch.optim`` reads its step count with ``.item()``, which a trace would freeze; here the count is a tensor
of the optimizer state, and what follows from it are float64 scalars. The same operations follow parameter by
parameter (torch's single-tensor form, its default on a CPU): updates in float32 and float64 are
``torch.optim``'s bit for bit on a CPU. Moments of 16 bits (``bf16-pure``) are updated by torch's capturable
form, whose rounding differs. Two temporaries of a parameter's size live at once in Adam.

The form for all parameters at once is torch's ``foreach``, its default on CUDA: Adam leaves one list of
temporaries, as large as all parameters. ``fused`` leaves none: it is one kernel of torch's.

A float32 master copy, where the precision has one, is what the optimizer updates; the parameter is rounded
from it. ``torch.optim`` scales the mean inside its last operation, by a Python number; here that is an
operation of its own, into a temporary that is no longer needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.profiling.optimizers import kernels
from experiments.profiling.optimizers.optimizer import Optimizer, Part, State, keep_shared, zeros

#: Decay of the means of gradients and of their squares, and what keeps a division from zero, in all Adams.
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def sgd(rate: float) -> Optimizer:
    """Plain descent."""

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        parameter.add_(gradient, alpha=-rate)

    def foreach(parts: Sequence[Part], prepared: State) -> None:
        torch._foreach_add_(*_operands(parts), alpha=-rate)

    def update_fused(parts: Sequence[Part], prepared: State) -> None:
        _fused_descent(parts, [], rate, 0.0)

    return Optimizer("sgd", zeros(), (), keep_shared, update, {"foreach": foreach, "fused": update_fused})


def momentum(rate: float, share: float) -> Optimizer:
    """A buffer that starts at zero gives torch's first step too: 0 * momentum + gradient."""

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        buffer = slots["momentum"]
        buffer.mul_(share).add_(gradient)
        parameter.add_(buffer, alpha=-rate)

    def foreach(parts: Sequence[Part], prepared: State) -> None:
        (parameters, gradients), buffers = _operands(parts), _slot(parts, "momentum")
        torch._foreach_mul_(buffers, share)
        torch._foreach_add_(buffers, gradients)
        torch._foreach_add_(parameters, buffers, alpha=-rate)

    def update_fused(parts: Sequence[Part], prepared: State) -> None:
        _fused_descent(parts, _slot(parts, "momentum"), rate, share)

    together = {"foreach": foreach, "fused": update_fused}
    return Optimizer("momentum", zeros("momentum"), (), keep_shared, update, together)


def adam(name: str, rate: float, decay: float) -> Optimizer:
    """Kingma & Ba 2015, algorithm 1; ``decay`` as in Loshchilov & Hutter 2019, algorithm 2."""

    def prepare(shared: State) -> State:
        step = shared["step"].add_(1)
        wide = step.double()
        return {"rate": -rate / (1 - BETA1**wide), "root": (1 - BETA2**wide).sqrt(), "step": step}

    def update(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        mean, square = slots["mean"], slots["square"]
        if decay:
            parameter.mul_(1 - rate * decay)
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        if parameter.element_size() < 4:
            scale = prepared["root"] * prepared["rate"]
            denominator = (square.sqrt() / scale).add_(EPS / prepared["rate"])
            parameter.addcdiv_(mean, denominator)
        else:
            scratch = square.sqrt()
            denominator = (scratch / prepared["root"]).add_(EPS)
            parameter.addcdiv_(torch.mul(mean, prepared["rate"], out=scratch), denominator)

    def foreach(parts: Sequence[Part], prepared: State) -> None:
        (parameters, gradients), means = _operands(parts), _slot(parts, "mean")
        squares = _slot(parts, "square")
        if decay:
            torch._foreach_mul_(parameters, 1 - rate * decay)
        torch._foreach_lerp_(means, gradients, 1 - BETA1)
        torch._foreach_mul_(squares, BETA2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - BETA2)
        roots = list(torch._foreach_sqrt(squares))
        torch._foreach_div_(roots, prepared["root"])
        torch._foreach_add_(roots, EPS)
        kernels.foreach_addcdiv_(parameters, means, roots, prepared["rate"])

    def update_fused(parts: Sequence[Part], prepared: State) -> None:
        kernel = torch._fused_adamw_ if decay else torch._fused_adam_
        means, squares = _slot(parts, "mean"), _slot(parts, "square")
        kernel(
            *(*_operands(parts), means, squares, [], [prepared["step"]] * len(parts)),
            amsgrad=False,
            lr=rate,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=decay,
            eps=EPS,
            maximize=False,
        )

    together = {"foreach": foreach, "fused": update_fused}
    return Optimizer(name, zeros("mean", "square"), ("step",), prepare, update, together)


def _operands(parts: Sequence[Part]) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters and their gradients."""
    return [part.parameter for part in parts], [part.gradient for part in parts]


def _slot(parts: Sequence[Part], slot: str) -> list[Tensor]:
    return [part.slots[slot] for part in parts]


def _fused_descent(parts: Sequence[Part], buffers: list[Tensor], rate: float, share: float) -> None:
    torch._fused_sgd_(
        *(*_operands(parts), buffers),
        weight_decay=0.0,
        momentum=share,
        lr=rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )
