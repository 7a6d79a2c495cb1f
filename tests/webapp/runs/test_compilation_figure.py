"""A compiled graph on its page: what changed lines up, what it cost, when it pays back."""

from typing import Any

import pytest

from webapp.hosts.evidence import Line
from webapp.runs.compilation_figure import compilation_view, payback
from webapp.runs.document import shown_metrics


def row(name: str, *inputs: str, target: str = "aten.relu.default", state: str = "kept", **more: Any) -> Any:
    plain = {"kind": "op", "shape": [1, 2], "dtype": "float32", "bytes": 8, "view": False, "seconds": 1e-3}
    return {"name": name, "target": target, "inputs": list(inputs), "state": state, **plain, **more}


def outcome() -> dict[str, Any]:
    """Nine ops in a chain; of the last three, convolution and norm become one whose weight is
    computed once.
    """
    chain = [row(f"relu_{n}", f"relu_{n - 1}" if n else "x") for n in range(9)]
    weight = row("w", target="net.weight", kind="constant")
    convolution = row("conv", "relu_8", "w", target="aten.conv2d.default", seconds=4e-3)
    norm = row("bn", "conv", target="aten.norm.default")
    last = row("last", "bn")
    made = [
        row("mul_new0", "w", target="aten.mul.Tensor", state="once", seconds=0.0),
        row("conv2d_new1", "relu_8", "mul_new0", target="aten.conv2d.default", state="new", seconds=4e-3),
        row("last", "conv2d_new1", state="rewired"),
    ]
    plan = {
        "before": [*chain, weight, convolution, norm, last],
        "after": [*chain, weight, *made],
        "applied": [{"rule": "conv+bn", "took": ["conv", "bn"], "made": ["conv2d_new1"]}],
        "refused": {"bn_2": "the weight is shared with another op"},
        "exactness": "reassociated",
    }
    figures = {"compile_time": 2.0, "latency": 0.01, "speedup": 1.5, "break_even": 400.0}
    metrics = {name: {"value": value} for name, value in figures.items()}
    notes = {"compilation": {"inputs_compared": 5, "bit_equal_to_eager": False, "max_relative_error": 1e-7}}
    return {"plan": plan, "metrics": metrics, "provenance": notes}


def test_ops_that_stayed_line_up_and_long_runs_of_them_are_folded() -> None:
    view = compilation_view(outcome())
    assert view is not None
    told = [
        line.folded or (line.before and line.before.state, line.after and line.after.state)
        for line in view.lines
    ]
    kept = ("kept", "kept")
    changed = [("gone", "new"), ("gone", None), ("kept", "rewired")]
    assert told == [kept, kept, 5, kept, kept, *changed]
    assert view.once == 1  # the op on the weight alone
    assert view.lines[5].before.reads == "relu_8, weight"  # type: ignore[union-attr]  # not its whole path


def test_a_graph_that_stayed_as_it_was_is_one_sentence() -> None:
    found = outcome()
    found["plan"]["after"] = found["plan"]["before"]
    view = compilation_view(found)
    assert view is not None and (view.lines, view.unchanged) == ((), 12)


def test_a_rewrite_is_drawn_with_its_neighbors_before_and_after() -> None:
    view = compilation_view(outcome())
    assert view is not None
    (drawing,) = view.drawings
    before, after = drawing.pictures
    assert {box.label: box.state for box in before.boxes} == {
        "relu": "kept",
        "weight": "constant",
        "conv2d": "gone",
        "norm": "gone",
    } | {"relu": "kept"}
    assert {box.label: box.state for box in after.boxes}["mul"] == "once"
    depth = {box.label: box.y for box in after.boxes if box.label != "relu"}
    assert depth["weight"] < depth["mul"] < depth["conv2d"]


def test_compiling_pays_back_after_what_it_took_over_what_a_call_gains() -> None:
    """2 s of compiling, 10 ms instead of 15 ms a call: 400 calls."""
    assert payback(outcome()).endswith("paid back after 400 calls.")
    slower = outcome()
    slower["metrics"]["speedup"]["value"] = 0.5
    assert "never pays back" in payback(slower)
    noisy = outcome()
    noisy["provenance"]["compilation"]["inside_the_noise"] = True
    assert payback(noisy).startswith("No difference seen: the times lie inside the noise"), "as stored before"


