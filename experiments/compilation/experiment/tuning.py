"""Joins a tuner with what it tunes.

A recorded log in a simulated run, operators of a model or a list in a measured one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.compilation.experiment.replay import Replay, replay_of
from experiments.compilation.interface.tuning import Floats, TuningPolicy, require_trials
from experiments.compilation.planning.tuning.random_search import RandomTuner
from experiments.compilation.planning.tuning.session import SHARES, History, trials_to, tune
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.package_files import path_of
from experiments.core.progress import Progress, part
from experiments.core.reading import refusal
from experiments.core.spec import Result, RunSpec, Series
from experiments.sources import Loaded, load
from experiments.workloads.model import ModelSource
from experiments.workloads.operator_list import OperatorList
from experiments.workloads.tuning_log import TuningLog, best_so_far


def replay_log(spec: RunSpec, policy: TuningPolicy, progress: Progress) -> Result:
    """Search a recorded log; ``BadInput`` for anything else."""
    loaded = _load(spec, policy)
    if not isinstance(loaded.value, TuningLog):
        raise refusal(loaded.kind, ("tuning",), spec.workload.source)
    return _replay(loaded, loaded.value, policy, spec.seed, progress)


def tune_operators(spec: RunSpec, policy: TuningPolicy, progress: Progress) -> Result:
    """Tune operators of a model or a list on this host; ``BadInput`` for anything else."""
    loaded = _load(spec, policy)
    if not isinstance(loaded.value, ModelSource | OperatorList):
        raise refusal(loaded.kind, ("model", "operators"), spec.workload.source)
    return _measure(spec, loaded, loaded.value, policy, progress)


def _load(spec: RunSpec, policy: TuningPolicy) -> Loaded:
    if policy.training:
        raise BadInput("kernels are tuned for inference", "knobs.training", "false")
    return load(spec.workload)


def _replay(loaded: Loaded, log: TuningLog, policy: TuningPolicy, seed: int, progress: Progress) -> Result:
    """Return the search against the log's table, and the random search next to it, from ``repeats`` seeds
    each.

    Only trials are limited, not time: a replay is the same on every host.
    """
    replay = replay_of(log)
    seeds = range(seed, seed + policy.repeats)
    ours = [
        _search(replay, policy, one, part(progress, i / len(seeds), (i + 1) / len(seeds)))
        for i, one in enumerate(seeds)
    ]
    random = [
        tune(RandomTuner(replay.tasks, one), replay.tasks, replay.measure, policy.trials, math.inf, _quiet)
        for one in seeds
    ]
    best = replay.best
    metrics = _figures(ours[0]) | _reaching([history.curve() for history in ours], best, "")
    metrics |= _reaching([history.curve() for history in random], best, "random_")
    if np.isfinite(best):
        metrics["recorded_best_time"] = best
    curves = {f"best_so_far_{one}": _curve(history.curve()) for one, history in zip(seeds, ours, strict=True)}
    curves["best_so_far_random"] = _curve(random[0].curve())
    curves["best_so_far_recorded"] = _curve(recorded_curve(log))
    return Result(
        metrics=metrics,
        series={name: curve for name, curve in curves.items() if curve.x},
        plan={"tasks": task_rows(ours[0]), "failed": ours[0].failures},
        workload_sha256=loaded.sha256,
        notes={
            "replay": _provenance(log),
            "thinking_seconds": {"ours": _mean_thinking(ours), "random": _mean_thinking(random)},
            "seconds_per_proposal": _mean_thinking(ours) / max(len(ours[0].trials), 1),
        },
    )


def _quiet(fraction: float, step: str) -> None:
    """The baseline takes no time worth showing."""


def _search(replay: Replay, policy: TuningPolicy, seed: int, progress: Progress) -> History:
    tuner = policy.tuner(replay.tasks, seed)
    return tune(tuner, replay.tasks, replay.measure, policy.trials, math.inf, progress)


def _provenance(log: TuningLog) -> dict[str, Any]:
    """Return what a replay's times are: looked up, of another machine."""
    targets = dict.fromkeys(task.target for task in log.tasks)
    return {
        "times": "looked up in the log, not measured here",
        "recorded_by": log.tuner,
        "recorded_on": list(targets)[:8],
        "records": len(log),
        "valid_records": log.valid,
    }


