"""``claims``: what the papers say, what we get, and the verdict."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from experiments.commands.output import (
    json_option,
    print_broken,
    progress_of,
    progress_option,
    table,
    write_json,
)
from experiments.core.claims import OwnedClaim, chosen_claims, claim_specs, figure_metrics, judge_runs
from experiments.core.errors import BadInput
from experiments.core.paper import Claim, Verdict
from experiments.core.policy import FAMILIES, Policy
from experiments.core.progress import Progress, part
from experiments.core.units import significant
from experiments.estimates import CLOSED_FORMS
from experiments.run import run


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("claims", help="the papers' claims with our figure and verdict")
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--policy")
    parser.add_argument("--run", action="store_true", help="carry out the runs that the claims need")
    json_option(parser)
    progress_option(parser)
    parser.set_defaults(call=call)


def check(policy: type[Policy], claim: Claim, progress: Progress) -> Verdict:
    """Carry out the claim's runs and judge our figure."""
    specs = claim_specs(policy, claim)
    metrics: dict[str, Mapping[str, float]] = {}
    for done, (name, spec) in enumerate(specs.items()):
        outcome = run(spec, part(progress, done / len(specs), (done + 1) / len(specs)))
        metrics[name] = figure_metrics(outcome)
    return judge_runs(claim, metrics, CLOSED_FORMS)


def verdict_of(policy: type[Policy], claim: Claim, carry_out: bool, progress: Progress) -> Verdict:
    if claim.not_run:
        return Verdict("not run", claim.not_run)
    if not carry_out:
        return Verdict("not run", "pass --run to carry it out")
    try:
        return check(policy, claim, progress)
    except BadInput as error:
        return Verdict("not run", str(error))


def row_of(owned: OwnedClaim, verdict: Verdict) -> dict[str, Any]:
    policy, paper, claim = owned.policy, owned.paper, owned.claim
    return {
        "family": policy.family,
        "policy": claim.policy or policy.name,
        "paper": paper.key if paper else None,
        "claim": claim.id,
        "text": claim.text,
        "where": claim.where,
        "value": claim.value,
        "unit": claim.unit,
        "tolerance": claim.tolerance,
        "ours": verdict.ours,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
    }


def call(arguments: argparse.Namespace) -> None:
    print_broken(arguments.family)
    chosen = chosen_claims(arguments.family, arguments.policy)
    progress, rows = progress_of(arguments), []
    for done, owned in enumerate(chosen):
        own = part(progress, done / len(chosen), (done + 1) / len(chosen))
        verdict = verdict_of(owned.policy, owned.claim, arguments.run, own)
        rows.append(row_of(owned, verdict))
    if arguments.json:
        return write_json(rows)
    cells = [
        (r["policy"], r["claim"], _number(r["value"]), _number(r["ours"]), r["verdict"], r["reason"])
        for r in rows
    ]
    print(table(("policy", "claim", "paper", "ours", "verdict", "why"), cells))
    return None


def _number(value: float | None) -> str:
    return "-" if value is None else significant(value)
