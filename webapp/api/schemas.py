"""What the API answers, for the code and for its OpenAPI description."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Schema


class Problem(Schema):
    """Why a request was refused: in words, and where known the field, its value and what was expected."""

    detail: str
    field: str | None = None
    value: Any = None
    expected: str | None = None


class Metric(Schema):
    value: float
    unit: str
    lower_is_better: bool | None


class LoggedDetails(Schema):
    """What a program said of its run: its figures by name, how many tables, pictures and files."""

    environment: dict[str, Any]
    has_diff: bool
    series: list[str]
    tables: int
    images: int
    files: int


class RunDetails(Schema):
    """What a run was asked for and what was put on it; ``logged`` is null for a policy's run.

    ``spec`` is the RunSpec, of a logged run its parameters as ``knobs``; ``revision`` that of the code that
    was asked for, empty where a host carries out its own.
    """

    kind: str
    experiment_name: str | None
    by: str | None
    spec: dict[str, Any]
    revision: str
    tags: list[str]
    note: str | None
    logged: LoggedDetails | None


class RunRow(Schema):
    """``state`` is the run's life; ``outcome_status`` is that of its outcome, once it has one.

    ``dashboard_status`` is that of a compiled model in the words of PyTorch's dashboard.
    """

    id: UUID
    experiment: UUID | None
    project: str
    artifact: int | None
    family: str
    policy: str
    hardware: str
    mode: str
    seed: int
    state: str
    progress: float
    step: str
    outcome_status: str
    dashboard_status: str
    reason: str
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    metrics: dict[str, Metric]


class RunListed(RunRow):
    """With ``details`` where they were asked for."""

    details: RunDetails | None = None


class RunAnswer(RunRow):
    """With the whole Outcome once there is one."""

    outcome: dict[str, Any] | None


class RunPage(Schema):
    """Newest first; ``next`` is what ``after`` takes for the older ones, null at the end."""

    runs: list[RunListed]
    next: UUID | None


class GroupRow(Schema):
    """``keys`` are what its runs have in common; an aggregate is null where no run has the metric."""

    keys: dict[str, Any]
    values: dict[str, float | None]


class GroupAnswer(Schema):
    """The largest groups; ``more``: there are others. ``units`` are those of the aggregates, by name."""

    fields: list[str]
    units: dict[str, str]
    groups: list[GroupRow]
    more: bool


class ExperimentAnswer(Schema):
    id: UUID
    name: str
    project: str
    created_at: datetime
    runs: list[RunRow]


class RateLineAnswer(Schema):
    """``rates`` are those that were tried, and whether each was kept; ``reason`` says why it cannot go on."""

    name: str
    policy: str
    max_rate: float
    below: float | None
    rates: dict[str, bool]
    waiting: UUID | None
    reason: str


class RateStudyAnswer(Schema):
    """The search for the highest rate: ``state`` is searching or ended."""

    experiment: UUID
    attainment: float | None
    tbt_p99: float | None
    delay_p50: float
    state: str
    most_runs_left: int
    seconds_left: float | None
    lines: list[RateLineAnswer]


class ExperimentRow(Schema):
    """``states`` counts its runs by state, without those that are none."""

    id: UUID
    name: str
    project: str
    created_at: datetime
    total: int
    states: dict[str, int]


class ExperimentPage(Schema):
    """Newest first; ``next`` is what ``after`` takes for the older ones, null at the end."""

    experiments: list[ExperimentRow]
    next: UUID | None


class PolicyRow(Schema):
    name: str
    family: str
    modes: list[str]
    summary: str
    knobs: list[dict[str, Any]]
    paper: str | None


class SheetRow(Schema):
    """``sheet`` is the whole of it, in SI units, with its source."""

    name: str
    kind: str
    sheet: dict[str, Any]


class HostRow(Schema):
    """``busy`` of its ``slots`` carry out a run now; ``up``: it was heard of within the last minute."""

    name: str
    device_kinds: list[str]
    devices: list[Any]
    cores: int
    memory_bytes: int
    slots: int
    busy: int
    heartbeat_at: datetime
    up: bool


class ArtifactRow(Schema):
    id: int
    name: str
    project: str
    state: str
    kind: str
    format: str
    reason: str
    warnings: list[Any]
    assumed: list[Any]
    sha256: str | None
    size: int | None
    created_at: datetime


class ArtifactAnswer(ArtifactRow):
    """With what was read of it."""

    summary: dict[str, Any]


class ArtifactPage(Schema):
    """Newest first; ``next`` is what ``after`` takes for the older ones, null at the end."""

    artifacts: list[ArtifactRow]
    next: int | None


class LogAnswer(Schema):
    """``offset`` bytes of the log are stored; ``stop``: somebody asked the program to end."""

    run: UUID
    offset: int
    state: str
    stop: bool


class LogApart(Schema):
    """What was sent does not begin at ``offset``, where the stored part of the log ends."""

    detail: str
    offset: int


class SeriesRow(Schema):
    """``broken`` of ``count`` points are no finite numbers."""

    name: str
    count: int
    broken: int
    first_step: int
    last_step: int
    last: float | None
    least: float | None
    largest: float | None


class SeriesList(Schema):
    series: list[SeriesRow]


class SeriesAnswer(Schema):
    """Columns of equal length; ``values`` that are no finite numbers are ``nan``, ``inf`` or ``-inf``."""

    name: str
    steps: list[int]
    moments: list[float]
    values: list[float | str]


class LoggedTableRow(Schema):
    name: str
    step: int
    columns: list[str]
    rows: list[list[Any]]


class LoggedTableList(Schema):
    tables: list[LoggedTableRow]


class LoggedImageRow(Schema):
    id: int
    name: str
    step: int
    kind: str
    width: int
    height: int


class LoggedImageList(Schema):
    images: list[LoggedImageRow]


class LoggedFileRow(Schema):
    artifact: int
    name: str
    sha256: str | None
    size: int | None
    trashed: bool


class LoggedFileList(Schema):
    files: list[LoggedFileRow]


class TagAnswer(Schema):
    """So many runs have the tag now, or have it no more."""

    name: str
    runs: int


class TrashAnswer(Schema):
    """So many runs went into the trash together, from which they are deleted for good at that time."""

    trash: int
    runs: int
    gone_at: datetime


class NoteAnswer(Schema):
    text: str
    by: str | None
    at: datetime | None


class CommentAnswer(Schema):
    id: int
    text: str
    by: str | None
    at: datetime


class ReportRow(Schema):
    id: int
    project: str
    title: str


class ReportPage(Schema):
    reports: list[ReportRow]
    next: int | None


class ReportAnswer(ReportRow):
    """``document`` is the text with every block as the table that it found."""

    revision: int
    text: str
    by: str | None
    at: datetime
    document: str


class ReportApart(Schema):
    """Somebody has written meanwhile: their revision and text."""

    detail: str
    revision: int
    text: str


class SentRow(Schema):
    """A message that named so many changes; ``error`` says why it was not taken, empty where it was."""

    at: datetime
    changes: int
    error: str


class ChannelRow(Schema):
    """Hours are of UTC. The address is shown to nobody again."""

    id: int
    project: str
    name: str
    kind: str
    quiet_from: int | None
    quiet_to: int | None
    by: str | None
    at: datetime


class ChannelPage(Schema):
    """Newest first; ``next`` is what ``after`` takes for the older ones, null at the end."""

    channels: list[ChannelRow]
    next: int | None


class ChannelAnswer(ChannelRow):
    """With its last ten messages, the newest first."""

    messages: list[SentRow]


class ChannelMade(ChannelRow):
    """``secret`` signs a webhook's messages and is shown this once; empty for mail and chat."""

    secret: str


class DeliveryAnswer(Schema):
    """Whether the test message was taken, and why not."""

    taken: bool
    error: str
