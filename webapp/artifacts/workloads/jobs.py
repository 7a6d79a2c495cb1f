"""What the jobs of a trace ask for, next to a cluster of as many GPUs as the address says."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.core.units import human, significant
from experiments.summaries.drawing import plot, points
from experiments.summaries.job_groups import name_size
from webapp.artifacts.models import Artifact
from webapp.artifacts.profile.words import percent_of

HOUR = 3600.0
#: A node of most clusters has so many GPUs; sizes are offered in multiples.
NODE = 8
#: The cluster that is shown first is loaded so far at most.
USUAL_LOAD = 0.75
MOST_GPUS = 1_000_000


@dataclass(frozen=True)
class JobDemand:
    """The demand as stored (``told``), and a cluster of ``gpus``."""

    told: Mapping[str, Any]
    gpus: int

    @property
    def largest(self) -> int:
        return int(self.told["gangs"][-1])

    @property
    def too_large(self) -> int:
        """Jobs that want more GPUs than there are."""
        pairs = zip(self.told["gangs"], self.told["jobs_by_gang"], strict=True)
        return sum(count for gpus, count in pairs if gpus > self.gpus)

    @property
    def load(self) -> float | None:
        """GPU time asked for over what the cluster can give while jobs are submitted."""
        given = self.gpus * self.told["submissions"]
        return self.told["gpu_seconds"] / given if given else None

    @property
    def seconds_above(self) -> float:
        """How long demand exceeds the cluster, if nobody waited."""
        pairs = zip(self.told["levels"], self.told["seconds"], strict=True)
        return float(sum(seconds for level, seconds in pairs if level > self.gpus))

    @property
    def headline(self) -> str:
        told, hours = self.told, significant(self.told["gpu_seconds"] / HOUR, 4)
        return f"{told['jobs']:,} jobs over {human(told['submissions'], 's')} ask for {hours} GPU-hours:"

    @property
    def finding(self) -> str:
        """``63 % of what 64 GPUs can give in that time; demand exceeds them for 11 h.``"""
        above = self.seconds_above
        peak = f"demand exceeds them for {human(above, 's')}" if above else "demand never exceeds them"
        if self.load is None:
            return f"with {self.gpus:,} GPUs {peak}."
        share = f"{percent_of(self.load, 1.0)} of" if self.load <= 1 else f"{significant(self.load)} times"
        return f"{share} what {self.gpus:,} GPUs can give in that time; {peak}."

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[str]:
        told, peak_at = self.told, human(self.told["peak_at"], "s")
        if self.too_large:
            who = f"{self.too_large:,} job{' wants' if self.too_large == 1 else 's want'}"
            yield f"✗ {who} more than {self.gpus:,} GPUs and can never start."
        if self.load and self.load > 1:
            yield "✗ Overloaded: the queue grows for as long as jobs are submitted, whatever the scheduler."
        yield from self._longest_above()
        yield f"At most {told['peak']:,} GPUs are wanted at once, {peak_at} after the start."
        yield self._largest_share()
        half, ninth = (human(seconds, "s") for seconds in told["service"][:2])
        yield f"Half the jobs run for less than {half}, one in ten for more than {ninth}."

    def _longest_above(self) -> Iterator[str]:
        """How long demand stays above the cluster on end; not of what was read before that was stored."""
        told = self.told
        place = bisect_right(told["levels"], self.gpus)
        if place == len(told["levels"]) or "longest" not in told:
            return
        begin, lasts = told["longest_from"][place], told["longest"][place]
        since = f"from {human(begin, 's')} after the start" if begin else "from the start"
        share = percent_of(self.seconds_above, told["span"])
        yield (
            f"Demand stays above {self.gpus:,} GPUs for {human(lasts, 's')} on end, {since}; "
            f"in all {share} of the time until the last job would end."
        )

    def _largest_share(self) -> str:
        """Which size of job takes most of the GPU time."""
        told = self.told
        most = max(range(len(told["gangs"])), key=lambda place: told["work_by_gang"][place])
        return (
            f"Jobs of {name_size(told['gangs'][most])} are "
            f"{percent_of(told['jobs_by_gang'][most], told['jobs'])} of all and take "
            f"{percent_of(told['work_by_gang'][most], told['gpu_seconds'])} of the GPU time."
        )

    @property
    def figure(self) -> dict[str, Any]:
        """Demand over time with the line of the cluster."""
        curve, name = self.told["curve"], f"cluster of {self.gpus:,}"
        line = {**points("wanted", curve["x"], curve["y"]), "shape": "hv", "color": "plot-1"}
        ends = [curve["x"][0], curve["x"][-1]]
        cluster = {**points(name, ends, [self.gpus] * 2), "color": "bad", "dash": "dash"}
        title = "GPUs wanted, if nobody waited"
        return plot(title, "line", "time (s)", "GPUs", [line, cluster], sampled=curve["of"])

    @property
    def nodes(self) -> tuple[int, int]:
        """The cluster as (nodes, GPUs of each), for the form of a new experiment."""
        each = next(size for size in (NODE, 4, 2, 1) if self.gpus % size == 0)
        return self.gpus // each, each


def demand_of(trace: Artifact, asked: Mapping[str, str]) -> JobDemand | None:
    """``None`` for what is no job trace, or was read before demands were stored."""
    told = trace.summary.get("demand")
    if trace.kind != "jobs" or not told:
        return None
    return JobDemand(told, _read_count(asked.get("gpus", "")) or _usual(told))


def _read_count(text: str) -> int | None:
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdigit() and 0 < int(plain[:9]) <= MOST_GPUS else None


def _usual(told: Mapping[str, Any]) -> int:
    """The smallest cluster of whole nodes that holds the largest job and is not loaded too far."""
    mean = told["gpu_seconds"] / told["submissions"] if told["submissions"] else told["peak"]
    wanted = max(mean / USUAL_LOAD, told["gangs"][-1], 1)
    return int(min(NODE * math.ceil(wanted / NODE), MOST_GPUS))
