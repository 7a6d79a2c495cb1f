"""A graph of layers: times and bytes of each."""

from __future__ import annotations

from typing import Any

from experiments.summaries.drawing import card, plot, points, sample
from experiments.summaries.summary import summary
from experiments.workloads.layers import LayerGraph


@summary.register
def _layers(value: LayerGraph) -> dict[str, Any]:
    cards = [
        card("layers", len(value)),
        card("batch", value.batch),
        card("parameters", float(value.parameter_bytes.sum()), "bytes"),
        card("activations kept", float(value.stash_bytes.sum()), "bytes"),
        card("FLOPs of a step", value.flops, "FLOP"),
    ]
    shown, total = sample(len(value))
    text = [value.layer[i] for i in shown]
    times = [
        points("forward", shown, value.forward_seconds[shown], text),
        points("backward", shown, value.backward_seconds[shown], text),
    ]
    plots = (
        [plot("Time of each layer", "bar", "layer", "time (s)", times, sampled=total)]
        if value.timing != "none"
        else []
    )
    sizes = [points("parameters", shown, value.parameter_bytes[shown], text)]
    sizes.append(points("activations kept", shown, value.stash_bytes[shown], text))
    plots.append(plot("Bytes of each layer", "bar", "layer", "size (bytes)", sizes, sampled=total))
    return {"cards": cards, "estimates": [], "plots": plots}
