"""Speeds by device type for jobs written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.cluster.interface import Machines
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType

MODELS = ("small", "middle", "large")
SIZES = range(1, 9)


def profiles_for(trace: JobTrace, machines: Machines) -> JobTrace:
    """The trace with models in turn, two steps for each second on its devices, and a table of their speeds.

    A type's speed falls with its place in the alphabet; pairs run at 0.7 and 0.4 of their speeds.
    """
    model = tuple(MODELS[job % len(MODELS)] for job in range(len(trace)))
    variants = [(name, size) for name in MODELS for size in SIZES]
    compact = {}
    for place, kind in enumerate(machines.types):
        alone = dict.fromkeys(variants, 2.0 / (1 + place))
        pairs = {(a, b): (0.7 * alone[a], 0.4 * alone[b]) for a in variants for b in variants if a[1] == b[1]}
        compact[kind] = SpeedsOfType(alone, pairs)
    traits = {**trace.traits, "iterations": np.asarray(trace.service) * 2.0}
    return replace(trace, model=model, traits=traits, profiles=DeviceSpeeds("by hand", compact, {}))
