"""``claims``: what the papers say, what we get, and the verdict, each as it comes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.commands.claim_checks import ClaimChecks
from experiments.commands.claim_rows import rows_for
from experiments.commands.output import json_option, print_broken, progress_of, progress_option, write_json
from experiments.core.claim_evidence import (
    ClaimEvidence,
    claim_row,
    count_verdicts,
    counts_in_words,
    key_of,
    load_evidence,
    shown_row,
)
from experiments.core.claims import OwnedClaim, chosen_claims
from experiments.core.errors import BadInput
from experiments.core.policy import FAMILIES, MODES
from experiments.core.progress import weighted_parts
from experiments.core.verdicts import CANNOT, NOT_RUN, Verdict
from experiments.run import host, versions

#: What a shell expects of a command that Ctrl-C ended.
INTERRUPTED = 130
#: What a claim is taken to last of which no file says how long it took, in seconds.
TYPICAL_SECONDS = 5.0


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("claims", help="the papers' claims with our figure and verdict")
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--policy")
    parser.add_argument("--run", action="store_true", help="carry out the runs that the claims need")
    parser.add_argument("--mode", choices=MODES, help="with --run: only claims whose runs are all of it")
    parser.add_argument("--out", type=Path, help="evidence file, written anew after each verdict")
    parser.add_argument(
        "--resume", action="store_true", help="keep what --out says of claims that have not changed"
    )
    json_option(parser)
    progress_option(parser)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    if arguments.out and not arguments.run:
        raise BadInput("nothing is carried out", "--out", "with --run")
    if arguments.resume and not arguments.out:
        raise BadInput("names no file", "--resume", "with --out FILE")
    print_broken(arguments.family)
    chosen = chosen_claims(arguments.family, arguments.policy)
    rows = rows_for(arguments.json)
    try:
        for row in _rows(arguments, chosen):
            rows.add(row)
    except KeyboardInterrupt:
        return _say_stopped(arguments.out)
    finally:
        rows.end()
        print(counts_in_words(count_verdicts(rows.shown)), file=sys.stderr)
    return 0


def _rows(arguments: argparse.Namespace, chosen: Sequence[OwnedClaim]) -> Iterator[dict[str, Any]]:
    """Yield each claim's row, once the evidence file has it."""
    if not arguments.run:
        for owned in chosen:
            verdict = _without_runs(owned, "pass --run to carry it out")
            yield shown_row(owned, claim_row(owned, verdict))
        return
    before, evidence = _evidence(arguments, chosen)
    if arguments.out:
        write_json(evidence.to_json(), arguments.out)
    checks = ClaimChecks(arguments.mode)
    spans = weighted_parts(progress_of(arguments), [_seconds(before, owned) for owned in chosen])
    for owned, progress in zip(chosen, spans, strict=True):
        row = evidence.row(owned) if arguments.resume and evidence.stands(owned) else None
        row = row or checks.row(owned, progress)
        evidence.rows[key_of(owned)] = row
        if arguments.out:
            write_json(evidence.to_json(), arguments.out)
        progress(1.0, owned.claim.id)
        yield shown_row(owned, row)


def _without_runs(owned: OwnedClaim, why: str) -> Verdict:
    """Return what is known of a claim before anything is carried out."""
    return Verdict(CANNOT, owned.claim.cannot) if owned.claim.cannot else Verdict(NOT_RUN, why)


def _evidence(
    arguments: argparse.Namespace, chosen: Sequence[OwnedClaim]
) -> tuple[ClaimEvidence, ClaimEvidence]:
    """Return what the file said before, and the evidence to be written.

    Resumed, or of a part of the claims, it keeps the others' rows; at first every claim stands in it as not
    run, so that a stopped command leaves none out.
    """
    there = arguments.out is not None and arguments.out.is_file()
    before = load_evidence(arguments.out) if there else ClaimEvidence()
    partly = arguments.resume or arguments.family or arguments.policy
    evidence = ClaimEvidence(dict(before.rows) if partly else {}, {"host": host(), "versions": versions()})
    for owned in chosen:
        if not (arguments.resume and evidence.row(owned)):
            first = claim_row(owned, _without_runs(owned, "the command was stopped before it"))
            evidence.rows[key_of(owned)] = {**first, "digest": owned.claim.digest}
    return before, evidence


def _seconds(before: ClaimEvidence, owned: OwnedClaim) -> float:
    """Return how long a claim will take: what it took before, nothing where nothing is to be done."""
    if owned.claim.cannot:
        return 0.0
    return float(before.rows.get(key_of(owned), {}).get("seconds") or TYPICAL_SECONDS)


def _say_stopped(out: Path | None) -> int:
    kept = f"{out} has every verdict so far: go on with --resume" if out else "nothing was kept (--out FILE)"
    print(f"\nstopped; {kept}", file=sys.stderr)
    return INTERRUPTED
