"""The search: what was asked, the ladder where that does not fit, and the row chosen under the goal.

The ladder's order is that of what is given up. For the shortest step nothing is given up that need not be:
the answer is the fastest of the rows that fit and give up least. For the smallest peak it is the smallest of
all that fit, whatever it gives up. A device has one price, so the cheapest step is the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.advisor.ask import MEMORY, Ask
from experiments.advisor.ladder import LADDER, Setting, offload
from experiments.advisor.rows import Row, carry_out
from experiments.core.errors import BadInput, Infeasible
from experiments.core.progress import Progress, forward_only, part, silent
from experiments.core.units import human
from experiments.sources import step_of

#: What an alternative is called, which changes nothing of what is trained.
OFFLOADED = "offload of it all"


@dataclass(frozen=True)
class LeftOut:
    """A rung that does not apply, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Advice:
    """All that was tried.

    ``asked``         the workload as it is.
    ``rungs``         each added to those before.
    ``alternatives``  ways that change nothing of what is trained, offloaded.
    """

    ask: Ask
    asked: Row
    rungs: tuple[Row, ...] = ()
    alternatives: tuple[Row, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return (self.asked, *self.rungs, *self.alternatives)

    @property
    def chosen(self) -> Row | None:
        """The answer; ``None`` where nothing fits."""
        fitting = [row for row in self.rows if row.fits]
        if not fitting or (self.asked.fits and self.ask.goal != MEMORY):
            return self.asked if self.asked.fits else None
        if self.ask.goal == MEMORY:
            return min(fitting, key=lambda row: row.peak or 0.0)
        return min(fitting, key=lambda row: (len(row.gives_up), row.seconds or 0.0))

    @property
    def closest(self) -> Row | None:
        """The row with the smallest peak where nothing fits."""
        known = [row for row in self.rows if row.peak is not None]
        return min(known, key=lambda row: row.peak or 0.0, default=None)

    def refuse_misfits(self) -> None:
        """Raise ``Infeasible`` where nothing fits: by how much the best misses."""
        if self.chosen is not None:
            return
        capacity, closest = self.ask.capacity, self.closest
        if closest is None or closest.peak is None:
            raise Infeasible("nothing that was tried can be carried out", self.asked.reason or "advise")
        missing = closest.peak - capacity
        needs = f"nothing fits: the smallest, {', '.join((*closest.changed, closest.by))}, needs"
        sizes = f"{human(closest.peak, 'bytes')} of {human(capacity, 'bytes')}"
        raise Infeasible(
            f"{needs} {sizes}, {human(missing, 'bytes')} too much", self.ask.device.name, missing
        )

    def to_json(self) -> dict[str, Any]:
        capacity = self.ask.capacity
        rows = [{"kind": kind, **row.to_json(capacity)} for kind, some in self._kinds() for row in some]
        return {
            "ask": self.ask.to_json(),
            "rows": rows,
            "chosen": None if self.chosen is None else rows[self.rows.index(self.chosen)],
            "left_out": [vars(one) for one in self.left_out],
        }

    def _kinds(self) -> tuple[tuple[str, Sequence[Row]], ...]:
        return ("asked", (self.asked,)), ("rung", self.rungs), ("alternative", self.alternatives)


def advise_on_device(ask: Ask, progress: Progress = silent) -> Advice:
    """Carry out what is asked and, where it does not fit or memory is the goal, the ladder."""
    progress = forward_only(progress)
    parts = len(LADDER) + 3
    asked_setting = Setting(ask.workload.options, None)
    asked = carry_out(ask, asked_setting, "as asked", part(progress, 0.0, 1 / parts))
    found = Advice(ask, asked)
    if not asked.fits or ask.goal == MEMORY:
        setting = replace(asked_setting, optimizer=_optimizer(ask))
        found = _climb(found, setting, part(progress, 1 / parts, 1.0))
    progress(1.0, "done")
    return found


def _optimizer(ask: Ask) -> str | None:
    """The optimizer of the step as it was captured."""
    optimizer: str | None = step_of(ask.workload, None)[0].facts["optimizer"]
    return optimizer


def _climb(advice: Advice, asked: Setting, progress: Progress) -> Advice:
    """Try each rung on top of those that apply; and offload on those that change nothing of the result."""
    parts = len(LADDER) + 2
    setting = asked
    rungs: list[Row] = []
    left_out: list[LeftOut] = []
    harmless = [asked]
    for number, rung in enumerate(LADDER):
        share = part(progress, number / parts, (number + 1) / parts)
        try:
            changed = rung.change(setting)
            rungs.append(carry_out(advice.ask, changed, rung.name, share))
        except BadInput as error:
            left_out.append(LeftOut(rung.name, error.what))
            continue
        setting = changed
        if not changed.by and not changed.gives_up:
            harmless.append(changed)
    alternatives = []
    for number, changed in enumerate(harmless, start=len(LADDER)):
        share = part(progress, number / parts, min(1.0, (number + 1) / parts))
        if offload(changed) != setting:
            alternatives.append(carry_out(advice.ask, offload(changed), OFFLOADED, share))
    return replace(advice, rungs=tuple(rungs), alternatives=tuple(alternatives), left_out=tuple(left_out))
