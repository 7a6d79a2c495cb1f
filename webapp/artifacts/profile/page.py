"""What the page of a profiler trace shows, for the rank and the other trace that its address names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from experiments.core.units import human
from webapp.artifacts.models import Artifact
from webapp.artifacts.profile import figures, words
from webapp.artifacts.profile.change import Change, change_of
from webapp.artifacts.profile.listings import (
    ChangeTable,
    KernelTable,
    ModuleTable,
    OperatorTable,
    RankTable,
    add_shares,
    rank_rows,
)
from webapp.artifacts.profile.ranks import Process, own, ranks_of, traces_beside
from webapp.compare.listing import Listing


@dataclass(frozen=True)
class Part:
    """Part of a device's time; ``color`` is the class of its mark."""

    words: str
    seconds: float
    share: float
    color: str

    @property
    def grow(self) -> str:
        return f"{self.share:.5f}"

    @property
    def percent(self) -> str:
        return words.percent_of(self.share, 1.0)


@dataclass(frozen=True)
class ProfilePage:
    """``process`` is the one whose rankings are shown, of those in the file (``chosen``)."""

    process: Process
    chosen: tuple[Process, ...]
    processes: tuple[Process, ...]
    headline: str
    finding: str
    reasons: tuple[str, ...]
    parts: tuple[Part, ...]
    main: Mapping[str, Any] | None
    plots: tuple[Mapping[str, Any], ...]
    tables: tuple[Listing, ...]
    ranks: RankTable | None
    change: Change | None
    changes: tuple[Listing, ...]
    others: tuple[tuple[int, str], ...]

    @property
    def listings(self) -> tuple[Listing, ...]:
        """All that can leave as a file."""
        return (*self.tables, *([self.ranks] if self.ranks else []), *self.changes)

    @property
    def launches(self) -> Mapping[str, Any]:
        return self.process.told.get("launches") or {}


def page_of(trace: Artifact, request: HttpRequest) -> ProfilePage | None:
    """``None`` for what is no profiler trace, or was read before profiles were stored."""
    chosen = own(trace)
    if not chosen:
        return None
    process = next((one for one in chosen if str(one.rank) == request.GET.get("rank")), chosen[0])
    processes, others = ranks_of(trace), traces_beside(trace)
    device = _main_device(process)
    change = _change(trace, process, request.GET.get("against", ""), others)
    told = (process, tuple(chosen), tuple(processes), *_answer(process, processes, device))
    return ProfilePage(
        *told,
        *_draw(process, processes, device),
        _tables(process, request),
        RankTable(rank_rows(processes), request) if len(processes) > 1 else None,
        change,
        _changes(change, request),
        tuple(others),
    )


def _main_device(process: Process) -> Mapping[str, Any] | None:
    """The device with the most compute."""
    return max(process.told["devices"], key=lambda row: row["compute"], default=None)


def _answer(
    process: Process, processes: Sequence[Process], device: Mapping[str, Any] | None
) -> tuple[str, str, tuple[str, ...], tuple[Part, ...]]:
    """Headline, finding, reasons and parts."""
    if device is None:
        return _host_answer(process)
    place = f", rank {process.rank} of {process.told['world']}" if process.told["world"] > 1 else ""
    headline = f"Of {human(device['span'], 's')} on {device['name']}{place}:"
    reasons = [*words.reasons_of(process, device), words.straggler_of(processes)]
    parts = tuple(
        Part(said, device[key], device[key] / device["span"], key)
        for key, said in words.PARTS
        if device["span"] and device[key] > 0
    )
    return headline, f"{words.split_words(device)}.", tuple(filter(None, reasons)), parts


def _host_answer(process: Process) -> tuple[str, str, tuple[str, ...], tuple[Part, ...]]:
    host, ops = process.told["host"], process.told.get("operators") or ()
    if not host:
        return "The trace has no calls.", "", (), ()
    reasons = tuple(words.top_of(ops, "operator", "host", "the time inside operators"))
    said = (("operators", "inside operators", "compute"), ("between", "between operators", "idle"))
    parts = tuple(Part(text, host[key], host[key] / host["span"], color) for key, text, color in said)
    headline = f"Of {human(host['span'], 's')} on the host, where no accelerator was recorded:"
    return headline, f"{words.host_words(host)}.", reasons, parts


def _draw(
    process: Process, processes: Sequence[Process], device: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, tuple[Mapping[str, Any], ...]]:
    """The large figure, and those below it."""
    divided = [*filter(None, (figures.by_device(processes), figures.by_step(device)))] if device else []
    main, others = (divided[0], divided[1:]) if divided else (figures.by_name(process), [])
    launches = process.told.get("launches") or {}
    plots = [
        *others,
        figures.idle_by_cause(process),
        launches.get("plot"),
        *(process.told.get("memory") or ()),
    ]
    return main, tuple(filter(None, plots))


def _tables(process: Process, request: HttpRequest) -> tuple[Listing, ...]:
    told, found = process.told, list[Listing]()
    for key, table, title in (
        ("kernels", KernelTable, "Kernels, copies and fills"),
        ("operators", OperatorTable, "Operators"),
        ("modules", ModuleTable, "Modules"),
    ):
        if told.get(key):
            rows = add_shares([{"host": 0.0, **row} for row in told[key]])
            hidden = () if told["devices"] else ("seconds",)
            found.append(table(rows, request, title=title, per_page=12, exclude=hidden))
    return tuple(found)


def _change(
    trace: Artifact, process: Process, against: str, others: Sequence[tuple[int, str]]
) -> Change | None:
    """Against the same rank of the other trace, else its first."""
    pk = next((pk for pk, _ in others if str(pk) == against), None)
    if pk is None:
        return None
    there = own(Artifact.objects.of(trace.project).get(pk=pk))
    return change_of(process, next((one for one in there if one.rank == process.rank), there[0]))


def _changes(change: Change | None, request: HttpRequest) -> tuple[Listing, ...]:
    if change is None:
        return ()
    rows = (
        ("Kernels that changed", "kernel-change-", change.kernels),
        ("Operators that changed", "operator-change-", change.operators),
    )
    return tuple(
        ChangeTable(found, request, title=title, prefix=prefix, per_page=12)
        for title, prefix, found in rows
        if found
    )
