"""Linear programs solved from within, against scipy's solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from experiments.cluster.planning.interior_point import minimize


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 8), rows=st.integers(1, 8))
def test_the_optimum_is_that_of_another_solver(seed: int, size: int, rows: int) -> None:
    """Programs that have one: bounded below by prices above 0, feasible by a point drawn first."""
    rng = np.random.default_rng(seed)
    matrix, inside = rng.normal(size=(rows, size)), rng.uniform(0, 3, size)
    limits, prices = matrix @ inside + rng.uniform(0.1, 1, rows), rng.uniform(0.1, 2, size)
    upper = np.vstack([matrix, -np.eye(size)])
    found = minimize(prices, sparse.csr_matrix(upper), np.concatenate((limits, np.zeros(size))))
    assert found is not None
    assert (matrix @ found <= limits + 1e-5).all()
    assert (found >= -1e-6).all()
    expected = linprog(prices, A_ub=matrix, b_ub=limits).fun
    assert prices @ found == pytest.approx(expected, abs=1e-5)


def test_of_many_optima_it_ends_amid_them() -> None:
    """Both have the same worth: neither gets all."""
    upper = np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    found = minimize(np.array([-1.0, -1.0]), sparse.csr_matrix(upper), np.array([1.0, 0.0, 0.0]))
    assert found == pytest.approx([0.5, 0.5], abs=1e-6)


def test_without_a_solution_there_is_none() -> None:
    upper = sparse.csr_matrix(np.array([[1.0], [-1.0]]))
    assert minimize(np.array([1.0]), upper, np.array([-1.0, 0.0])) is None
    assert minimize(np.array([-1.0]), sparse.csr_matrix(np.array([[-1.0]])), np.array([0.0])) is None
