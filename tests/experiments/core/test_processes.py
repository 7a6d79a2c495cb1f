"""Work divided among processes: the answers of one, whatever becomes of a child."""

from __future__ import annotations

import os
import signal

import pytest

from experiments.core.processes import map_in_processes


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_answers_are_those_of_one_process_in_its_order(processes: int) -> None:
    factor = 7
    assert map_in_processes(lambda item: factor * item, range(5), processes) == [0, 7, 14, 21, 28]
    assert map_in_processes(lambda item: item, [], processes) == []


def test_several_processes_are_at_work_and_none_is_left() -> None:
    found = map_in_processes(lambda item: os.getpid(), range(20), 2)
    assert len(set(found)) == 2 and os.getpid() not in found
    for pid in set(found):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_a_killed_child_left_is_answered_here() -> None:
    here = os.getpid()

    def answer(item: int) -> int:
        if item == 1 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item

    assert map_in_processes(answer, range(4), 2) == [0, 1, 4, 9]


def test_the_first_error_comes_up_as_in_one_process(capfd: pytest.CaptureFixture[str]) -> None:
    def answer(item: int) -> float:
        return 1 / (item - 2)

    for processes in (1, 2):
        with pytest.raises(ZeroDivisionError):
            map_in_processes(answer, range(4), processes)
    assert capfd.readouterr().err == ""
