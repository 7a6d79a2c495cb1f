"""Whether a rewritten model still computes what eager does, judged in float64 on unfriendly inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

#: Relative difference allowed for reordered arithmetic, by dtype of the candidate (2e-2: 8 bits of bfloat16).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}
#: The candidate may also be this many times as far from float64 as eager itself is.
EAGER_ALLOWANCE = 4.0

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Verification:
    """``max_abs_error`` over all inputs against eager in float64; ``counterexample`` is "" when nothing is wrong."""

    inputs_compared: int
    max_abs_error: float
    eager_max_abs_error: float
    bit_equal: bool
    counterexample: str = ""

    @property
    def ok(self) -> bool:
        return not self.counterexample


def unfriendly(inputs: Inputs, seed: int) -> list[tuple[str, Inputs]]:
    """The inputs as given, fresh draws, negated, large and zero ones; integer inputs stay in their range."""
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


@torch.no_grad()
def verify(eager: nn.Module, candidate: Callable[..., Any], inputs: Inputs, seed: int) -> Verification:
    """Compare ``candidate`` with ``eager`` in float64 and in its own dtype on every unfriendly input."""
    reference = copy.deepcopy(eager).double()
    worst = eager_worst = 0.0
    bit_equal = True
    cases = unfriendly(inputs, seed)
    for title, case in cases:
        exact = _leaves(reference(*(x.double() if x.is_floating_point() else x for x in case)))
        plain, ours = _leaves(eager(*case)), _leaves(candidate(*case))
        complaint = _mismatch(exact, ours)
        if complaint:
            return Verification(len(cases), float("inf"), eager_worst, False, f"input {title}: {complaint}")
        for number, (truth, own, base) in enumerate(zip(exact, ours, plain, strict=True)):
            error, eager_error = _distance(own, truth), _distance(base, truth)
            worst, eager_worst = max(worst, error), max(eager_worst, eager_error)
            bit_equal &= bool(torch.equal(own, base))
            allowed = TOLERANCE.get(own.dtype, 0.0) * float(truth.abs().max()) + EAGER_ALLOWANCE * eager_error
            if not error <= allowed:
                text = (
                    f"input {title}, output {number}: {_where(own, truth)}, allowed difference {allowed:.3g}"
                )
                return Verification(len(cases), error, eager_worst, False, text)
    return Verification(len(cases), worst, eager_worst, bit_equal)


def _leaves(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _mismatch(exact: Sequence[Tensor], ours: Sequence[Tensor]) -> str:
    if len(exact) != len(ours):
        return f"{len(ours)} outputs instead of {len(exact)}"
    for number, (truth, own) in enumerate(zip(exact, ours, strict=True)):
        if truth.shape != own.shape:
            return f"output {number} has shape {tuple(own.shape)} instead of {tuple(truth.shape)}"
    return ""


def _distance(own: Tensor, truth: Tensor) -> float:
    return float((own.double() - truth).abs().max()) if own.numel() else 0.0


def _where(own: Tensor, truth: Tensor) -> str:
    worst = int((own.double() - truth).abs().nan_to_num(torch.inf).argmax())
    return (
        f"element {worst} is {own.flatten()[worst].item():.6g} instead of {truth.flatten()[worst].item():.6g}"
    )
