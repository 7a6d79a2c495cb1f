"""The jobs of a trace by when they come, by size and by owner: figures, tables, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.units import HOUR, human, significant
from experiments.summaries.job_figures import name_step
from webapp.artifacts.models import Artifact
from webapp.artifacts.profile.words import percent_of
from webapp.compare.figures.curves import duration_ticks


@dataclass(frozen=True)
class GroupRow:
    """A size or an owner: shares are in words, ``work`` is empty where durations are not told."""

    name: str
    jobs: int
    share: str
    work: str
    median: float | None


@dataclass(frozen=True)
class JobGroups:
    """What was stored of a trace (``told``), its plots, and what its reader assumed."""

    told: Mapping[str, Any]
    plots: tuple[Mapping[str, Any], ...]
    assumed: tuple[str, ...]

    @property
    def are_timed(self) -> bool:
        """Whether the trace tells how long jobs run."""
        return any(row["gpu_seconds"] is not None for row in self.told["sizes"])

    @property
    def jobs(self) -> int:
        return sum(row["jobs"] for row in self.told["sizes"])

    @property
    def sizes(self) -> tuple[GroupRow, ...]:
        return _rows(self.told["sizes"])

    @property
    def owners(self) -> tuple[GroupRow, ...]:
        return _rows(self.told["owners"])

    @property
    def left_out(self) -> Mapping[str, int]:
        """Rows of the file that are no jobs here, by reason."""
        return self.told["left_out"]  # type: ignore[no-any-return]

    @property
    def rows(self) -> int:
        """Rows of the file: jobs and what was left out."""
        return self.jobs + sum(self.left_out.values())

    @property
    def findings(self) -> tuple[str, ...]:
        return tuple(self._findings())

    def _findings(self) -> Iterator[str]:
        yield self._about_arrivals()
        if day := self.told["day"]:
            most, least = day.index(max(day)), day.index(min(day))
            yield (
                f"Over a day most come in hour {most} ({significant(day[most])} on average), "
                f"fewest in hour {least} ({significant(day[least])}), counted from the first submission."
            )
        if owners := self.owners:
            first = owners[0]
            work = f" and {first.work} of the GPU time" if first.work else ""
            yield f"{first.name:.60} has {first.share} of the jobs{work}."

    def _about_arrivals(self) -> str:
        counts, step = self.told["arrivals"]["jobs"], self.told["arrivals"]["step"]
        if len(counts) == 1:
            return f"All {counts[0]:,} jobs come within {name_step(step)}."
        most = max(counts)
        mean = significant(self.jobs / (len(counts) * step) * HOUR)
        busiest = f"the busiest {name_step(step)}, {human(counts.index(most) * step, 's')} in, has {most:,}"
        return f"{mean} jobs come in an hour on average; {busiest}."


def groups_of(trace: Artifact) -> JobGroups | None:
    """``None`` for what is no job trace, or was read before groups were stored."""
    told = trace.summary.get("groups")
    if trace.kind != "jobs" or not told:
        return None
    plots = tuple(_with_ticks(plot) for plot in trace.summary.get("plots", ()))
    return JobGroups(told, plots, tuple(trace.assumed))


def _with_ticks(plot: Mapping[str, Any]) -> Mapping[str, Any]:
    """Times on a logarithmic axis have ticks in minutes, hours and days."""
    if plot["x_unit"] != "s" or "x" not in plot["log"]:
        return plot
    times = [x for line in plot["series"] for x in line["x"]]
    return {**plot, "x_label": f"{plot['x_label']}, logarithmic", "x_ticks": duration_ticks(times)}


def _rows(told: Sequence[Mapping[str, Any]]) -> tuple[GroupRow, ...]:
    jobs = sum(row["jobs"] for row in told)
    work = sum(row["gpu_seconds"] or 0.0 for row in told)
    return tuple(
        GroupRow(
            row["name"],
            row["jobs"],
            percent_of(row["jobs"], jobs),
            percent_of(row["gpu_seconds"], work) if work else "",
            row["median"],
        )
        for row in told
    )
