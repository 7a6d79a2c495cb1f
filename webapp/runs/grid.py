"""From what the form asks for to the list of runs: artifacts x hardware x policies x knobs x
modes x seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.options import OF_TRACES
from experiments.core.policy import Policy
from experiments.core.reading import refuse_unreadable
from webapp.artifacts.models import Artifact
from webapp.artifacts.step_options import spell_out_options

#: Families whose hardware is a cluster of nodes; the others take one device.
ON_CLUSTERS = ("parallel", "cluster")
#: Families whose runs send data between nodes: what was assumed of adapters changes their figures.
NETWORKED = ("parallel", "serving")
MOST_RUNS = 2000
#: Kinds of workload that are no model's step.
TRACES = ("jobs", "requests")
#: The device of a measured run: that of the host which carries it out.
LOCAL = "local"


@dataclass(frozen=True)
class Grid:
    """The axes. ``knobs`` gives the chosen values by policy (``family/name``) and knob; empty axes mean
    defaults.

    ``devices`` are sheet names, ``overrides`` values by override name, ``cluster`` the cluster object or
    ``None``, ``node_lists`` clusters that lists of nodes describe, instead of it. ``described`` is the
    hardware field of a spec as it is: simulated runs take it instead of all of these.
    """

    artifacts: Sequence[Artifact]
    policies: Sequence[str]
    devices: Sequence[str] = ()
    overrides: Mapping[str, Sequence[float]] = field(default_factory=dict)
    cluster: Mapping[str, Any] | None = None
    described: Any = None
    node_lists: Sequence[Mapping[str, str]] = ()
    knobs: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    modes: Sequence[str] = ("simulated",)
    needs: str = "cpu"
    seeds: Sequence[int] = (0,)


@dataclass(frozen=True)
class Trial:
    """One run to be: its artifact, its spec (workload source left to the submission) and the device kind it
    needs.
    """

    artifact: Artifact
    spec: Mapping[str, Any]
    needs: str


@dataclass(frozen=True)
class Expansion:
    """The runs, and in words which combinations make no sense and were left out."""

    trials: tuple[Trial, ...]
    left_out: tuple[str, ...]


def combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every choice of one value per axis; an empty axis is left out."""
    filled = {name: values for name, values in axes.items() if values}
    for values in itertools.product(*filled.values()):
        yield dict(zip(filled, values, strict=True))


def expand(grid: Grid) -> Expansion:
    """Every run with all its knobs spelled out; ``BadInput`` names knobs that do not go together."""
    trials: list[Trial] = []
    left_out: list[str] = []
    for artifact, policy in itertools.product(grid.artifacts, grid.policies):
        family, name = policy.split("/", 1)
        for mode in grid.modes:
            if reason := _why_not(artifact, registry.policy_class(family, name), mode):
                left_out.append(reason)
                continue
            left_out.extend(_options_without_meaning(artifact, grid.options))
            trials.extend(_trials(grid, artifact, family, name, mode))
            if len(trials) > MOST_RUNS:
                return Expansion(tuple(trials), tuple(dict.fromkeys(left_out)))
    return Expansion(tuple(trials), tuple(dict.fromkeys(left_out)))


def _options_without_meaning(artifact: Artifact, options: Iterable[str]) -> list[str]:
    """In words, for each option that a trace does not have."""
    others = [name for name in options if artifact.kind in TRACES and name not in OF_TRACES]
    return [
        f"{name.replace('_', ' ')} is left out for {artifact}: a trace has no such option" for name in others
    ]


def _why_not(artifact: Artifact, policy: type[Policy], mode: str) -> str:
    """Why the policy has no such run on the artifact; empty where it has."""
    if mode not in policy.modes:
        return f"{policy.name} cannot be {mode}"
    try:
        refuse_unreadable(policy, mode, artifact.kind, str(artifact))
    except BadInput as error:
        return f"{policy.name} cannot be {mode} on {error}"
    return ""


def _trials(grid: Grid, artifact: Artifact, family: str, name: str, mode: str) -> Iterator[Trial]:
    axes = itertools.product(
        _hardware(grid, family, mode),
        combinations(_options_of(artifact, grid.options)),
        combinations(grid.knobs.get(f"{family}/{name}", {})),
        grid.seeds,
    )
    for hardware, options, knobs, seed in axes:
        policy = registry.create(family, name, knobs)
        told = spell_out_options(artifact, options, policy.fp32_gradients)
        spec = {
            "family": family,
            "policy": name,
            "knobs": policy.knob_values(),
            "workload": {"format": "auto", "options": told},
            "hardware": hardware,
            "mode": mode,
            "seed": seed,
        }
        yield Trial(artifact, spec, grid.needs if mode == "measured" else "")


def _options_of(artifact: Artifact, options: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    if artifact.kind not in TRACES:
        return options
    return {name: values for name, values in options.items() if name in OF_TRACES}


def _hardware(grid: Grid, family: str, mode: str) -> Iterator[Any]:
    """The hardware field of each run: this host when measured, a cluster or devices when simulated; with
    overrides.
    """
    if mode == "measured":
        for overrides in combinations(grid.overrides):
            yield {"device": LOCAL, "overrides": overrides} if overrides else LOCAL
    elif grid.described:
        yield grid.described
    elif grid.node_lists and family == "cluster":
        yield from grid.node_lists
    elif family in ON_CLUSTERS:
        yield {"cluster": dict(grid.cluster or {})}
    else:
        for device in grid.devices:
            for overrides in combinations(grid.overrides):
                yield {"device": device, "overrides": overrides} if overrides else device
