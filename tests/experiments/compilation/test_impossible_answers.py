"""One wrong policy for each question: its run ends ``rejected``, and the reason is the first violation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.compilation.experiment import carry_out
from experiments.compilation.interface import (
    CONSTANT,
    OP,
    CompilationPolicy,
    Graph,
    GraphNode,
    Recipe,
    RecipePolicy,
    Ref,
    RewritePolicy,
    Rewritten,
    Workbench,
    violations,
)
from experiments.compilation.interface import control as forms
from experiments.compilation.interface.architecture import Architecture, UnitShare
from experiments.compilation.interface.blocks import BlockSchedule, OperatorWork, SchedulingPolicy
from experiments.compilation.interface.control import (
    ControlLevel,
    ControlPolicy,
    ControlProgram,
    LevelChoices,
    Variant,
)
from experiments.compilation.interface.tile_graph import TileGraph
from experiments.compilation.interface.tiles import TilePlan, TilePolicy
from experiments.compilation.interface.tuning import (
    ScheduleTuner,
    TuningPolicy,
    TuningProposal,
    TuningTask,
    TuningTrial,
)
from experiments.compilation.policies.rammer import Rammer
from experiments.compilation.policies.roller import Roller
from experiments.core.errors import ImpossiblePlan
from experiments.core.options import WorkloadOptions
from experiments.core.progress import Progress, silent
from experiments.core.spec import Result, RunSpec, Workload
from tests.experiments.compilation.graphs import graph, kind, node


def rejected(policy: CompilationPolicy, source: str, mode: str) -> Result:
    """The result of a run, which is a rejection without figures."""
    options = WorkloadOptions(batch=1) if source.startswith("zoo:") else WorkloadOptions()
    hardware = "v100" if mode == "simulated" else "local"
    spec = RunSpec("compilation", "planted", Workload(source, options=options), hardware, mode=mode)
    result = carry_out(spec, policy, silent)
    assert (result.status, result.metrics) == ("rejected", {})
    assert result.reason == result.violations[0]
    assert result.workload_sha256
    return result


class TestTiles:
    @dataclass(frozen=True)
    class LeavesOneOut(TilePolicy):
        def tiles(self, graph: TileGraph, architecture: Architecture, progress: Progress) -> TilePlan:
            plan = Roller().tiles(graph, architecture, progress)
            first = plan.kernels[0]
            return TilePlan((replace(first, tile=(0, *first.tile[1:])), first), 2)

    def test_a_plan_that_leaves_an_operator_out(self, tmp_path: Path) -> None:
        file = tmp_path / "operators.txt"
        file.write_text("M matmul m=64 n=64 k=64\nR reduce shape=64x64 over=1\n")
        found = rejected(self.LeavesOneOut(), str(file), "simulated")
        assert found.violations[:2] == ("M is in 2 kernels", "R is in 0 kernels")
        assert found.violations[2].startswith("M: no tile of (64, 64) is (0, ")

    @pytest.mark.torch
    def test_before_a_gpu_is_asked_to_launch_them(self) -> None:
        from experiments.compilation.live.tiles import tile_recipe
        from experiments.hardware import resolve
        from tests.experiments.compilation.tiles.test_tile_runs import block

        with pytest.raises(ImpossiblePlan, match="linear is in 2 kernels"):
            tile_recipe(self.LeavesOneOut(), block(), Architecture(resolve("v100").device))


@pytest.mark.torch
class TestBlocks:
    @dataclass(frozen=True)
    class RunsBackwards(SchedulingPolicy):
        def plan(self, works: Sequence[OperatorWork], unit: UnitShare, launch: float) -> BlockSchedule:
            made = Rammer(schedule="kernels").plan(works, unit, launch)
            return replace(made, groups=made.groups[::-1])

    @dataclass(frozen=True)
    class RunsNothing(SchedulingPolicy):
        def plan(self, works: Sequence[OperatorWork], unit: UnitShare, launch: float) -> BlockSchedule:
            return replace(Rammer().plan(works, unit, launch), operators=(), groups=())

    def test_a_schedule_in_the_wrong_order(self) -> None:
        assert "which it reads" in str(rejected(self.RunsBackwards(), "zoo:mlp", "simulated").reason)

    def test_a_schedule_of_nothing_is_not_infinitely_fast(self) -> None:
        assert str(rejected(self.RunsNothing(), "zoo:mlp", "simulated").reason).endswith(" never runs")


class TestTuning:
    class Repeats:
        """A tuner that never stops proposing one schedule."""

        def __init__(self, proposal: TuningProposal) -> None:
            self.proposal = proposal

        def propose(self, count: int) -> list[TuningProposal]:
            return [self.proposal]

        def learn(self, trials: Sequence[TuningTrial]) -> None:
            """Nothing is learned."""

    @dataclass(frozen=True)
    class Stubborn(TuningPolicy):
        index: int = 0
        task: int = 0

        def tuner(self, tasks: Sequence[TuningTask], seed: int) -> ScheduleTuner:
            return TestTuning.Repeats(TuningProposal(self.task, self.index))

    @pytest.mark.parametrize(
        ("policy", "first"),
        [
            (Stubborn(), "schedule 0 of dense 8x4 is proposed again"),
            (Stubborn(index=9), "dense 8x4 has no schedule 9"),
            (Stubborn(index=-1), "dense 8x4 has no schedule -1"),
            (Stubborn(task=1), "task 1 is proposed, of 1"),
        ],
    )
    def test_a_schedule_that_is_none_or_was_tried(
        self, policy: TuningPolicy, first: str, tmp_path: Path
    ) -> None:
        given = ["llvm", "dense", [["TENSOR", [8, 4], "float32"]], {}]
        lines = [
            {
                "input": given,
                "config": {"index": 0, "entity": [["tile", "sp", [-1, tile]]]},
                "result": [[tile / 1e3], 0, 1.0, 0.0],
                "version": 0.2,
            }
            for tile in (1, 2)
        ]
        (tmp_path / "log.json").write_text("\n".join(map(json.dumps, lines)))
        assert rejected(policy, str(tmp_path / "log.json"), "simulated").reason == first


@dataclass(frozen=True)
class Forgets(RewritePolicy):
    """Leaves out an op that others read."""

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        return Rewritten(Graph(tuple(entry for entry in graph.nodes if entry is not graph.ops[0])))


@dataclass(frozen=True)
class Invents(RewritePolicy):
    """Puts an op that does not exist in the place of the first."""

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        wrong = replace(graph.ops[0], target="aten.no_such_op.default")
        return Rewritten(Graph(tuple(wrong if entry is graph.ops[0] else entry for entry in graph.nodes)))


@pytest.mark.torch
class TestRewrites:
    @pytest.mark.parametrize("mode", ["simulated", "measured"])
    def test_a_graph_that_reads_what_is_gone(self, mode: str) -> None:
        assert "which does not come before it" in str(rejected(Forgets(), "zoo:mlp", mode).reason)

    def test_an_op_that_does_not_exist(self) -> None:
        assert "has no op aten.no_such_op.default" in str(rejected(Invents(), "zoo:mlp", "measured").reason)


def test_a_graph_reads_what_the_model_has_and_ends_in_its_output() -> None:
    of = graph(node("w", "-weight"), node("a", "aten.add.Tensor", "x", "w"), reads=("a",))
    assert violations(of, of) == []
    other = graph(GraphNode("w", CONSTANT, "bias", outputs=(kind(1),)), *of.nodes[2:3], reads=("a",))
    assert violations(other, of) == ["w is the constant bias, which the model does not have"]
    second = GraphNode("a", OP, "aten.add.Tensor", (Ref("x", 1), Ref("w")), outputs=(kind(1),))
    assert violations(graph(of.nodes[1], second, reads=("a",)), of) == ["a reads result 1 of x, which has 1"]
    assert violations(Graph(of.nodes[:-1]), of) == ["the last node is not the output"]


@dataclass(frozen=True)
class Unheard(RecipePolicy):
    """Names a backend that is not there."""

    def recipe(self, graph: Graph) -> Recipe:
        return Recipe("unheard_of")


@pytest.mark.torch
def test_a_recipe_for_a_backend_that_is_not_there() -> None:
    assert rejected(Unheard(), "zoo:mlp", "measured").reason == "no backend is called 'unheard_of'"


@dataclass(frozen=True)
class Sideways(ControlPolicy):
    """Wants a branch carried out at a level of loops, or chooses what was never tried."""

    level: str = "full"

    def variants(self, program: ControlProgram) -> LevelChoices:
        return LevelChoices((Variant(tuple(ControlLevel(name, self.level) for name in program.kinds)),))

    def choose(self, trials: Sequence[forms.ControlTrial]) -> forms.ControlTrial | None:
        return replace(trials[0])


@pytest.mark.torch
@pytest.mark.parametrize(
    ("level", "first"), [("full", "branch full is no level"), ("host", "what is chosen was not tried")]
)
def test_control_flow_at_a_level_that_its_construct_has_not(
    level: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from experiments.compilation.live.backends.base import Task
    from experiments.compilation.live.control import build, search
    from tests.experiments.compilation.test_cocktailer import Gated

    monkeypatch.setattr(search, "TIMED", 0.0)
    with pytest.raises(ImpossiblePlan, match=first):
        build(Sideways(level=level), Task(Gated().eval(), (torch.ones(4),), "cpu"))


def test_a_variant_has_one_level_for_each_kind_of_construct() -> None:
    loop = forms.ControlLoop("loop", None, 4, False)
    twice: Any = Variant((ControlLevel("loop", "host"), ControlLevel("loop", "full")))
    assert forms.violations(LevelChoices((twice,)), ControlProgram((loop,))) == [
        "loop host, loop full: the program has loop"
    ]
