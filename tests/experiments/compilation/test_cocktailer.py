"""Control flow at every level: what each computes, how many graphs it takes, and what is refused."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.compilation.interface import control
from experiments.compilation.interface.control import (
    ControlLevel,
    ControlProgram,
    ControlTrial,
    Variant,
    chunks,
    frames,
    has_effects,
    returns_input,
    small_ops,
)
from experiments.compilation.live import control as live_control
from experiments.compilation.live.backends import dynamo
from experiments.compilation.live.backends.base import CompilationFailed, Task
from experiments.compilation.live.control import search
from experiments.compilation.live.control.loops import FullLoop, HostLoop, UnrolledLoop, WhileLoop
from experiments.compilation.live.control.program import in_form, observe, program_of
from experiments.compilation.live.control.recursions import StackRecursion, StackTooSmall, UnrolledRecursion
from experiments.compilation.live.export import export, records
from experiments.compilation.policies.cocktailer import Cocktailer
from experiments.core.spec import load_spec
from experiments.models.control.constructs import Branch, Loop, Recursion
from experiments.models.control.tree import balanced_children, chain
from experiments.run import run

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def short_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test looks at times: the fewest calls that are timed are enough."""
    monkeypatch.setattr(search, "TIMED", 0.0)


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class Gated(nn.Module):
    """The issue's branch: ``y = relu(x + 1)``, then ``y * 2`` or ``y - 1`` by the sign of its sum
    less one.
    """

    def __init__(self, otherwise: Callable[..., Any] = lambda y: y - 1) -> None:
        super().__init__()
        self.branch = Branch(Calls(lambda y: y * 2), Calls(otherwise))

    def forward(self, x: Tensor) -> Any:
        y = torch.relu(x + 1)
        return self.branch(y.sum() > 1, y)


def compiled(module: nn.Module, *inputs: Tensor, **knobs: Any) -> dict[str, Any]:
    made = live_control.build(Cocktailer(**knobs), Task(module.eval(), inputs, "cpu"))
    return {**made.report, "call": made.call}


def by_level(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trial["variant"]: trial for trial in report["trials"]}


def test_a_branch_that_data_decide_is_two_graphs_on_the_host_and_one_with_cond() -> None:
    report = compiled(Gated(), torch.ones(4))
    trials = by_level(report)
    counts = {level: (trial["graphs"], trial["breaks"]) for level, trial in trials.items()}
    assert counts == {
        "branch host": (2, 1),
        "branch ahead": (2, 1),
        "branch cond": (1, 0),
        "branch both": (1, 0),
    }
    assert all(trial["error"] == "" and trial["bit_equal"] for trial in trials.values())
    assert report["sides_never_taken"] == []
    assert all(count > 0 for count in report["sides_taken"]["branch"].values())
    fastest = min(trials.values(), key=lambda trial: trial["seconds"])
    assert report["chosen"]["variant"] == fastest["variant"]
    for x in (torch.ones(4), -torch.ones(4) * 9):
        assert torch.equal(report["call"](x), Gated()(x))


def test_a_side_that_returns_its_operand_is_refused_by_torch_and_copied_here() -> None:
    module = Gated(otherwise=lambda y: y)

    def raw(x: Tensor) -> Any:
        y = torch.relu(x + 1)
        return torch.cond(y.sum() > 1, lambda y: y * 2, lambda y: y, (y,))

    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        torch.compile(raw, backend="aot_eager")(torch.ones(4))
    found = observe(module, [(torch.ones(4),)])
    assert returns_input(program_of(found).constructs[0].bodies[1])  # type: ignore[arg-type]
    form = in_form(module, found, Variant((ControlLevel("branch", "cond"),)), 128)
    call = torch.compile(form, backend="aot_eager")
    for x in (torch.ones(4), -torch.ones(4)):
        assert torch.equal(call(x), module(x))


def test_both_sides_run_only_where_neither_has_effects() -> None:
    dice = Gated(otherwise=torch.rand_like)
    program = program_of(observe(dice, [(torch.ones(4),)]))
    assert has_effects(program.constructs[0].bodies[1])
    choices = Cocktailer().variants(program)
    assert "branch both" not in map(str, choices.variants)
    assert choices.refused["branch both"] == "a side of branch has effects or is not known"


