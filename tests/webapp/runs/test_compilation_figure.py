"""A compiled graph on its page: what changed lines up, what it cost, when it pays back."""

from typing import Any

from webapp.runs.compilation_figure import compilation_view, payback


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
    assert "noise" in payback(noisy)


def test_a_run_of_another_family_has_no_such_figure() -> None:
    assert compilation_view({"plan": {"moves": []}}) is None


def test_costs_are_those_of_ops_and_not_of_weights() -> None:
    view = compilation_view(outcome())
    assert view is not None
    [costs] = [plot for plot in view.plots if "prices" in plot["title"]]
    assert costs["series"][0]["x"] == ["relu", "conv2d", "norm"]
