"""What searches learn from and how they walk: gradients by differences, recalls by counting, walks by exact
ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.tuning import ScheduleKnob, ScheduleSpace, TuningTask
from experiments.compilation.planning.tuning.annealing import (
    Annealing,
    anneal,
    best_of,
)
from experiments.compilation.planning.tuning.random_search import RandomTuner
from experiments.compilation.planning.tuning.trees import (
    Growth,
    average_recall,
    fit,
    pairwise,
    sums,
    weighted_square,
)
from experiments.compilation.policies.ansor.evolution import (
    CPU_RULES,
    Evolution,
    evolve,
    first_population,
    mutate,
)
from experiments.compilation.policies.ansor.task_scheduler import Standing, next_task

Floats = npt.NDArray[np.float64]


# --- objectives -----------------------------------------------------------------------------------


def differences(loss: Callable[[Floats], float], at: Floats, step: float = 1e-5) -> Floats:
    """The gradient of ``loss`` by central differences."""
    return np.array([(loss(at + step * row) - loss(at - step * row)) / (2 * step) for row in np.eye(len(at))])


def test_the_rank_objective_is_the_derivative_of_its_loss() -> None:
    """Over the pairs that the seed draws: log(1 + exp(-(f_i - f_j))) wherever y_i > y_j."""
    labels = np.array([0.1, 0.9, 0.5, 0.5, 0.3])
    margins = np.array([0.2, -0.4, 0.0, 1.0, 0.3])
    others = np.random.default_rng([7, 3]).integers(5, size=(16, 5))

    def loss(f: Floats) -> float:
        total = 0.0
        for row in others:
            for i, j in enumerate(row):
                sign = np.sign(labels[i] - labels[j])
                total += math.log1p(math.exp(-sign * (f[i] - f[j]))) if sign else 0.0
        return total

    found, bend = pairwise(labels, seed=7)(margins, 3)
    assert found == pytest.approx(differences(loss, margins), abs=1e-6)
    assert found.sum() == pytest.approx(0, abs=1e-12), "pushing one up pushes the other down"
    assert (bend > 0).all()


def test_the_square_objective_is_the_derivative_of_its_loss() -> None:
    """Three programs of 2, 1 and 2 rows; the slow one has the least weight, not none."""
    labels, group = np.array([1.0, 0.4, 0.0]), np.array([0, 0, 1, 2, 2])
    margins = np.array([0.3, 0.4, 0.1, 0.2, 0.5])
    weights = np.array([1.0, 0.4, 0.1])

    def loss(f: Floats) -> float:
        return float((weights * (np.bincount(group, f) - labels) ** 2).sum() / 2)

    found, bend = weighted_square(labels, group)(margins, 0)
    assert found == pytest.approx(differences(loss, margins), abs=1e-6)
    assert bend.tolist() == [1.0, 1.0, 0.4, 0.1, 0.1]
    assert sums(group, margins, 3).tolist() == pytest.approx([0.7, 0.1, 0.7])


@given(st.permutations(range(7)), st.permutations(range(7)), st.integers(1, 9))
def test_recall_by_counting(ours: list[int], truth: list[int], top: int) -> None:
    margins, labels = np.array(ours, float), np.array(truth, float)
    shares = []
    for n in range(1, min(top, 7) + 1):
        best = [set(np.argsort(-values)[:n].tolist()) for values in (margins, labels)]
        shares.append(len(best[0] & best[1]) / n)
    assert average_recall(margins, labels, top) == pytest.approx(np.mean(shares))


def test_trees_learn_which_of_two_values_is_fast_and_stop() -> None:
    """Rows with a 1 in the second column are fast; the first column says nothing."""
    features = np.array([[i % 3, i % 2] for i in range(40)], float)
    labels = features[:, 1]
    growth = Growth(rounds=50, patience=5)
    model = fit(features, pairwise(labels, 0), growth, lambda m: average_recall(m, labels, 20))
    found = model.predict(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    assert min(found[2:]) > max(found[:2])
    assert 1 <= model.rounds <= growth.rounds - growth.patience, "it ranks all of them after a few rounds"


# --- walks ----------------------------------------------------------------------------------------


def space(*radices: int) -> ScheduleSpace:
    return ScheduleSpace(
        tuple(ScheduleKnob(f"k{i}", tuple(range(n)), "unroll") for i, n in enumerate(radices))
    )


def far_from(target: list[int]) -> Callable[[npt.NDArray[np.int64]], Floats]:
    return lambda digits: -np.abs(digits - np.array(target)).sum(axis=1).astype(float)


def test_a_small_space_is_looked_through() -> None:
    """The best of 5 x 5 around (2, 3), without the best itself; equal ones in order of their points."""
    small, score = space(5, 5), far_from([2, 3])
    best = small.indices(np.array([[2, 3]]))[0]
    points, walkers = anneal(small, score, 3, {best}, np.random.default_rng(0), Annealing())
    assert not len(walkers)
    assert points == small.indices(np.array([[2, 2], [1, 3], [3, 3]]))
    assert best_of(small, score, 3, range(25)) == []


def test_a_random_search_takes_turns_until_nothing_is_left() -> None:
    """Tasks of 2 and 5 points, two at a time: 2 and 2 and then the rest of the second."""
    tasks = [TuningTask(f"t{i}", "matmul", space(n)) for i, n in enumerate((2, 5))]
    tuner = RandomTuner(tasks, seed=0, batch=2)
    turns = []
    while proposals := tuner.propose(64):
        turns.append([proposal.task for proposal in proposals])
    assert turns == [[0, 0], [1, 1], [1, 1], [1]]


# --- evolution ------------------------------------------------------------------------------------


def test_children_differ_from_their_parents_in_one_knob_at_most() -> None:
    """A cut goes to a neighbor of the same product; about 85 in 100 parents have a changed child."""
    cuts = ((1, 8), (2, 4), (4, 2), (8, 1))
    mixed = ScheduleSpace(
        (
            ScheduleKnob("tile_m", cuts, "tile"),
            ScheduleKnob("unroll", (0, 16), "unroll"),
            ScheduleKnob("fixed", (1,), "parallel"),
            ScheduleKnob("other", (1, 2, 3)),
        )
    )
    rng = np.random.default_rng(0)
    parents = mixed.random_digits(1000, rng)
    children = mutate(mixed, parents, rng, CPU_RULES)
    changed = (children != parents).sum(axis=1)
    assert changed.max() == 1 and 0.8 < changed.mean() < 0.9
    columns = (children != parents).sum(axis=0)
    assert columns[2] == columns[3] == 0, "no rule changes a knob of another kind"
    assert columns[0] > 15 * columns[1], "nine in ten mutations are of tiles"


def test_a_first_population_has_a_fifth_of_known_programs_at_most() -> None:
    wide = space(50, 50)
    drawn = first_population(wide, list(range(100)), np.random.default_rng(0), 50)
    assert len(drawn) == 50 and wide.indices(drawn[:10]) == list(range(10))


def test_evolution_finds_the_best_and_never_what_is_taken() -> None:
    wide, target = space(*[8] * 5), [1, 7, 3, 5, 2]
    best = wide.indices(np.array([target]))[0]
    evolution = Evolution(population=300, generations=20)
    found = evolve(wide, far_from(target), 10, (), [], np.random.default_rng(0), evolution)
    assert found[0] == best and len(set(found)) == 10
    again = evolve(wide, far_from(target), 10, {best}, [best], np.random.default_rng(0), evolution)
    assert best not in again


# --- which task is next ----------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 12), st.floats(0.5, 5.0), st.booleans()), min_size=1, max_size=5))
def test_the_next_task_is_never_one_that_is_exhausted(rows: list[tuple[int, float, bool]]) -> None:
    tasks = [Standing((best,) * rounds, exhausted=out) for rounds, best, out in rows]
    chosen = next_task(tasks, np.random.default_rng(0))
    assert (chosen is None) == all(task.exhausted for task in tasks)
    assert chosen is None or not tasks[chosen].exhausted
