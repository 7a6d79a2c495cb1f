"""Whether a rewritten model still computes what eager does, judged in float64 on unfriendly inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from experiments.compilation.live.backends.base import Compiled, Inputs, Task
from experiments.compilation.live.module_hooks import report_modules

#: Relative difference allowed for reordered arithmetic, by dtype of the candidate (2e-2: 8 bits of bfloat16).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}
#: The candidate may also be this many times as far from float64 as eager itself is.
EAGER_ALLOWANCE = 4.0
#: Part of an allowed difference that the float64 truth may itself be off by: a gradient that cancels to zero
#: is 1e-18 there, and a candidate exactly so many times as far as eager would be refused for it.
SLACK = 1e-6

#: Tensors by what they are called in a counterexample.
Results = Mapping[str, Tensor]


@dataclass(frozen=True)
class Verification:
    """``max_abs_error`` over all inputs against eager in float64.

    ``counterexample`` is "" when nothing is wrong.

    Only places where eager itself, in the model's own dtype, gives a finite number are compared:
    ``places_compared``. ``exact_places`` counts the places at which a rewrite that claims to be exact was
    found so on whole numbers.
    """

    inputs_compared: int
    max_abs_error: float
    eager_max_abs_error: float
    bit_equal: bool
    counterexample: str = ""
    max_relative_error: float = 0.0
    exact_places: int | None = None
    places_compared: int = 0

    @property
    def ok(self) -> bool:
        return not self.counterexample


def unfriendly(inputs: Inputs, seed: int) -> list[tuple[str, Inputs]]:
    """Return the inputs as given, fresh draws, negated, large and zero ones.

    Integer inputs stay in their range.
    """
    generator = torch.Generator().manual_seed(seed)

    def real(change: Callable[[Tensor], Tensor]) -> Inputs:
        return tuple(change(x) if x.is_floating_point() else x for x in inputs)

    def shuffled(x: Tensor) -> Tensor:
        order = torch.randperm(x.numel(), generator=generator).to(x.device)
        return x.flatten()[order].reshape(x.shape)

    cases = [("as given", inputs), ("shuffled", tuple(shuffled(x) for x in inputs))]
    if any(x.is_floating_point() for x in inputs):
        cases += [
            ("negated", real(torch.neg)),
            ("times 100", real(lambda x: x * 100)),
            ("zero", real(torch.zeros_like)),
        ]
    return cases


def verify(
    task: Task,
    ours: Compiled,
    seed: int,
    bound: float = 0.0,
    cases: Sequence[tuple[str, Inputs]] | None = None,
    peer: Callable[..., Any] | None = None,
) -> Verification:
    """Compare ``ours`` with eager in float64 and in its own dtype on unfriendly inputs and other sizes.

    In training, where the output is the loss, the gradients of the parameters too. ``bound`` > 0 is the error
    in norm of an approximation; ``cases`` are the inputs to compare on instead of these; a ``peer``
    approximates by the same means, and may be missed by as much as eager otherwise.
    """
    task.progress(0.0, "")
    reference = replace(task, module=copy.deepcopy(task.module).double())
    cases = [*unfriendly(task.inputs, seed), *ours.others.items()] if cases is None else cases
    found = Verification(len(cases), 0.0, 0.0, True)
    for title, case in cases:
        wide = tuple(x.double() if x.is_floating_point() else x for x in case)
        with report_modules(task.progress):
            exact = results(reference, reference.module, None, wide, seed)
            plain = results(task, task.module, None, case, seed)
        other = plain if peer is None else results(task, peer, None, case, seed)
        candidate = results(task, ours.call, ours.parameters, case, seed)
        task.progress(0.0, "")
        found = _compare_input(found, f"input {title}", exact, plain, other, candidate, bound)
        if not found.ok:
            return found
    if not found.places_compared:
        return replace(found, counterexample="eager gives no finite number on any input: nothing to compare")
    return found


def results(
    task: Task,
    call: Callable[..., Any],
    parameters: Mapping[str, Tensor] | None,
    case: Inputs,
    seed: int,
) -> Results:
    """Return the outputs by number and, in training, the gradients by parameter.

    Random ops draw from ``seed``. The task's ``progress`` gets a sign of life first.
    """
    torch.manual_seed(seed)
    task.progress(0.0, "")
    if not task.training:
        with torch.no_grad():
            return {f"output {number}": leaf for number, leaf in enumerate(_leaves(call(*case)))}
    owned = dict(task.module.named_parameters()) if parameters is None else parameters
    for value in owned.values():
        value.grad = None
    loss = call(*case)
    loss.backward()
    gradients = {f"gradient of {k}": v.grad for k, v in owned.items() if v.grad is not None}
    return {"loss": loss.detach(), **{name: value.clone() for name, value in gradients.items()}}


def _compare_input(
    so_far: Verification,
    title: str,
    exact: Results,
    plain: Results,
    other: Results,
    ours: Results,
    bound: float,
) -> Verification:
    """Return ``so_far`` with one more input compared.

    ``other`` is what may be missed as far as ``EAGER_ALLOWANCE`` says.
    """
    complaint = _mismatch(exact, ours)
    if complaint:
        return replace(
            so_far, max_abs_error=float("inf"), bit_equal=False, counterexample=f"{title}: {complaint}"
        )
    for name, truth in exact.items():
        bit_equal = so_far.bit_equal and bool(torch.equal(ours[name], plain[name]))
        finite = torch.isfinite(plain[name])
        own, truth, base, rival = (
            value.masked_fill(~finite, 0) for value in (ours[name], truth, plain[name], other[name])
        )
        error, eager_error = _distance(own, truth), _distance(base, truth)
        so_far = replace(
            so_far,
            places_compared=so_far.places_compared + int(finite.sum()),
            max_abs_error=max(so_far.max_abs_error, error),
            max_relative_error=max(so_far.max_relative_error, _relative(own, truth)),
            eager_max_abs_error=max(so_far.eager_max_abs_error, eager_error),
            bit_equal=bit_equal,
        )
        complaint = _beyond_bound(own, truth, rival, bound) if bound else _beyond(own, truth, base)
        if complaint:
            return replace(so_far, counterexample=f"{title}, {name}: {complaint}")
    return so_far


def _beyond(own: Tensor, truth: Tensor, plain: Tensor) -> str:
    """Return how ``own`` is further from the truth than reordered arithmetic may be; empty when it is not."""
    if not own.numel():
        return ""
    allowed = TOLERANCE.get(own.dtype, 0.0) * float(truth.abs().max())
    allowed += EAGER_ALLOWANCE * _distance(plain, truth) * (1 + SLACK)
    return (
        "" if _distance(own, truth) <= allowed else f"{_where(own, truth)}, allowed difference {allowed:.3g}"
    )


def _beyond_bound(own: Tensor, truth: Tensor, other: Tensor, bound: float) -> str:
    """Return the same of an approximation, in norm."""
    size = float(truth.norm())
    allowed = bound * size + EAGER_ALLOWANCE * float((other.double() - truth).norm())
    error = float((own.double() - truth).norm())
    if error <= allowed:
        return ""
    return f"{error / (size or 1.0):.3g} of the result's norm away, {allowed / (size or 1.0):.3g} allowed"


def _leaves(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _mismatch(exact: Results, ours: Results) -> str:
    if exact.keys() != ours.keys():
        return f"gives {', '.join(ours)} instead of {', '.join(exact)}"
    for name, truth in exact.items():
        if truth.shape != ours[name].shape:
            return f"{name} has shape {tuple(ours[name].shape)} instead of {tuple(truth.shape)}"
    return ""


def _distance(own: Tensor, truth: Tensor) -> float:
    return float((own.double() - truth).abs().max()) if own.numel() else 0.0


def _relative(own: Tensor, truth: Tensor) -> float:
    """Error over the truth, both in norm; 0 of 0 is 0."""
    error = float((own.double() - truth).norm())
    return error / float(truth.norm()) if error else 0.0


def _where(own: Tensor, truth: Tensor) -> str:
    worst = int((own.double() - truth).abs().nan_to_num(torch.inf).argmax())
    return (
        f"element {worst} is {own.flatten()[worst].item():.6g} instead of {truth.flatten()[worst].item():.6g}"
    )
