"""What a cluster run's page draws: how full every node was, the lives of jobs, queues and distributions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.units import human
from webapp.compare.figures.curves import duration_ticks
from webapp.runs.figures import plot_of
from webapp.runs.lives import MOST_LIVES, WAITING, Bar, Life, curve_of, lives_plot, records

#: Which lives are drawn, by what an address asks for.
ORDERS: Mapping[str, str] = {
    "slowest": "the slowest",
    "waited": "those that waited longest",
    "stopped": "those that were stopped most",
    "largest": "the largest",
    "first": "the first",
}
#: Classes of sizes as their curves are named.
SIZES = {"1_gpu": "1 GPU", "2_to_8_gpus": "2 to 8 GPUs", "over_8_gpus": "over 8 GPUs"}
#: Curves that stand in figures of their own here.
DRAWN = (
    "jct_distribution",
    "fairness_distribution",
    "deadlines_met",
    "utilization",
    "demand",
    "queue_length",
    "jobs_in_system",
)
RESTARTING = "starting or restoring"

Curves = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ClusterView:
    nodes: Mapping[str, Any] | None
    lives: Mapping[str, Any] | None
    plots: tuple[Mapping[str, Any], ...]
    order: str
    asked: str
    life: Life | None
    sampling: str
    executions: int

    @property
    def orders(self) -> Mapping[str, str]:
        return ORDERS


def cluster_view(outcome: Mapping[str, Any], asked: Mapping[str, str]) -> ClusterView | None:
    """``None`` for what is no cluster run, or one of before lives were told."""
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    if not {"jobs", "nodes", "rows"} <= set(plan):
        return None
    series: Curves = outcome.get("series") or {}
    jobs = records(plan["jobs"])
    executions = _by_job(records(plan))
    order = asked.get("jobs", "")
    job = asked.get("job", "").strip()
    found = [one for one in jobs if str(one["job"]) == job]
    chosen = found or _sort(jobs, order if order in ORDERS else "slowest")[:MOST_LIVES]
    return ClusterView(
        _nodes(plan["nodes"]),
        _lives(chosen, executions, plan["origin"]),
        tuple(_plots(series, outcome)),
        order if order in ORDERS else "slowest",
        job,
        _life(found[0], executions.get(found[0]["job"], []), plan["origin"]) if found else None,
        str(plan["sampling"]),
        int(plan["executions"]),
    )


def _by_job(executions: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(executions, key=lambda row: float(row["start"])):
        found.setdefault(one["job"], []).append(one)
    return found


def _sort(jobs: list[dict[str, Any]], order: str) -> list[dict[str, Any]]:
    keys = {
        "slowest": lambda job: -_span(job),
        "waited": lambda job: -_wait(job),
        "stopped": lambda job: -job["executions"],
        "largest": lambda job: -job["gpus"],
        "first": lambda job: job["submit"],
    }
    return sorted(jobs, key=keys[order])


def _span(job: Mapping[str, Any]) -> float:
    """From its submission to its end; endless of a job that has none."""
    return job["end"] - job["submit"] if job["state"] == "completed" else float("inf")


def _wait(job: Mapping[str, Any]) -> float:
    return float("inf") if job["start"] is None else job["start"] - job["submit"]


def _nodes(told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Nodes by time: the darker the more of a node's devices were held."""
    if not told:
        return None
    edges = [told["start"] + told["step"] * place for place in range(len(told["held"][0]) + 1)]
    title = "Devices held, by node"
    if told["nodes_per_row"] > 1:
        title += f" ({told['nodes_per_row']} nodes a row)"
    line = {"name": "held", "x": edges, "y": told["rows"], "z": told["held"]}
    return plot_of(title, "heat", ("time", "s"), ("", ""), [line]) | {"lanes": told["rows"]}


def _lives(
    jobs: Sequence[Mapping[str, Any]], executions: Mapping[str, list[dict[str, Any]]], origin: float
) -> dict[str, Any] | None:
    """Each job a lane: waiting, starting, running on so many GPUs."""
    bars: dict[str, list[Bar]] = {WAITING: [], RESTARTING: []}
    for job in jobs:
        for kind, start, end, words in _bars(job, executions.get(job["job"], [])):
            lane = f"job {job['job']}"
            bars.setdefault(kind, []).append((lane, start - origin, end - origin, f"{lane}: {words}"))
    colors = {WAITING: "rule", RESTARTING: "plot-2"}
    return lives_plot("Lives of jobs", [f"job {job['job']}" for job in jobs], bars, colors)


