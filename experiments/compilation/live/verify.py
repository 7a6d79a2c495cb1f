"""Whether a rewritten model still does what eager does, judged in float64 on unfriendly inputs.

What a call gives, what it leaves in buffers and inputs, and in training the gradients are compared
(``agreement``). Every call starts from the same state (``sides``), which moves on from input to input as
eager moves it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from experiments.compilation.live.agreement import (
    EAGER_ALLOWANCE,
    Triple,
    disagreement,
    largest,
    mismatch,
    real,
)
from experiments.compilation.live.backends.base import Compiled, Inputs, Task
from experiments.compilation.live.calls import CallResults, same_bits
from experiments.compilation.live.sides import CaseResults, Sides
from experiments.compilation.live.unfriendly import unfriendly

#: What is said where the model draws random numbers and the candidate draws others, ...
RANDOM = "not comparable: random"
#: ... and where the model, called once more, gives other numbers by more than rounding.
UNSTEADY = "not comparable: two runs of eager differ"


@dataclass(frozen=True)
class Verification:
    """``max_abs_error`` over all inputs against eager in float64.

    ``counterexample`` is "" when nothing is wrong.

    Only places where eager itself, in the model's own dtype, gives a finite number have errors:
    ``places_compared``. ``exact_places`` counts the places at which a rewrite that claims to be exact was
    found so on whole numbers. ``inputs_compared`` leaves out inputs that eager itself refuses.
    ``raised`` is the class of what the candidate raised; ``eager_raised`` what eager's first and second run
    on the first input did, ``eager_repeats`` whether they gave the same bits.
    """

    inputs_compared: int
    max_abs_error: float
    eager_max_abs_error: float
    bit_equal: bool
    counterexample: str = ""
    max_relative_error: float = 0.0
    exact_places: int | None = None
    places_compared: int = 0
    raised: str = ""
    eager_raised: tuple[str, str] = ("", "")
    eager_repeats: bool = True

    @property
    def ok(self) -> bool:
        return not self.counterexample

    @property
    def comparable(self) -> bool:
        """Whether the candidate could be judged at all."""
        return self.counterexample not in (RANDOM, UNSTEADY)


#: The verdict before any input was compared.
NOTHING_FOUND = Verification(0, 0.0, 0.0, True)


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
    cases = [*unfriendly(task.inputs, seed), *ours.others.items()] if cases is None else cases
    sides = Sides(task, ours, peer, seed)
    found = NOTHING_FOUND
    try:
        for number, (title, case) in enumerate(cases):
            if not number:
                found = _run_eager_twice(found, sides, case)
            seen = sides.call(title, case)
            if seen is None:
                continue
            if not found.eager_repeats and _is_unsteady(seen, sides):
                return replace(found, counterexample=UNSTEADY)
            found = _judge(replace(found, inputs_compared=found.inputs_compared + 1), seen, bound)
            if not found.ok:
                return _excuse(found, seen, sides)
            sides.go_on(seen)
    finally:
        sides.put_back()
    if not found.places_compared:
        return replace(found, counterexample="eager gives no finite number on any input: nothing to compare")
    return found


def _run_eager_twice(so_far: Verification, sides: Sides, case: Inputs) -> Verification:
    """Return ``so_far`` with what two runs of eager from one state and one seed did."""
    first, second = sides.call_eager(case), sides.call_eager(case)
    return replace(so_far, eager_raised=(first.raised, second.raised), eager_repeats=same_bits(first, second))


def _excuse(rejected: Verification, seen: CaseResults, sides: Sides) -> Verification:
    """Return the verdict on a candidate that was found wrong where the model itself may not repeat."""
    if same_bits(seen.plain, sides.call_eager(seen.case)) or not _is_unsteady(seen, sides):
        return rejected
    return replace(rejected, counterexample=UNSTEADY)


def _is_unsteady(seen: CaseResults, sides: Sides) -> bool:
    """Whether the model draws what no seed decides: in float64 too, its second run is not its first.

    Where only the order of sums changes from run to run, float64 hardly moves.
    """
    return not _judge(NOTHING_FOUND, sides.repeat(seen), 0.0).ok


def _judge(so_far: Verification, seen: CaseResults, bound: float) -> Verification:
    """Return ``so_far`` with one more input compared."""
    complaint = _other_kind(seen.plain, seen.own)
    if complaint:
        return _reject(replace(so_far, raised=seen.own.raised), seen, complaint)
    magnitude = largest(seen.case)
    for of in _triples(seen):
        complaint = mismatch(of.plain, of.own)
        if complaint:
            return _reject(so_far, seen, f"{of.name} {complaint}")
        so_far = _measure(so_far, of)
        if bound and of.plain.is_floating_point():
            complaint = _beyond_bound(of, _value_of(seen.other, of.name, of.plain), bound)
        else:
            complaint = disagreement(of, magnitude, functools.partial(_find_draws, seen, of.name))
        if complaint:
            return _reject(so_far, seen, f"{of.name}: {complaint}")
    return _reject(so_far, seen, "") if _draws_apart(seen) else so_far


def _reject(so_far: Verification, seen: CaseResults, complaint: str) -> Verification:
    """Return the verdict on a difference; where the sides drew other numbers, it says nothing."""
    said = RANDOM if _draws_apart(seen) else f"input {seen.title}, {complaint}"
    return replace(so_far, max_abs_error=math.inf, bit_equal=False, counterexample=said)


def _draws_apart(seen: CaseResults) -> bool:
    """Whether eager draws random numbers and the candidate draws others, which shows in the generator."""
    plain, own = seen.plain.generator, seen.own.generator
    assert plain is not None
    assert own is not None
    return seen.plain.drew and not torch.equal(plain, own)


def _other_kind(plain: CallResults, own: CallResults) -> str:
    """Return what is wrong with a candidate's results before any number is compared."""
    if own.error:
        return own.error
    if own.structure != plain.structure:
        return f"gives {own.structure} instead of {plain.structure}"
    for name, value in plain.others.items():
        if type(own.others[name]) is not type(value) or own.others[name] != value:
            return f"{name} is {own.others[name]!r:.80} instead of {value!r:.80}"
    return ""


