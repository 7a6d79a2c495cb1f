"""Eager, its copy in float64 and a candidate, called on one input after the other from the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from experiments.compilation.live.backends.base import Compiled, Inputs, Task
from experiments.compilation.live.calls import CallResults, Side, in_types_of, input_name, results, state_name
from experiments.compilation.live.model_state import HeldState, Values, snapshot, tensors_behind, tensors_of
from experiments.compilation.live.module_hooks import report_modules
from experiments.compilation.live.reference import InFloat64, own_dtype, reference_task, widened

#: Draws of rounding noise at most; they end when nothing is left to judge, or too much (``agreement``).
DRAWS = 32
#: How much stronger than rounding it is, so that what any order of rounding may decide is decided both ways.
LOUDER = 8.0


@dataclass(frozen=True)
class CaseResults:
    """What the sides gave for one input: float64, eager, what may be missed as far, and the candidate.

    ``standing`` is what a call that writes nothing leaves behind. ``moved`` gives what float64 gives where
    every number is moved by the roundoff of the model's own type.
    """

    title: str
    case: Inputs
    exact: CallResults
    plain: CallResults
    other: CallResults
    own: CallResults
    standing: Values
    moved: Iterable[CallResults]


class Repeated:
    """What an iterator gives, made when it is first asked for and kept for those who ask again."""

    def __init__(self, source: Iterator[CallResults]) -> None:
        self._source = source
        self._kept: list[CallResults] = []

    def __iter__(self) -> Iterator[CallResults]:
        number = 0
        while number < len(self._kept) or self._more():
            yield self._kept[number]
            number += 1

    def _more(self) -> bool:
        found = next(self._source, None)
        self._kept += [] if found is None else [found]
        return found is not None


class Sides:
    """The sides of a comparison, each with its state."""

    def __init__(self, task: Task, ours: Compiled, peer: Callable[..., Any] | None, seed: int) -> None:
        self._task, self._seed = task, seed
        self._wide, self._dtype = reference_task(task), own_dtype(task)
        own = tensors_behind(ours.call, task.module)
        self._before, self._own_before = snapshot(tensors_of(task.module)), snapshot(own)
        parameters = dict(task.module.named_parameters())
        state = HeldState(tensors_of(task.module), self._before)
        self._plain = Side(task.module, parameters, state)
        self._peer = None if peer is None else Side(peer, parameters, state)
        mine = parameters if ours.parameters is None else ours.parameters
        self._own = Side(ours.call, mine, HeldState(own, self._own_before))
        wide = self._wide.module
        held = HeldState(tensors_of(wide), snapshot(tensors_of(wide)))
        self._exact = Side(wide, dict(wide.named_parameters()), held)

    def call(self, title: str, case: Inputs) -> CaseResults | None:
        """Call all sides on ``case``; ``None`` where eager itself refuses it."""
        task = self._task
        with report_modules(task.progress):
            plain = results(task, self._plain, case, self._seed)
            if plain.error:
                return None
            exact = self._in_float64(case, plain)
        other = plain if self._peer is None else results(task, self._peer, case, self._seed)
        own = results(task, self._own, case, self._seed)
        task.progress(0.0, "")
        standing = {input_name(number): value for number, value in enumerate(case)}
        standing |= {state_name(name): value for name, value in self._plain.state.tensors.items()}
        return CaseResults(
            title, case, exact, plain, other, own, standing, Repeated(self._draw_rounding(case))
        )

    def call_eager(self, case: Inputs) -> CallResults:
        """Call eager alone on ``case``, from the state that it is in."""
        return results(self._task, self._plain, case, self._seed)

    def repeat(self, seen: CaseResults) -> CaseResults:
        """Return float64's results once more as if a candidate had given them, in the types of the model."""
        again = self._in_float64(seen.case, seen.plain)
        plain, own = (in_types_of(seen.plain, found) for found in (seen.exact, again))
        return replace(seen, plain=plain, own=own, moved=())

    def go_on(self, found: CaseResults) -> None:
        """Let the next input meet the state that eager is in after this one, if its numbers are finite."""
        written = found.plain.written
        after = {name: written[state_name(name)] for name in self._before if state_name(name) in written}
        if all(bool(value.isfinite().all()) for value in after.values()):
            for side in (self._plain, self._own, self._exact):
                side.state.go_on(after)

    def put_back(self) -> None:
        """Put the models back to what they were before the first input."""
        self._plain.state.go_on(self._before)
        self._own.state.go_on(self._own_before)

    def _in_float64(self, case: Inputs, plain: CallResults) -> CallResults:
        """Return eager's results in float64.

        A model that cannot be run below a dispatch mode is run as it is, and what it refuses to compute in
        float64 is taken as eager has it.
        """
        case = widened(case)
        with InFloat64(self._dtype, self._task.device, progress=self._task.progress):
            found = results(self._wide, self._exact, case, self._seed)
        if found.error:
            found = results(self._wide, self._exact, case, self._seed)
        return plain if found.error else found

    def _draw_rounding(self, case: Inputs) -> Iterator[CallResults]:
        """Give the results in float64 as rounding moves them, one draw after the other."""
        roundoff = LOUDER * torch.finfo(self._dtype).eps / 2
        for draw in range(DRAWS):
            with InFloat64(self._dtype, self._task.device, roundoff, draw, self._task.progress):
                found = results(self._wide, self._exact, widened(case), self._seed)
            if not found.error:
                yield found
