"""``suite NAME``: every run of a named set, one JSON line per Outcome."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.commands.output import progress_of, progress_option, table, write_json
from experiments.commands.suite_runs import carry_out
from experiments.core.dashboard import dashboard_status
from experiments.core.differences import is_unseen
from experiments.core.errors import BadInput
from experiments.core.published_figures import Against, mean_error, verdicts_in_words
from experiments.core.spec import Outcome
from experiments.core.suites import (
    Cell,
    Suite,
    agreement_of,
    compare_with_published,
    load_suite,
    suite_names,
    value_grid,
)
from experiments.core.units import human, significant

SHOWN = ("peak_memory", "step_time", "avg_jct", "makespan", "normalized_latency_p50", "latency", "mfu")


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("suite", help="run a suite of experiments/suites")
    parser.add_argument("name", help="one of " + ", ".join(suite_names()))
    parser.add_argument("--out", type=Path, help="folder for one Outcome file per run")
    parser.add_argument("--data", type=Path, help="folder with the workloads that the suite does not bring")
    parser.add_argument("--json", action="store_true", help="print one Outcome per line")
    progress_option(parser)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    suite = load_suite(arguments.name)
    if suite.asks_for_data:
        if arguments.data is None:
            raise BadInput(f"{suite.name} brings no workloads", "--data", "the folder that has them")
        suite = suite.with_data(arguments.data)
    rows, failed = [], 0
    outcomes: dict[str, Outcome] = {}
    for number, ended in enumerate(carry_out(suite, progress_of(arguments))):
        if ended.outcome is None:
            failed += 1
            rows.append((ended.title, "error", "", ended.error))
            continue
        outcomes[ended.title] = outcome = ended.outcome
        rows.append((ended.title, outcome.status, dashboard_status(outcome.provenance), _figures(outcome)))
        _keep(outcome, arguments, suite, number)
    if not arguments.json:
        print(run_table(rows))
        for metric in suite.grid_metrics:
            print(f"\n{metric}\n{value_table(suite, outcomes, metric)}")
        if suite.published:
            print(f"\n{suite.value}\n{published_table(suite, outcomes)}")
    return 1 if failed else 0


def run_table(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Title, status, PyTorch's status where models were compiled, and figures of each run."""
    compiled = any(row[2] for row in rows)
    header = ("run", "status", *(["PyTorch's"] if compiled else []), "figures")
    return table(header, [row if compiled else (*row[:2], row[3]) for row in rows])


def value_table(suite: Suite, outcomes: Mapping[str, Outcome], metric: str) -> str:
    """The metric by workload and policy."""
    found = {title: _figures_by_name(outcome) for title, outcome in outcomes.items()}
    known = {title: figures[metric] for title, figures in found.items() if metric in figures}
    unseen = {title for title, figures in found.items() if is_unseen(metric, figures)}
    lines = [(title, *map(_cell, cells)) for title, cells in value_grid(suite, known, unseen)]
    return table(("", *suite.columns), lines)


def published_table(suite: Suite, outcomes: Mapping[str, Outcome]) -> str:
    """What was published, ours, the error, the verdict, and where there can be none the reason."""
    rows = compare_with_published(suite, _values(suite, outcomes))
    agreement, mean = agreement_of(suite, rows), mean_error(rows)
    words = {"reservation": bool(suite.reservations), "assumed": bool(suite.assumptions)}
    more = [name for name, shown in words.items() if shown]
    header = ["", suite.published_as or "published", "ours", "error", "verdict", *more]
    lines = [(*_against(row), *(getattr(row, name) for name in more)) for row in rows]
    text = f"{table(header, lines)}\n{verdicts_in_words(rows)}"
    if agreement:
        return f"{text}\n{agreement.words}"
    return text + ("" if mean is None else f"\nmean error {mean:.2%}")


def _against(row: Against) -> tuple[str, ...]:
    ours = "-" if row.ours is None else significant(row.ours)
    error = "-" if row.error is None else f"{row.error:+.2%}"
    return row.title, significant(row.published), ours, error, row.verdict


def _values(suite: Suite, outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Ours for each published figure whose run gave it."""
    asked = {row: suite.figure_of(row) for row in suite.published}
    ours = {title: outcome.metrics for title, outcome in outcomes.items()}
    known = {row: ours.get(run, {}).get(metric) for row, (run, metric) in asked.items()}
    return {row: float(found["value"]) for row, found in known.items() if found}


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.3f}"


def _figures_by_name(outcome: Outcome) -> dict[str, float]:
    return {name: float(row["value"]) for name, row in outcome.metrics.items()}


def _keep(outcome: Outcome, arguments: argparse.Namespace, suite: Suite, number: int) -> None:
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_json(outcome.to_json(), arguments.out / f"{suite.name}-{number:03}.json")
    if arguments.json:
        print(json.dumps(outcome.to_json(), allow_nan=False))


def _figures(outcome: Outcome) -> str:
    known = [(name, outcome.metrics[name]) for name in SHOWN if name in outcome.metrics]
    figures = [f"{name} {human(entry['value'], entry['unit'])}" for name, entry in known]
    return ", ".join(figures) or (outcome.reason or "")
