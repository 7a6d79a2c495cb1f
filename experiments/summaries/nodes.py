"""A list of a cluster's nodes: how many of which devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.drawing import card, plot, points
from experiments.summaries.summary import summary
from experiments.workloads.node_list import NodeList

#: Types that the figure names; those with the most devices.
MOST_TYPES = 16


@summary.register
def _nodes(value: NodeList) -> dict[str, Any]:
    devices = _devices(value)
    cards = [card("nodes", len(value.name)), card("GPUs", int(value.gpus.sum()))]
    cards += [card("most GPUs of a node", int(value.gpus.max(initial=0)))]
    for label, column, unit in (("processors", value.cpus, ""), ("memory of hosts", value.memory, "bytes")):
        if np.isfinite(column).all():
            cards.append(card(label, float(column.sum()), unit))
    shown = devices[:MOST_TYPES]
    bars = points("GPUs", [name for name, _ in shown], [count for _, count in shown])
    return {
        "cards": cards,
        "estimates": [],
        "plots": [plot("GPUs by type", "bar", "", "GPUs", [bars])] if shown else [],
        "node_list": {"nodes": len(value.name), "devices": devices},
    }


def _devices(value: NodeList) -> list[tuple[str, int]]:
    """Types with their devices, the most first."""
    found: dict[str, int] = {}
    for kind, count in zip(value.type, value.gpus.tolist(), strict=True):
        if count:
            found[kind] = found.get(kind, 0) + count
    return sorted(found.items(), key=lambda row: (-row[1], row[0]))
