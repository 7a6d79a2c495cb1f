"""The processes of one job: those in a trace's own file, and those of other uploads that ran with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webapp.artifacts.models import Artifact

#: What of another upload's process is asked for: its rankings stay in the database.
TOLD = ("rank", "world", "began", "devices", "idle")
#: Processes of other uploads that are looked at.
MOST_RANKS = 256


@dataclass(frozen=True)
class Process:
    """One rank: the stored figures ``told``, and the artifact that it is in."""

    artifact: int
    name: str
    told: Mapping[str, Any]

    @property
    def rank(self) -> int:
        return int(self.told["rank"])

    @property
    def window(self) -> tuple[float, float]:
        """When its devices worked, in seconds of the host's clock."""
        began, devices = self.told["began"], self.told["devices"]
        first = min((row["first"] for row in devices), default=0.0)
        last = max((row["first"] + row["span"] for row in devices), default=0.0)
        return began + first, began + last


def own(trace: Artifact) -> list[Process]:
    """Those in its own file, by rank."""
    told = trace.summary.get("profile", {}).get("ranks", ())
    return [Process(trace.pk, trace.name, row) for row in told]


def ranks_of(trace: Artifact) -> list[Process]:
    """Its own processes, and those of other uploads of the project that belong to the same job: as many
    processes, another rank, and at work at the same time.
    """
    found = {process.rank: process for process in own(trace)}
    first = next(iter(found.values()), None)
    if first is None or first.told["world"] < 2:
        return list(found.values())
    for other in _others(trace, first.told["world"]):
        if other.rank not in found and _at_one_time(first.window, other.window):
            found[other.rank] = other
    return [found[rank] for rank in sorted(found)]


def _others(trace: Artifact, world: int) -> Iterator[Process]:
    """The newest upload of a rank first."""
    near = Artifact.objects.of(trace.project).ready().filter(format="kineto").exclude(pk=trace.pk)
    near = near.filter(summary__profile__ranks__0__world=world).order_by("-pk")
    paths = [f"summary__profile__ranks__0__{name}" for name in TOLD]
    for pk, name, *values in near.values_list("pk", "name", *paths)[:MOST_RANKS]:
        yield Process(pk, name, dict(zip(TOLD, values, strict=True)))


def _at_one_time(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def traces_beside(trace: Artifact) -> list[tuple[int, str]]:
    """Other traces of the project, the newest first: what this one may be compared with."""
    known = Artifact.objects.of(trace.project).ready().filter(format="kineto").exclude(pk=trace.pk)
    known = known.filter(summary__profile__ranks__0__has_key="file")
    return list(known.order_by("-pk").values_list("pk", "name")[:MOST_RANKS])
