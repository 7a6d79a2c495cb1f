"""``rules``: generate graph substitutions as TASO does, prove and test each, and write those that may be
used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.commands.output import progress_of, progress_option
from experiments.compilation.planning.substitutions.generated import DEPTH, judge_rules, verdict_text
from experiments.compilation.planning.substitutions.generator import VOCABULARIES
from experiments.compilation.planning.substitutions.verdicts import count_labels


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("rules", help="generate graph substitutions, prove and test each")
    parser.add_argument("vocabulary", nargs="*", default=list(VOCABULARIES), help=", ".join(VOCABULARIES))
    parser.add_argument("--depth", type=int, default=DEPTH, choices=(1, 2, 3, 4), help="operators of a side")
    parser.add_argument("--no-proof", action="store_true", help="test only, without Z3")
    parser.add_argument("--out", type=Path, help="write the usable rules to this file")
    progress_option(parser)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> None:
    found = judge_rules(arguments.vocabulary, arguments.depth, not arguments.no_proof, progress_of(arguments))
    for one in found:
        print(one)
    print(", ".join(f"{count} {label}" for label, count in count_labels(found).items()))
    if arguments.out:
        arguments.out.write_text(verdict_text(found))
