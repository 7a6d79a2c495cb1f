"""What a run was asked for, flat: the columns in which the runs of a comparison may differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.cluster.interface import ClusterPolicy
from experiments.core import registry
from experiments.core.units import human
from webapp.presentation import pretty
from webapp.runs.grid import LOCAL
from webapp.runs.models import Run

#: What makes repeats of one run: they are folded over it.
SEED = "seed"
#: What training keeps for a parameter: of the runs that got as far as a step.
STATES = "model_states"
WORKLOAD = "workload"
#: What a scheduler must know of jobs before it can be used at all.
MUST_KNOW, NOTHING = "must_know", "nothing"
#: What users seldom know of jobs beforehand, as it is called in a sentence. Whose a job is, what it is called
#: and how important it is are told when it is submitted.
KNOWLEDGE = {
    "service": "how long jobs run",
    "deadline": "deadlines",
    "throughput": "how fast jobs run on what",
    "gradients": "how their gradients change",
    "losses": "their losses",
    "utilization": "how much of their devices they use",
}
#: Of these a scheduler that may look at one depends on it; others it depends on where it says so.
DECISIVE = frozenset({"service", "throughput", "gradients"})
#: What a policy chooses for itself where nothing was asked.
PRECISION = "option.precision"


def parameters_of(run: Run) -> dict[str, Any]:
    """Parameters by key: ``policy``, ``workload``, ``hardware``, ``mode``, ``seed``, ``knob.lookahead`` ...

    An option that was left to its default is absent, as is a knob that the policy does not have.
    """
    spec = run.spec
    options = (spec.get("workload") or {}).get("options") or {}
    return {
        WORKLOAD: str(run.artifact) if run.artifact else (spec.get("workload") or {}).get("source"),
        "family": run.family,
        "policy": run.policy,
        **_hardware(run),
        "mode": run.mode,
        SEED: run.seed,
        **{f"option.{name}": value for name, value in options.items() if value is not None},
        **{f"knob.{name}": value for name, value in (spec.get("knobs") or {}).items()},
        **({STATES: run.model_states} if run.model_states else {}),
        **({MUST_KNOW: _knowledge(run)} if run.family == "cluster" else {}),
    }


def _knowledge(run: Run) -> str:
    """What the scheduler is told of jobs beyond their submission and their GPUs, in words."""
    policy = registry.family_policies("cluster").get(run.policy)
    if policy is None or not issubclass(policy, ClusterPolicy):
        return NOTHING
    known = policy.needs | (policy.sees & DECISIVE)
    return " and ".join(words for column, words in KNOWLEDGE.items() if column in known) or NOTHING


def _hardware(run: Run) -> dict[str, Any]:
    """A device or node with its overrides, or a cluster, one key per field; node groups stay one word."""
    value = run.spec.get("hardware")
    if isinstance(value, str):
        return {"hardware": _device(run, value)}
    if not isinstance(value, Mapping):
        return {"hardware": run.hardware}
    fields = value.get("cluster", value)
    if not isinstance(fields, Mapping):
        return {"hardware": run.hardware}
    rest = {name: v for name, v in fields.items() if name not in ("device", "node", "overrides")}
    overrides = fields.get("overrides") or {}
    named = {"hardware": _device(run, fields.get("node") or fields.get("device", run.hardware))}
    return named | {f"hardware.{name}": v for name, v in {**rest, **overrides}.items()}


def _device(run: Run, name: str) -> str:
    """A measured run tells its host instead."""
    return run.host.name if name == LOCAL and run.host else name


def label_of(key: str) -> str:
    """``knob.swap_threshold`` -> ``swap threshold``."""
    return key.rsplit(".", 1)[-1].replace("_", " ")


#: Endings of hardware overrides and the unit of their figures.
_UNITS = {"bytes": "bytes", "bandwidth": "bytes/s", "latency": "s", "flops": "FLOP/s"}


def shown_value(key: str, value: Any) -> str:
    """A parameter as people read it: a hardware figure in its unit, everything else as it was asked for."""
    unit = _UNITS.get(key.rsplit("_", 1)[-1]) if key.startswith("hardware.") else None
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    return human(value, unit) if unit and is_figure else pretty(value)
