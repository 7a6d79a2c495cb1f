"""Models that are served together: how much each is asked, within what time, and what its passes cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.drawing import card, plot, points
from experiments.summaries.summary import summary
from experiments.workloads.scenario import (
    REAL_TIME,
    BatchProfile,
    FixedCost,
    LayerCosts,
    Scenario,
    ScenarioModel,
)

#: Models that figures name; those asked most.
MOST_MODELS = 12


@summary.register
def _scenario(value: Scenario) -> dict[str, Any]:
    rates = {model.name: value.rate(model.name) for model in value.models}
    objectives = [model.slo for model in value.models if model.slo is not None]
    cards = [
        card("models", len(value)),
        card("duration", value.duration, "s"),
        card("mean rate", sum(rates.values()), "requests/s"),
        card("weights", sum(model.bytes for model in value.models), "bytes"),
        card("with an objective", len(objectives)),
    ]
    if objectives:
        cards.append(card("tightest objective", min(objectives), "s"))
    others = sum(model.service_class != REAL_TIME for model in value.models)
    if others:
        cards.append(card("best effort and training", others))
    shown = sorted(value.models, key=lambda model: (-rates[model.name], model.name))[:MOST_MODELS]
    plots = [_rates(value, shown), *_passes(shown)]
    return {
        "cards": cards,
        "estimates": [],
        "plots": [one for one in plots if one["series"]],
        "told": {"models": len(value)},
        "models": [{"name": m.name, "rate": rates[m.name], "slo": m.slo, "bytes": m.bytes} for m in shown],
    }


def _rates(value: Scenario, shown: list[ScenarioModel]) -> dict[str, Any]:
    """Arrivals of one draw; the models that are asked by answers have none of their own."""
    drawn = value.draw(0)
    rows = []
    for model in shown:
        times = drawn.arrival[(drawn.model == value.places[model.name]) & (drawn.parent < 0)]
        if len(times):
            counts, edges = np.histogram(times, min(240, max(len(times), 2)), (0, value.duration))
            width = float(edges[1] - edges[0])
            rows.append({**points(model.name, edges[:-1], counts / width), "stack": "rate", "shape": "hv"})
    return plot("Requests over time (seed 0)", "line", "time (s)", "rate (requests/s)", rows, stack=True)


def _passes(shown: list[ScenarioModel]) -> list[dict[str, Any]]:
    """Throughput by batch, and times of layers, of the models that tell them."""
    profiles = [(model.name, model.cost) for model in shown if isinstance(model.cost, BatchProfile)]
    curves = [
        points(name, cost.batch, np.array(cost.batch) / np.array(cost.latency)) for name, cost in profiles
    ]
    alone = [(model.name, _seconds(model)) for model in shown]
    bars = [(name, seconds) for name, seconds in alone if seconds]
    return [
        plot(
            "Throughput of a pass by its batch", "line", "batch (requests)", "throughput (requests/s)", curves
        ),
        plot(
            "A request alone",
            "bar",
            "",
            "pass (s)",
            [points("pass", [name for name, _ in bars], [seconds for _, seconds in bars])] if bars else [],
        ),
    ]


def _seconds(model: ScenarioModel) -> float:
    """Of a pass of one request, where the scenario itself tells it; else 0."""
    match model.cost:
        case FixedCost(seconds):
            return seconds
        case BatchProfile():
            return model.cost.at(1)
        case LayerCosts(seconds=layers):
            return sum(layers)
        case _:
            return 0.0
