"""What moves while an experiment runs: its grid with times left and places in the queue, and the stream of
changes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Max
from django.http import StreamingHttpResponse
from django.utils import timezone

from webapp.runs import results, turns
from webapp.runs.models import Experiment, Run

#: How often the stream looks for changes, and how often it says that it lives (seconds).
LOOK_EVERY, KEEP_ALIVE = 0.5, 15.0
#: ``turned`` is told so long after the one before it for every run that has ended (seconds), since a
#: comparison grows with them; it never takes longer than the second.
PACE, LONGEST = 0.1, 2.0
#: How often a stream asks whether its reader may still read (seconds).
ASK_EVERY = 2.0
Allowed = Callable[[], Awaitable[bool]]
SILENT_AFTER = timedelta(minutes=2)
#: More rows than these are not watched by eye: those that move come first, the rest are counted.
MOST_ROWS = 300
FINAL = [str(state) for state in Run.FINAL]


@dataclass(frozen=True)
class Row:
    """A run of the grid. ``left`` is the time left in seconds from measured progress, ``None`` when not
    known; ``figures`` are those that rows show, in words.
    """

    run: Run
    left: float | None
    position: int | None
    silent_minutes: int | None
    figures: tuple[str, ...]

    @property
    def cause(self) -> str:
        return results.cause(self.run)

    @property
    def waits_for(self) -> Run | None:
        """The run that must succeed first (a capture shared by all), while it has not ended."""
        before = self.run.after
        return (
            before
            if before is not None and self.run.state == Run.State.QUEUED and not before.is_final
            else None
        )


@dataclass(frozen=True)
class Cells:
    """``rows`` are the runs that have begun or ended, in the order asked for; ``waiting`` have not begun."""

    rows: tuple[Row, ...]
    waiting: tuple[Row, ...]
    #: Metrics of which every row shows a figure.
    headlines: tuple[str, ...]
    #: The whole experiment as one bar.
    segments: tuple[results.Segment, ...]
    constant: tuple[tuple[str, Any], ...]
    varying: tuple[str, ...]
    #: Each state with how many runs are in it, in words.
    counts: tuple[tuple[str, str], ...]
    fraction: float
    left: float | None
    is_final: bool
    total: int
    #: Mode, family and hardware where they are the same in all.
    badge: tuple[str, str, str] | None

    @property
    def shown(self) -> int:
        return len(self.rows) + len(self.waiting)


def seconds_left(run: Run, now: datetime) -> float | None:
    """At the speed so far: elapsed x (1 - p) / p, once two per cent are done."""
    if run.state != Run.State.RUNNING or run.started_at is None or run.progress < 0.02:
        return None
    return (now - run.started_at).total_seconds() * (1 - run.progress) / run.progress


def position(run: Run) -> int | None:
    """1 for the run that is claimed next; ``None`` when it does not wait."""
    return places([run]).get(run.pk)


def places(runs: Iterable[Run]) -> dict[UUID, int]:
    """The place of each of ``runs`` that waits among all that wait; 1 for the run that is claimed next."""
    asked = {run.pk for run in runs if run.state == Run.State.QUEUED}
    if not asked:
        return {}
    line = Run.objects.filter(state=Run.State.QUEUED).order_by(*turns.ORDER).values_list("pk", flat=True)
    found = ((pk, place) for place, pk in enumerate(line.iterator(), 1) if pk in asked)
    return dict(itertools.islice(found, len(asked)))


def _silent_minutes(run: Run, now: datetime) -> int | None:
    last = run.progress_at or run.started_at
    if run.state != Run.State.RUNNING or last is None or now - last < SILENT_AFTER:
        return None
    return int((now - last).total_seconds() // 60)


def _rows(runs: Sequence[Run], now: datetime, headlines: Sequence[str]) -> list[Row]:
    found, waiting = results.figures(runs, headlines), places(runs)
    told = {
        run.pk: tuple(results.show_figure(found.get(run.pk, {}), name) for name in headlines) for run in runs
    }
    return [
        Row(run, seconds_left(run, now), waiting.get(run.pk), _silent_minutes(run, now), told[run.pk])
        for run in runs
    ]


def grid(experiment: Experiment) -> Cells:
    """The runs in the order asked for, what is equal in all of them apart."""
    runs = list(experiment.runs.select_related("artifact", "host", "after").order_by("queued_at", "id"))
    now = timezone.now()
    shown = runs if len(runs) <= MOST_ROWS else sorted(runs, key=_stillness)[:MOST_ROWS]
    headlines = results.headlines(runs)
    rows = _rows(shown, now, headlines)
    badges = {(run.mode, run.family, run.hardware) for run in runs}
    constant, varying = _differences(runs)
    counts = [(state, sum(run.state == state for run in runs)) for state in Run.State.values]
    return Cells(
        tuple(row for row in rows if row.run.state != Run.State.QUEUED),
        tuple(row for row in rows if row.run.state == Run.State.QUEUED),
        headlines,
        results.segments(runs),
        constant,
        varying,
        tuple((state, Run.State(state).count_in_words(count)) for state, count in counts if count),
        sum(1.0 if run.is_final else run.progress for run in runs) / max(len(runs), 1),
        _experiment_left(runs, now),
        all(run.is_final for run in runs),
        len(runs),
        badges.pop() if len(badges) == 1 else None,
    )


def _stillness(run: Run) -> int:
    """Running runs first, then those that went wrong, those that wait, and those that are done."""
    order = (Run.State.RUNNING, Run.State.FAILED, Run.State.REJECTED, Run.State.QUEUED)
    return order.index(run.state) if run.state in order else len(order)


def _experiment_left(runs: Sequence[Run], now: datetime) -> float | None:
    """Time left at the rate at which its runs have ended so far, no less than that of any that runs."""
    at_least = max((left for run in runs if (left := seconds_left(run, now)) is not None), default=None)
    ended = [run for run in runs if run.is_final and run.finished_at]
    started = [run.started_at for run in runs if run.started_at]
    if not ended or not started or len(ended) == len(runs):
        return at_least
    by_rate = (now - min(started)).total_seconds() / len(ended) * (len(runs) - len(ended))
    return max(by_rate, at_least or 0.0)


def columns_of(run: Run) -> dict[str, Any]:
    """What a run may differ in."""
    spec = run.spec
    options = (spec.get("workload") or {}).get("options") or {}
    return {
        "workload": str(run.artifact) if run.artifact else "–",
        "policy": run.policy,
        "hardware": run.hardware,
        "mode": run.mode,
        "seed": run.seed,
        **{name: value for name, value in options.items() if value is not None},
        **(spec.get("knobs") or {}),
    }


def _differences(runs: Sequence[Run]) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    """Columns equal in every run with their value, and the names of those that differ (put on
    ``run.cells``).
    """
    tables = [columns_of(run) for run in runs]
    names = list(dict.fromkeys(name for row in tables for name in row))
    same = [n for n in names if len({repr(row[n]) if n in row else "" for row in tables}) == 1]
    implied = _implied_knobs(runs)
    varying = tuple(n for n in names if n not in same and n not in implied and n != "mode")
    for run, row in zip(runs, tables, strict=True):
        run.cells = [row.get(name, "") for name in varying]  # type: ignore[attr-defined]
    return tuple((n, tables[0][n]) for n in same if tables[0][n] != ""), varying


def _implied_knobs(runs: Sequence[Run]) -> set[str]:
    """Knobs in which no two runs of one policy differ: who reads the policy's name knows them."""
    known = [(run.policy, run.spec.get("knobs") or {}) for run in runs]
    names = {name for _, knobs in known for name in knobs}
    values: dict[tuple[str, str], set[str]] = {}
    for policy, knobs in known:
        for name in names:
            values.setdefault((name, policy), set()).add(repr(knobs[name]) if name in knobs else "")
    return names - {name for (name, _), found in values.items() if len(found) > 1}