def _bars(
    job: Mapping[str, Any], executions: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, float, float, str]]:
    since = float(job["submit"])
    for one in executions:
        start, end = float(one["start"]), float(one["end"])
        ready = min(end, start + float(one["restarting"]))
        gpus = f"{one['gpus']} GPU" + ("" if one["gpus"] == 1 else "s")
        yield WAITING, since, start, f"waited {human(start - since, 's')}"
        yield RESTARTING, start, ready, f"{RESTARTING}, {human(ready - start, 's')}"
        yield gpus, ready, end, f"{gpus} for {human(end - ready, 's')}, then {one['ended']}"
        since = end


def _life(job: Mapping[str, Any], executions: Sequence[Mapping[str, Any]], origin: float) -> Life:
    held = sum((one["end"] - one["start"]) * one["gpus"] for one in executions)
    facts = [
        ("submitted", human(job["submit"] - origin, "s")),
        ("asked for", f"{job['gpus']} GPU{'' if job['gpus'] == 1 else 's'}"),
        *([("of", str(job["tenant"]))] if job["tenant"] else []),
        ("first on devices after", "never" if job["start"] is None else human(_wait(job), "s")),
        ("ended", job["state"] if job["state"] != "completed" else f"after {human(_span(job), 's')}"),
        ("executions", str(job["executions"])),
        ("time on devices, by GPUs", human(held, "s")),
    ]
    return Life(str(job["job"]), tuple(facts), tuple(_stages(executions, float(job["submit"]), origin)))


def _stages(
    executions: Sequence[Mapping[str, Any]], since: float, origin: float
) -> Iterator[Mapping[str, str]]:
    for one in executions:
        yield {
            "waited": human(one["start"] - since, "s") if one["start"] > since else "",
            "start": human(one["start"] - origin, "s"),
            "devices": ", ".join(f"{count} on node {node}" for node, count in one["devices_by_node"]),
            "restarting": human(one["restarting"], "s") if one["restarting"] else "",
            "lasted": human(one["end"] - one["start"], "s"),
            "ended": str(one["ended"]),
        }
        since = one["end"]


def _plots(series: Curves, outcome: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Completion times, fairness, GPUs over time, the queue, deadlines: those that the outcome has."""
    times = [("all jobs", series.get("jct_distribution"))]
    times += [(words, series.get(f"jct_distribution.{name}")) for name, words in SIZES.items()]
    if curves := [curve_of(name, curve, positive=True) for name, curve in times if curve and curve["x"]]:
        plot = plot_of(
            "Jobs done by then", "line", ("job completion time", "s"), ("share of jobs", ""), curves
        )
        yield plot | {"log": "x", "x_ticks": duration_ticks([x for one in curves for x in one["x"]] or [1.0])}
    yield from _over_time(series, outcome)
    fairness = series.get("fairness_distribution")
    if fairness and fairness["x"]:
        title, across = "Finish-time fairness", "JCT over its time on an equal share (rho)"
        curve = curve_of("all jobs", fairness, positive=True)
        plot = plot_of(title, "line", (across, ""), ("share of jobs", ""), [curve])
        yield plot | {"log": "x", "limit": {"x": 1.0, "text": "fair", "is_capacity": False, "beyond": ""}}
    met = series.get("deadlines_met")
    if met:
        across = "time until the deadline, as times its service (from there on)"
        bars = {"name": "met", "x": [f"{x:g}×" for x in met["x"]], "y": met["y"]}
        yield plot_of("Deadlines met", "bar", (across, ""), ("share met", ""), [bars])


def _over_time(series: Curves, outcome: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    devices = ((outcome.get("provenance") or {}).get("cluster") or {}).get("devices")
    held, wanted = series.get("utilization"), series.get("demand")
    if held and wanted and devices:
        last = max(held["x"][-1], wanted["x"][-1])
        lines = [
            {**curve_of("asked for by jobs that are there", wanted), "shape": "hv"},
            {**curve_of("held", held), "y": [share * devices for share in held["y"]], "shape": "hv"},
            {"name": "all there are", "x": [0.0, last], "y": [devices] * 2, "dash": "dash", "color": "ink"},
        ]
        yield plot_of("GPUs over time", "line", ("time", "s"), ("GPUs", ""), lines)
    counts = {"there": series.get("jobs_in_system"), "waiting": series.get("queue_length")}
    lines = [
        {**curve_of(name, curve), "shape": "hv"} for name, curve in counts.items() if curve and curve["x"]
    ]
    if lines:
        yield plot_of("Jobs over time", "line", ("time", "s"), ("jobs", ""), lines)
