"""Linear programs by an interior-point method on the homogeneous self-dual embedding, with a predictor and a
corrector (Domahidi, Chu and Boyd, "ECOS: an SOCP solver for embedded systems", ECC 2013; here for linear
cones).

A division of time has many optima. This method ends amid them, and its steps depend on the program alone, so
that figures made with the authors' solver can be repeated: a corner, or another method's point, moves
completion times by a few percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from experiments.workloads.step import Floats

#: Relative residuals and gap at which it ends, and the most steps.
TOLERANCE, STEPS = 1e-8, 100
#: How much of the way to the border is gone; the least and the most of a step; least part of centering.
PART, SHORTEST, LONGEST, CENTERING = 0.99, 1e-6, 0.999, 1e-4
#: Passes in which rows and columns are scaled to be alike, and below what nothing is scaled.
PASSES, TINY = 3, 1e-6
#: What keeps the factors of a step apart from 0.
SHIFT = 1e-13
#: How often a solution is refined by what it misses.
REFINED = 2


@dataclass
class Point:
    """``x``, slacks ``s``, multipliers ``z``, and the embedding's two scalars."""

    x: Floats
    s: Floats
    z: Floats
    tau: float = 1.0
    kappa: float = 1.0


def minimize(objective: Floats, upper: sparse.csr_matrix, limits: Floats) -> Floats | None:
    """Return ``x`` of the smallest ``objective @ x`` with ``upper @ x <= limits``.

    ``None`` where the method does not get there: there is no such ``x``, or none is smallest.
    """
    matrix, rows, columns = _scale(upper)
    found = _Method(objective / columns, matrix, limits / rows).run()
    return None if found is None else found / columns


def _scale(matrix: sparse.csr_matrix) -> tuple[sparse.csr_matrix, Floats, Floats]:
    """Divide rows and columns by the roots of their largest entries, again and again."""
    scaled = matrix.tocsr().astype(np.float64)
    rows, columns = np.ones(matrix.shape[0]), np.ones(matrix.shape[1])
    for _ in range(PASSES):
        size = abs(scaled)
        by_row, by_column = (_root(size.max(axis=axis).toarray().ravel()) for axis in (1, 0))
        scaled = sparse.diags_array(1 / by_row) @ scaled @ sparse.diags_array(1 / by_column)
        rows, columns = rows * by_row, columns * by_column
    return scaled.tocsr(), rows, columns


def _root(largest: Floats) -> Floats:
    return np.where(largest < TINY, 1.0, np.sqrt(largest))


