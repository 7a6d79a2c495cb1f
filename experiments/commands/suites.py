"""``suites --run --out FILE``: what every suite gives, as the evidence that ships with a release."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.commands.output import progress_of, progress_option, table, write_json
from experiments.commands.suite_runs import SuiteRun, carry_out
from experiments.core.errors import BadInput
from experiments.core.policy import MODES
from experiments.core.progress import Progress
from experiments.core.suite_evidence import (
    SuiteEvidence,
    load_suite_evidence,
    refused_row,
    run_row,
)
from experiments.core.suites import Suite, load_suite, suite_names
from experiments.core.units import human
from experiments.run import host, revision, versions

#: A suite that has not ended by then does not ship, in seconds.
LONGEST = 600.0
HEADER = ("suite", "runs", "seconds", "left out, because")


class _Clocks:
    """Seconds since it was made: the clock's or the processor's, whichever are fewer, so that neither other
    work on the host nor several threads count.
    """

    def __init__(self) -> None:
        self._began = self._read()

    @property
    def seconds(self) -> float:
        return min(now - began for now, began in zip(self._read(), self._began, strict=True))

    @staticmethod
    def _read() -> tuple[float, float]:
        return time.perf_counter(), sum(os.times()[:4])


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("suites", help="all suites, and what they give as a file that ships")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these suites alone")
    parser.add_argument("--run", action="store_true", help="carry them out")
    parser.add_argument("--out", type=Path, help="evidence file, written anew after each suite")
    parser.add_argument("--resume", action="store_true", help="keep what --out says of unchanged suites")
    parser.add_argument("--limit", type=float, default=LONGEST, help="seconds that a suite may take (600)")
    parser.add_argument("--mode", choices=MODES, help="with --run: only suites whose runs are all of it")
    parser.add_argument("--data", type=Path, help="folder with the workloads that suites do not bring")
    progress_option(parser)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    if arguments.run != (arguments.out is not None):
        raise BadInput("a file is written of what is carried out", "--run, --out", "both or neither")
    suites = [load_suite(name) for name in arguments.names or suite_names()]
    evidence = _begin(arguments) if arguments.run else SuiteEvidence()
    for suite in suites if arguments.run else ():
        if arguments.resume and evidence.row(suite):
            continue
        evidence.rows[suite.name] = _row(suite, arguments)
        write_json(evidence.to_json(), arguments.out)
        print(suite.name, *_line(suite, evidence)[1:], file=sys.stderr, flush=True)
    print(table(HEADER, [_line(suite, evidence) for suite in suites]))
    return 0


def _begin(arguments: argparse.Namespace) -> SuiteEvidence:
    """Return what the file has, where it goes on or some suites alone are asked for, on this host."""
    keeps = arguments.out.is_file() and (arguments.resume or arguments.names)
    rows = load_suite_evidence(arguments.out).rows if keeps else {}
    return SuiteEvidence(rows, {"host": host(), "versions": versions()})


def _row(suite: Suite, arguments: argparse.Namespace) -> dict[str, Any]:
    """Carry a suite out, unless it takes too long, is of another mode, or its workloads are not there."""
    began, runs = _Clocks(), list[dict[str, Any]]()
    left_out = _why_not(suite, arguments)
    if not left_out:
        runs, left_out = _carry_out(suite, arguments, progress_of(arguments), began)
    return {
        "suite": suite.name,
        "digest": suite.digest,
        "revision": revision(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(began.seconds, 3),
        "left_out": left_out,
        "runs": [] if left_out else runs,
    }


def _why_not(suite: Suite, arguments: argparse.Namespace) -> str:
    """Return why a suite is not even begun; empty for one that is."""
    others = sorted(set(suite.modes) - {arguments.mode})
    if arguments.mode and others:
        return f"its runs are {' and '.join(others)}, and only {arguments.mode} ones were carried out"
    if suite.asks_for_data and arguments.data is None:
        return "its workloads are not part of this release"
    return ""


def _carry_out(
    suite: Suite, arguments: argparse.Namespace, progress: Progress, began: _Clocks
) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of its runs, and why it is left out where it took longer than the limit."""
    there = suite.with_data(arguments.data) if suite.asks_for_data else suite
    rows: list[dict[str, Any]] = []
    for ended, (_, given) in zip(carry_out(there, progress), suite.runs, strict=True):
        rows.append(_run_row(ended, given))
        if began.seconds > arguments.limit:
            limit = human(arguments.limit, "s")
            return rows, f"takes more than {limit}: {len(rows)} of its {len(suite.runs)} runs by then"
    return rows, ""


def _run_row(ended: SuiteRun, given: Any) -> dict[str, Any]:
    if ended.outcome is None:
        return refused_row(ended.title, given, ended.error)
    return run_row(ended.title, given["workload"]["source"], ended.outcome)


def _line(suite: Suite, evidence: SuiteEvidence) -> Sequence[str]:
    row = evidence.row(suite)
    seconds = f"{row['seconds']:.1f}" if row and not row["left_out"] else ""
    return suite.name, str(len(suite.runs)), seconds, row["left_out"] if row else ""
