"""Pollux' search on several cores: the numbers and the matrices of one process, to the byte."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.cluster.interface import Machines
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.pollux import generations
from experiments.cluster.policies.pollux.draws import Part, parts_of, skip
from experiments.cluster.policies.pollux.generations import search
from experiments.cluster.policies.pollux.genetic import AllocationProblem, States
from experiments.cluster.simulator import simulate
from experiments.core.processes import Workers
from tests.experiments.cluster.profiles import goodput
from tests.experiments.cluster.test_pollux import pollux
from tests.experiments.cluster.traces import jobs


def generator(seed: int, before: int) -> np.random.Generator:
    """One that was asked for some numbers of single precision, and may hold half of a step."""
    rng = np.random.default_rng(seed)
    rng.random(before, dtype=np.float32)
    return rng


@given(seed=st.integers(0, 99), before=st.integers(0, 3), draws=st.integers(0, 40))
def test_skipped_numbers_are_not_drawn_again(seed: int, before: int, draws: int) -> None:
    rng, other = generator(seed, before), generator(seed, before)
    skip(rng, draws)
    other.random(draws, dtype=np.float32)
    assert rng.random(3, dtype=np.float32).tolist() == other.random(3, dtype=np.float32).tolist()


@given(
    seed=st.integers(0, 99),
    before=st.integers(0, 1),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=2),
    cut=st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted),
)
def test_a_part_has_its_own_of_all_numbers(seed: int, before: int, shape: list[int], cut: list[int]) -> None:
    rng, other = generator(seed, before), generator(seed, before)
    drawn = Part(cut[0], cut[1], 9).draw(rng, 3, tuple(shape))
    everything = other.random((3, 9, *shape), dtype=np.float32)
    assert np.array_equal(drawn, everything[:, cut[0] : cut[1]])
    assert rng.random() == other.random()


def test_parts_are_even_and_none_is_empty() -> None:
    assert parts_of(7, 3) == [Part(0, 2, 7), Part(2, 4, 7), Part(4, 7, 7)]
    assert parts_of(2, 5) == [Part(0, 1, 2), Part(1, 2, 2)]


def contention(jobs: int, nodes: int, size: int = 4) -> AllocationProblem:
    """Jobs that may have some devices more than others and speed up by a root of them; some run already."""
    gpus = np.arange(nodes * size + 1)
    most = (1 + np.arange(jobs) % 7).astype(np.int16)
    speedups = np.stack([gpus ** (0.9 - 0.1 * np.arange(2)[:, None]) * (gpus <= limit) for limit in most])
    base = np.zeros((jobs, nodes), np.int16)
    base[np.arange(min(jobs, nodes)), np.arange(min(jobs, nodes))] = 1
    values = -1 / (speedups + 1e-3)
    capacity = np.full(nodes, size, np.int16)
    return AllocationProblem(capacity, most, base, speedups, values, 1.2 * values, most_nodes=3)


def outcome(problem: AllocationProblem, size: int, times: int, processes: int) -> tuple[object, ...]:
    """Everything that a search leaves behind."""
    rng = generator(3, 1)
    found = search(problem, nothing(problem), rng, size, times, times, processes)
    return found.states.tobytes(), found.values.tobytes(), found.marks.tobytes(), rng.random(4).tobytes()


def nothing(problem: AllocationProblem) -> States:
    return np.zeros((0, *problem.base.shape), np.int16)


@pytest.mark.parametrize(("jobs", "nodes", "size"), [(3, 5, 6), (5, 3, 7), (11, 4, 9), (1, 1, 2)])
def test_processes_divide_the_breeding_and_change_nothing(
    jobs: int, nodes: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd numbers of everything: parts begin in the middle of a step of the generator."""
    monkeypatch.setattr(generations, "LARGE", 0)
    alone, *divided = [outcome(contention(jobs, nodes), size, 12, processes) for processes in (1, 2, 3, 8)]
    assert divided == [alone] * 3
    assert multiprocessing.active_children() == []


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many workers each search asked for."""
    asked: list[int] = []

    def fork(call: Callable[[object], object], processes: int) -> Workers[object, object]:
        asked.append(processes)
        return Workers(call, processes)

    monkeypatch.setattr(generations, "Workers", fork)
    return asked


def test_a_plan_is_the_same_with_processes(monkeypatch: pytest.MonkeyPatch, forks: list[int]) -> None:
    monkeypatch.setattr(generations, "LARGE", 0)
    machines = Machines.of_sizes([4, 4])
    trace = goodput.profiles_for(jobs(*[(row, 1, 0) for row in range(4)]), machines)
    knobs = {"population": 10, "generations": 5, "interval": 10.0}
    alone, divided = (
        simulate(trace, machines, pollux(**knobs, processes=processes), performance_of(trace, machines))
        for processes in (1, 2)
    )
    assert divided == alone
    assert len(alone.executions) > 4
    assert set(forks) == {2}


def test_a_large_generation_alone_is_worth_the_forks(forks: list[int]) -> None:
    outcome(contention(29, 16), 100, 2, 2)
    assert forks == []
    large = contention(60, 100)
    assert outcome(large, 40, 3, 2) == outcome(large, 40, 3, 1)
    assert forks == [2]