def test_small_ops_move_ahead_and_large_ones_stay() -> None:
    """``x`` has 1,000 elements, ``w`` four: ``1 - w`` and its double may move, their product with ``x`` may
    not.
    """
    side = Calls(lambda x, w: (x * (2 * (1 - w)).sum()) + w.sum())
    graph = records(export(side, (torch.ones(1000), torch.ones(4))))
    moved = [graph.by_name[name].target for name in small_ops(graph, 128)]
    assert moved == ["aten.rsub.Scalar", "aten.mul.Tensor", "aten.sum.default", "aten.sum.default"]
    assert small_ops(graph, 3) == ()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = Branch(side, Calls(lambda x, w: x + 0))

        def forward(self, x: Tensor, w: Tensor) -> Any:
            return self.branch(x.sum() > 0, x, w)

    module, inputs = Model(), (torch.ones(1000), torch.rand(4))
    form = in_form(
        module, observed_and_read(module, inputs), Variant((ControlLevel("branch", "ahead"),)), 128
    )
    for x in (inputs[0], -inputs[0]):
        assert torch.equal(form(x, inputs[1]), module(x, inputs[1]))


def observed_and_read(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    found = observe(module, [inputs])
    program_of(found)
    return found


def summing(trips: int | None, until: float | None = None) -> Loop:
    """``total = total * 2 + series[step]``, also while it is below ``until``."""

    def body(step: Any, series: Tensor, total: Tensor) -> tuple[Tensor]:
        at = series[step] if isinstance(step, int) else series.index_select(0, step.reshape(1)).squeeze(0)
        return (total * 2 + at,)

    condition = None if until is None else Calls(lambda total: total < until)
    return Loop(Calls(body), trips, condition)


@pytest.mark.parametrize("until", [None, 20.0])
def test_every_form_of_a_loop_gives_what_python_gives(until: float | None) -> None:
    """Trips 0 to 9, unrolled by 1 to 5: the remainder is what division leaves."""
    for trips, factor in itertools.product(range(10), range(1, 6)):
        series, start = torch.arange(10.0), torch.tensor(1.0)
        loop = summing(trips, until)
        (expected,) = loop((series,), (start,))
        forms = [UnrolledLoop(loop, factor)] + ([HostLoop(loop), FullLoop(loop)] if factor == 1 else [])
        for form in forms:
            (got,) = form((series,), (start,))
            assert torch.equal(got, expected), (trips, factor, type(form))


def test_ten_trips_unrolled_by_four_are_two_groups_and_two_trips_left() -> None:
    assert chunks(10, 4) == (2, 2)
    loop = UnrolledLoop(summing(10), 4)
    loop((torch.arange(10.0),), (torch.tensor(1.0),))
    assert sorted(loop.groups) == ["2", "4"]


def test_a_loop_of_one_graph_doubles_five_times_and_hands_out_no_argument() -> None:
    double = Calls(lambda step, x: (x * 2,))
    start = torch.tensor(1.0)
    (last,) = WhileLoop(Loop(double, trips=5))((), (start,))
    assert last.item() == 32
    for form in (WhileLoop(Loop(double, trips=0)), FullLoop(Loop(double, trips=0))):
        (same,) = form((), (start,))
        assert same.item() == 1
        assert same.data_ptr() != start.data_ptr()


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loop = summing(None)

    def forward(self, series: Tensor) -> Any:
        return self.loop((series,), (series.new_ones(()),))[0]


def test_levels_of_a_loop_are_counted_in_graphs() -> None:
    """Five trips. On the host: what comes before the loop, and the body; unrolled by two, the trip left as
    well.
    """
    module, inputs = Doubling(), (torch.randn(5),)
    found = observed_and_read(module, inputs)
    graphs = {}
    for variant in Cocktailer().variants(program_of(found)).variants:
        form = in_form(module, found, variant, 128)
        assert torch.equal(form(*inputs), module(*inputs)), variant
        with torch.no_grad():
            graphs[str(variant)] = dynamo.breaks(form, inputs)[0]
    assert graphs == {
        "loop host": 2,
        "loop unroll 2": 3,
        "loop unroll 4": 3,
        "loop full": 1,
        "loop while_loop": 1,
    }


class Series(nn.Module):
    """Two branches in a loop of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            Branch(Calls(lambda y: y * 2), Calls(lambda y: y - 1)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Any:
        for branch in self.branches:
            x = branch(x.sum() > 1, x)
        return x


def test_branches_that_the_host_decides_are_named_where_dynamo_names_no_break() -> None:
    """Dynamo leaves a function with a break inside a loop to Python as a whole, and says nothing of where.
    Both sides that are taken here are one function, so they are one graph.
    """
    report = compiled(Series(), torch.ones(4), level="host")
    assert (report["chosen"]["graphs"], report["chosen"]["breaks"]) == (1, 2)
    assert [row["line"] for row in report["breaks"]] == ["branches.0", "branches.1"]
    assert {row["reason"] for row in report["breaks"]} == {"branch host: Python decides what runs next"}
    assert all(
        row["where"].startswith("experiments/models/control/constructs.py:") for row in report["breaks"]
    )
    assert compiled(Series(), torch.ones(4), level="graph")["breaks"] == []


@pytest.mark.parametrize(
    ("shape", "leaves"), [(balanced_children, 8), (balanced_children, 5), (chain, 6), (chain, 1)]
)
def test_every_form_of_recursion_gives_what_python_gives(shape: Any, leaves: int) -> None:
    """``2 a + b`` tells left from right."""
    tree = Recursion(nn.Identity(), Calls(lambda a, b: 2 * a + b), *shape(leaves))
    features = torch.arange(float(2 * leaves - 1)) + 1
    expected = tree(0, features)
    for form in (StackRecursion(tree, 32), *(UnrolledRecursion(tree, depth) for depth in (1, 2, 3, 4))):
        assert torch.equal(form(0, features), expected), type(form)


def test_a_stack_that_is_too_small_is_an_error_and_is_not_tried() -> None:
    """A chain of 33 words is 33 calls deep: one more than the stack. 32 words just fit."""
    for leaves, fits in ((32, True), (33, False)):
        tree = Recursion(nn.Identity(), Calls(torch.add), *chain(leaves))
        features = torch.ones(2 * leaves - 1)
        record = control.ControlRecursion("tree", None, depth=leaves - 1, calls=2 * leaves - 1)
        refused = Cocktailer().variants(ControlProgram((record,))).refused
        assert ("recursion stack 32" not in refused) == fits
        if fits:
            assert StackRecursion(tree, 32)(0, features).item() == 32
        else:
            assert refused["recursion stack 32"] == "tree is 33 calls deep, the stack 32"
            with pytest.raises(StackTooSmall, match="has no frame for the children of node 31"):
                StackRecursion(tree, 32)(0, features)


def test_unrolled_calls_need_frames() -> None:
    """Two calls, four levels, a stack of 32: 512 frames."""
    assert frames(width=2, depth=4, stack=32) == 512
    record = control.ControlRecursion("tree", None, depth=3, calls=15)
    assert Cocktailer(most_frames=511).variants(ControlProgram((record,))).refused == {
        "recursion unroll 4": "512 frames"
    }
    assert not Cocktailer().variants(ControlProgram((record,))).refused


def test_kinds_are_combined_in_every_way_and_failures_lose() -> None:
    loop = control.ControlLoop("outer", None, trips=3, conditional=True)
    branch = control.ControlBranch("outer.body", None, None)
    choices = Cocktailer().variants(ControlProgram((loop, branch)))
    # Host, by two, full and while_loop; host and cond (what the sides do is not known, so not both of them).
    assert len(choices.variants) == 4 * 2
    slow, fast, broken = (
        ControlTrial(choices.variants[0], 2.0),
        ControlTrial(choices.variants[1], 1.0),
        ControlTrial(choices.variants[2], 0.5, error="TimeoutError: more than 60 s"),
    )
    assert Cocktailer().choose([slow, fast, broken]) is fast
    assert Cocktailer().choose([broken]) is None


def test_what_takes_too_long_is_interrupted() -> None:
    with pytest.raises(TimeoutError, match=r"more than 0\.05 s"), search.time_limit(0.05):
        while True:
            pass
    with search.time_limit(60.0):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_wrong_variants_are_recorded_and_none_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that leaves out what comes after the branch: found by the comparison, not reported as fast."""
    monkeypatch.setattr(search, "in_form", lambda *_: Calls(lambda x: torch.relu(x + 1)))
    with pytest.raises(CompilationFailed, match="branch host: wrong: input as given, output 0"):
        compiled(Gated(), torch.ones(4), level="host")


def outcome(policy: str, source: str, options: dict[str, Any], **knobs: Any) -> Any:
    workload = {"source": source, "options": options}
    spec = {"family": "compilation", "policy": policy, "knobs": knobs, "workload": workload}
    return run(load_spec({**spec, "hardware": "local", "mode": "measured"}))


def test_a_decoder_that_data_end_is_one_graph_and_verified() -> None:
    made = outcome("cocktailer", "zoo:greedy-decoder", {"sequence": 6}, level="graph")
    assert made.status == "ok", made.reason
    assert made.metrics["graphs"]["value"] == 1
    assert made.metrics["graph_breaks"]["value"] == 0
    (loop,) = made.plan["report"]["constructs"]
    assert (loop["level"], loop["trips"], loop["conditional"]) == ("loop while_loop", 6, True)


def test_a_model_without_constructs_runs_as_it_is() -> None:
    report = compiled(nn.Linear(3, 2), torch.ones(1, 3))
    assert report["constructs"] == []
    assert report["chosen"]["variant"] == "as it is"
