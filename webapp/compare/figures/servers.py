"""Serving policies next to one another: by rate what is kept and what it costs, at one rate first against
later tokens.
"""

from __future__ import annotations

from typing import Any

from experiments.core.units import significant
from webapp.compare.answers import serving
from webapp.compare.answers.case import Case
from webapp.compare.figures.curves import duration_ticks
from webapp.compare.figures.marks import figure_json
from webapp.compare.figures.pairs import Pair, is_wide
from webapp.compare.figures.rates import rate_line, rate_of

GOODPUT, NORMALIZED = "goodput", "normalized_latency_p50"
TOKENS = ("time to the first token", "time per later token")


def attainment(case: Case) -> dict[str, Any] | None:
    """The share of requests within their objective against the rate, one line for each policy."""
    series = _lines(case, serving.ATTAINED)
    if not series:
        return None
    rates = serving.rates(case)
    kept = f"{100 * serving.KEPT:.0f} % of requests"
    series.append(
        {"name": kept, "mode": "lines", "dash": "dot", "color": "ink-soft", "x": [rates[0], rates[-1]],
         "y": [serving.KEPT] * 2, "hover": [kept] * 2, "hover_only": True}
    )  # fmt: skip
    axes = (("requests a second", ""), ("share of requests within their objective", ""))
    return figure_json("Objective kept, by rate", "scatter", *axes, series=series, y_range=[0, 1.05])


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
    times = [seconds for line in series for seconds in line["y"]]
    log = "y" if is_wide(times) else ""
    axes = (("requests a second", ""), ("median latency per output token", "s"))
    ticks: dict[str, Any] = {"y_ticks": duration_ticks(times)} if log else {}
    return figure_json("Latency, by rate", "scatter", *axes, log=log, series=series, **ticks)


def tokens(case: Case) -> dict[str, Any] | None:
    """Time to the first token against time per later one, at the highest of several rates."""
    rates, ranked, said = serving.rates(case), serving.ranking(case), ""
    if len(rates) > 1:
        ranked = [entry for entry in ranked if rate_of(entry) == rates[-1]]
        said = f", at {significant(rates[-1])} requests a second"
    pair = Pair("ttft_p99", "tpot_p99", *((f"99th percentile of {of}", "s") for of in TOKENS))
    return pair.draw(case, ranked, f"First token against later ones{said}")


def _lines(case: Case, metric: str) -> list[dict[str, Any]]:
    """``metric`` against the rate for each policy; none where fewer than two rates were asked for."""
    having = [entry for entry in case.having(metric) if serving.RATE in entry.parameters]
    if len(serving.rates(case)) < 2:
        return []
    names = list(dict.fromkeys(entry.name for entry in having))
    return [
        rate_line(index, [e for e in having if e.name == name], metric, case)
        for index, name in enumerate(names)
    ]
