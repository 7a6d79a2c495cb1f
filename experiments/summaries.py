"""What is in a workload, as cards (figures) and plots (points), for ``inspect`` and the artifact page.

JSON only: ``{"cards": [{"label", "value", "unit"}], "estimates": [...], "plots": [{"title", "kind", "x_label",
"x_unit", "y_label", "y_unit", "log", "series": [{"name", "x", "y", "text"}], "sampled"}]}``. A plot never has more
than ``MOST_POINTS`` points; ``sampled`` says from how many they were taken.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.estimates import estimate_llm, estimate_model
from experiments.hardware import Device, resolve
from experiments.hardware.roofline import attainable, ridge_point
from experiments.workloads.jobs import JobTrace
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource
from experiments.workloads.operator_list import OperatorList
from experiments.workloads.program import GraphProgram
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import PHASES, Floats, Step
from experiments.workloads.substitutions import Substitutions
from experiments.workloads.transformer import has_closed_form
from experiments.workloads.tuning_log import TUNING_ERRORS, TuningLog, best_so_far

MOST_POINTS = 1500
#: Whose roof is drawn where nothing says which device is meant.
USUAL_DEVICE = "a100-40g"
BINS = 40
MOST_INPUTS = 8


def card(label: str, value: Any, unit: str = "") -> dict[str, Any]:
    return {"label": label, "value": value if isinstance(value, str | int) else float(value), "unit": unit}


def plot(title: str, kind: str, x: str, y: str, series: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """``x`` and ``y`` are ``label (unit)`` or just a label."""
    axes = {f"{axis}_{part}": text for axis, label in (("x", x), ("y", y)) for part, text in _axis(label)}
    return {"title": title, "kind": kind, **axes, "log": "", "sampled": None, "series": series, **more}


def _axis(label: str) -> tuple[tuple[str, str], tuple[str, str]]:
    name, _, unit = label.partition(" (")
    return ("label", name), ("unit", unit.rstrip(")"))


def _points(name: str, x: Any, y: Any, text: list[str] | None = None) -> dict[str, Any]:
    row = {"name": name, "x": np.asarray(x).tolist(), "y": np.asarray(y).tolist()}
    return {**row, "text": text} if text else row


def _sample(length: int) -> tuple[Any, int | None]:
    """Indices to show of ``length`` points, and ``length`` itself when some were left out."""
    if length <= MOST_POINTS:
        return np.arange(length), None
    return np.unique(np.linspace(0, length - 1, MOST_POINTS).astype(int)), length


def _histogram(title: str, x: str, values: Floats, counted: str, log: bool = False) -> dict[str, Any]:
    finite = values[np.isfinite(values) & ((values > 0) if log else True)]
    if not len(finite):
        return plot(title, "bar", x, counted, [])
    low, high = float(finite.min()), float(finite.max())
    edges = (
        np.geomspace(low, max(high, low * 1.01), BINS + 1)
        if log
        else np.linspace(low, max(high, low + 1), BINS + 1)
    )
    counts, _ = np.histogram(finite, edges)
    return plot(
        title,
        "bar",
        x,
        counted,
        [_points(counted, (edges[:-1] + edges[1:]) / 2, counts)],
        log="x" if log else "",
    )


@functools.singledispatch
def summary(value: Any) -> dict[str, Any]:
    """Cards and plots of a workload of any kind."""
    raise TypeError(f"no summary of {type(value).__name__}")


@summary.register
def _model(value: ModelSource) -> dict[str, Any]:
    config = value.config
    if value.program is not None:
        return _program(value.program)
    cards = [card("model", value.zoo)] if value.zoo else []
    cards += [
        card(name.replace("_", " "), config[name]) for name in _SHOWN_OF_CONFIG if _is_plain(config.get(name))
    ]
    known = has_closed_form(config)
    return {"cards": cards, "estimates": _config_estimates(value), "plots": [], "closed_form": known}


def _program(value: GraphProgram) -> dict[str, Any]:
    """An exported graph: its parameters, its inputs with open sizes by name, and its operators, most frequent first."""
    weights = value.parameters.values()
    cards = [
        card("parameters", sum(math.prod(weight.shape) for weight in weights)),
        card("size of parameters", sum(weight.bytes for weight in weights), "bytes"),
        card("type", value.dtype),
        card("nodes", len(value.nodes)),
    ]
    for entry in value.inputs[:MOST_INPUTS]:
        sizes = ", ".join(str(size) for size in entry.shape)
        cards.append(card(f"input {entry.name:.40}", f"{entry.dtype} [{sizes}]"))
    cards.append(card("output of the loss", value.output[:80]))
    counts = Counter(node.op for node in value.nodes).most_common(BINS)
    bars = _points("nodes", [name for name, _ in counts], [count for _, count in counts])
    return {"cards": cards, "estimates": [], "plots": [plot("Operators", "bar", "operator", "nodes", [bars])]}


_SHOWN_OF_CONFIG = (
    "model_type",
    "hidden_size",
    "n_embd",
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "n_head",
    "vocab_size",
    "intermediate_size",
    "num_local_experts",
)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _config_estimates(value: ModelSource) -> list[dict[str, Any]]:
    """Rules of thumb from the shape alone; none where the configuration is no transformer."""
    config, options = value.config, value.options
    names = (("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"))
    shape = [
        next((config[name] for name in pair if isinstance(config.get(name), int)), None) for pair in names
    ]
    vocab = config.get("vocab_size")
    if None in shape or not isinstance(vocab, int):
        return []
    hidden, layers, heads = (int(size) for size in shape if size is not None)
    sequence = options.sequence or _first_int(config, "max_position_embeddings", "n_positions") or 1024
    rows = estimate_llm(hidden, layers, heads, vocab, min(sequence, 4096), options.batch or 1, 2)
    return [row.to_json() for row in rows]


def _first_int(config: Any, *names: str) -> int | None:
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)


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
        card("largest single-op need", int(value.op_need.max(initial=0)), "bytes"),
    ]
    if np.isfinite(value.flops):
        cards.append(card("FLOPs of a step", value.flops, "FLOP"))
    if value.timing != "none":
        cards.append(card(f"sum of op times ({value.timing})", value.seconds, "s"))
        cards.append(card("timed on", value.timed_on))
    if isinstance(facts.get("attention"), str):
        cards.append(card("attention", facts["attention"]))
    return {"cards": cards, "estimates": _step_estimates(value), "plots": _step_plots(value)}


def _step_estimates(value: Step) -> list[dict[str, Any]]:
    parameters, batch = value.facts.get("parameters"), value.facts.get("batch")
    if not isinstance(parameters, int):
        return []
    tokens = (batch or 1) * (value.facts.get("sequence") or 1)
    return [row.to_json() for row in estimate_model(parameters, tokens)]


def _step_plots(value: Step) -> list[dict[str, Any]]:
    return [_memory_curve(value), *_roofline(value), *_phase_times(value)]


def _memory_curve(value: Step) -> dict[str, Any]:
    shown, total = _sample(len(value.ops))
    peak = int(np.argmax(value.live_bytes)) if len(value.ops) else 0
    chosen = np.unique(np.append(shown, peak)) if len(value.ops) else shown
    text = [value.ops.name[i] for i in chosen]
    line = _points("live bytes", chosen, value.live_bytes[chosen], text)
    return plot("Memory live while each op runs", "line", "op", "live (bytes)", [line], sampled=total)


def _roofline(value: Step) -> list[dict[str, Any]]:
    """Rate against intensity under the roof of a device, one point for equal ops of a phase.

    The device is the one that the step was timed on where it has a spec sheet, else ``USUAL_DEVICE``. A timed op stands
    at the rate it reached; an untimed one at what the roof allows.
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
    line = {**_points(f"{device.name}, {dtype}", roof, attainable(device, roof, dtype)), "mode": "lines"}
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
        points = found.setdefault(PHASES[value.ops.phase[op]], {})
        key = (value.ops.target[op], f"{x:.3g}", f"{y:.2g}")
        points[key] = (x, y, points[key][2] + 1 if key in points else 1)
    series = []
    for phase, points in found.items():
        kept = list(points.items())[:MOST_POINTS]
        text = [f"{key[0]} x{count}" for key, (_, _, count) in kept]
        series.append(_points(phase, [x for _, (x, _, _) in kept], [y for _, (_, y, _) in kept], text))
    return series