def measured(low: float, high: float) -> dict[str, Any]:
    """A run of today: its interval, the processor seconds of both sides, and how they were taken."""
    found = outcome()
    found["metrics"] |= {"speedup_low": {"value": low}, "speedup_high": {"value": high}}
    found["metrics"]["compile_cpu_time"] = {"value": 6.0}
    quartiles = {"median": 0.01, "lower": 0.009, "upper": 0.012, "calls": 50, "least": 0.009}
    timing = {"ours": quartiles, "eager": quartiles, "clock": "processor time", "load": 0.5}
    timing["ratio"] = {"median": 1.5, "low": low, "high": high, "pairs": 50}
    timing["spent"] = {"ours": 0.02, "eager": 0.035}
    notes = {"timing": timing, "inside_the_noise": low <= 1 <= high, "dashboard_status": "pass"}
    found["provenance"]["compilation"] |= notes
    return found


def test_a_speed_up_is_said_with_its_interval_or_not_at_all() -> None:
    assert payback(measured(1.4, 1.6)).startswith(
        "Faster than eager (1.50x, 1.40 to 1.60): compiling has paid"
    )
    unseen = payback(measured(0.97, 1.6))
    assert unseen == ("No difference seen: the 95 % interval of the speed-up, 0.970 to 1.600, holds 1.")
    wider = measured(1.4, 1.6)
    del wider["metrics"]["break_even"]
    assert payback(wider).endswith("a call takes no less processor time: compiling is not won back.")


def test_compiling_is_won_back_where_the_processor_times_meet() -> None:
    """6 s of compiling, 15 ms saved by each call: both have spent 14 s after 400 calls."""
    view = compilation_view(measured(1.4, 1.6))
    assert view is not None
    [race] = [plot for plot in view.plots if "pays back" in plot["title"]]
    eager, ours = race["series"]
    assert (eager["y"], ours["y"]) == (pytest.approx([0.0, 28.0]), pytest.approx([6.0, 22.0]))
    assert ("clock", "processor time") in view.measured
    assert ("in the words of PyTorch's dashboard", "pass") in view.accuracy
    [spread] = [plot for plot in view.plots if plot["title"].startswith("Latency")]
    assert spread["title"].endswith("processor time")


def test_a_run_of_another_family_has_no_such_figure() -> None:
    assert compilation_view({"plan": {"moves": []}}) is None


def test_costs_are_those_of_ops_and_not_of_weights() -> None:
    view = compilation_view(outcome())
    assert view is not None
    [costs] = [plot for plot in view.plots if "prices" in plot["title"]]
    assert costs["series"][0]["x"] == ["relu", "conv2d", "norm"]


def test_the_figures_of_a_run_are_words_where_nothing_was_seen() -> None:
    """The ends of an interval stand below their figure, and are none of their own."""
    values = {"latency": 0.01, "speedup": 1.03, "speedup_low": 0.97, "speedup_high": 1.09}
    assert list(shown_metrics(values, {})) == [
        ("latency", 0.01, ""),
        ("speedup", "no difference seen", "0.97 to 1.09, 95 %"),
    ]
    before = {"compilation": {"inside_the_noise": True, "timing": {"load": 1.0}}}
    assert list(shown_metrics({"speedup": 1.03}, before)) == [("speedup", "no difference seen", "")]
    assert list(shown_metrics({"speedup": 1.5}, {})) == [("speedup", 1.5, "")], "a simulated one has no noise"


def test_evidence_shows_no_speed_up_that_nobody_saw_and_keeps_its_error() -> None:
    about = ("compilation", "mlp", "cse", "ok", "", "speedup")
    assert Line(*about, 1.1, 1.02, 0.08, 0.95, 1.09).shown == "no difference seen"
    assert Line(*about, 1.1, 1.2, -0.08, 1.1, 1.3).shown == 1.2
    assert Line(*about, 1.1, 1.02, 0.08).shown == 1.02, "measured before there were intervals"
