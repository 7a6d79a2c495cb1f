"""What a serving run's page shows: its plots, and what became of its requests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.units import human
from webapp.runs.lives import MOST_LIVES, WAITING, Bar, Life, lives_plot, records
from webapp.runs.serving_plots import serving_plots

PROMPT, ANSWERING, HELD, PREEMPTED = "prompt", "answering", "answer kept back", "preempted"
COLORS: Mapping[str, str] = {WAITING: "rule", PREEMPTED: "bad"}
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
    requests, series = records(plan), outcome.get("series") or {}
    order = asked.get("requests", "")
    order = order if order in ORDERS else "slowest"
    name = asked.get("request", "").strip()
    found = [row for row in requests if str(row["request"]) == name]
    shown = found or sorted(requests, key=ORDERS[order][1])[:MOST_LIVES]
    return ServingView(
        tuple(serving_plots(series, outcome)),
        _lives(shown, series.get("batch_size") or {}),
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


def _lives(requests: Sequence[Request], batch: Mapping[str, Any]) -> dict[str, Any] | None:
    """``batch`` is the curve of requests in a pass, told under the mouse for each stage."""
    bars: dict[str, list[Bar]] = {WAITING: [], PROMPT: [], ANSWERING: [], HELD: [], PREEMPTED: []}
    for row in requests:
        for kind, start, end in _stages(row):
            lane = f"request {row['request']}"
            words = f"{lane}: {kind} for {human(end - start, 's')}"
            company = _company(batch, start, end) if kind in (PROMPT, ANSWERING) else ""
            bars[kind].append((lane, start, end, words + company))
    return lives_plot("Lives of requests", [f"request {row['request']}" for row in requests], bars, COLORS)


def _company(batch: Mapping[str, Any], start: float, end: float) -> str:
    """Requests in the passes from ``start`` to ``end``, as far as the curve has them."""
    times, sizes = batch.get("x") or (), batch.get("y") or ()
    first, last = max(bisect_right(times, start) - 1, 0), bisect_left(times, end)
    found = sizes[first : max(last, first + 1)]
    if not found:
        return ""
    low, high = int(min(found)), int(max(found))
    return f"<br>{low if low == high else f'{low} to {high}'} requests in a pass"


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
