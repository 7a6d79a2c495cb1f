"""Which module each call belongs to: the innermost one that ran, of a backward call its forward call's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.readers.kineto_events import MODULE
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


def modules_of(
    calls: Sequence[Any], modules: Sequence[Any], names: tuple[str, ...]
) -> tuple[Ints, tuple[str, ...]]:
    """The module of each call as a place in ``names``, which are returned with the paths added (-1: none).

    ``calls`` are columns (name, thread, external, sequence, is_op, start, end), ``modules`` (name, thread,
    start, end); both by start.
    """
    found = np.full(len(calls[0]), -1, np.int64)
    if not len(modules[0]):
        return found, names
    table = {name: place for place, name in enumerate(names)}
    for thread in np.unique(modules[1]).tolist():
        running, inside = np.flatnonzero(modules[1] == thread), np.flatnonzero(calls[1] == thread)
        paths = _Paths([names[place].removeprefix(MODULE) for place in modules[0][running].tolist()], table)
        found[inside] = paths.at(modules[2][running], modules[3][running], calls[5][inside])
    return _with_backward(found, _inherit(calls[1], calls[5], calls[6], calls[3])), tuple(table)


class _Paths:
    """Paths of nested modules, added to a table of texts."""

    def __init__(self, names: Sequence[str], table: dict[str, int]) -> None:
        self.names, self.table = names, table

    def at(self, start: Floats, end: Floats, times: Floats) -> list[int]:
        """The path that is open at each of ``times``, which ascend."""
        found, open_, upcoming = [], list[tuple[float, str]](), 0
        for time in times.tolist():
            while upcoming < len(start) and start[upcoming] <= time:
                self._close(open_, float(start[upcoming]))
                above = f"{open_[-1][1]}." if open_ else ""
                open_.append((float(end[upcoming]), above + self.names[upcoming]))
                upcoming += 1
            self._close(open_, time)
            found.append(self.table.setdefault(open_[-1][1], len(self.table)) if open_ else -1)
        return found

    @staticmethod
    def _close(open_: list[tuple[float, str]], time: float) -> None:
        while open_ and open_[-1][0] <= time:
            open_.pop()


def _inherit(thread: Ints, start: Floats, end: Floats, sequence: Ints) -> Ints:
    """Autograd's number of each call, where it has none that of the call around it."""
    found = sequence.copy()
    open_: dict[int, list[tuple[float, int]]] = {}
    rows = zip(thread.tolist(), start.tolist(), end.tolist(), strict=True)
    for row, (place, begin, until) in enumerate(rows):
        stack = open_.setdefault(place, [])
        while stack and stack[-1][0] <= begin:
            stack.pop()
        if found[row] < 0 and stack:
            found[row] = stack[-1][1]
        stack.append((until, int(found[row])))
    return found


def _with_backward(module: Ints, sequence: Ints) -> Ints:
    """Autograd gives a backward call the number of its forward call."""
    known = (module >= 0) & (sequence >= 0)
    number, first = np.unique(sequence[known], return_index=True)
    if not len(number):
        return module
    place = np.clip(np.searchsorted(number, sequence), 0, len(number) - 1)
    told = module[known][first][place]
    return np.where((module < 0) & (sequence >= 0) & (number[place] == sequence), told, module)
