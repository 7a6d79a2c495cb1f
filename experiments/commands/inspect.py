"""``inspect FILE``: what a file is, what is in it, what was assumed and what looks implausible."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from experiments.commands.output import json_option, write_json
from experiments.compilation.planning.substitutions.verdicts import count_labels, verdicts
from experiments.core.errors import BadInput
from experiments.core.package_files import path_of
from experiments.core.spec import Workload
from experiments.core.units import human
from experiments.models.parameters import count_parameters
from experiments.models.step_options import defaults_of
from experiments.readers.base import doubts_beside, looks_beside
from experiments.sources import load
from experiments.summaries import card, summary
from experiments.workloads.model import ModelSource
from experiments.workloads.substitutions import Substitutions


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("inspect", help="what a file is and what is in it")
    parser.add_argument("file", help="a file, zoo:NAME or package:NAME")
    parser.add_argument("--format", default="auto")
    json_option(parser)
    parser.set_defaults(call=call)


def inspection(workload: Workload) -> dict[str, Any]:
    """Return a file's format, kind, hash, summary, assumptions and warnings, as JSON.

    ``looks_beside``: whether other files beside it could give more warnings. Substitution rules are proved
    and tested: ``verdicts`` has a line for each.
    """
    loaded = load(workload)
    found = summary(loaded.value)
    of_model, uncounted = _of_model(loaded.value)
    found |= of_model
    judged = verdicts(loaded.value.rules) if isinstance(loaded.value, Substitutions) else ()
    found["cards"] += [
        card(f"rules {label}", count) for label, count in count_labels(judged).items() if judged
    ]
    doubts = doubts_beside(path_of(workload.source), loaded.format, loaded.value)
    return {
        "format": loaded.format,
        "kind": loaded.kind,
        "sha256": loaded.sha256,
        "summary": found,
        "verdicts": [str(verdict) for verdict in judged],
        "assumed": list(loaded.assumed),
        "warnings": [*loaded.warnings, *uncounted, *doubts],
        "looks_beside": looks_beside(loaded.format),
    }


def _of_model(value: Any) -> tuple[dict[str, Any], list[str]]:
    """What only a model has: its parameters by module, and the step that it has where options say nothing.

    With a warning where it cannot be built, as its runs will say too.
    """
    if not isinstance(value, ModelSource):
        return {}, []
    usual = defaults_of(value)
    told = {name: getattr(usual, name) for name in ("batch", "sequence", "image", "dtype", "optimizer")}
    try:
        counted = [asdict(one) for one in count_parameters(value)]
    except BadInput as error:
        return {"usual_step": told}, [f"its parameters cannot be counted: {error}"]
    return {"parameters": counted, "usual_step": told}, []


def call(arguments: argparse.Namespace) -> None:
    found = inspection(Workload(arguments.file, arguments.format))
    if arguments.json:
        return write_json(found)
    print(f"{arguments.file}: {found['kind']} ({found['format']})")
    for row in [*found["summary"]["cards"], *found["summary"]["estimates"]]:
        value = row["value"] if isinstance(row["value"], str) else human(row["value"], row["unit"])
        print(f"  {row.get('label', row.get('name'))}: {value}")
    for line in found["verdicts"]:
        print(f"  {line}")
    for title in ("assumed", "warnings"):
        for line in found[title]:
            print(f"  {title}: {line}")
    return None
