"""The plots of a serving run: how long requests took, what fills the engine, what a pass takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.core.rate_search import USUAL_DELAY
from webapp.compare.figures.curves import duration_ticks
from webapp.compare.figures.pairs import is_wide
from webapp.runs.figures import plot_of
from webapp.runs.lives import curve_of

#: Distributions that share the figure of latencies, and their names there.
LATENCIES: Mapping[str, str] = {
    "ttft_distribution": "to the first token",
    "latency_distribution": "to the whole answer",
}
#: Per later token: the request's mean, and every gap between two of its tokens.
TOKENS: Mapping[str, str] = {
    "tpot_distribution": "mean of a request",
    "tbt_distribution": "every gap between tokens",
    "normalized_latency_distribution": "whole answer by its tokens",
}
#: Curves over time that stand in figures of their own here, with the figure's title, its y axis and unit, and
#: whether the curves are parts of a whole.
OVER_TIME: tuple[tuple[str, tuple[str, str], Mapping[str, str], bool], ...] = (
    (
        "In passes and waiting",
        ("requests", ""),
        {"batch_size": "in a pass", "queue_length": "waiting"},
        False,
    ),
    (
        "Tokens in a pass",
        ("tokens", ""),
        {"prefill_tokens": "of prompts", "decode_tokens": "of answers"},
        True,
    ),
    (
        "KV memory",
        ("blocks", ""),
        {"kv_blocks.used": "used", "kv_blocks.cached": "cached, free to take"},
        True,
    ),
    ("KV memory by tokens", ("tokens", ""), {"kv_reserved": "reserved"}, False),
)
#: What the rates that a search tried gave, with the words for it and its unit.
BY_RATE: Mapping[str, tuple[str, str]] = {
    "slo_attainment_by_rate": ("share within objectives", ""),
    "tbt_p99_by_rate": ("99th percentile between tokens", "s"),
    "scheduling_delay_p50_by_rate": ("median wait for a pass", "s"),
}
#: Of KV memory besides what fills it: all of it, and when a request was preempted.
CAPACITY, PREEMPTIONS = "kv_blocks.capacity", "kv_blocks.preemptions"
#: What passes took: within what was measured of the layers, and beyond it.
PASS_TIMES: Mapping[str, str] = {"pass_time": "a pass", "pass_time.beyond": "extrapolated"}
#: Which share of requests keeps so many times its objective.
BY_SCALE = "slo_attainment_by_scale"
DRAWN = (
    *LATENCIES,
    *TOKENS,
    *BY_RATE,
    *(name for _, _, curves, _ in OVER_TIME for name in curves),
    *PASS_TIMES,
    BY_SCALE,
    "kv_blocks",
)

Curves = Mapping[str, Mapping[str, Any]]


def serving_plots(series: Curves, outcome: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    knobs = (outcome.get("spec") or {}).get("knobs") or {}
    highest = ((outcome.get("metrics") or {}).get("max_rate") or {}).get("value")
    yield from _rates_tried(series, knobs, highest)
    yield from _distribution("Answered by then", "time", LATENCIES, series, knobs.get("slo_ttft"))
    yield from _distribution("Time of a token", "seconds a token", TOKENS, series, knobs.get("slo_tpot"))
    yield from _kept_by_scale(series)
    for title, across, curves, stacked in OVER_TIME:
        lines = [
            {**curve_of(words, series[name]), "shape": "hv", **({"stack": title} if stacked else {})}
            for name, words in curves.items()
            if name in series and series[name]["x"]
        ]
        if lines:
            label = across[0] if len(lines) > 1 else f"{across[0]} {lines[0]['name']}"
            limits = _full_memory(series) if "kv_blocks.used" in curves else ()
            yield plot_of(title, "line", ("time", "s"), (label, across[1]), [*lines, *limits])
    yield from _pass_times(series)


def _kept_by_scale(series: Curves) -> Iterator[dict[str, Any]]:
    line = curve_of("this run", series.get(BY_SCALE) or {"x": (), "y": ()}, positive=True)
    if line["x"]:
        axes = (("times the objective asked for", ""), ("share of requests", ""))
        asked = {"x": 1.0, "text": "as asked", "is_capacity": False, "beyond": ""}
        plot = plot_of("Objective kept, by how wide it is", "line", *axes, [{**line, "shape": "hv"}])
        yield plot | {"log": "x", "limit": asked}


def _full_memory(series: Curves) -> Iterator[dict[str, Any]]:
    """All blocks, and those in use as a request had to give its up."""
    if CAPACITY in series:
        yield {**curve_of("all", series[CAPACITY]), "dash": "dash", "color": "ink"}
    if PREEMPTIONS in series:
        yield {
            **curve_of("preemption", series[PREEMPTIONS]),
            "mode": "markers",
            "symbol": "x",
            "color": "bad",
        }


def _pass_times(series: Curves) -> Iterator[dict[str, Any]]:
    """What a pass took against the tokens that it computed, those apart that no measurement reaches."""
    lines = [
        {**curve_of(words, series[name], positive=True), "size": 5, "symbol": symbol}
        for (name, words), symbol in zip(PASS_TIMES.items(), ("circle", "x"), strict=True)
        if name in series
    ]
    lines = [line for line in lines if line["x"]]
    if not lines:
        return
    tokens, seconds = ([one for line in lines for one in line[axis]] for axis in ("x", "y"))
    log = "".join(axis for axis, values in (("x", tokens), ("y", seconds)) if is_wide(values))
    ticks = {"y_ticks": duration_ticks(seconds)} if "y" in log else {}
    axes = (("tokens computed in a pass", ""), ("time of a pass", "s"))
    yield plot_of("What a pass takes", "scatter", *axes, lines) | {"log": log, **ticks}


def _objectives(knobs: Mapping[str, Any]) -> dict[str, float]:
    """What was asked of each figure of ``BY_RATE``."""
    share, tail = knobs.get("wanted_attainment"), knobs.get("slo_tbt_p99")
    asked = {"slo_attainment_by_rate": share} if share and knobs.get("find_rate", True) else {}
    if tail:
        delay = knobs.get("slo_delay_p50") or USUAL_DELAY
        asked |= {"tbt_p99_by_rate": tail, "scheduling_delay_p50_by_rate": delay}
    return asked


def _rates_tried(series: Curves, knobs: Mapping[str, Any], highest: float | None) -> Iterator[dict[str, Any]]:
    """What was asked of rates against those that a search tried, with the highest that is kept."""
    for name, wanted in _objectives(knobs).items():
        if name not in series:
            continue
        words, unit = BY_RATE[name]
        rates, values = series[name]["x"], series[name]["y"]
        tried = {"name": "tried", "x": rates, "y": values, "mode": "lines+markers"}
        kept = {"name": "objective", "x": [min(rates), max(rates)], "y": [wanted] * 2, "mode": "lines"}
        lines = [tried, {**kept, "dash": "dot", "color": "ink-soft"}]
        title = f"Rates that were tried: {words}"
        plot = plot_of(title, "scatter", ("requests a second", ""), (words, unit), lines)
        limit = {"x": highest, "text": "highest kept", "is_capacity": False, "beyond": ""}
        yield plot | ({"limit": limit} if highest else {})


def _distribution(
    title: str, across: str, curves: Mapping[str, str], series: Curves, limit: float | None
) -> Iterator[dict[str, Any]]:
    """Shares of requests on a logarithmic axis, with the objective where there is one.

    Of a recorded run what was measured stands next to each, in its color.
    """
    lines = [line for line in _pairs(curves, series) if line["x"]]
    if not lines:
        return
    plot = plot_of(title, "line", (across, "s"), ("share", ""), lines)
    points = [x for line in lines for x in line["x"]] + ([limit] if limit else [])
    marked = {"limit": {"x": limit, "text": "objective", "is_capacity": False, "beyond": ""}} if limit else {}
    yield plot | {"log": "x", "x_ticks": duration_ticks(points), **marked}


def _pairs(curves: Mapping[str, str], series: Curves) -> Iterator[dict[str, Any]]:
    for place, (name, words) in enumerate(curves.items(), 1):
        for key, said, dash in ((name, words, "solid"), (f"{name}.measured", f"measured: {words}", "dash")):
            if key in series:
                line = curve_of(said, series[key], positive=True)
                yield {**line, "color": f"plot-{place}", "dash": dash}