def recorded_curve(log: TuningLog) -> Floats:
    """After each record of a log in file order the sum over tasks of the best times.

    Infinite until each has one.
    """
    if len(log.tasks) == 1:
        return np.nan_to_num(best_so_far(log.tasks[0].seconds), nan=np.inf)
    lines = np.concatenate([task.line for task in log.tasks])
    owner = np.concatenate([np.full(len(task), place) for place, task in enumerate(log.tasks)])
    seconds = np.concatenate([task.seconds for task in log.tasks])
    best, totals = np.full(len(log.tasks), np.inf), np.empty(len(log))
    for number, row in enumerate(np.argsort(lines, kind="stable").tolist()):
        best[owner[row]] = np.fmin(best[owner[row]], seconds[row])
        totals[number] = best.sum()
    return totals


def _figures(history: History) -> dict[str, float]:
    """Counts, the best time of one call of every task together, and its rate where all FLOPs are known."""
    best = [history.best(place) for place in range(len(history.tasks))]
    metrics = {"trials": float(len(history.trials)), "failed_trials": float(sum(history.failures.values()))}
    if any(trial is None for trial in best):
        return metrics
    total = sum(
        task.weight * (trial.seconds or 0.0) for task, trial in zip(history.tasks, best, strict=True) if trial
    )
    metrics["latency"] = total
    if all(task.flops is not None for task in history.tasks):
        metrics["achieved_flops"] = sum(task.weight * (task.flops or 0.0) for task in history.tasks) / total
    return metrics


def _reaching(curves: Sequence[Floats], best: float, prefix: str) -> dict[str, float]:
    """Median over the seeds of the trials to each share of the best.

    Absent where half of the seeds never get there.
    """
    found = {}
    for name, share in SHARES.items():
        counts = [trials_to(curve, best, share) or np.inf for curve in curves]
        median = float(np.median(counts)) if np.isfinite(best) else np.inf
        if np.isfinite(median):
            found[f"{prefix}trials_to_{name}"] = median
    return found


def _curve(totals: Floats) -> Series:
    """Return the totals from the first valid trial on, at the trials where they fall and at the last."""
    valid = np.flatnonzero(np.isfinite(totals))
    falls = [int(i) for i in valid if i == valid[0] or totals[i] < totals[i - 1] or i == len(totals) - 1]
    return Series("s", [float(i + 1) for i in falls], [float(totals[i]) for i in falls], "trial")


def _mean_thinking(histories: Sequence[History]) -> float:
    return sum(history.thinking for history in histories) / len(histories)


def task_rows(history: History) -> list[dict[str, Any]]:
    """For each task its trials, failures and best schedule, in the order of the tasks."""
    rows = []
    for place, task in enumerate(history.tasks):
        mine = [trial for trial in history.trials if trial.proposal.task == place]
        best = history.best(place)
        row: dict[str, Any] = {"task": task.name, "calls": task.weight, "schedules": task.space.size}
        row |= {"trials": len(mine), "failed": sum(bool(trial.error) for trial in mine)}
        if best is not None and best.seconds is not None:
            row["best_seconds"] = best.seconds
            row["best_flops"] = task.flops / best.seconds if task.flops else None
            row["schedule"] = {
                name: _plain(value) for name, value in task.space.config(best.proposal.index).items()
            }
        rows.append(row)
    return rows


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _measure(
    spec: RunSpec,
    loaded: Loaded,
    source: ModelSource | OperatorList,
    policy: TuningPolicy,
    progress: Progress,
) -> Result:
    """Tune the heaviest operators on this host; compare each best schedule with torch's own operator."""
    live = registry.load_module("compilation", "live.tuning")
    file = None
    if isinstance(source, ModelSource):
        source = replace(source, options=replace(source.options, training=False))
        file = None if source.zoo else path_of(spec.workload.source)
    with live.Bench(source, policy, spec.seed, progress, file) as bench:
        tasks = require_trials(bench.tasks, policy.trials)
        tuner = policy.tuner(tasks, spec.seed)
        searching = part(progress, 0.1, 0.9)
        history = tune(tuner, tasks, bench.measure, policy.trials, policy.seconds, searching)
        compared = bench.compare(history, part(progress, 0.9, 1.0))
    best = float(history.curve()[-1]) if history.trials else np.inf
    metrics = _figures(history) | _reaching([history.curve()], best, "") | {"compile_time": history.seconds}
    rows = [row | more for row, more in zip(task_rows(history), compared.rows, strict=True)]
    return Result(
        metrics=metrics | dict(compared.metrics),
        series={"best_so_far": curve} if (curve := _curve(history.curve())).x else {},
        plan={"tasks": rows, "failed": history.failures},
        status="ok" if np.isfinite(best) else "failed",
        reason=None if np.isfinite(best) else "some operator has no valid schedule within the budget",
        workload_sha256=loaded.sha256,
        notes={"tuning": {"thinking_seconds": history.thinking, **bench.notes, **compared.notes}},
    )
