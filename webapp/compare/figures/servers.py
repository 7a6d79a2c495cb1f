"""Serving policies next to one another: what is kept by rate and by the width of objectives, what it costs by
rate, first against later tokens at one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.units import significant
from webapp.compare.answers import serving
from webapp.compare.answers.case import Case
from webapp.compare.entries import Entry
from webapp.compare.figures.curves import curve_lines, duration_ticks
from webapp.compare.figures.lines import RATES, SCALES, Axis
from webapp.compare.figures.marks import figure_json
from webapp.compare.figures.pairs import Pair, is_wide

GOODPUT, NORMALIZED, THROUGHPUT = "goodput", "normalized_latency_p50", "throughput"
#: The curve that outcomes carry: which share keeps so many times its objective.
BY_SCALE = "slo_attainment_by_scale"
LATENCY_AXIS = ("median latency per output token", "s")
SHARE = ("share of requests within their objective", "")
TOKENS = ("time to the first token", "time per later token")


def attainment(case: Case) -> dict[str, Any] | None:
    """The share of requests within their objective against the rate, one line for each policy."""
    series = _lines(case, serving.ATTAINED)
    if not series:
        return None
    axes = (("requests a second", ""), SHARE)
    series.append(_kept_line(serving.rates(case)))
    return figure_json("Objective kept, by rate", "scatter", *axes, series=series, y_range=[0, 1.05])


def attainment_by_scale(case: Case) -> dict[str, Any] | None:
    """The share of requests within so many times their objective, at the highest of several rates.

    By runs with other objectives where there are any, else by how late each request of one run was.
    """
    entries, said = _at_most(case, case.having(serving.ATTAINED))
    if len({SCALES.of(entry) for entry in entries}) > 1:
        kind, series = "scatter", _of_policies(entries, SCALES, serving.ATTAINED, case)
    else:
        kind, series = "line", list(curve_lines(BY_SCALE, entries, case, _say_share))
    if not series:
        return None
    series.append(_kept_line([x for line in series for x in line["x"] if x > 0]))
    axes = (("times the objective asked for", ""), SHARE)
    title = f"Objective kept, by how wide it is{said}"
    return figure_json(title, kind, *axes, series=series, y_range=[0, 1.05], log="x")


def _say_share(name: str, scale: float, share: float) -> str:
    return f"{name}: {100 * share:.0f} % within {significant(scale)} times"


def _kept_line(places: Sequence[float]) -> dict[str, Any]:
    """The share that counts as kept."""
    kept = f"{100 * serving.KEPT:.0f} % of requests"
    line = {"mode": "lines", "dash": "dot", "color": "ink-soft", "hover_only": True}
    ends = {"x": [min(places), max(places)], "y": [serving.KEPT] * 2, "hover": [kept] * 2}
    return {"name": kept, **line, **ends}


def goodput(case: Case) -> dict[str, Any] | None:
    """Requests answered within their objective a second, against those that come."""
    series = _lines(case, GOODPUT)
    if not series:
        return None
    rates = serving.rates(case)
    line = {"mode": "lines", "dash": "dot", "color": "ink-soft", "hover_only": True}
    series.append({"name": "every one", **line, "x": rates, "y": rates, "hover": ["every one"] * len(rates)})
    axes = (("requests a second", ""), ("within their objective, a second", ""))
    return figure_json("Goodput, by rate", "scatter", *axes, series=series)


def latency(case: Case) -> dict[str, Any] | None:
    """The median of latency per output token against the rate (Orca's figure 10)."""
    series = _lines(case, NORMALIZED)
    if not series:
        return None
    axes = (("requests a second", ""), LATENCY_AXIS)
    return figure_json("Latency, by rate", "scatter", *axes, series=series, **_seconds_axis(series))


def latency_by_answered(case: Case) -> dict[str, Any] | None:
    """The median of latency per output token against what is answered a second, one line for each policy over
    its rates: it turns up where the policy is full.
    """
    entries = [entry for entry in case.having(NORMALIZED, THROUGHPUT) if serving.RATE in entry.parameters]
    if len(serving.rates(case)) < 2 or not entries:
        return None
    series = _of_policies(entries, RATES, NORMALIZED, case, THROUGHPUT)
    axes = (("requests answered a second", ""), LATENCY_AXIS)
    return figure_json(
        "Latency, by what is answered", "scatter", *axes, series=series, **_seconds_axis(series)
    )


def _seconds_axis(series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Logarithmic, with durations that people know, where times reach far."""
    times = [seconds for line in series for seconds in line["y"]]
    return {"log": "y", "y_ticks": duration_ticks(times)} if is_wide(times) else {}


def tokens(case: Case) -> dict[str, Any] | None:
    """Time to the first token against time per later one, at the highest of several rates."""
    ranked, said = _at_most(case, serving.ranking(case))
    pair = Pair("ttft_p99", "tpot_p99", *((f"99th percentile of {of}", "s") for of in TOKENS))
    return pair.draw(case, ranked, f"First token against later ones{said}")


def _lines(case: Case, metric: str) -> list[dict[str, Any]]:
    """``metric`` against the rate for each policy; none where fewer than two rates were asked for."""
    having = [entry for entry in case.having(metric) if serving.RATE in entry.parameters]
    if len(serving.rates(case)) < 2:
        return []
    return _of_policies(having, RATES, metric, case)


def _of_policies(
    entries: Sequence[Entry], axis: Axis, metric: str, case: Case, across: str = ""
) -> list[dict[str, Any]]:
    """A line for each policy; for each scale of objectives where rates are asked at several."""
    apart = axis is RATES and len({SCALES.of(entry) for entry in entries}) > 1
    lines: dict[str, list[Entry]] = {}
    for entry in entries:
        name = f"{entry.name}, {SCALES.say(entry)}" if apart else entry.name
        lines.setdefault(name, []).append(entry)
    return [
        {**axis.line(index, own, metric, case, across), "name": name}
        for index, (name, own) in enumerate(lines.items())
    ]


def _at_most(case: Case, entries: Sequence[Entry]) -> tuple[Sequence[Entry], str]:
    """Those at the highest of several rates, and words that say so; of one rate all of them."""
    rates = serving.rates(case)
    if len(rates) < 2:
        return entries, ""
    said = f", at {significant(rates[-1])} requests a second"
    return [entry for entry in entries if RATES.of(entry) == rates[-1]], said
