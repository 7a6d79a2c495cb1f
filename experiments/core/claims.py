"""Whose a claim is, which runs it needs, and the verdict on what those runs gave.

Shared by the command line, which carries the runs out, and the web, which submits them and reads their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.paper import Claim, Paper, Verdict, evaluate, judge
from experiments.core.policy import Policy
from experiments.core.spec import CLOCKS, Outcome, RunSpec, load_spec

#: Closed forms by name (``experiments.estimates.CLOSED_FORMS``, a layer above this one).
Forms = Mapping[str, Callable[..., float]]


class OwnedClaim(NamedTuple):
    """A claim with the policy it is about.

    One that names no policy belongs to the first policy of its file.
    """

    policy: type[Policy]
    paper: Paper | None
    claim: Claim


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
    own = {"family": policy.family, "policy": policy.name}
    return {name: load_spec({**own, **row}) for name, row in claim.runs.items()}


def figure_metrics(outcome: Outcome) -> dict[str, float]:
    """Return what a figure can name of a run, by name.

    Its metrics, what its planning took here, and ``feasible`` (1 or 0).
    """
    values = {name: float(entry["value"]) for name, entry in outcome.metrics.items()}
    return {**values, **clocks_of(outcome.provenance), "feasible": float(outcome.status == "ok")}


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


def judge_runs(claim: Claim, metrics: Mapping[str, Mapping[str, float]], known: Forms) -> Verdict:
    """The verdict on what the claim's runs gave, by run name; a metric that a run lacks means it did not fit.

    ``known`` are the closed forms that a claim may name.
    """
    try:
        ours = evaluate(claim.figure, {**metrics, **closed_forms(claim, known)})
    except KeyError as error:
        return Verdict(
            "not reproduced", f"a run gave no {error.args[0]}: does not fit on the paper's hardware"
        )
    except ZeroDivisionError:
        return Verdict("not reproduced", "the figure divides by zero")
    return judge(claim, ours)