class _Method:
    """One run on a scaled program."""

    def __init__(self, c: Floats, matrix: sparse.csr_matrix, h: Floats) -> None:
        self.c, self.g, self.h = c, matrix, h
        self.gt = matrix.T.tocsr()

    def run(self) -> Floats | None:
        point = self._start()
        sizes = [max(1.0, float(np.linalg.norm(vector))) for vector in (self.c, self.h)]
        for _ in range(STEPS):
            residuals = self._residuals(point)
            if self._is_optimal(point, residuals, sizes):
                return point.x / point.tau
            if not self._advance(point, residuals):
                return None
        return None

    def _start(self) -> Point:
        """Least squares of both sides, moved into the cone."""
        solve = self._factor(np.ones(len(self.h)))
        x, slack = solve(np.zeros(len(self.c)), self.h)
        _, z = solve(-self.c, np.zeros(len(self.h)))
        return Point(x, _into_cone(-slack), _into_cone(z))

    def _factor(self, squares: Floats) -> _Solve:
        return _Solve(self.g, squares)

    def _residuals(self, point: Point) -> tuple[Floats, Floats, float]:
        dual = -(self.gt @ point.z) - point.tau * self.c
        primal = point.s + self.g @ point.x - point.tau * self.h
        gap = point.kappa + float(self.c @ point.x + self.h @ point.z)
        return dual, primal, gap

    def _is_optimal(self, point: Point, residuals: tuple[Floats, Floats, float], sizes: list[float]) -> bool:
        dual, primal, _ = residuals
        norms = [float(np.linalg.norm(vector)) for vector in (point.x, point.s, point.z)]
        of_primal = float(np.linalg.norm(primal)) / max(sizes[1] + norms[0] + norms[1], 1) / point.tau
        of_dual = float(np.linalg.norm(dual)) / max(sizes[0] + norms[2], 1) / point.tau
        if of_primal >= TOLERANCE or of_dual >= TOLERANCE or point.kappa > point.tau:
            return False
        gap = float(point.s @ point.z)
        cost, bound = float(self.c @ point.x) / point.tau, -float(self.h @ point.z) / point.tau
        relative = gap / -cost if cost < 0 else gap / bound if bound > 0 else np.inf
        return gap < TOLERANCE or relative < TOLERANCE

    def _advance(self, point: Point, residuals: tuple[Floats, Floats, float]) -> bool:
        """One step; false where it is too short to get anywhere."""
        c, h, (dual, primal, gap) = self.c, self.h, residuals
        weight, root = np.sqrt(point.s / point.z), np.sqrt(point.s * point.z)
        mean = (float(point.s @ point.z) + point.kappa * point.tau) / (len(point.s) + 1)
        try:
            solve = self._factor(point.s / point.z)
        except RuntimeError:  # SuperLU's word for a singular system
            return False
        x1, z1 = solve(-c, h)
        below = point.kappa / point.tau - float(c @ x1 + h @ z1)

        x2, z2 = solve(dual, point.s - primal)
        tau = (gap - point.kappa + float(c @ x2 + h @ z2)) / below
        ahead = weight * (z2 + tau * z1)
        behind = -ahead - root
        kappa = -point.kappa - point.kappa / point.tau * tau
        part = min(max((1 - _longest(point, root, behind, ahead, tau, kappa)) ** 3, CENTERING), 1.0)

        wanted = (root * root + behind * ahead - part * mean) / root
        x2, z2 = solve((1 - part) * dual, weight * wanted - (1 - part) * primal)
        product = point.kappa * point.tau + kappa * tau - part * mean
        tau = ((1 - part) * gap - product / point.tau + float(c @ x2 + h @ z2)) / below
        dz = z2 + tau * z1
        ahead = weight * dz
        behind = -(wanted + ahead)
        kappa = -(product + point.kappa * tau) / point.tau
        step = PART * _longest(point, root, behind, ahead, tau, kappa)
        point.x = point.x + step * (x2 + tau * x1)
        point.s, point.z = point.s + step * weight * behind, point.z + step * dz
        point.tau, point.kappa = point.tau + step * tau, point.kappa + step * kappa
        return step > SHORTEST and min(point.s.min(), point.z.min()) > 0


class _Solve:
    """Solutions ``x, z`` of ``G' z = a`` and ``G x - squares z = b``.

    Rows of ``G`` with one entry (bounds) are eliminated, which leaves a sparse system.
    """

    def __init__(self, g: sparse.csr_matrix, squares: Floats) -> None:
        self.g, self.gt, self.squares = g, g.T.tocsr(), squares
        single = np.diff(g.indptr) == 1
        self.single, self.rest = np.flatnonzero(single), np.flatnonzero(~single)
        self.bounds, self.others = g[self.single], g[self.rest]
        size = g.shape[1]
        diagonal = SHIFT + np.asarray(self.bounds.multiply(self.bounds).T @ (1 / squares[self.single]))
        blocks: Any = [
            [sparse.diags_array(diagonal), self.others.T],
            [self.others, -sparse.diags_array(squares[self.rest])],
        ]
        system = sparse.block_array(blocks, format="csc")
        self.size = size
        self.factors = splu(system, permc_spec="MMD_AT_PLUS_A")

    def __call__(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        x, z = self._once(a, b)
        for _ in range(REFINED):
            dx, dz = self._once(a - self.gt @ z, b - (self.g @ x - self.squares * z))
            x, z = x + dx, z + dz
        return x, z

    def _once(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        lifted = a + self.bounds.T @ (b[self.single] / self.squares[self.single])
        right = np.concatenate((lifted, b[self.rest]))
        x = self.factors.solve(right)[: self.size]
        return x, (self.g @ x - b) / self.squares


def _into_cone(values: Floats) -> Floats:
    """Move ``values`` until the smallest is 1, or a little where all are above 0."""
    return values + (1 - float(values.min()) if values.min() <= 0 else 1 - PART)


def _longest(point: Point, root: Floats, behind: Floats, ahead: Floats, tau: float, kappa: float) -> float:
    """How far slacks, multipliers and scalars stay above 0."""
    most = max(float(-(behind / root).min()), float(-(ahead / root).min()))
    length = 1 / most if most > 0 else np.inf
    for value, change in ((point.tau, tau), (point.kappa, kappa)):
        if change < 0:
            length = min(length, -value / change)
    return float(min(max(length, SHORTEST), LONGEST))
