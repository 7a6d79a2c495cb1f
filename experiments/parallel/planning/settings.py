"""What a spec leaves open is settled for its model and cluster, by one rule for every policy.

A policy with open knobs yields rounds of settings (``ParallelPolicy.settings``): what it would rather have
first, then what needs less memory. Of the first round of which anything fits the devices, the setting with
the shortest simulated step is taken, the first of equals. Knobs that a spec names are never changed. Where
nothing fits, the setting that lacks least says by how much.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from experiments.core.errors import BadInput, Infeasible
from experiments.core.progress import part
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, PlanningEstimate
from experiments.parallel.interface.open_counts import doubling
from experiments.workloads.layers import LayerGraph

P = TypeVar("P", bound=ParallelPolicy)


@dataclass(frozen=True)
class Setting:
    """A setting that was tried: its plan and step, or why there is none.

    ``knobs`` are the values of those that the spec leaves open.
    """

    knobs: Mapping[str, Any]
    plan: ParallelPlan | None = None
    step_time: float = float("inf")
    refusal: BadInput | Infeasible | None = None

    def to_json(self) -> dict[str, Any]:
        ending = {"refused": str(self.refusal)} if self.refusal else {"step_time": self.step_time}
        return {**self.knobs, **ending}


@dataclass(frozen=True)
class Settled:
    """The plan that was taken, the values of what the spec leaves open, and all settings that were tried."""

    plan: ParallelPlan
    knobs: Mapping[str, Any]
    tried: tuple[Setting, ...] = ()

    @property
    def notes(self) -> dict[str, Any]:
        """What a run says of it; nothing where its spec leaves nothing open."""
        if not self.knobs:
            return {}
        return {"settled": dict(self.knobs), "tried": [setting.to_json() for setting in self.tried]}


def settle(
    policy: ParallelPolicy, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
) -> Settled:
    """Return the plan of ``policy`` with its open knobs settled.

    A policy that leaves nothing open is asked for its plan, and nothing is simulated.
    """
    rounds = _distinct(policy.settings(model, cluster, batch, estimate))
    if sum(map(len, rounds)) == 1:
        only = rounds[0][0]
        return Settled(only.place(model, cluster, batch, estimate), _settled_values(policy, only))
    tried: list[Setting] = []
    for number, settings in enumerate(rounds):
        reporting = part(estimate.progress, number / len(rounds), (number + 1) / len(rounds))
        own = replace(estimate, progress=reporting)
        found = [_try(policy, setting, model, cluster, batch, own) for setting in settings]
        tried += found
        best = min(found, key=lambda setting: setting.step_time)
        if best.plan is not None:
            return Settled(best.plan, best.knobs, tuple(tried))
    raise _closest(tried)


def _distinct(rounds: Iterable[Sequence[ParallelPolicy]]) -> list[list[ParallelPolicy]]:
    """Each setting once, in the first round that has it."""
    seen: set[ParallelPolicy] = set()
    found = []
    for settings in rounds:
        new = [setting for setting in dict.fromkeys(settings) if setting not in seen]
        seen.update(new)
        found += [new] if new else []
    return found


def _try(
    policy: ParallelPolicy,
    setting: ParallelPolicy,
    model: LayerGraph,
    cluster: Hardware,
    batch: int,
    estimate: PlanningEstimate,
) -> Setting:
    knobs = _settled_values(policy, setting)
    try:
        plan = setting.place(model, cluster, batch, estimate)
        return Setting(knobs, plan, estimate.evaluate(plan).step_time / plan.steps)
    except (BadInput, Infeasible) as refusal:
        return Setting(knobs, refusal=refusal)


def _settled_values(policy: ParallelPolicy, setting: ParallelPolicy) -> dict[str, Any]:
    asked = policy.knob_values()
    return {name: value for name, value in setting.knob_values().items() if value != asked[name]}


def _closest(tried: Sequence[Setting]) -> BadInput | Infeasible:
    """The refusal of the setting that lacks least memory; of the first where none is for want of it."""
    lacking = [one for one in tried if isinstance(one.refusal, Infeasible) and one.refusal.missing]
    if not lacking:
        assert tried[0].refusal is not None
        return tried[0].refusal
    closest = min(lacking, key=_missing)
    said = ", ".join(f"{name} {value}" for name, value in closest.knobs.items())
    return Infeasible(
        str(closest.refusal), f"the leanest of {len(tried)} settings ({said})", _missing(closest)
    )


def _missing(setting: Setting) -> float:
    missing = setting.refusal.missing if isinstance(setting.refusal, Infeasible) else None
    return float("inf") if missing is None else missing


def grid(policy: P, **values: Sequence[Any]) -> Iterator[list[P]]:
    """Yield one round: every combination of ``values`` of the knobs that ``policy`` leaves open."""
    axes = [
        entries if getattr(policy, name) is None else (getattr(policy, name),)
        for name, entries in values.items()
    ]
    rows = [dict(zip(values, row, strict=True)) for row in itertools.product(*axes)]
    yield [replace(policy, **row) for row in rows]


def parts_that_may_fit(policy: P, samples: int, estimate: PlanningEstimate) -> Iterator[list[P]]:
    """Yield a round for each number of parts of a batch on all devices at once, where they may fit.

    Fewer never do: what they need does not even fit if every tensor is divided among all devices.
    """
    counts = doubling(samples)
    least = next((count for count in counts if _leanest_share(estimate, samples / count) <= 1), counts[-1])
    return accumulations(policy, samples, least)


def _leanest_share(estimate: PlanningEstimate, samples: float) -> float:
    """The share of all memory that states and what is kept of ``samples`` take."""
    model = estimate.model
    states = float(estimate.layer_parameters.sum()) * estimate.states.total
    kept = float(model.stash_bytes.sum()) / model.batch * samples * (1 + estimate.fragmentation)
    return (states + kept) / sum(device.memory_bytes - estimate.reserved_bytes for device in estimate.devices)


def accumulations(policy: P, samples: int, least: int = 1) -> Iterator[list[P]]:
    """Yield a round for each number of equal micro-batches of ``samples``, so that as few are made as fit."""
    if policy.knob_values().get("micro_batches", 0) is not None:
        yield [policy]
        return
    for count in doubling(samples, least):
        yield from grid(policy, micro_batches=(count,))
