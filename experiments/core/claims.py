"""Whose a claim is, which runs it needs, and the verdict on what those runs gave.

Shared by the command line, which carries the runs out, and the web, which submits them and reads their rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.figures import (
    REPEATS,
    Figure,
    ends_of,
    evaluate,
    mean_of_repeats,
    names_in,
    with_noise_inside,
)
from experiments.core.metrics import is_noisy
from experiments.core.paper import MEMORY, Claim, Paper
from experiments.core.policy import Policy
from experiments.core.spec import CLOCKS, Outcome, RunSpec, load_spec
from experiments.core.verdicts import NOT_REPRODUCED, Verdict, is_met, judge

#: Closed forms by name (``experiments.estimates.CLOSED_FORMS``, a layer above this one).
Forms = Mapping[str, Callable[..., float]]


#: What the runs of one trial gave, by run and metric.
TrialFigures = Mapping[str, Mapping[str, float]]


class OwnedClaim(NamedTuple):
    """A claim with the policy it is about.

    One that names no policy belongs to the first policy of its file.
    """

    policy: type[Policy]
    paper: Paper | None
    claim: Claim


@dataclass(frozen=True)
class ClaimTrial:
    """The runs of a claim carried out once: with a seed, and with its free parameter times ``factor``."""

    seed: int
    factor: float
    specs: Mapping[str, RunSpec]

    @property
    def label(self) -> str:
        """Return what stands behind a run's name: nothing, ``#1`` for a repeat, ``@0.5`` for half."""
        return (f"#{self.seed}" if self.seed else "") + (f"@{self.factor:g}" if self.factor != 1 else "")


def chosen_claims(family: str | None, policy: str | None) -> list[OwnedClaim]:
    """Every claim of the chosen policies, each once. ``BadInput`` for a policy that does not exist."""
    if policy is not None and not any(policy == entry.name for entry in registry.all_policies()):
        registry.refuse_broken(family, policy)
        raise BadInput(f"unknown policy {policy!r}", "--policy", "a name that `list` prints")
    rows: list[OwnedClaim] = []
    seen: set[tuple[str, str]] = set()
    for entry in registry.all_policies():
        if family not in (None, entry.family) or policy not in (None, entry.name):
            continue
        sheet = registry.sheet(entry)
        for claim in sheet.claims:
            first = (entry.__module__, claim.id)
            if first in seen:
                continue
            seen.add(first)
            rows.append(OwnedClaim(entry, sheet.paper, claim))
    return rows


def claim_specs(policy: type[Policy], claim: Claim) -> dict[str, RunSpec]:
    """The RunSpecs of a claim's runs; family and policy are the claim's own unless a run names others."""
    return _specs(policy, claim.runs)


def _specs(policy: type[Policy], runs: Mapping[str, Mapping[str, Any]], seed: int = 0) -> dict[str, RunSpec]:
    own = {"family": policy.family, "policy": policy.name, "seed": seed}
    return {name: load_spec({**own, **row}) for name, row in runs.items()}


def claim_trials(policy: type[Policy], claim: Claim) -> list[ClaimTrial]:
    """Return everything that the verdict on a claim may need, what is judged first in front.

    A figure with noise is repeated with other seeds; a stand-in stands at half and double of its free
    parameter as well.
    """
    first = [ClaimTrial(0, 1.0, claim_specs(policy, claim))]
    if is_measured_with_noise(claim):
        first += [ClaimTrial(seed, 1.0, _specs(policy, claim.runs, seed)) for seed in range(1, REPEATS)]
    return first + [
        ClaimTrial(0, factor, _specs(policy, scaled_runs(claim, factor))) for factor in factors(claim)
    ]


def factors(claim: Claim) -> tuple[float, ...]:
    """Return by what a stand-in's free parameter is multiplied for its second and third figure."""
    return (0.5, 2.0) if claim.proxy and claim.free else ()


def is_measured_with_noise(claim: Claim) -> bool:
    """Return whether the claim's figure names what a clock of this host gave."""
    modes = {name: str(row.get("mode", "simulated")) for name, row in claim.runs.items()}
    return any(is_noisy(name, modes[run]) for run, name in names_in(claim.figure) if run in modes)


def scaled_runs(claim: Claim, factor: float) -> dict[str, dict[str, Any]]:
    """Return the claim's runs with its free parameters multiplied.

    ``BadInput`` for an option that a run lacks or that has no half, and for memory that no run names.
    """
    scaled = {name: copy.deepcopy(dict(row)) for name, row in claim.runs.items()}
    for parameter in claim.free:
        if parameter == MEMORY:
            _scale_memory(claim, scaled, factor)
            continue
        for row in scaled.values():
            options = row["workload"].get("options", {})
            options[parameter] = _multiply(claim, parameter, options.get(parameter), factor)
    return scaled


def _multiply(claim: Claim, parameter: str, value: Any, factor: float) -> int:
    if not isinstance(value, int) or value * factor != int(value * factor):
        raise BadInput(f"{parameter} {value} has no half", f"claim {claim.id}", "an even number")
    return int(value * factor)


