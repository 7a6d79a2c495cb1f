"""Step time against peak memory: what fits left of the capacity, what does not as crosses beyond it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.core.units import human
from webapp.compare import labels
from webapp.compare.answers.case import Case, value
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import addresses, by_mechanism, figure_json, look_of, mechanism_of
from webapp.compare.figures.scale import BrokenScale, broken_scale
from webapp.compare.statistics import pareto_front

TIME, IDEAL = "step_time", "ideal_step_time"
#: What the axis of memory reaches over: places on its broken scale, with a margin.
X_RANGE = (-0.02, 1.02)
#: What a family calls the peak of its fullest device.
MEMORY = {"memory": "peak_memory", "parallel": "peak_memory_per_device"}
#: So many points have their names next to them besides the front's and the baseline's.
NAMED = 14
#: What stands for a plan that does not fit, and a series that is in the legend alone.
CROSS = "x-thin-open"
NOWHERE = {"mode": "markers", "x": [None], "y": [None]}
#: Times that reach over more than this are drawn on a logarithmic axis.
LOGARITHMIC = 3.0


def front(case: Case) -> dict[str, Any] | None:
    """``None`` where nothing is known to draw, or the devices' memory is not."""
    memory = MEMORY[case.comparison.family]
    fits = case.having(TIME, memory)
    crossed = [
        entry for entry in case.misfits if (case.need(entry).memory or 0) > (case.capacity or math.inf)
    ]
    if case.capacity is None or not (fits or crossed):
        return None
    return _Drawing(case, memory, fits, crossed, case.capacity).figure()