def _triples(seen: CaseResults) -> Iterator[Triple]:
    """Return all results, what was written first.

    One that a side lacks is what it left as it was, or a gradient of 0. Where float64 takes another way (as
    many results as there are positive numbers, say), eager is the truth.
    """
    sides = seen.plain, seen.own, seen.exact
    names = dict.fromkeys(name for side in sides for name in (*side.written, *side.given))
    for name in names:
        known = next(value for side in sides if (value := _find(side, name)) is not None)
        otherwise = seen.standing[name] if name in seen.standing else torch.zeros_like(known)
        plain, own = (_value_of(side, name, otherwise) for side in (seen.plain, seen.own))
        truth = _value_of(seen.exact, name, otherwise)
        yield Triple(name, truth if truth.shape == plain.shape else plain, plain, own)


def _find(side: CallResults, name: str) -> Tensor | None:
    return side.given.get(name, side.written.get(name))


def _value_of(side: CallResults, name: str, otherwise: Tensor) -> Tensor:
    found = _find(side, name)
    return otherwise if found is None else found


def _find_draws(seen: CaseResults, name: str) -> Iterator[Tensor]:
    """Return the result of that name as rounding moves it, where it keeps its shape."""
    shape = _value_of(seen.exact, name, seen.standing.get(name, torch.empty(0))).shape
    draws = (_find(side, name) for side in seen.moved)
    return (draw for draw in draws if draw is not None and draw.shape == shape)


def _measure(so_far: Verification, of: Triple) -> Verification:
    """Return ``so_far`` with the distances of one result."""
    plain, own, truth = (real(value).double() for value in (of.plain, of.own, of.truth))
    finite = plain.isfinite()
    own, truth, plain = (value.masked_fill(~finite, 0) for value in (own, truth, plain))
    return replace(
        so_far,
        places_compared=so_far.places_compared + int(finite.sum()),
        max_abs_error=max(so_far.max_abs_error, _distance(own, truth)),
        max_relative_error=max(so_far.max_relative_error, _relative(own, truth, plain)),
        eager_max_abs_error=max(so_far.eager_max_abs_error, _distance(plain, truth)),
        bit_equal=so_far.bit_equal and bool(torch.equal(of.own, of.plain)),
    )


def _beyond_bound(of: Triple, other: Tensor, bound: float) -> str:
    """Return how far an approximation is beyond what it may be off, in norm; empty when it is not."""
    finite = of.plain.isfinite()
    own, truth, rival = (value.double().masked_fill(~finite, 0) for value in (of.own, of.truth, other))
    size = float(truth.norm())
    allowed = bound * size + EAGER_ALLOWANCE * float((rival - truth).norm())
    error = float((own - truth).norm())
    if error <= allowed:
        return ""
    return f"{error / (size or 1.0):.3g} of the result's norm away, {allowed / (size or 1.0):.3g} allowed"


def _distance(own: Tensor, truth: Tensor) -> float:
    return float((own - truth).abs().max()) if own.numel() else 0.0


def _relative(own: Tensor, truth: Tensor, plain: Tensor) -> float:
    """Error over the truth, both in norm; where eager's own error is as large, that says nothing."""
    size = float(truth.norm())
    return float((own - truth).norm()) / size if size > float((plain - truth).norm()) else 0.0
