"""Cluster schedulers: twelve jobs that train here, next to the simulator on times of this host.

The host is calibrated before the first of them and anew after every few, since its pace drifts; for policies
that choose batches apart. The last cell says whether the simulator has the policies in the order that was
measured, wherever two of them differ by more than twice its error.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from experiments.cluster.experiment.measured import (
    LiveHost,
    calibrate_host,
    measure_on,
    with_pairs,
)
from experiments.cluster.experiment.prediction import chooses_batches
from experiments.cluster.interface import ClusterPolicy
from experiments.core.completion import complete
from experiments.core.errors import LabError
from experiments.core.progress import Progress, part
from experiments.sources import jobs_of
from experiments.validate.cells import (
    EVERYTHING,
    Chosen,
    Models,
    ValidationCell,
    cell_spec,
    compare,
    left_out,
)

#: Policies with knobs that make them decide on jobs of seconds.
Plan = tuple[str, dict[str, Any]]
PLANS: tuple[Plan, ...] = (
    ("fifo", {}),
    ("sjf", {}),
    ("srtf", {}),
    ("edf", {}),
    ("las", {"round_length": 8.0}),
    ("tiresias", {"limit_1": 8.0}),
    ("best_fit", {}),
    ("random", {}),
    ("gandiva", {"slice_length": 6.0, "switch_time": 0.2}),
    ("elasticflow", {"slot": 2.0}),
    ("optimus", {}),
    ("antman", {}),
    ("pollux", {"interval": 6.0}),
    ("sia", {"interval": 6.0}),
    ("kungfu_adapt", {"interval": 6.0}),
)
TRACE = "package:twelve-short-jobs.csv"
#: Policies, of half a minute each, that one calibration serves.
SERVES = 3
ORDER = "order of policies"


def models(device: str) -> Models:
    """One trace; jobs that want more GPUs than this host has are dropped."""
    return {TRACE: {}}


def cells(device: str, progress: Progress, chosen: Chosen = EVERYTHING) -> Iterator[ValidationCell]:
    plans = [plan for plan in PLANS if chosen.has(plan[0])]
    if not plans or not chosen.of(models(device)):
        return
    found: list[ValidationCell] = []
    with tempfile.TemporaryDirectory(prefix="lab-cluster-") as name:
        hosts = Hosts(plans, Path(name))
        for done, plan in enumerate(plans):
            here = part(progress, done / len(plans), (done + 1) / len(plans))
            if chosen.out_of_time:
                cell = left_out(TRACE, "cluster", plan[0])
            else:
                host = hosts.for_policy(_complete(plan)[1], part(here, 0.0, 0.3))
                cell = _cell(host, plan, Path(name) / plan[0], part(here, 0.3, 1.0))
            found.append(cell)
            yield cell
    yield order_of([cell for cell in found if cell.status == "ok"])


class Hosts:
    """The host as policies know it that choose batches, and as the others do."""

    def __init__(self, plans: Sequence[Plan], folder: Path) -> None:
        self._made = [_complete(plan) for plan in plans]
        self._folder = folder
        self._known: dict[bool, LiveHost] = {}
        self._asked = Counter[bool]()

    def for_policy(self, policy: ClusterPolicy, progress: Progress) -> LiveHost:
        """Return the host as it was calibrated for at most ``SERVES`` policies, this one among them."""
        chooses = chooses_batches(policy)
        if self._asked[chooses] % SERVES == 0:
            progress(0.0, "timing the models of the jobs")
            self._known[chooses] = self._calibrate(chooses, progress)
        self._asked[chooses] += 1
        return self._known[chooses]

    def _calibrate(self, chooses: bool, progress: Progress) -> LiveHost:
        alike = (one for one in self._made if chooses_batches(one[1]) == chooses)
        # One that may resize jobs has them timed on any number of slots.
        spec, policy = min(alike, key=lambda one: one[1].keeps_sizes)
        trace, _ = jobs_of(spec.workload)
        folder = self._folder / f"calibration-{chooses}-{self._asked[chooses]}"
        return calibrate_host(trace, policy, 0, folder, progress)


def _complete(plan: Plan) -> tuple[Any, ClusterPolicy]:
    policy, knobs = plan
    spec, made = complete(cell_spec(TRACE, {}, "cluster", policy, knobs={**knobs, "oversized": "drop"}))
    assert isinstance(made, ClusterPolicy)
    return spec, made


def _cell(host: LiveHost, plan: Plan, folder: Path, progress: Progress) -> ValidationCell:
    clock, (spec, policy) = time.perf_counter(), _complete(plan)
    trace, loaded = jobs_of(spec.workload)
    try:
        host = with_pairs(host, trace, policy, 0, folder / "pairs", part(progress, 0.0, 0.2))
        result = measure_on(host, trace, loaded, spec, policy, folder, part(progress, 0.2, 1.0))
    except LabError as error:
        took = time.perf_counter() - clock
        return ValidationCell(TRACE, "cluster", plan[0], "failed", str(error), {}, {}, took)
    figures = compare(result.metrics, result.notes.get("predicted", {}))
    within = result.notes.get("predicted_range", {})
    facts = {
        "knobs": plan[1],
        "performance": result.notes.get("performance"),
        "predicted_range": {name: within[name] for name in figures if name in within},
    }
    metrics, took = dict(result.metrics), time.perf_counter() - clock
    return ValidationCell(
        TRACE, "cluster", plan[0], result.status, result.reason, figures, metrics, took, facts=facts
    )


def order_of(cells: Sequence[ValidationCell]) -> ValidationCell:
    """Whether two policies that differ by more than twice the error are in the same order in both."""
    means = {cell.policy: cell.figures["avg_jct"] for cell in cells if "avg_jct" in cell.figures}
    known = {
        policy: (float(figure["predicted"] or 0.0), float(figure["measured"] or 0.0))
        for policy, figure in means.items()
    }
    error = statistics.fmean(abs(guess / seen - 1) for guess, seen in known.values()) if known else 0.0
    compared, wrong = 0, []
    for one, other in combinations(known, 2):
        (guessed, seen), (guessed_other, seen_other) = known[one], known[other]
        if abs(seen - seen_other) <= 2 * error * min(seen, seen_other):
            continue
        compared += 1
        if (guessed - guessed_other) * (seen - seen_other) <= 0:
            wrong.append(f"{one} and {other}")
    facts = {"pairs_compared": compared, "mean_error": error}
    status, reason = ("failed", f"in another order: {', '.join(wrong)}") if wrong else ("ok", None)
    return ValidationCell(TRACE, "cluster", ORDER, status, reason, {}, {}, 0.0, facts=facts)