class _Drawing:
    """The places of all marks of one figure."""

    def __init__(
        self, case: Case, memory: str, fits: list[Entry], crossed: list[Entry], capacity: float
    ) -> None:
        self.case, self.memory, self.fits, self.crossed, self.capacity = case, memory, fits, crossed, capacity
        needs = [self._size(entry) for entry in crossed]
        self.scale: BrokenScale = broken_scale([self._size(entry) for entry in fits], needs, capacity)
        times = [seconds for entry in (*fits, *crossed) if (seconds := self._seconds(entry))]
        known = [*times, *(value(entry, IDEAL) for entry in fits[:1] if IDEAL in entry.estimates)]
        self.is_known = bool(known)
        known = known or [1.0]
        self.is_log = max(known) > LOGARITHMIC * min(known)
        self.bottom = min(known) * 0.82 if self.is_log else max(0.0, min(known) - 0.15 * max(known))
        self.top = max(known) * (1.3 if self.is_log else 1.1)
        points = [(value(entry, TIME), value(entry, memory)) for entry in fits]
        self.best = [fits[index] for index in pareto_front(points, (True, True))]
        self.names = self._names()

    def _size(self, entry: Entry) -> float:
        need = self.case.need(entry).memory
        return value(entry, self.memory) if entry in self.case.done else float(need or 0)

    def _seconds(self, entry: Entry) -> float | None:
        return value(entry, TIME) if entry in self.case.done else self.case.need(entry).seconds

    def _point(self, entry: Entry) -> tuple[float, float]:
        """What is not known to take any time lies on the lower edge."""
        return self.scale.place(self._size(entry)), self._seconds(entry) or self.bottom

    @property
    def ends(self) -> tuple[float, float]:
        """What the axis of times reaches over."""
        return self.bottom * (0.94 if self.is_log else 1), self.top

    def _names(self) -> dict[int, tuple[str, str]]:
        """The name next to each mark and its side; those of the front first, then as many as find a place."""
        entries = [*self.fits, *self.crossed]
        base = [entry for entry in entries if entry is self.case.baseline]
        named = [*self.best, *base, *(e for e in entries if e not in self.best and e not in base)][:NAMED]
        scale = math.log10 if self.is_log else float
        points = [(x, scale(y)) for x, y in map(self._point, entries)]
        wanted = {id(entry): entry.name for entry in named}
        texts = [wanted.get(id(entry), "") for entry in entries]
        low, high = self.ends
        frame = labels.Frame(X_RANGE, (scale(low), scale(high)), self.scale.line)
        first = [place for place, entry in enumerate(entries) if entry in self.best or entry in base]
        placed = labels.place_labels(points, texts, labels.LEFT_FIRST, frame, first)
        return {id(entry): one for entry, one in zip(entries, placed, strict=True)}

    def figure(self) -> dict[str, Any]:
        series = [*self._marks(), *self._staircase(), *self._endless()]
        beyond = f"{len(self.crossed)} beyond it: memory they need" if self.crossed else ""
        ticks = self.scale.ticks
        label = "peak memory" if self.memory == "peak_memory" else "peak memory of the fullest device"
        return figure_json(
            "Step time against peak memory",
            "scatter",
            (f"{label}{', the scale changes at the capacity' if self.crossed and self.fits else ''}", ""),
            ("step time", "s") if self.is_known else ("step time: of none known", ""),
            log="y" if self.is_log else "",
            series=[{"always": True, "hover_only": True, **line} for line in series],
            x_ticks={"values": [place for place, _ in ticks], "labels": [text for _, text in ticks]},
            x_range=[*X_RANGE],
            y_range=[*self.ends],
            **({} if self.is_known else {"y_ticks": {"values": [], "labels": []}}),
            limit={
                "x": self.scale.line,
                "is_capacity": True,
                "text": f"{self.case.where}: {human(self.capacity, 'bytes')}",
                "beyond": beyond,
            },
        )

    def _marks(self) -> Iterator[dict[str, Any]]:
        """A series of what fits and one of crosses for each mechanism; the legend counts both."""
        family = self.case.comparison.family
        for mechanism, members in by_mechanism([*self.case.comparison.entries], family).items():
            look = look_of(mechanism, family)
            fits = [entry for entry in members if entry in self.fits]
            crossed = [entry for entry in members if entry in self.crossed]
            name = f"{mechanism} {len(fits)} of {len(members)}"
            yield {"name": name, **look, **(self._points(fits) or NOWHERE), "group": mechanism}
            if crossed:
                cross = {"symbol": CROSS, "of_group": mechanism}
                yield {"name": f"{mechanism}: does not fit", **look, **self._points(crossed), **cross}
        if self.crossed:
            words = "does not fit, in the color of its mechanism"
            yield {"name": words, "color": "ink-soft", "symbol": CROSS, **NOWHERE, "group": "crosses"}

    def _points(self, entries: Sequence[Entry]) -> dict[str, Any]:
        if not entries:
            return {}
        points = [self._point(entry) for entry in entries]
        kept = {id(entry) for entry in (*self.best, self.case.baseline)}
        return {
            "mode": "markers+text",
            "x": [x for x, _ in points],
            "y": [y for _, y in points],
            "size": [12 if entry in self.best else 8 for entry in entries],
            "text": [self.names[id(entry)][0] for entry in entries],
            "narrow_text": [self.names[id(e)][0] if id(e) in kept else "" for e in entries],
            "textposition": [self.names[id(entry)][1] for entry in entries],
            "hover": [self._describe(entry) for entry in entries],
            "href": addresses(entries, self.case.project),
        }

    def _describe(self, entry: Entry) -> str:
        seconds = self._seconds(entry)
        took = human(seconds, "s") if seconds is not None else "time unknown"
        needs = human(self._size(entry), "bytes")
        told = f"{needs}, {took}" if entry in self.fits else f"does not fit: needs {needs}, {took}"
        return f"{entry.name}, {mechanism_of(entry)}<br>{told}"

    def _staircase(self) -> Iterator[dict[str, Any]]:
        points = sorted(self._point(entry) for entry in self.best)
        if len(points) > 1:
            line = {"mode": "lines", "shape": "hv", "color": "ink-soft"}
            x, y = [x for x, _ in points], [y for _, y in points]
            yield {"name": "Pareto front", **line, "x": x, "y": y, "hover": ["Pareto front"] * len(points)}

    def _endless(self) -> Iterator[dict[str, Any]]:
        """The time of the step with endless memory, which no policy beats."""
        having = [entry for entry in self.fits if IDEAL in entry.estimates]
        if not having:
            return
        ideal = value(having[0], IDEAL)
        said = f"{human(ideal, 's')} with endless memory"
        dotted = {"mode": "lines", "dash": "dot", "color": "ink-soft"}
        yield {"name": said, **dotted, "x": [*X_RANGE], "y": [ideal, ideal], "hover": [said] * 2}
