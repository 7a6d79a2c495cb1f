"""``advise``: the advisor across families, once it stands."""

from __future__ import annotations

import argparse

from experiments.core.errors import Infeasible


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("advise", help="which policies for this model on this hardware")
    parser.add_argument("model")
    parser.add_argument("--hardware", required=True)
    parser.add_argument("--goal", choices=("memory", "time", "devices"), default="time")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> None:
    raise Infeasible("the advisor is not built yet", "advise")
