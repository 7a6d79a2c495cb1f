"""The columns of a comparison: which there are, and which are shown until the reader chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.metrics import METRICS
from webapp.compare.choice import METRIC, Choice
from webapp.compare.entries import Entry
from webapp.compare.parameters import PRECISION, STATES, label_of

#: So many metrics are shown until the reader chooses; the catalog's order says which come first.
METRICS_AT_FIRST = 6
#: Shown before the others of the catalog, which would hide the time behind kinds of memory.
HEADLINES = (
    *("peak_memory", "step_time", "ideal_share", "stall_time"),
    *("peak_memory_per_device", "samples_per_second", "mfu", "bubble_fraction", "exposed_communication_time"),
    *("latency", "speedup", "compile_time", "compression_ratio"),
    *("ttft_p99", "tpot_p99", "latency_mean", "slo_attainment", "throughput"),
)
#: Always said next to the name of a run, never as a column of its own.
BESIDE_THE_NAME = ("policy", "mode")
#: How the key of a knob begins.
KNOB = "knob."
#: So many policies have knobs of one name by chance.
MANY = 3


@dataclass(frozen=True)
class Column:
    """A column that can be shown; ``key`` is its name in the address."""

    key: str
    label: str
    shown: bool

    @property
    def metric(self) -> str:
        """The metric's name, empty for a parameter."""
        return self.key.removeprefix(METRIC) if self.key.startswith(METRIC) else ""


def columns_of(
    entries: Sequence[Entry], parameters: Sequence[str], differing: Sequence[str], choice: Choice
) -> list[Column]:
    keys = [key for key in parameters if key not in BESIDE_THE_NAME]
    metrics = [f"{METRIC}{name}" for name in metric_names_of(entries)]
    chosen = set(choice.columns) & {*keys, *metrics}
    told = _find_implied(entries, differing)
    usual = [key for key in differing if key not in told]
    first = sorted(metrics, key=lambda key: key.removeprefix(METRIC) not in HEADLINES)
    shown = chosen or {*usual, *first[:METRICS_AT_FIRST]}
    labels = [(key, label_of(key)) for key in keys]
    labels += [(key, METRICS[key.removeprefix(METRIC)].label) for key in metrics]
    return [Column(key, label, key in shown) for key, label in labels]


def _find_implied(entries: Sequence[Entry], differing: Sequence[str]) -> set[str]:
    """Parameters that others tell: model states follow from the precision, and of many policies a knob
    from the policy where no two lines of one policy differ in it.
    """
    found = {STATES} if PRECISION in differing else set()
    if len({entry.run.policy for entry in entries}) < MANY:
        return found
    return found | {key for key in differing if key.startswith(KNOB) and _follows_policy(entries, key)}


def _follows_policy(entries: Sequence[Entry], key: str) -> bool:
    by_policy: dict[str, set[str]] = {}
    for entry in entries:
        by_policy.setdefault(entry.run.policy, set()).add(repr(entry.parameters.get(key)))
    return all(len(values) == 1 for values in by_policy.values())


def metric_names_of(entries: Sequence[Entry]) -> list[str]:
    """In the catalog's order, those with a direction before those that only describe."""
    reported = {name for entry in entries for name in entry.estimates}
    known = [metric for metric in METRICS.values() if metric.name in reported]
    return [metric.name for metric in sorted(known, key=lambda metric: metric.lower_is_better is None)]
