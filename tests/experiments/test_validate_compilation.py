"""The room of compilation policies: every measured policy has a cell, and every cell says what it could not
do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pytest

from experiments.compilation.interface import Graph, Recipe, RecipePolicy
from experiments.compilation.policies.cuda_graph import CudaGraph
from experiments.compilation.policies.shape_buckets import ShapeBuckets
from experiments.core import registry
from experiments.core.progress import silent
from experiments.hardware.local import this_host
from experiments.validate import compilation, numerics
from experiments.validate.cells import ValidationCell

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MLP = ("zoo:mlp", {"batch": 2})


@pytest.fixture(autouse=True)
def short_timing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from experiments.compilation.live import runner, timing

    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(runner, "compare", partial(timing.compare, seconds=0.0))


@pytest.fixture(scope="module")
def room() -> compilation.Room:
    return compilation.Room("cpu")


def cell(
    room: compilation.Room, policy: str, model: tuple[str, dict[str, Any]] = MLP, **knobs: Any
) -> ValidationCell:
    return room.cell(*model, (policy, knobs, {}, ""), silent)


def test_every_policy_that_can_be_measured_joins_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Newcomer(RecipePolicy):
        """Registered later."""

        name: ClassVar[str] = "newcomer"

    known = registry.family_policies("compilation")
    monkeypatch.setattr(registry, "family_policies", lambda family: {**known, "newcomer": Newcomer})
    plain = [policy for policy, _, _, variant in compilation.plans("cuda") if not variant]
    assert sorted(plain) == sorted(
        ["newcomer", *(name for name, policy in known.items() if "measured" in policy.modes)]
    )
    assert "welder" not in plain, "it is simulated only"
    assert compilation.bounds_of(ShapeBuckets, "cpu") == {"sizes": "1-4", "compare": False, "timed": False}
    assert compilation.bounds_of(ShapeBuckets, "cuda") == compilation.bounds_of(Newcomer, "cpu") == {}


def test_eager_and_a_rewrite_are_predicted_by_prices_and_by_rates(room: compilation.Room) -> None:
    eager, cse = cell(room, "eager"), cell(room, "cse")
    for found in (eager, cse):
        assert found.status == "ok" and found.reason is None
        for name in ("latency", "roofline_latency"):
            figure = found.figures[name]
            assert figure["predicted"] and figure["measured"] and figure["predicted"] > 0
            ratio = figure["predicted"] / figure["measured"]
            assert figure["error"] == pytest.approx(ratio - 1)
        assert found.figures["latency"]["measured"] == found.figures["roofline_latency"]["measured"]
    assert cse.figures["speedup"]["predicted"] == 1.0, "nothing to merge"
    assert "predicted" in eager.figures["speedup"] and eager.figures["speedup"]["predicted"] is None
    assert (
        eager.facts["bit_equal_to_eager"] and eager.facts["inputs_compared"] == 6 and eager.facts["load"] >= 0
    )


def test_what_this_host_cannot_do_is_unsupported_and_what_a_policy_refuses_is_refused(
    room: compilation.Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    graph = cell(room, "cuda_graph")
    assert (graph.status, graph.reason) == (
        "unsupported here",
        "cuda_graph: unsupported here: CUDA graphs need a GPU",
    )
    branching = cell(room, "cse", ("zoo:blockdrop", {"batch": 1, "image": 32}))
    assert branching.status == "refused" and "control flow" in str(branching.reason)
    unknown = cell(room, "cse", ("zoo:nothing", {}))
    assert unknown.status == "refused" and "nothing" in str(unknown.reason)


def test_a_crash_of_a_compiler_is_a_failed_cell(
    room: compilation.Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments.compilation.policies.eager import Eager

    def crash(self: Eager, graph: Graph) -> Recipe:
        raise RuntimeError("a line\nand another")

    monkeypatch.setattr(Eager, "recipe", crash)
    found = cell(room, "eager")
    assert (found.status, found.reason) == ("failed", "RuntimeError: a line and another")


def test_cells_are_left_out_when_the_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compilation.BUDGET, "cpu", -1.0)
    monkeypatch.setitem(compilation.MODELS, "cpu", {"zoo:mlp": {"batch": 2}})
    said: list[str] = []
    found = list(compilation.cells("cpu", lambda fraction, step: said.append(step)))
    grid = [one for one in found if one.model.startswith("zoo:")]
    assert {one.status for one in grid} == {"left out"}
    assert len(grid) == len(compilation.plans("cpu")) + len(numerics.ROWS)
    assert said[0].endswith(f"{len(grid)} left") and said[len(grid) - 1].endswith(" 1 left")


def test_a_replayed_graph_is_predicted_by_its_kernels_launched_once() -> None:
    """Two kernels of 10 and 20 us by their bytes, one view: 10 us to launch the graph, 40 in all."""
    room = compilation.Room("cpu", this_host().device)
    rate = room.rates.memory_bandwidth * room.rates.memory_efficiency
    rows = [
        {
            "seconds": 1.0,
            "flops": 0,
            "traffic": rate * us * 1e-6,
            "dtype": "float32",
            "state": "kept",
            "view": us == 0,
        }
        for us in (10, 0, 20)
    ]
    assert room._replay_seconds(CudaGraph(replay=10e-6), rows) == pytest.approx(40e-6)
