"""Cells of a shared host: repeated where it changed its pace meanwhile, whatever their figures."""

from __future__ import annotations

from functools import partial

import pytest

from experiments.core.progress import silent
from experiments.validate import pace
from experiments.validate.cells import ValidationCell
from experiments.validate.pace import Pace, steadiest


class Host:
    """A clock that its work moves, by what cells say that it takes."""

    def __init__(self) -> None:
        self.now = self.takes = 0.0

    def clock(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += self.takes


def keep(*paces: tuple[float, ...]) -> tuple[int, ValidationCell]:
    """How often a cell is made on a host whose work takes so many seconds at each look, and which is kept."""
    host, made = Host(), []

    def make(seen: Pace, progress: object) -> ValidationCell:
        for host.takes in paces[len(made)]:
            seen.look()
        made.append(str(len(made)))
        return ValidationCell("model", "serving", made[-1], "ok", None, {}, {}, 1.0, facts={"own": 1})

    cell = steadiest(make, partial(Pace, host.work, host.clock), silent)
    return len(made), cell


def test_a_steady_host_makes_a_cell_once():
    times, kept = keep((0.1, 0.101, 0.1))
    assert times == 1 and kept.facts == {"own": 1, "pace_change": pytest.approx(0.01), "tries": 1}


def test_it_is_repeated_until_the_host_was_steady():
    times, kept = keep((0.1, 0.15, 0.1), (0.2, 0.2, 0.2))
    assert times == 2 and kept.policy == "1" and kept.facts["tries"] == 2


def test_of_all_the_steadiest_is_kept():
    times, kept = keep((0.1, 0.15), (0.3, 0.1))
    assert times == pace.TRIES and kept.policy == "0"
    assert kept.facts["pace_change"] == pytest.approx(0.5)
