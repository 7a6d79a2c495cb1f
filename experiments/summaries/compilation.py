"""Operators to be compiled: lists of them, rules over them, and recorded logs of tuning."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from experiments.summaries.drawing import card, plot, points, sample
from experiments.summaries.summary import summary
from experiments.workloads.operator_list import OperatorList
from experiments.workloads.substitutions import Substitutions
from experiments.workloads.tuning_log import TUNING_ERRORS, TuningLog, best_so_far


@summary.register
def _tuning(value: TuningLog) -> dict[str, Any]:
    """Records by what became of them, and how the best time of the longest task fell."""
    errors = Counter(TUNING_ERRORS[code] for task in value.tasks for code in task.error.tolist())
    cards = [
        card("written by", value.tuner),
        card("records", len(value)),
        card("valid records", value.valid),
        card("tasks", len(value.tasks)),
    ]
    cards += [card(f"failed: {name}", count) for name, count in errors.most_common() if name]
    longest = max(value.tasks, key=len)
    cards.append(card("longest task", longest.name[:120]))
    if longest.valid:
        cards.append(card("its best time", float(np.nanmin(longest.seconds)), "s"))
    shown, total = sample(len(longest))
    best = best_so_far(longest.seconds)[shown]
    known = np.isfinite(best)
    line = points("best so far", shown[known] + 1, best[known])
    plots = [
        plot(f"Best time of {longest.name:.80}", "line", "trial", "time (s)", [line], sampled=total, log="y")
    ]
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _rules(value: Substitutions) -> dict[str, Any]:
    census = value.census()
    cards = [card("rules", len(value.rules))]
    for outputs, count in sorted(census["mapped outputs"].items()):
        cards.append(card(f"rules that map {outputs} output{'s' if outputs != '1' else ''}", count))
    for held, count in sorted(census["parallel operators"].items()):
        cards.append(card(f"rules of which {held} of the operators are parallel", count))
    cards.append(card("rules whose target reads what the source does not bind", census["bindable"]["no"]))
    sizes = census["operators"].most_common()
    bars = points("rules", [size for size, _ in sizes], [count for _, count in sizes])
    plots = [plot("Operators of source and target", "bar", "operators", "rules", [bars])]
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _operators(value: OperatorList) -> dict[str, Any]:
    kinds = Counter(operator.kind for operator in value.operators).most_common()
    types = sorted({operator.dtype for operator in value.operators})
    bars = points("operators", [kind for kind, _ in kinds], [count for _, count in kinds])
    return {
        "cards": [card("operators", len(value)), card("types", ", ".join(types))],
        "estimates": [],
        "plots": [plot("Kinds of operators", "bar", "kind", "operators", [bars])],
    }
