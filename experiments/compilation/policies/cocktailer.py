"""Cocktailer (Zhang et al., OSDI 2023).

Control flow is scheduled with the data flow, at the level that is fastest.

The paper compiles a construct of control flow either on the host, which launches its bodies' kernels, or into
one kernel. Here one graph of torch stands for the one kernel (``torch.cond``, ``torch.while_loop``), since a
cooperative kernel with barriers over its grid needs a GPU: the paper's choice among grid sizes has no
counterpart. Functions that do not call themselves are inlined always. Which level a kind of construct gets is
decided as in the release: every variant of the whole program is timed, those that fail are recorded and
skipped, the fastest wins.

What is different from the release: loops and branches may be mixed (every combination of levels is tried); a
loop that the data end can be unrolled too, by trips that keep their state once it has ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface.control import (
    BRANCH,
    LEVELS,
    LOOP,
    RECURSION,
    Construct,
    ControlLevel,
    ControlLoop,
    ControlPolicy,
    ControlProgram,
    ControlRecursion,
    ControlTrial,
    LevelChoices,
    Variant,
    frames,
    has_effects,
    small_ops,
)
from experiments.core.knobs import knob

#: Trips of a loop that share a graph when it is unrolled in part.
UNROLLED = (2, 4, 8)
DEEPEST_UNROLL = 4
#: As much as possible in one graph.
IN_ONE_GRAPH = {
    LOOP: ControlLevel(LOOP, "while_loop"),
    BRANCH: ControlLevel(BRANCH, "cond"),
    RECURSION: ControlLevel(RECURSION, "unroll", DEEPEST_UNROLL),
}


@dataclass(frozen=True)
class Cocktailer(ControlPolicy):
    """Loops, branches and recursion at the fastest level here: host, unrolled, or inside one graph."""

    name: ClassVar[str] = "cocktailer"
    mechanism: ClassVar[str] = "compile or capture"

    level: str = knob(
        "search", "time every variant, or one level for all constructs", choices=("search", "host", "graph")
    )
    stack: int = knob(32, "frames of an explicit stack", low=1, high=4096)
    most_frames: int = knob(512, "frames of all unrolled calls of a stack at most", low=1, high=2**20)
    most_trips: int = knob(128, "trips of a loop that one graph may hold", low=1, high=10_000)

    def variants(self, program: ControlProgram) -> LevelChoices:
        refused: dict[str, str] = {}
        columns = []
        for kind in program.kinds:
            kept = []
            for level in self._levels(kind, program.of(kind)):
                why = self._obstacle(level, program.of(kind))
                if why:
                    refused[str(level)] = why
                else:
                    kept.append(level)
            columns.append(kept)
        return LevelChoices(tuple(Variant(levels) for levels in itertools.product(*columns)), refused)

    def choose(self, trials: Sequence[ControlTrial]) -> ControlTrial | None:
        """Return the lowest time among those that worked; the first of equals."""
        timed = [trial for trial in trials if not trial.error and trial.seconds is not None]
        return min(timed, key=lambda trial: trial.seconds or 0.0, default=None)

    def _levels(self, kind: str, constructs: Sequence[Construct]) -> list[ControlLevel]:
        if self.level == "host":
            return [ControlLevel(kind, "host")]
        if self.level == "graph":
            return [IN_ONE_GRAPH[kind]]
        if kind == BRANCH:
            return [ControlLevel(kind, form) for form in LEVELS[BRANCH]]
        if kind == LOOP:
            most = max(entry.trips for entry in constructs if isinstance(entry, ControlLoop))
            parts = [ControlLevel(LOOP, "unroll", factor) for factor in UNROLLED if factor < most]
            return [
                ControlLevel(LOOP, "host"),
                *parts,
                ControlLevel(LOOP, "full"),
                ControlLevel(LOOP, "while_loop"),
            ]
        deep = [ControlLevel(RECURSION, "unroll", depth) for depth in range(2, DEEPEST_UNROLL + 1)]
        return [ControlLevel(RECURSION, "host"), ControlLevel(RECURSION, "stack", self.stack), *deep]

    def _obstacle(self, level: ControlLevel, constructs: Sequence[Construct]) -> str:
        """Why a level cannot be applied to all of ``constructs``; empty where it can."""
        if level.form == "full":
            longest = max(entry.trips for entry in constructs if isinstance(entry, ControlLoop))
            return f"{longest} trips in one graph" if longest > self.most_trips else ""
        if level.form == "both":
            bad = [entry.path for entry in constructs if any(map(has_effects, entry.bodies))]
            return f"a side of {bad[0]} has effects or is not known" if bad else ""
        if level.form == "ahead":
            return "" if self._can_move(constructs) else "no op of a side is small enough to move"
        if level.kind == RECURSION:
            return self._too_deep(level, constructs)
        return ""

    def _can_move(self, constructs: Sequence[Construct]) -> bool:
        graphs = [graph for entry in constructs for graph in entry.bodies]
        return any(graph is not None and small_ops(graph, self.small) for graph in graphs)

    def _too_deep(self, level: ControlLevel, constructs: Sequence[Construct]) -> str:
        for entry in constructs:
            assert isinstance(entry, ControlRecursion)
            if level.form == "stack" and entry.depth >= level.factor:
                return f"{entry.path} is {entry.depth + 1} calls deep, the stack {level.factor}"
            needed = frames(entry.width, level.factor, self.stack)
            if level.form == "unroll" and needed > self.most_frames:
                return f"{needed} frames"
        return ""