def _scale_memory(claim: Claim, scaled: Mapping[str, dict[str, Any]], factor: float) -> None:
    """Multiply the devices' memory in the runs that name it; the others have enough, or all of a device."""
    named = [_overrides(row.get("hardware")) for row in scaled.values()]
    if not any("memory_bytes" in overrides for overrides in named):
        raise BadInput("no run names memory_bytes", f"claim {claim.id}", "a capacity to vary")
    for overrides in named:
        if "memory_bytes" in overrides:
            overrides["memory_bytes"] *= factor


def _overrides(hardware: Any) -> dict[str, Any]:
    if not isinstance(hardware, dict):
        return {}
    overrides = hardware.get("cluster", hardware).get("overrides", {})
    return overrides if isinstance(overrides, dict) else {}


class RunFigures(dict[str, float]):
    """What a figure can name of a run, by name, and ``reason``: why it has no more."""

    reason = ""


def figure_metrics(outcome: Outcome) -> RunFigures:
    """Return what a figure can name of a run: metrics, what planning took here, and ``feasible`` (1 or 0)."""
    values = {name: float(entry["value"]) for name, entry in outcome.metrics.items()}
    is_ok = outcome.status == "ok"
    found = RunFigures({**values, **clocks_of(outcome.provenance), "feasible": float(is_ok)})
    found.reason = "" if is_ok else f"{outcome.status}: {outcome.reason}"
    return found


def clocks_of(provenance: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds that planning took on the host of the run.

    They are provenance and no metric of a simulated run.
    """
    return {name: float(seconds) for name, seconds in provenance.get(CLOCKS, {}).items()}


def closed_forms(claim: Claim, known: Forms) -> dict[str, dict[str, float]]:
    """Return what a figure can name of the claim's closed forms: their ``value``.

    ``BadInput`` names an unknown one.
    """
    found = {}
    for name, row in claim.forms.items():
        arguments = dict(row)
        form = str(arguments.pop("form", None))
        if form not in known:
            raise BadInput(f"unknown form {form!r}", f"claim {claim.id}", "one of " + ", ".join(known))
        found[name] = {"value": float(known[form](**arguments))}
    return found


def judge_trials(claim: Claim, found: Sequence[TrialFigures | None], known: Forms) -> Verdict:
    """Return the verdict on what a claim's trials gave, in the order of ``claim_trials``.

    ``None`` for a trial that was not carried out, so that a stand-in counts as not varied; a metric that a
    run lacks means it did not fit. ``known`` are the closed forms that a claim may name.
    """
    count = len(found) - len(factors(claim))
    figures = [None if metrics is None else _figure_of(claim, metrics, known) for metrics in found]
    for figure in figures[:count]:
        if isinstance(figure, str):
            return Verdict(NOT_REPRODUCED, figure)
    ours = _mean_figure(claim, found[:count], known)
    complete = all(figure is not None for figure in figures[count:])
    varied = [_single_figure(claim, metrics, known) for metrics in found[count:] if metrics is not None]
    return judge(claim, ours, varied if complete else [], is_measured_with_noise(claim))


def needs_variation(claim: Claim, found: Sequence[TrialFigures], known: Forms) -> bool:
    """Return whether the verdict depends on half and double: the figure itself is within the tolerance."""
    figures = [_figure_of(claim, metrics, known) for metrics in found]
    numbers = [figure for figure in figures if isinstance(figure, float)]
    if not factors(claim) or len(numbers) < len(found):
        return False
    return is_met(claim, _mean_figure(claim, found, known))


def _mean_figure(claim: Claim, found: Sequence[TrialFigures | None], known: Forms) -> Figure:
    """Return the mean over the repeats; its interval is the wider of theirs and that of the repeats."""
    carried = [{**metrics, **closed_forms(claim, known)} for metrics in found if metrics is not None]
    ours = mean_of_repeats([evaluate(claim.figure, metrics) for metrics in carried], claim.unit == "ratio")
    return with_noise_inside(ours, [ends_of(claim.figure, metrics) for metrics in carried])


def _single_figure(claim: Claim, metrics: TrialFigures, known: Forms) -> Figure | None:
    """Return the figure of a single trial, with the interval that it has of itself."""
    value = _figure_of(claim, metrics, known)
    if isinstance(value, str):
        return None
    ends = ends_of(claim.figure, {**metrics, **closed_forms(claim, known)})
    return Figure(value) if ends is None else Figure(value, *ends)


def _figure_of(claim: Claim, metrics: TrialFigures, known: Forms) -> float | str:
    """Return the figure of a trial, or why there is none."""
    try:
        return evaluate(claim.figure, {**metrics, **closed_forms(claim, known)})
    except KeyError as error:
        lacking = (run for run, name in names_in(claim.figure) if name not in metrics.get(run, {}))
        reasons = (getattr(metrics.get(run), "reason", "") for run in lacking)
        return f"a run gave no {error.args[0]}: {next(filter(None, reasons), 'it has none')}"
    except ZeroDivisionError:
        return "the figure divides by zero"
