"""Mixed-integer linear programs built row by row and solved by HiGHS.

Budgets are counted in branch-and-bound nodes, not in seconds, so that the same program always gives the same
answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.core.budget import ENDED_AT, caveat
from experiments.core.errors import LabError
from experiments.core.integer_programs import FAILED, minimize
from experiments.core.progress import Progress, run_reporting, silent
from experiments.core.time_limit import say_ended, seconds_left
from experiments.workloads.step import Floats

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

#: In HiGHS's message where it ended at its nodes, which scipy hands on as a status that it does not know.
LIMIT = "limit reached"
TIME_LIMIT = "Time limit reached"
#: A term of a row: the coefficient of a variable.
Term = tuple[int, float]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep HiGHS's lines off standard output, to which commands write their results.

    It writes some even when told not to.
    """
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


@dataclass(frozen=True)
class MixedIntegerSolution:
    """``values`` by variable; ``proven``: no better one is further away than the gap asked for."""

    values: Floats
    objective: float
    proven: bool

    def chosen(self, variable: int) -> bool:
        """Whether a binary variable is one."""
        return bool(self.values[variable] > 0.5)


@dataclass
class NodeBound:
    """Branch-and-bound nodes that each of a planner's programs may take.

    ``ended_early``: one ended there, without a proof or without any solution. ``progress`` hears a few times
    a second that the solver is at work, and may raise to cancel. ``is_timed``: the run's limit of time ends a
    program too.
    """

    most: int = 1000
    progress: Progress = silent
    ended_early: bool = False
    is_timed: bool = True
    ended_for_time: bool = False

    def options(self, gap: float) -> Any:
        """Return the solver's options: the bound, the gap, and what is left of the run's limit of time."""
        left = seconds_left() if self.is_timed else math.inf
        limit = {"time_limit": max(0.0, left)} if math.isfinite(left) else {}
        return {"node_limit": self.most, "mip_rel_gap": gap, **limit}

    def caveat(self, knob: str = "nodes") -> dict[str, str]:
        """Return a note of the ``knob`` at which a program ended; nothing where all ended by themselves."""
        if self.ended_for_time:
            return {ENDED_AT: say_ended("an integer program without a proof")}
        return caveat(self.most, "nodes", knob) if self.ended_early else {}

    def explain(self, reason: str) -> str:
        """Return ``reason``, why there is no plan, with the note."""
        return "; ".join([reason, *self.caveat().values()])


class MixedIntegerProgram:
    """Minimize the sum of cost times value. Variables are numbered as they are added."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self._whole: list[int] = []
        self._terms: list[tuple[list[int], list[float]]] = []
        self._at_least: list[float] = []
        self._at_most: list[float] = []

    def __len__(self) -> int:
        return len(self._cost)

    def binary(self, cost: float = 0.0, fixed: bool | None = None) -> int:
        """A variable that is 0 or 1, or ``fixed`` to one of them."""
        low, high = (0.0, 1.0) if fixed is None else (float(fixed), float(fixed))
        return self._add(cost, low, high, 1)

    def number(self, cost: float = 0.0, low: float = 0.0, high: float = np.inf) -> int:
        """A continuous variable."""
        return self._add(cost, low, high, 0)

    def _add(self, cost: float, low: float, high: float, whole: int) -> int:
        self._cost.append(cost)
        self._low.append(low)
        self._high.append(high)
        self._whole.append(whole)
        return len(self._cost) - 1

    def row(self, terms: Iterable[Term], at_least: float = -np.inf, at_most: float = np.inf) -> None:
        """Require ``at_least <= sum(coefficient * variable) <= at_most``.

        Coefficients of a variable named twice add up.
        """
        variables, coefficients = [], []
        for variable, coefficient in terms:
            variables.append(variable)
            coefficients.append(coefficient)
        self._terms.append((variables, coefficients))
        self._at_least.append(at_least)
        self._at_most.append(at_most)

    def fix(self, relaxed: MixedIntegerSolution) -> None:
        """Fix every binary that is whole in ``relaxed``: what is left is small enough to branch on."""
        for variable, whole in enumerate(self._whole):
            value = float(relaxed.values[variable])
            if whole and abs(value - round(value)) < 1e-9:
                self._low[variable] = self._high[variable] = float(round(value))

    def solve(
        self, bound: NodeBound | None = None, gap: float = 1e-4, relaxed: bool = False
    ) -> MixedIntegerSolution | None:
        """The best solution found within ``bound``; ``None`` where there is none, or none was found.

        ``LabError`` where the solver itself fails, as it may on coefficients far from one.

        ``relaxed`` lets binaries be fractions.
        """
        bound = bound or NodeBound()
        if not self._cost:
            return MixedIntegerSolution(np.zeros(0), 0.0, True)
        # Here, because loading it takes longer than most runs, whose policies solve nothing.
        from scipy.optimize import Bounds

        whole = np.zeros(len(self), np.int64) if relaxed else np.array(self._whole)
        with quiet():
            solver = functools.partial(
                minimize,
                np.array(self._cost),
                integrality=whole,
                bounds=Bounds(np.array(self._low), np.array(self._high)),
                constraints=self._constraints(),
                options=bound.options(gap),
            )
            found = run_reporting(solver, lambda: bound.progress(0.0, ""))
        bound.ended_for_time |= TIME_LIMIT in found.message
        bound.ended_early |= LIMIT in found.message
        if found.x is None:
            if found.status == FAILED and LIMIT not in found.message:
                raise LabError(f"the solver failed on an integer program: {found.message.strip()}")
            return None
        return MixedIntegerSolution(np.asarray(found.x, np.float64), float(found.fun), found.status == 0)

    def _constraints(self) -> list[LinearConstraint]:
        if not self._terms:
            return []
        from scipy.optimize import LinearConstraint
        from scipy.sparse import csr_array

        starts = np.concatenate(([0], np.cumsum([len(variables) for variables, _ in self._terms])))
        columns = [variable for variables, _ in self._terms for variable in variables]
        values = [value for _, coefficients in self._terms for value in coefficients]
        shape = (len(self._terms), len(self))
        matrix = csr_array((np.array(values), np.array(columns, np.int64), starts), shape=shape)
        matrix.sum_duplicates()
        return [LinearConstraint(matrix, np.array(self._at_least), np.array(self._at_most))]
