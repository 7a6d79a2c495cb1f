"""The canary of a host: the same small measurement every night, by which a slower host is told from slower
code.
"""

from __future__ import annotations

from statistics import median

from experiments.core.metrics import METRICS
from webapp.compare.statistics import difference
from webapp.nightly.history import History, Point
from webapp.nightly.steps import Alert
from webapp.runs.grid import Trial
from webapp.runs.specs import Submission

TITLE, METRIC = "canary of the host", "latency"
#: torch alone, by no pass of ours.
SPEC = {
    "family": "compilation",
    "policy": "eager",
    "workload": {"source": "zoo:gpt2-tiny"},
    "hardware": "local",
    "mode": "measured",
}
#: Nights on each side whose median counts, and the fewest that say anything.
MOST, FEWEST = 10, 2
#: From which share of the step on the host's own drift explains it.
EXPLAINS = 0.5


def canaries(submission: Submission, trials: list[tuple[str, Trial]]) -> list[tuple[str, Trial]]:
    """One for each kind of device that a night's measured runs need."""
    kinds = dict.fromkeys(trial.needs for _, trial in trials if trial.spec["mode"] == "measured")
    made = [Submission(submission.project, submission.user, kind).trial(SPEC) for kind in kinds]
    return [(TITLE, trial) for trial in made]


def drift_of(found: History, alert: Alert) -> float | None:
    """By how much the canary of the same host and kind of device slowed down over the same nights; ``None``
    where too few of its nights tell.
    """
    stepped = alert.first_after.run
    points = [
        point
        for point in found.of(METRIC).get(TITLE, ())
        if stepped.host_id is not None
        and (point.run.host_id, point.run.needs) == (stepped.host_id, stepped.needs)
    ]
    before = _values([point for point in points if point.slot <= alert.last_before.slot])[-MOST:]
    after = _values([point for point in points if point.slot >= alert.first_after.slot])[:MOST]
    if min(len(before), len(after)) < FEWEST:
        return None
    return difference(median(after), median(before))


def _values(points: list[Point]) -> list[float]:
    return [point.value for point in points]


def explains(drift: float | None, alert: Alert) -> bool:
    """Whether a figure of time stepped with its host, by no more than twice what the host did."""
    metric = METRICS[alert.metric]
    is_of_time = metric.unit == "s" or metric.unit.endswith("/s")
    if drift is None or alert.fraction is None or not is_of_time or alert.title == TITLE:
        return False
    slower = alert.fraction if metric.lower_is_better else -alert.fraction
    return drift * slower > 0 and abs(drift) >= EXPLAINS * abs(slower)
