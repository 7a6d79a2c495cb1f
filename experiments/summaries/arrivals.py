"""What the requests of a trace ask of a server, before any batching: rates, lengths, shared prefixes."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.drawing import BINS, histogram, plot, points, sample
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats

#: Windows in which requests are counted (seconds).
WINDOWS = (1.0, 10.0, 60.0)
#: Stretches of the curves over time.
STRETCHES = 240
QUANTILES = (0.5, 0.95, 0.99)
#: Ages of a reused prefix that are told apart (seconds).
AGES = (10.0, 60.0, 600.0, 3600.0)


def arrivals_of(trace: RequestTrace) -> dict[str, Any]:
    """JSON: means, quantiles, peak rates and dispersion by window, and what of prompts had been seen."""
    if not len(trace):
        return {}
    span, gaps = float(trace.arrival[-1]), np.diff(trace.arrival)
    step = clock_step(gaps)
    windows = [seconds for seconds in WINDOWS if 2 * step <= seconds and 2 * seconds <= span]
    return {
        "requests": len(trace),
        "span": span,
        "prompt": _lengths(trace.prompt),
        "output": _lengths(trace.output),
        "both": _lengths(trace.prompt + trace.output),
        "gap_variation": None if step else variation(gaps),
        "clock_step": step,
        "windows": [_window(trace.arrival, seconds) for seconds in windows],
        "prefix": shared_prefixes(trace),
        "sessions": sessions_of(trace),
    }


def _lengths(values: Any) -> dict[str, Any]:
    quantiles = [float(value) for value in np.quantile(values, QUANTILES)]
    return {"mean": float(values.mean()), "quantiles": quantiles, "most": int(values.max())}


def clock_step(gaps: Floats) -> float:
    """Seconds between moments of a clock so coarse that most requests share theirs with another; else 0."""
    apart = gaps[gaps > 0]
    return float(np.quantile(apart, 0.01)) if len(apart) and 2 * len(apart) < len(gaps) else 0.0


def variation(gaps: Floats) -> float | None:
    """Standard deviation of the gaps between arrivals over their mean: 1 for a Poisson process."""
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return float(gaps.std()) / mean if mean else None


def _window(arrival: Floats, seconds: float) -> dict[str, float]:
    """Of whole windows of so many seconds the highest rate, and the variance of counts over their mean."""
    counts = np.bincount((arrival // seconds).astype(np.int64))[: int(arrival[-1] // seconds)]
    mean = float(counts.mean())
    return {
        "seconds": seconds,
        "peak": float(counts.max()) / seconds,
        "dispersion": float(counts.var()) / mean if mean else 0.0,
    }


def shared_prefixes(trace: RequestTrace) -> dict[str, Any] | None:
    """Of prompts in blocks the tokens whose block, and all before it, an earlier request had.

    An endless cache would spare these; ``ages`` says of how many the last use was at most so long ago.
    ``None`` where the trace does not tell blocks.
    """
    if trace.hashes is None or not trace.block:
        return None
    last: dict[int, float] = {}
    spared, ages, hits = 0, np.zeros(len(AGES)), 0
    prompts, arrivals = trace.prompt.tolist(), trace.arrival.tolist()
    for blocks, prompt, now in zip(trace.hashes.lists(), prompts, arrivals, strict=True):
        known = next((place for place, one in enumerate(blocks) if one not in last), len(blocks))
        tokens = min(known * trace.block, prompt)
        spared, hits = spared + tokens, hits + (tokens > 0)
        if tokens:
            ages[now - last[blocks[known - 1]] <= np.array(AGES)] += tokens
        last.update(dict.fromkeys(blocks, now))
    whole = int(trace.prompt.sum())
    return {
        "block": trace.block,
        "blocks": len(last),
        "tokens": spared,
        "share": spared / whole,
        "requests": hits,
        "ages": [[age, count / whole] for age, count in zip(AGES, ages.tolist(), strict=True)],
    }


def sessions_of(trace: RequestTrace) -> dict[str, Any] | None:
    """How many requests sessions have, and the median time from one to the next of its session (s).

    ``alone`` is the share of sessions of one request. ``None`` where the trace tells no sessions.
    """
    places = _places_by_session(trace)
    if not places:
        return None
    sizes = np.array([len(rows) for rows in places])
    gaps = np.concatenate([np.diff(trace.arrival[rows]) for rows in places])
    return {
        "sessions": len(sizes),
        "requests": int(sizes.sum()),
        "mean": float(sizes.mean()),
        "most": int(sizes.max()),
        "alone": float((sizes == 1).mean()),
        "gap": float(np.median(gaps)) if len(gaps) else None,
    }


def _places_by_session(trace: RequestTrace) -> list[list[int]]:
    """The requests of each session, in the order of arrival; those of none are left out."""
    found: dict[str, list[int]] = {}
    for place, session in enumerate(trace.original.get("session", ())):
        if session:
            found.setdefault(session, []).append(place)
    return list(found.values())


def plots_of(trace: RequestTrace) -> list[dict[str, Any]]:
    """Requests and tokens asked for over time, lengths, gaps next to those of a Poisson process, sessions."""
    if len(trace) < 2 or not trace.arrival[-1]:
        return []
    gaps = np.diff(trace.arrival)
    plots = [_rate(trace), _tokens(trace), _sizes(trace), _both_sizes(trace)]
    sessions = [len(rows) for rows in _places_by_session(trace)]
    if not clock_step(gaps):
        plots.append(_gaps(gaps))
    if sessions:
        plots.append(histogram("Requests of a session", "requests", np.array(sessions, float), "sessions"))
    return plots


def _rate(trace: RequestTrace) -> dict[str, Any]:
    x, counts, width = _over_time(trace.arrival, np.ones(len(trace)))
    line = {**points("requests", x, counts / width), "shape": "hv"}
    return plot("Requests over time", "line", "time (s)", "rate (requests/s)", [line])


def _tokens(trace: RequestTrace) -> dict[str, Any]:
    rows = []
    for name, values in (("prompt tokens", trace.prompt), ("output tokens", trace.output)):
        x, sums, width = _over_time(trace.arrival, values)
        rows.append({**points(name, x, sums / width), "stack": "tokens", "shape": "hv"})
    return plot("Tokens asked for over time", "line", "time (s)", "rate (tokens/s)", rows, stack=True)


def _over_time(arrival: Floats, values: Any) -> tuple[Floats, Floats, float]:
    sums, edges = np.histogram(arrival, min(STRETCHES, len(arrival)), weights=values)
    return edges[:-1], sums, float(edges[1] - edges[0])


def _sizes(trace: RequestTrace) -> dict[str, Any]:
    """Both on the same bins of a logarithmic axis."""
    longest = max(int(trace.prompt.max()), int(trace.output.max()), 2)
    edges = np.geomspace(1, longest, BINS + 1)
    middles = np.sqrt(edges[:-1] * edges[1:])
    rows = [
        {**points(name, middles, np.histogram(values, edges)[0]), "shape": "hvh"}
        for name, values in (("prompts", trace.prompt), ("outputs", trace.output))
    ]
    return plot("Lengths of prompts and outputs", "line", "length (tokens)", "requests", rows, log="x")


def _both_sizes(trace: RequestTrace) -> dict[str, Any]:
    """A mark for each request; of many evenly picked ones."""
    kept, whole = sample(len(trace))
    marks = {**points("requests", trace.prompt[kept], trace.output[kept]), "size": 4}
    axes = ("prompt (tokens)", "output (tokens)")
    return plot("Output by prompt of each request", "scatter", *axes, [marks], log="xy") | {"sampled": whole}


def _gaps(gaps: Floats) -> dict[str, Any]:
    """Shares of gaps longer than a time: a straight fall of the dotted line is chance alone."""
    ordered = np.sort(gaps[gaps > 0])
    x = np.geomspace(max(ordered[0], 1e-6), ordered[-1], STRETCHES)
    longer = (len(ordered) - np.searchsorted(ordered, x, side="left")) / len(gaps)
    chance = {**points("Poisson at this rate", x, np.exp(-x / gaps.mean())), "dash": "dot"}
    rows = [points("this trace", x, longer), chance]
    return plot("Gaps between requests", "line", "gap (s)", "longer (fraction)", rows, log="x")
