"""``claims``: what the papers say, what we get, and the verdict."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from experiments.commands.output import json_option, progress_of, progress_option, table, write_json
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.paper import Claim, Paper, Verdict, evaluate, judge
from experiments.core.policy import FAMILIES, Policy
from experiments.core.progress import Progress, part
from experiments.core.spec import Outcome, RunSpec, load_spec
from experiments.core.units import significant
from experiments.run import run


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("claims", help="the papers' claims with our figure and verdict")
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--policy")
    parser.add_argument("--run", action="store_true", help="carry out the runs that the claims need")
    json_option(parser)
    progress_option(parser)
    parser.set_defaults(call=call)


def chosen_claims(family: str | None, policy: str | None) -> list[tuple[type[Policy], Paper | None, Claim]]:
    """Every claim of the chosen policies; one that names no policy belongs to the first policy of its file."""
    rows, seen = [], set()
    for entry in registry.all_policies():
        sheet = registry.sheet(entry)
        for claim in sheet.claims:
            first = (entry.__module__, claim.id)
            if first in seen or family not in (None, entry.family) or policy not in (None, entry.name):
                continue
            seen.add(first)
            rows.append((entry, sheet.paper, claim))
    if policy is not None and not any(policy == entry.name for entry in registry.all_policies()):
        raise BadInput(f"unknown policy {policy!r}", "--policy", "a name that `list` prints")
    return rows


def claim_specs(policy: type[Policy], claim: Claim) -> dict[str, RunSpec]:
    """The RunSpecs of a claim's runs; family and policy are the claim's own unless a run names others."""
    own = {"family": policy.family, "policy": policy.name}
    return {name: load_spec({**own, **row}) for name, row in claim.runs.items()}


def figure_metrics(outcome: Outcome) -> dict[str, float]:
    """What a figure can name of a run: its metrics, and ``feasible`` (1 or 0)."""
    values = {name: float(entry["value"]) for name, entry in outcome.metrics.items()}
    return {**values, "feasible": float(outcome.status == "ok")}


def check(policy: type[Policy], claim: Claim, progress: Progress) -> Verdict:
    """Carry out the claim's runs and judge our figure."""
    specs = claim_specs(policy, claim)
    metrics: dict[str, Mapping[str, float]] = {}
    for done, (name, spec) in enumerate(specs.items()):
        outcome = run(spec, part(progress, done / len(specs), (done + 1) / len(specs)))
        metrics[name] = figure_metrics(outcome)
    try:
        ours = evaluate(claim.figure, metrics)
    except KeyError as error:
        return Verdict(
            "not reproduced", f"a run gave no {error.args[0]}: does not fit on the paper's hardware"
        )
    except ZeroDivisionError:
        return Verdict("not reproduced", "the figure divides by zero")
    return judge(claim, ours)


def verdict_of(policy: type[Policy], claim: Claim, carry_out: bool, progress: Progress) -> Verdict:
    if claim.not_run:
        return Verdict("not run", claim.not_run)
    if not carry_out:
        return Verdict("not run", "pass --run to carry it out")
    try:
        return check(policy, claim, progress)
    except BadInput as error:
        return Verdict("not run", str(error))


def row_of(policy: type[Policy], paper: Paper | None, claim: Claim, verdict: Verdict) -> dict[str, Any]:
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
    chosen = chosen_claims(arguments.family, arguments.policy)
    progress, rows = progress_of(arguments), []
    for done, (policy, paper, claim) in enumerate(chosen):
        own = part(progress, done / len(chosen), (done + 1) / len(chosen))
        rows.append(row_of(policy, paper, claim, verdict_of(policy, claim, arguments.run, own)))
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
