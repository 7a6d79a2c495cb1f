"""Engines of published simulators, each with its own clock, costs and ways of counting.

A module is named by what the knob ``rules`` calls it and has ``simulate`` with the arguments of the lab's own
engine. What it counts in a way of its own stands in the plan's ``figures``, what nobody else allows in its
``quirks``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from experiments.cluster.interface import ClusterPlan
from experiments.cluster.interface.policy import OWN
from experiments.cluster.simulator.engine import simulate


def engine_of(rules: str) -> Callable[..., ClusterPlan]:
    """Return ``simulate`` of the engine that ``rules`` names."""
    if rules == OWN:
        return simulate
    found: Callable[..., ClusterPlan] = importlib.import_module(
        f"experiments.cluster.simulator.releases.{rules}"
    ).simulate
    return found
