"""Compilation policies: models as each policy compiles them, next to what prices and rates of this host say.

Every policy of the registry that can be carried out here has a cell on every model. Predicted are eager and
what a policy rewrote: by the prices of their ops, each timed alone, and by a roofline whose rates were
measured. Both are of calls that nothing disturbed, so the least disturbed call is what they are compared
with. What no simulator speaks of (another compiler's kernels) is measured only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from experiments.compilation.interface.launches import LaunchPolicy, times
from experiments.core import registry
from experiments.core.differences import interval_of
from experiments.core.errors import BadInput, LabError
from experiments.core.policy import Policy
from experiments.core.progress import Progress, part
from experiments.core.spec import Outcome, load_workload
from experiments.run import run
from experiments.sources import load
from experiments.validate import numerics
from experiments.validate.cells import (
    CRASHES,
    EVERYTHING,
    SINGLE_DEVICE,
    Chosen,
    Models,
    ValidationCell,
    cell_spec,
    compare,
    left_out,
    line_of,
    standing,
)

#: On a CPU small models only, the cheapest first; on a GPU those of the other rooms too.
CONTROL_FLOW: Models = {"zoo:lstm": {"batch": 1, "sequence": 4}, "zoo:blockdrop": {"batch": 1, "image": 32}}
MODELS: dict[str, Models] = {
    "cpu": {
        "zoo:mlp": {"batch": 4},
        "zoo:gpt2-tiny": {"batch": 1, "sequence": 64},
        "zoo:blockdrop": CONTROL_FLOW["zoo:blockdrop"],
        "zoo:resnet18": {"batch": 1, "image": 64},
    },
    "cuda": {"zoo:mlp": {"batch": 256}, **SINGLE_DEVICE["cuda"], **CONTROL_FLOW},
}
#: Knobs that bound what a cell takes, wherever a policy has one of that name.
BOUNDS: dict[str, dict[str, Any]] = {
    "cpu": {"sizes": "1-4", "compare": False, "timed": False, "trials": 8, "tasks": 1, "seconds": 10.0},
    "cuda": {"trials": 16, "tasks": 1},
}
#: A policy with its knobs, further options of the workload, and what tells the cell apart.
Plan = tuple[str, dict[str, Any], dict[str, Any], str]
INDUCTOR: tuple[Plan, ...] = (
    ("torch_compile", {"mode": "reduce-overhead"}, {}, "-reduce-overhead"),
    ("torch_compile", {"mode": "max-autotune"}, {}, "-max-autotune"),
    ("torch_compile", {"freezing": True}, {}, "-freezing"),
)
VARIANTS: dict[str, tuple[Plan, ...]] = {"cpu": (), "cuda": INDUCTOR}
#: Processor seconds after which no cell is begun any more: five minutes of two cores, an hour with a GPU.
BUDGET = {"cpu": 600.0, "cuda": 3600.0}


def models(device: str) -> Models:
    return MODELS[device]


def cells(device: str, progress: Progress, chosen: Chosen = EVERYTHING) -> Iterator[ValidationCell]:
    room, began = Room(device), processor_seconds()
    grid = grid_of(device, chosen)
    for done, (model, options, plan) in enumerate(grid):
        name = plan[0] + plan[3]
        progress(done / len(grid), f"{model} {name}, {len(grid) - done} left")
        if chosen.out_of_time:
            yield left_out(model, "compilation", name)
        elif processor_seconds() - began > BUDGET[device]:
            spent = f"the {BUDGET[device]:.0f} processor seconds of this room were used up"
            yield left_out(model, "compilation", name, spent)
        else:
            yield room.cell(model, options, plan, part(progress, done / len(grid), (done + 1) / len(grid)))
    if chosen.has("triton") and chosen.of({"matmul": {}}):
        yield from numerics.cells(progress, chosen)


def grid_of(device: str, chosen: Chosen) -> list[tuple[str, Mapping[str, Any], Plan]]:
    """Models, their options and plans: numbers in fewer bits first, then every policy on every model."""
    name, options = numerics.MODELS[device]
    grid = [(name, options, plan) for plan in numerics.plans(device) if chosen.of({name: options})]
    for model, given in chosen.of(models(device)).items():
        grid += [(model, given, plan) for plan in plans(device)]
    return [row for row in grid if chosen.has(row[2][0])]


def plans(device: str) -> list[Plan]:
    """Every policy that is measured, and the variants that have cells of their own."""
    policies = registry.family_policies("compilation").values()
    measured = [policy for policy in policies if "measured" in policy.modes]
    return [*((policy.name, bounds_of(policy, device), {}, "") for policy in measured), *VARIANTS[device]]


def bounds_of(policy: type[Policy], device: str) -> dict[str, Any]:
    """The knobs of ``BOUNDS`` that the policy has."""
    known = {knob.name for knob in fields(policy)}
    return {name: value for name, value in BOUNDS[device].items() if name in known}


def processor_seconds() -> float:
    """Of this process and of those that it waited for: the same however busy the host is."""
    return sum(os.times()[:4])


@dataclass
class Room:
    """One host's cells; its rates and each model's ops are priced once."""

    device: str
    _rates: Any = None
    _eager: dict[str, list[dict[str, Any]] | None] = field(default_factory=dict)

    def cell(self, model: str, options: Mapping[str, Any], plan: Plan, progress: Progress) -> ValidationCell:
        """Carry out one cell; what cannot be is a cell too, with its reason."""
        policy, knobs, more, variant = plan
        options, clock, name = {**options, **more}, time.perf_counter(), policy + variant
        try:
            outcome = run(replace(cell_spec(model, options, "compilation", policy), knobs=knobs), progress)
            figures = with_intervals(self._figures(model, options, policy, outcome), outcome)
        except BadInput as error:
            return _without(model, name, "refused", str(error), clock)
        except LabError as error:
            return _without(model, name, "failed", str(error), clock)
        except CRASHES as error:
            return _without(model, name, "failed", line_of(error), clock)
        metrics = {metric: row["value"] for metric, row in outcome.metrics.items()}
        took, facts = time.perf_counter() - clock, facts_of(outcome)
        status = standing(outcome.status, outcome.reason)
        reason = outcome.reason or outcome.provenance.get("compilation", {}).get("untimed")
        return ValidationCell(model, "compilation", name, status, reason, figures, metrics, took, facts=facts)

    def _figures(
        self, model: str, options: Mapping[str, Any], policy: str, outcome: Outcome
    ) -> dict[str, dict[str, float | None]]:
        """Latency and speed-up, measured, next to what is predicted of the ops that were carried out."""
        notes = outcome.provenance.get("compilation", {})
        timing = notes.get("timing")
        # Prices are of the forward pass; a training step's times are of the backward pass too.
        if timing is None or notes.get("training"):
            return compare({name: row["value"] for name, row in outcome.metrics.items()}, {})
        before = self._ops(model, options) if policy == "eager" or "after" not in outcome.plan else None
        rows = before if policy == "eager" else outcome.plan.get("after")
        predicted = self._predict(rows) if rows else {}
        made = registry.create("compilation", policy, {})
        if isinstance(made, LaunchPolicy) and before:
            predicted = {"roofline_latency": self._replay_seconds(made, before)}
        seconds = outcome.plan.get("op_seconds")
        if seconds and seconds["after"]:
            predicted["speedup"] = seconds["before"] / seconds["after"]
        least = timing["ours"]["least"]
        measured = {"latency": least, "speedup": timing["ratio"]["median"]}
        if "roofline_latency" in predicted:
            measured["roofline_latency"] = least
        return compare(measured, predicted)

    def _predict(self, rows: list[dict[str, Any]]) -> dict[str, float]:
        by_prices = sum(row.get("seconds", 0.0) for row in rows)
        return {"latency": by_prices, "roofline_latency": self._live().roofline_seconds(rows, self.rates)}

    def _replay_seconds(self, policy: LaunchPolicy, rows: list[dict[str, Any]]) -> float:
        """The kernels by roofline, launched as one graph."""
        free = replace(self.rates, kernels=replace(self.rates.kernels, launch=0.0))
        kernels = [self._live().roofline_seconds([row], free) for row in rows if not row["view"]]
        return times(kernels, policy.prices.launch, policy.prices.replay).replayed

    @property
    def rates(self) -> Any:
        """This host's device with measured rates."""
        if self._rates is None:
            self._rates = self._live().calibrate_device(self.device)
        return self._rates

    def _ops(self, model: str, options: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """The model's ops with their prices; ``None`` where the data decide which ops it has."""
        if model not in self._eager:
            workload = load_workload({"source": model, "options": {**options, "training": False}})
            try:
                self._eager[model] = self._live().eager_rows(load(workload).value)
            except BadInput:
                self._eager[model] = None
        return self._eager[model]

    def _live(self) -> Any:
        return registry.load_module("compilation", "live.rates")


def with_intervals(
    figures: dict[str, dict[str, float | None]], outcome: Outcome
) -> dict[str, dict[str, float | None]]:
    """Return the figures with the ends of the intervals that measured ratios have."""
    values = {name: row["value"] for name, row in outcome.metrics.items()}
    for name, figure in figures.items():
        interval = interval_of(name, values)
        if interval is not None:
            figure |= dict(zip(("low", "high"), interval, strict=True))
    return figures


def facts_of(outcome: Outcome) -> dict[str, Any]:
    """Knobs, how the result was verified, and how busy the host was."""
    notes = outcome.provenance.get("compilation", {})
    names = (
        "bit_equal_to_eager",
        "inputs_compared",
        "max_relative_error",
        "exact_places",
        "inside_the_noise",
    )
    found = {name: notes[name] for name in names if notes.get(name) is not None}
    if "timing" in notes:
        found |= {name: notes["timing"][name] for name in ("load", "clock")}
    return {"knobs": outcome.spec["knobs"], **found}


def _without(model: str, policy: str, status: str, reason: str, clock: float) -> ValidationCell:
    return ValidationCell(model, "compilation", policy, status, reason, {}, {}, time.perf_counter() - clock)
