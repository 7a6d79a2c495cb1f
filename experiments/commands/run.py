"""``run SPEC.json``: one run, its Outcome on stdout or in ``--out``."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from experiments.commands.output import progress_of, progress_option, write_json
from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.core.trace_events import trace
from experiments.run import run

EXIT_OF_STATUS = {"ok": 0, "infeasible": 3, "rejected": 1, "failed": 1}


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("run", help="carry out one run")
    parser.add_argument("spec", help="RunSpec JSON file, or - for stdin")
    parser.add_argument("--out", type=Path, help="write the Outcome here instead of stdout")
    parser.add_argument("--trace", type=Path, help="write a trace that Perfetto opens")
    parser.add_argument(
        "--search-seconds",
        type=positive_seconds,
        help="end searches after so long; the best so far is the answer",
    )
    progress_option(parser)
    parser.set_defaults(call=call)


def positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def read_text(name: str) -> str:
    """A file's text; ``BadInput`` when it cannot be read as UTF-8."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(error), name, "a readable UTF-8 file") from None


def call(arguments: argparse.Namespace) -> int:
    spec = load_spec(jsonio.loads(read_text(arguments.spec), arguments.spec))
    outcome = run(spec, progress_of(arguments), arguments.search_seconds)
    write_json(outcome.to_json(), arguments.out)
    if arguments.trace:
        write_json(trace(outcome.to_json()), arguments.trace)
    for line in outcome.provenance.get("warnings", ()):
        print(f"warning: {line}", file=sys.stderr)
    if outcome.reason:
        print(f"{outcome.status}: {outcome.reason}", file=sys.stderr)
    return EXIT_OF_STATUS[outcome.status]
