"""A step: its memory over time, its ops under a roof, its time by phase."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.precision import describe_states, states_of
from experiments.estimates import estimate_model
from experiments.hardware import Device, resolve
from experiments.hardware.roofline import attainable, ridge_point
from experiments.summaries.drawing import MOST_POINTS, card, plot, points, sample
from experiments.summaries.summary import summary
from experiments.workloads.fixed_options import fixed_options
from experiments.workloads.ragged import Ints
from experiments.workloads.step import KINDS, PHASES, Floats, Step

#: Whose roof is drawn where nothing says which device is meant.
USUAL_DEVICE = "a100-40g"


@summary.register
def _step(value: Step) -> dict[str, Any]:
    facts, ops = value.facts, value.ops
    cards = [card("ops", len(ops)), card("tensors", len(value.tensors))]
    for name, unit in (("parameters", ""), ("batch", ""), ("sequence", "")):
        if isinstance(facts.get(name), int | float):
            cards.append(card(name, facts[name], unit))
    cards += [
        card("live peak", value.live_peak, "bytes"),
        card("persistent", value.persistent_bytes, "bytes"),
        *_states(value),
        card("largest single-op need", int(value.op_need.max(initial=0)), "bytes"),
    ]
    if np.isfinite(value.flops):
        cards.append(card("FLOPs of a step", value.flops, "FLOP"))
    if value.timing != "none":
        cards.append(card(f"sum of op times ({value.timing})", value.seconds, "s"))
        cards.append(card("timed on", value.timed_on))
    if isinstance(facts.get("attention"), str):
        cards.append(card("attention", facts["attention"]))
    drawn = {"estimates": _step_estimates(value), "plots": _step_plots(value)}
    return {"cards": cards, **drawn, "facts": fixed_options(facts)}


def _states(value: Step) -> list[dict[str, Any]]:
    """What training keeps for each parameter, where the step knows its precision."""
    found = states_of(value.facts)
    return [card("model states", describe_states(found["states"]))] if found else []


def _step_estimates(value: Step) -> list[dict[str, Any]]:
    parameters, batch = value.facts.get("parameters"), value.facts.get("batch")
    if not isinstance(parameters, int):
        return []
    tokens = (batch or 1) * (value.facts.get("sequence") or 1)
    return [row.to_json() for row in estimate_model(parameters, tokens)]


def _step_plots(value: Step) -> list[dict[str, Any]]:
    return [*_memory_curve(value), *_roofline(value), *_phase_times(value)]


def _memory_curve(value: Step) -> list[dict[str, Any]]:
    """What is live while each op runs, by kind; none where no tensor is known."""
    if not value.live_peak:
        return []
    shown, total = sample(len(value.ops))
    chosen = np.unique(np.append(shown, np.argmax(value.live_bytes)))
    text = [value.ops.name[i] for i in chosen]
    rows = live_by_kind(value).items()
    lines = [{**points(kind, chosen, live[chosen], text), "stack": "live"} for kind, live in rows]
    title = "Memory live while each op runs, by kind"
    return [plot(title, "line", "op", "live (bytes)", lines, sampled=total, stack=True)]


def live_by_kind(value: Step) -> dict[str, Ints]:
    """Bytes live while each op runs, by kind of tensor and workspace; they add up to ``live_bytes``."""
    found = {}
    for number, kind in enumerate(KINDS):
        mine = value.tensors.kind == number
        local = mine & ~value.persistent & (value.death >= 0)
        change = np.zeros(len(value.ops) + 1, np.int64)
        np.add.at(change, value.first_use[local], value.tensors.bytes[local])
        np.add.at(change, value.death[local] + 1, -value.tensors.bytes[local])
        always = value.tensors.bytes[mine & value.persistent].sum()
        found[kind.replace("_", " ")] = always + np.cumsum(change[:-1])
    found["workspace"] = value.ops.workspace
    return {kind: live for kind, live in found.items() if live.any()}


def _roofline(value: Step) -> list[dict[str, Any]]:
    """Rate against intensity under the roof of a device, one point for equal ops of a phase.

    The device is the one that the step was timed on where it has a spec sheet, else ``USUAL_DEVICE``. A timed
    op stands at the rate it reached; an untimed one at what the roof allows.
    """
    real = np.flatnonzero((value.ops.flops > 0) & (value.ops.bytes_moved > 0))
    if not len(real):
        return []
    device = _device_of(value)
    flops, intensity = value.ops.flops[real], value.ops.flops[real] / value.ops.bytes_moved[real]
    dtype = value.ops.dtype[int(real[np.argmax(flops)])]
    allowed = attainable(device, intensity, dtype)
    seconds = value.ops.seconds[real]
    timed = np.isfinite(seconds) & (seconds > 0)
    rate = np.where(timed, flops / np.where(timed, seconds, 1.0), allowed)
    ridge = ridge_point(device, dtype)
    low, high = float(min(intensity.min(), ridge)) / 4, float(max(intensity.max(), ridge)) * 4
    roof = np.unique(np.append(np.geomspace(low, high, 60), ridge))
    line = {**points(f"{device.name}, {dtype}", roof, attainable(device, roof, dtype)), "mode": "lines"}
    series = [line, *_op_points(value, real, intensity, rate)]
    axes = ("intensity (FLOP/byte)", "rate (FLOP/s)")
    return [plot(f"Ops under the roof of {device.name}", "scatter", *axes, series, log="xy")]


def _device_of(value: Step) -> Device:
    try:
        return resolve(value.timed_on).device if value.timed_on else resolve(USUAL_DEVICE).device
    except BadInput:
        return resolve(USUAL_DEVICE).device


def _op_points(value: Step, real: Any, intensity: Floats, rate: Floats) -> list[dict[str, Any]]:
    """One series for each phase; ops alike in target and position are one point that says how many."""
    found: dict[str, dict[tuple[str, str, str], tuple[float, float, int]]] = {}
    for op, x, y in zip(real, intensity.tolist(), rate.tolist(), strict=True):
        alike = found.setdefault(PHASES[value.ops.phase[op]], {})
        key = (value.ops.target[op], f"{x:.3g}", f"{y:.2g}")
        alike[key] = (x, y, alike[key][2] + 1 if key in alike else 1)
    series = []
    for phase, alike in found.items():
        kept = list(alike.items())[:MOST_POINTS]
        text = [f"{key[0]} x{count}" for key, (_, _, count) in kept]
        series.append(points(phase, [x for _, (x, _, _) in kept], [y for _, (_, y, _) in kept], text))
    return series


def _phase_times(value: Step) -> list[dict[str, Any]]:
    if value.timing == "none":
        return []
    totals = [float(value.ops.seconds[value.ops.phase == i].sum()) for i in range(len(PHASES))]
    return [plot("Time by phase", "bar", "phase", "time (s)", [points(value.timing, list(PHASES), totals)])]
