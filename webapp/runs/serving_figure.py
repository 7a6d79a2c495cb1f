"""What a serving run's page draws: how long requests took, what became of them, the engine over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.rate_search import USUAL_DELAY
from experiments.core.units import human
from webapp.compare.figures.curves import duration_ticks
from webapp.runs.figures import plot_of
from webapp.runs.lives import MOST_LIVES, WAITING, Bar, Life, curve_of, lives_plot, records

PROMPT, ANSWERING, HELD, PREEMPTED = "prompt", "answering", "answer kept back", "preempted"
COLORS: Mapping[str, str] = {WAITING: "rule", PREEMPTED: "bad"}
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
DRAWN = (
    *LATENCIES,
    *TOKENS,
    *BY_RATE,
    *(name for _, _, curves, _ in OVER_TIME for name in curves),
    "kv_blocks",
)

Curves = Mapping[str, Mapping[str, Any]]
Request = Mapping[str, Any]

#: Which lives are drawn, by what an address asks for: their words and what is sorted by.
ORDERS: Mapping[str, tuple[str, Callable[[Request], float]]] = {
    "slowest": ("the slowest", lambda row: -_since(row, "answered")),
    "waited": ("those that waited longest", lambda row: -_since(row, "first_token")),
    "preempted": ("those preempted most", lambda row: -len(_preemptions(row))),
    "prompt": ("the longest prompts", lambda row: -row["prompt"]),
    "output": ("the longest answers", lambda row: -row["output"]),
    "first": ("the first", lambda row: row["arrival"]),
}


@dataclass(frozen=True)
class ServingView:
    plots: tuple[Mapping[str, Any], ...]
    lives: Mapping[str, Any] | None
    order: str
    asked: str
    life: Life | None
    sampling: str

    @property
    def orders(self) -> Mapping[str, str]:
        return {name: words for name, (words, _) in ORDERS.items()}


def serving_view(outcome: Mapping[str, Any], asked: Mapping[str, str]) -> ServingView | None:
    """``None`` for what served no requests one by one."""
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    if not {"request", "arrival", "first_token"} <= set(plan.get("columns") or ()):
        return None
    requests = records(plan)
    order = asked.get("requests", "")
    order = order if order in ORDERS else "slowest"
    name = asked.get("request", "").strip()
    found = [row for row in requests if str(row["request"]) == name]
    shown = found or sorted(requests, key=ORDERS[order][1])[:MOST_LIVES]
    return ServingView(
        tuple(_plots(outcome.get("series") or {}, outcome)),
        _lives(shown),
        order,
        name,
        _life(found[0]) if found else None,
        str(plan["sampling"]),
    )


def _since(row: Request, moment: str) -> float:
    """Seconds from its arrival; endless of what never happened."""
    return float("inf") if row[moment] is None else float(row[moment]) - float(row["arrival"])


def _preemptions(row: Request) -> Sequence[Sequence[float]]:
    """From when to when it was out of memory (s), where the plan tells."""
    times: Sequence[Sequence[float]] = row.get("preempted") or ()
    return times


def _lives(requests: Sequence[Request]) -> dict[str, Any] | None:
    bars: dict[str, list[Bar]] = {WAITING: [], PROMPT: [], ANSWERING: [], HELD: [], PREEMPTED: []}
    for row in requests:
        for kind, start, end in _stages(row):
            lane = f"request {row['request']}"
            bars[kind].append((lane, start, end, f"{lane}: {kind} for {human(end - start, 's')}"))
    return lives_plot("Lives of requests", [f"request {row['request']}" for row in requests], bars, COLORS)


def _stages(row: Request) -> Iterator[tuple[str, float, float]]:
    """What it did, in order; while it was preempted nothing else."""
    moments = [row["arrival"], row["admitted"], row["first_token"], row["last_token"], row["answered"]]
    for kind, start, end in zip((WAITING, PROMPT, ANSWERING, HELD), moments, moments[1:], strict=False):
        if start is None or end is None:
            return
        for since, until in _preemptions(row):
            if start <= since < end:
                yield kind, start, since
                yield PREEMPTED, since, min(until, end)
                start = min(until, end)
        yield kind, start, end


def _life(row: Request) -> Life:
    tokens = f"{row['prompt']:,} tokens of prompt, {row['output']:,} of answer"
    waited, took = _since(row, "first_token"), _since(row, "answered")
    facts = [
        ("arrived", human(row["arrival"], "s")),
        ("asked for", tokens),
        ("first token after", "never" if waited == float("inf") else human(waited, "s")),
        ("answered", _end_in_words(row, took)),
        *([("per later token", human(_tpot(row), "s"))] if row["output"] > 1 and took < float("inf") else []),
        *([("preempted", f"{len(_preemptions(row))} times")] if _preemptions(row) else []),
    ]
    stages = (
        {"what": kind, "start": human(start, "s"), "lasted": human(end - start, "s")}
        for kind, start, end in _stages(row)
        if end > start
    )
    return Life(str(row["request"]), tuple(facts), tuple(stages))


def _end_in_words(row: Request, took: float) -> str:
    if row["rejected"]:
        return f"rejected: {row['reason']}" if row.get("reason") else "rejected"
    return "never" if took == float("inf") else f"after {human(took, 's')}"


def _tpot(row: Request) -> float:
    return (float(row["last_token"]) - float(row["first_token"])) / (int(row["output"]) - 1)


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


def _plots(series: Curves, outcome: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    knobs = (outcome.get("spec") or {}).get("knobs") or {}
    highest = ((outcome.get("metrics") or {}).get("max_rate") or {}).get("value")
    yield from _rates_tried(series, knobs, highest)
    yield from _distribution("Answered by then", "time", LATENCIES, series, knobs.get("slo_ttft"))
    yield from _distribution("Time of a token", "seconds a token", TOKENS, series, knobs.get("slo_tpot"))
    for title, across, curves, stacked in OVER_TIME:
        lines = [
            {**curve_of(words, series[name]), "shape": "hv", **({"stack": title} if stacked else {})}
            for name, words in curves.items()
            if name in series and series[name]["x"]
        ]
        if lines:
            label = across[0] if len(lines) > 1 else f"{across[0]} {lines[0]['name']}"
            yield plot_of(title, "line", ("time", "s"), (label, across[1]), lines)


def _distribution(
    title: str, across: str, curves: Mapping[str, str], series: Curves, limit: float | None
) -> Iterator[dict[str, Any]]:
    """Shares of requests on a logarithmic axis, with the objective where there is one."""
    lines = [curve_of(words, series[name], positive=True) for name, words in curves.items() if name in series]
    lines = [line for line in lines if line["x"]]
    if not lines:
        return
    plot = plot_of(title, "line", (across, "s"), ("share", ""), lines)
    points = [x for line in lines for x in line["x"]] + ([limit] if limit else [])
    marked = {"limit": {"x": limit, "text": "objective", "is_capacity": False, "beyond": ""}} if limit else {}
    yield plot | {"log": "x", "x_ticks": duration_ticks(points), **marked}
