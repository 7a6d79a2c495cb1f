"""Schedules of blocks carried out by threads: what runs next to what, who waits, and that it is the model."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from experiments.compilation.interface.architecture import UnitShare
from experiments.compilation.interface.blocks import violations
from experiments.compilation.live.backends import rtasks
from experiments.compilation.live.costs import Bench, Roofline
from experiments.compilation.live.rtasks.lanes import ThreadLanes
from experiments.compilation.live.rtasks.program import ScheduledOperator, groups_of
from experiments.compilation.live.rtasks.works import works_of
from experiments.compilation.live.types import Inference
from experiments.compilation.live.verify import verify
from experiments.compilation.policies.rammer import Rammer
from experiments.core.spec import load_spec
from experiments.hardware import library
from experiments.run import run
from tests.experiments.compilation.rtasks.programs import task_of

pytestmark = pytest.mark.torch

US = 1e-6


@pytest.fixture(scope="module")
def two() -> ThreadLanes:
    return ThreadLanes(2)


def test_blocks_are_dealt_to_the_lanes_in_turn() -> None:
    entry = ScheduledOperator(("a",), 5, (2, 0))
    assert [list(entry.blocks_of(lane)) for lane in (0, 1, 2)] == [[1, 3], [], [0, 2, 4]]


def test_independent_operators_run_at_the_same_time(two: ThreadLanes) -> None:
    """Each waits in its block for the other: one after the other they would never get past it."""
    both = threading.Barrier(2, timeout=30)
    group = (ScheduledOperator(("a",), 1, (0,)), ScheduledOperator(("b",), 1, (1,)))
    two.run(group, lambda of, block: both.wait() and None)


def test_an_operator_waits_for_all_blocks_of_what_it_reads_and_for_nothing_else(two: ThreadLanes) -> None:
    """The reader has lane 1 to itself; the second block of what it reads ends last, on lane 0.

    ``c``, which reads nothing, runs before.
    """
    done: list[tuple[str, int]] = []
    opened = threading.Event()

    def compute(of: ScheduledOperator, block: int) -> None:
        if (of.name, block) == ("a", 1):
            assert opened.wait(30)
        done.append((of.name, block))
        if of.name == "c":
            opened.set()

    group = (
        ScheduledOperator(("a",), 2, (0,)),
        ScheduledOperator(("c",), 1, (1,)),
        ScheduledOperator(("b",), 1, (1,), ("a",)),
    )
    two.run(group, compute)
    assert done.index(("c", 0)) < done.index(("a", 1)) < done.index(("b", 0))


def test_what_a_lane_raises_reaches_the_caller_and_nobody_waits_for_it(two: ThreadLanes) -> None:
    def compute(of: ScheduledOperator, block: int) -> None:
        if of.name == "a":
            raise ZeroDivisionError("a")

    group = (ScheduledOperator(("a",), 1, (0,)), ScheduledOperator(("b",), 1, (1,), ("a",)))
    with pytest.raises(ZeroDivisionError):
        two.run(group, compute)
    two.run((ScheduledOperator(("b",), 1, (0,)),), compute)


def test_a_lane_computes_with_one_core_and_the_caller_keeps_its_own(two: ThreadLanes) -> None:
    found: list[int] = []
    before = torch.get_num_threads()
    two.run((ScheduledOperator(("a",), 1, (0,)),), lambda of, block: found.append(torch.get_num_threads()))
    assert found == [1]
    assert torch.get_num_threads() == before


class Branches(nn.Module):
    """Four products of one input, two of them summed, and what is left read through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b, c, d = (part(x) for part in self.parts)
        return torch.relu(a + b), torch.tanh(c.reshape(2, 3, 8).transpose(1, 2)) @ d.reshape(2, 3, 8)


def planned(task: Any, policy: Rammer, lanes: int, launch: float = 4 * US) -> dict[str, Any]:
    """The policy's schedule on lanes of modeled rates, as the backend takes it."""
    works = works_of(
        task.graph, Bench(Inference("cpu"), Roofline(library.device("v100-16g", "local").device))
    )
    schedule = policy.plan(works, UnitShare(lanes, 1e9, 1e9, US), launch)
    assert violations(schedule) == []
    return {"lanes": lanes, "groups": groups_of(schedule)}


def test_four_products_share_a_launch_and_each_runs_where_the_plan_says() -> None:
    task = task_of(Branches(), torch.randn(6, 8))
    options = planned(task, Rammer(), 2)
    found = rtasks.build(task, options)
    assert verify(task, found, 0).ok
    placed = {entry["members"][-1]: entry["lanes"] for group in options["groups"] for entry in group}
    ran: dict[str, set[int]] = {}
    for lane in found.report["timeline"]["lanes"]:
        for _, _, name in lane["events"]:
            ran.setdefault(name, set()).update(lane["devices"])
    assert ran == {name: set(lanes) for name, lanes in placed.items()}
    assert found.metrics["kernels"] == len(options["groups"]) < len(task.graph.computing)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(("rtasks", "fused", "kernels")),
    st.integers(1, 3),
    st.sampled_from((0.0, 1e-4)),
    st.integers(1, 7),
)
def test_every_schedule_on_any_lanes_is_the_model(
    schedule: str, lanes: int, launch: float, rows: int
) -> None:
    class Drawn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.last = (
                nn.Conv2d(3, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.Linear(36, 5),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = self.norm(self.conv(x))
            return torch.softmax(self.last(torch.relu(seen + seen.sigmoid()).flatten(1)), dim=1)

    torch.manual_seed(rows)
    task = task_of(Drawn(), torch.randn(rows, 3, 3, 3))
    found = rtasks.build(task, planned(task, Rammer(schedule=schedule), lanes, launch))
    with torch.no_grad():
        torch.testing.assert_close(found.call(*task.inputs), task.module(*task.inputs))


def outcome(source: str, **knobs: Any) -> Any:
    workload = {"source": source, "options": {"batch": 4}}
    spec = {"family": "compilation", "policy": "rammer", "workload": workload, "hardware": "local"}
    return run(load_spec({**spec, "mode": "measured", "knobs": knobs}))


def test_a_measured_run_is_compared_with_eager_and_timed_next_to_it() -> None:
    found = outcome("zoo:mlp", lanes=2)
    assert found.status == "ok", found.reason
    assert found.spec["mode"] == "measured"
    assert {"latency", "speedup", "kernels", "max_abs_error"} <= set(found.metrics)
    recipe = found.plan["recipe"]
    assert recipe["backend"] == "rtasks"
    assert recipe["options"]["lanes"] == 2
    assert found.plan["report"]["timeline"]["lanes"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this host")
def test_streams_of_a_gpu_carry_the_schedule_out() -> None:
    found = outcome("zoo:mlp", lanes=2)
    assert found.status == "ok", found.reason
    assert found.provenance["device"] == "cuda"
