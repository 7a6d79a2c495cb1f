"""``inspect FILE``: what a file is, what is in it, what was assumed and what looks implausible."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from experiments.commands.output import json_option, progress_of, progress_option, write_json
from experiments.compilation.planning.substitutions.verdicts import count_labels, verdicts
from experiments.core.errors import BadInput
from experiments.core.package_files import path_of
from experiments.core.progress import Progress, silent
from experiments.core.spec import Workload
from experiments.core.units import human
from experiments.models.parameters import count_parameters
from experiments.models.served import generates, served_model
from experiments.models.step_options import defaults_of, longest_of
from experiments.readers.base import doubts_beside, looks_beside, timelines_of
from experiments.sources import load
from experiments.summaries import card, summary
from experiments.summaries.model import rules_of_thumb
from experiments.summaries.profile import report
from experiments.workloads.model import ModelSource
from experiments.workloads.substitutions import Substitutions


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("inspect", help="what a file is and what is in it")
    parser.add_argument("file", help="a file, zoo:NAME or package:NAME")
    parser.add_argument("--format", default="auto")
    json_option(parser)
    progress_option(parser)
    parser.set_defaults(call=call)


#: Rules that are proved and tested to say what a file holds: about a minute. A run judges all that it uses.
MOST_JUDGED = 1000
UNJUDGED = (
    f"the first {MOST_JUDGED:,} rules are proved and tested here, and the others by runs that use them:"
)


def inspection(workload: Workload, progress: Progress = silent) -> dict[str, Any]:
    """Return a file's format, kind, hash, summary, assumptions and warnings, as JSON.

    ``looks_beside``: whether other files beside it could give more warnings. Substitution rules are proved
    and tested: ``verdicts`` has a line for each.
    """
    loaded = load(workload)
    found = summary(loaded.value)
    uncounted = []
    if isinstance(loaded.value, ModelSource):
        found["told"] = {"generates": generates(loaded.value)}
        uncounted = _count(loaded.value, found)
    rules = loaded.value.rules if isinstance(loaded.value, Substitutions) else ()
    judged = verdicts(rules[:MOST_JUDGED], progress=progress)
    unjudged = [] if len(rules) <= MOST_JUDGED else [f"{UNJUDGED} {len(rules) - MOST_JUDGED:,} rules"]
    found["cards"] += [
        card(f"rules {label}", count) for label, count in count_labels(judged).items() if judged
    ]
    if timelines := timelines_of(path_of(workload.source), loaded.format):
        found["profile"] = report(timelines)
    doubts = doubts_beside(path_of(workload.source), loaded.format, loaded.value)
    return {
        "format": loaded.format,
        "kind": loaded.kind,
        "sha256": loaded.sha256,
        "summary": found,
        "verdicts": [str(verdict) for verdict in judged],
        "assumed": list(loaded.assumed),
        "warnings": [*loaded.warnings, *unjudged, *uncounted, *doubts],
        "looks_beside": looks_beside(loaded.format),
    }


def _count(model: ModelSource, found: dict[str, Any]) -> list[str]:
    """Add to a summary what only a model has: its parameters by module, rules of thumb that start from them,
    and the step that it has where options say nothing.

    A warning where it cannot be built, as its runs will say too.
    """
    usual = defaults_of(model)
    told = {name: getattr(usual, name) for name in ("batch", "sequence", "image", "dtype", "optimizer")}
    found |= {"usual_step": told, "longest": longest_of(model)}
    try:
        counted = count_parameters(model)
    except BadInput as error:
        return [f"its parameters cannot be counted: {error}"]
    total = sum(one.parameters for one in counted)
    found |= _describe_serving(model)
    found["parameters"] = [asdict(one) for one in counted]
    if not any(row["label"] == "parameters" for row in found["cards"]):
        found["cards"].append(card("parameters", total))
    found["estimates"] += rules_of_thumb(model, total, usual.batch, usual.sequence or 1)
    return []


def _describe_serving(model: ModelSource) -> dict[str, Any]:
    """The sizes under which a language model answers requests; nothing of a model that does not."""
    try:
        return {"served": served_model(model.name, model.config).to_json()} if model.config else {}
    except BadInput:
        return {}


def call(arguments: argparse.Namespace) -> None:
    found = inspection(Workload(arguments.file, arguments.format), progress_of(arguments))
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
