"""A simulated step says that it goes on, and can be left at each sign of life."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.parallel.interface import ParallelPlan, PlanningEstimate
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.simulator import simulate, simulate_with_traffic
from experiments.parallel.simulator.tasks import LOOKS, TaskGraph, replay
from tests.experiments.parallel.builders import chain, cluster, estimate

WORKERS = 4


class Cancelled(Exception):
    pass


def asked_with(reports: list[str], cancel_at: int = -1) -> tuple[ParallelPlan, PlanningEstimate]:
    """A pipeline of four workers; the report of number ``cancel_at`` cancels."""

    def listen(fraction: float, step: str) -> None:
        reports.append(step)
        if len(reports) == cancel_at:
            raise Cancelled

    model, hardware = chain(WORKERS, output_bytes=1.0), cluster(1, WORKERS)
    asked = replace(estimate(model, hardware), progress=listen)
    return GPipe(micro_batches=2).place(model, hardware, 2, asked), asked


def test_every_worker_and_every_phase_of_a_simulated_step_gives_a_sign_of_life() -> None:
    reports: list[str] = []
    simulate_with_traffic(*asked_with(reports))
    built = lanes = WORKERS
    held = 2 * WORKERS  # by the order of slots, and by their times
    crossings = WORKERS - 1
    phases = 1 + 2 + 1  # the plan is checked, two replays, the list of messages
    assert reports == [""] * (phases + built + crossings + held + lanes)


def test_a_cancel_is_answered_at_each_sign_of_life_of_a_simulated_step() -> None:
    reports: list[str] = []
    simulate(*asked_with(reports))
    for number in range(1, len(reports) + 1):
        heard: list[str] = []
        with pytest.raises(Cancelled):
            simulate(*asked_with(heard, number))
        assert len(heard) == number


def test_a_replay_gives_a_sign_of_life_every_so_many_tasks() -> None:
    graph, reports = TaskGraph(), list[str]()
    for _ in range(2 * LOOKS + 1):
        graph.compute("C", 1.0, 0)
    replay(graph, progress=lambda _, step: reports.append(step))
    assert len(reports) == 3
