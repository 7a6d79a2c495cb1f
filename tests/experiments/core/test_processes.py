"""Work divided among processes: the answers of one, whatever becomes of a child."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.core.processes import Workers, map_in_processes


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


def pid_of(item: object) -> int:
    time.sleep(0.05)
    return os.getpid()


def test_workers_are_forked_once_and_gone_afterwards() -> None:
    with Workers(pid_of, 2) as workers:
        first, second = set(workers.map(range(6))), set(workers.map(range(6)))
        assert first == second and len(first) == 2
    assert multiprocessing.active_children() == []
    with Workers(pid_of, 1) as alone:
        assert alone.map(range(2)) == [os.getpid()] * 2


def test_items_are_those_of_the_call_and_not_of_the_fork() -> None:
    counted: list[int] = []

    def count(item: int) -> tuple[int, int]:
        counted.append(item)
        return item, len(counted)

    with Workers(count, 3) as workers:
        workers.map([1, 2, 3])
        assert [item for item, _ in workers.map([7, 8, 9, 10])] == [7, 8, 9, 10]
    assert counted == [], "what a process changes is lost"


def test_workers_that_died_between_two_calls_are_done_without() -> None:
    with Workers(pid_of, 2) as workers:
        for pid in set(workers.map(range(4))):
            os.kill(pid, signal.SIGKILL)
        assert workers.map(range(3)) == [os.getpid()] * 3


def test_what_ends_the_work_ends_the_workers() -> None:
    """As a cancel does: an error in this process, which waits for ten minutes of theirs."""

    class Cancelled(Exception):
        pass

    def cancel(*_: object) -> None:
        raise Cancelled

    before = signal.signal(signal.SIGALRM, cancel)
    try:
        with pytest.raises(Cancelled), Workers(time.sleep, 2) as workers:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            workers.map([600.0] * 4)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert multiprocessing.active_children() == []


KILLED = """
import os, time
from experiments.core.processes import Workers

def wait(place):
    os.write(1, f"{os.getpid()}\\n".encode())  # whole, next to the other's
    time.sleep(600)

with Workers(wait, 2) as workers:
    workers.map([0, 1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    root = Path(__file__).parents[3]
    parent = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, cwd=root)
    assert parent.stdout is not None
    try:
        workers = [int(parent.stdout.readline()) for _ in range(2)]
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    until = time.monotonic() + 60  # of the ten minutes that they would wait
    while any(map(is_at_work, workers)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(is_at_work, workers))


def is_at_work(pid: int) -> bool:
    """Whether a process is there and no zombie that nobody has waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Cancelled(Exception):
    """What a progress raises when nobody wants the answer any more."""


def test_what_is_raised_while_children_work_ends_them() -> None:
    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        map_in_processes(lambda item: time.sleep(600), range(2), 2, cancel)
    assert multiprocessing.active_children() == []


def test_where_no_more_can_be_forked_the_first_ones_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = os.fork
    forked: list[int] = []

    def fork_once() -> int:
        if forked:
            raise BlockingIOError("no more processes")
        forked.append(fork())
        return forked[0]

    monkeypatch.setattr(os, "fork", fork_once)
    with pytest.raises(BlockingIOError), Workers(pid_of, 2):
        pass
    assert multiprocessing.active_children() == []
