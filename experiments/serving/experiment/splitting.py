"""Carries out a run of a policy that divides a model between a device and a cloud, as the link changes."""

from __future__ import annotations

from typing import Any

from experiments.core.errors import ImpossiblePlan
from experiments.core.progress import Progress
from experiments.core.reading import refusal
from experiments.core.spec import Result, RunSpec, Series
from experiments.hardware import resolve
from experiments.serving.interface.splitting import (
    DevicePlan,
    Split,
    SplitCost,
    SplittingPolicy,
    split_cost,
    split_faults,
)
from experiments.sources import load
from experiments.workloads.split_task import LinkState, SplitTask


def divide_task(spec: RunSpec, policy: SplittingPolicy, progress: Progress) -> Result:
    """Plan at the start and whenever the link has changed enough; latencies are averaged over time."""
    loaded = load(spec.workload)
    task = loaded.value
    if not isinstance(task, SplitTask):
        raise refusal(loaded.kind, ("split",), spec.workload.source)
    device = policy.on_device(task)
    rows = _carry_out(task, device, policy)
    weights = _lengths(task)
    cost = _mean(rows, weights, lambda row: row[2].seconds)
    return Result(
        metrics={
            "latency": cost,
            "communication_time": _mean(
                rows, weights, lambda row: row[2].sent + row[2].received + row[2].round_trip
            ),
        },
        series=_curves(task, device, rows),
        plan={
            "device": dict(device.chosen),
            "plans": sum(is_new for _, _, _, is_new in rows),
            "stretches": [
                {
                    "time": link.time,
                    "uplink": link.up,
                    "downlink": link.down,
                    "cloud": [task.operators[place].name for place in sorted(split)],
                    "is_planned": is_new,
                    "seconds": {**found._asdict(), "all": found.seconds},
                }
                for link, split, found, is_new in rows
            ],
            "alternatives": _alternatives(task, device, task.links[0]),
        },
        workload_sha256=loaded.sha256,
        notes={"hardware": resolve(spec.hardware).to_json(), "warnings": []},
    )


Row = tuple[LinkState, Split, SplitCost, bool]


def _carry_out(task: SplitTask, device: DevicePlan, policy: SplittingPolicy) -> list[Row]:
    rows: list[Row] = []
    planned: LinkState | None = None
    split: Split = frozenset()
    for link in task.links:
        is_new = planned is None or policy.replans(planned, link)
        if is_new:
            planned, split = link, policy.split(task, device, link)
            if faults := split_faults(task, split):
                raise ImpossiblePlan(faults)
        rows.append((link, split, split_cost(task, device.seconds, link, split), is_new))
    return rows


def _lengths(task: SplitTask) -> list[float]:
    """Seconds for which each state of the link holds within the duration; at least a little of the last."""
    ends = [*(link.time for link in task.links[1:]), max(task.duration, task.links[-1].time)]
    found = [max(0.0, end - link.time) for link, end in zip(task.links, ends, strict=True)]
    return found if sum(found) else [1.0] * len(found)


def _mean(rows: list[Row], weights: list[float], figure: Any) -> float:
    total = sum(weight * figure(row) for row, weight in zip(rows, weights, strict=True))
    return float(total / sum(weights))


def _alternatives(task: SplitTask, device: DevicePlan, link: LinkState) -> dict[str, float]:
    """What all on the device and all in the cloud take on a link."""
    movable = frozenset(place for place, one in enumerate(task.operators) if not one.stays)
    return {
        name: split_cost(task, device.seconds, link, split).seconds
        for name, split in (("device", frozenset[int]()), ("cloud", movable))
    }


def _curves(task: SplitTask, device: DevicePlan, rows: list[Row]) -> dict[str, Series]:
    times = [link.time for link, *_ in rows]
    others = [_alternatives(task, device, link) for link, *_ in rows]
    return {
        "seconds.planned": Series("s", times, [cost.seconds for _, _, cost, _ in rows]),
        "seconds.device": Series("s", times, [one["device"] for one in others]),
        "seconds.cloud": Series("s", times, [one["cloud"] for one in others]),
    }