def _phase_times(value: Step) -> list[dict[str, Any]]:
    if value.timing == "none":
        return []
    totals = [float(value.ops.seconds[value.ops.phase == i].sum()) for i in range(len(PHASES))]
    return [plot("Time by phase", "bar", "phase", "time (s)", [_points(value.timing, list(PHASES), totals)])]


@summary.register
def _layers(value: LayerGraph) -> dict[str, Any]:
    cards = [
        card("layers", len(value)),
        card("batch", value.batch),
        card("parameters", float(value.parameter_bytes.sum()), "bytes"),
        card("activations kept", float(value.stash_bytes.sum()), "bytes"),
        card("FLOPs of a step", value.flops, "FLOP"),
    ]
    shown, total = _sample(len(value))
    text = [value.layer[i] for i in shown]
    times = [
        _points("forward", shown, value.forward_seconds[shown], text),
        _points("backward", shown, value.backward_seconds[shown], text),
    ]
    plots = (
        [plot("Time of each layer", "bar", "layer", "time (s)", times, sampled=total)]
        if value.timing != "none"
        else []
    )
    sizes = [_points("parameters", shown, value.parameter_bytes[shown], text)]
    sizes.append(_points("activations kept", shown, value.stash_bytes[shown], text))
    plots.append(plot("Bytes of each layer", "bar", "layer", "size (bytes)", sizes, sampled=total))
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _jobs(value: JobTrace) -> dict[str, Any]:
    span = float(value.submit[-1] - value.submit[0]) if len(value) else 0.0
    work = float((value.gpus * value.service).sum())
    cards = [
        card("jobs", len(value)),
        card("span of submissions", span, "s"),
        card("GPUs wanted at most", int(value.gpus.max(initial=0))),
        card("mean service time", float(value.service.mean()) if len(value) else 0.0, "s"),
        card("work", work / 3600, "GPU hours"),
        card("mean demand", work / span if span else 0.0, "GPUs"),
    ]
    deadlines = int(np.isfinite(value.deadline).sum())
    if deadlines:
        cards.append(card("jobs with a deadline", deadlines))
    plots = [
        _histogram("Service times", "service (s)", value.service, "jobs", log=True),
        _histogram("Submissions over time", "submitted (s)", value.submit, "jobs"),
        plot(
            "GPUs wanted",
            "bar",
            "GPUs",
            "jobs",
            [_points("jobs", *np.unique(value.gpus, return_counts=True))],
        ),
    ]
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _requests(value: RequestTrace) -> dict[str, Any]:
    span = float(value.arrival[-1] - value.arrival[0]) if len(value) else 0.0
    cards = [
        card("requests", len(value)),
        card("span", span, "s"),
        card("mean rate", len(value) / span if span else 0.0, "1/s"),
        card("mean prompt", float(value.prompt.mean()) if len(value) else 0.0, "tokens"),
        card("mean output", float(value.output.mean()) if len(value) else 0.0, "tokens"),
        card("longest request", int((value.prompt + value.output).max(initial=0)), "tokens"),
    ]
    plots = [
        _histogram("Prompt lengths", "prompt (tokens)", value.prompt.astype(float), "requests", log=True),
        _histogram("Output lengths", "output (tokens)", value.output.astype(float), "requests", log=True),
        _histogram("Arrivals over time", "arrival (s)", value.arrival, "requests"),
    ]
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _tuning(value: TuningLog) -> dict[str, Any]:
    """Records by what became of them, and how the best time of the longest task fell."""
    errors = Counter(TUNING_ERRORS[code] for task in value.tasks for code in task.error.tolist())
    cards = [
        card("written by", value.tuner),
        card("records", len(value)),
        card("valid records", value.valid),
        card("tasks", len(value.tasks)),
    ]
    cards += [card(f"failed: {name}", count) for name, count in errors.most_common() if name]
    longest = max(value.tasks, key=len)
    cards.append(card("longest task", longest.name[:120]))
    if longest.valid:
        cards.append(card("its best time", float(np.nanmin(longest.seconds)), "s"))
    shown, total = _sample(len(longest))
    best = best_so_far(longest.seconds)[shown]
    known = np.isfinite(best)
    line = _points("best so far", shown[known] + 1, best[known])
    plots = [
        plot(f"Best time of {longest.name:.80}", "line", "trial", "time (s)", [line], sampled=total, log="y")
    ]
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _rules(value: Substitutions) -> dict[str, Any]:
    census = value.census()
    cards = [card("rules", len(value.rules))]
    for outputs, count in sorted(census["mapped outputs"].items()):
        cards.append(card(f"rules that map {outputs} output{'s' if outputs != '1' else ''}", count))
    for held, count in sorted(census["parallel operators"].items()):
        cards.append(card(f"rules of which {held} of the operators are parallel", count))
    cards.append(card("rules whose target reads what the source does not bind", census["bindable"]["no"]))
    sizes = census["operators"].most_common()
    bars = _points("rules", [size for size, _ in sizes], [count for _, count in sizes])
    plots = [plot("Operators of source and target", "bar", "operators", "rules", [bars])]
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _operators(value: OperatorList) -> dict[str, Any]:
    kinds = Counter(operator.kind for operator in value.operators).most_common()
    types = sorted({operator.dtype for operator in value.operators})
    bars = _points("operators", [kind for kind, _ in kinds], [count for _, count in kinds])
    return {
        "cards": [card("operators", len(value)), card("types", ", ".join(types))],
        "estimates": [],
        "plots": [plot("Kinds of operators", "bar", "kind", "operators", [bars])],
    }