async def _pulse(experiment: UUID) -> tuple[Any, ...]:
    """Changes whenever a run of the experiment has moved."""
    runs = Run.objects.filter(experiment=experiment)
    moved = await runs.aaggregate(
        a=Max("progress_at"), b=Max("started_at"), c=Max("finished_at"), d=Max("after__progress_at")
    )
    states = [state async for state in runs.order_by("id").values_list("state", flat=True)]
    return (*moved.values(), tuple(states))


async def changes(experiment: UUID, is_allowed: Allowed) -> AsyncIterator[str]:
    """One ``changed`` at once (so that a page that was away catches up), then one for each change, then
    ``ended``; ``turned`` is told besides when the state of a run has changed, not only how far it is. It
    stops as soon as its reader ``is_allowed`` no more, asked every ``ASK_EVERY``.
    """
    seen: tuple[Any, ...] = ()
    told: tuple[str, ...] = ()
    quiet, asked, unturned = 0.0, 0.0, LONGEST
    while True:
        if asked >= ASK_EVERY:
            asked = 0.0
            if not await is_allowed():
                return
        now = await _pulse(experiment)
        states, ended = now[-1], sum(state in FINAL for state in now[-1])
        if now != seen:
            seen, quiet = now, 0.0
            yield "event: changed\ndata: \n\n"
        if ended == len(states):
            yield "event: ended\ndata: \n\n"
            return
        if states != told and unturned >= min(LONGEST, PACE * ended):
            told, unturned = states, 0.0
            yield "event: turned\ndata: \n\n"
        if quiet >= KEEP_ALIVE:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_EVERY)
        quiet += LOOK_EVERY
        asked += LOOK_EVERY
        unturned += LOOK_EVERY


def stream(experiment: UUID, is_allowed: Allowed) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(changes(experiment, is_allowed), content_type="text/event-stream")
    answer["X-Accel-Buffering"] = "no"
    return answer
