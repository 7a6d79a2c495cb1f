"""Nothing that was started is left, whatever it does to escape."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from labtools import processes, supervisor

ROOT = Path(__file__).resolve().parents[2]

# The supervisor sets the signal handlers of its process and adopts orphans, so it gets a process of its own.
#: A lab that has nothing left to do ends at once; so long (seconds) it may take on a machine with much else
#: to do.
PATIENCE = 120
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from labtools.problems import Interrupted, Problem
from labtools.supervisor import Program, Supervisor

folder = Path(sys.argv[1])

def interrupt(number, frame):
    raise Interrupted(number)

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, interrupt)

def program(name, code, **details):
    code = f"import os, signal, time; open({str(folder)!r} + '/{name}-' + str(os.getpid()), 'w'); " + code
    return Program(name, [sys.executable, "-c", code], folder / f"{name}.log", **details)

def remember(pids, troubles):
    (folder / "being-written").write_text(f"{pids} {troubles}")
    (folder / "being-written").replace(folder / "known")
"""


def supervise(folder: Path, body: str) -> subprocess.Popen[str]:
    script = PRELUDE + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def seen(folder: Path, name: str) -> list[int]:
    """Process numbers of the programs of this name that have started."""
    return [int(path.name.rpartition("-")[2]) for path in folder.glob(f"{name}-*")]


def wait_for(folder: Path, name: str, count: int = 1) -> list[int]:
    for _ in range(1200):
        if len(found := seen(folder, name)) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{name} did not start {count} times")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_obedient_deaf_and_runaway_processes(tmp_path: Path, number: signal.Signals) -> None:
    lab = supervise(
        tmp_path,
        """
        deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        # A double fork into a session of its own: no process group and no parent leads to it any more.
        away = f"open({str(folder)!r} + '/escaped-' + str(os.getpid()), 'w')"
        runaway = (
            f"os.fork() or (os.setsid(), os.fork() or ({away}, time.sleep(600)), os._exit(0)); "
            "time.sleep(600)"
        )
        with Supervisor(remember) as supervisor:
            try:
                supervisor.start(program("server", "time.sleep(600)", is_server=True))
                supervisor.start(program("obedient", "time.sleep(600)"))
                supervisor.start(program("deaf", deaf, stop_seconds=0.5))
                supervisor.start(program("runaway", runaway))
                supervisor.watch()
            except Interrupted:
                pass
        print("left cleanly")
        """,
    )
    started = [wait_for(tmp_path, name)[0] for name in ("server", "obedient", "deaf", "runaway", "escaped")]
    lab.send_signal(number)
    output = lab.communicate(timeout=PATIENCE)[0]
    assert output == "left cleanly\n"
    assert [pid for pid in started if processes.find(pid)] == []


def test_servers_outlive_the_programs_that_use_them(tmp_path: Path) -> None:
    lab = supervise(
        tmp_path,
        """
        note = "signal.signal(signal.SIGTERM, lambda *_: (open(%r, 'a').write('%s '), os._exit(0))); "
        listening = "open(%r, 'w'); time.sleep(600)"
        order = str(folder / "order")
        with Supervisor(remember) as supervisor:
            for name, is_server in (("server", True), ("web", False)):
                code = note % (order, name) + listening % str(folder / f"{name} listens")
                supervisor.start(program(name, code, is_server=is_server))
            while len(list(folder.glob("* listens"))) < 2:
                time.sleep(0.02)
        """,
    )
    lab.communicate(timeout=PATIENCE)
    assert (tmp_path / "order").read_text() == "web server "


def test_a_killed_program_is_started_again_and_its_orphans_are_ended(tmp_path: Path) -> None:
    lab = supervise(
        tmp_path,
        """
        child = f"os.fork() or (open({str(folder)!r} + '/child-' + str(os.getpid()), 'w'), time.sleep(600))"
        with Supervisor(remember) as supervisor:
            try:
                supervisor.start(program("worker", child + "; time.sleep(600)"))
                supervisor.watch()
            except Interrupted:
                pass
        """,
    )
    [worker], [child] = wait_for(tmp_path, "worker"), wait_for(tmp_path, "child")
    processes._send(worker, signal.SIGKILL)
    again = wait_for(tmp_path, "worker", count=2)
    assert processes.find(child) is None
    assert str(max(again, key=lambda pid: pid != worker)) in (tmp_path / "known").read_text()
    lab.terminate()
    assert "worker was ended by SIGKILL; starting it again" in lab.communicate(timeout=PATIENCE)[0]


def test_a_program_that_cannot_run_waits_longer_and_longer_and_the_others_live(tmp_path: Path) -> None:
    lab = supervise(
        tmp_path,
        """
        import labtools.supervisor
        labtools.supervisor.LOOK_EVERY = 0.05
        labtools.supervisor.FIRST_PAUSE = 0.4
        with Supervisor(remember) as supervisor:
            try:
                supervisor.start(program("database", "time.sleep(600)", is_server=True))
                supervisor.start(program("web", "raise SystemExit('no such module')"))
                supervisor.watch()
            except Interrupted:
                pass
        """,
    )
    wait_for(tmp_path, "web", count=6)
    assert "'web': 'web ended with exit code 1, " in (tmp_path / "known").read_text()
    [database] = seen(tmp_path, "database")
    assert processes.find(database)
    lab.terminate()
    said = lab.communicate(timeout=PATIENCE)[0].splitlines()
    assert sum("starting it again" in line for line in said) == 3
    waits = [line for line in said if "tried again in" in line]
    assert waits[0].startswith("web ended with exit code 1: no such module; tried again in ")


def test_what_a_killed_lab_had_started_ends_with_it(tmp_path: Path) -> None:
    lab = supervise(
        tmp_path,
        """
        with Supervisor(remember) as supervisor:
            supervisor.start(program("server", "time.sleep(600)", is_server=True, stop_signal=signal.SIGINT))
            supervisor.start(program("web", "time.sleep(600)"))
            supervisor.watch()
        """,
    )
    started = [wait_for(tmp_path, name)[0] for name in ("server", "web")]
    lab.kill()
    lab.communicate(timeout=PATIENCE)
    for _ in range(600):
        if not any(map(processes.find, started)):
            return
        time.sleep(0.05)
    raise AssertionError("a server outlived its lab")


def test_a_long_log_is_cut_while_its_program_writes(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * (supervisor.LOG_KEPT_BYTES + 1))
        supervisor.cut(log)
        writer.write(b"goes on")
    assert log.read_bytes() == b"goes on"
    assert log.with_suffix(".old.log").stat().st_size == supervisor.LOG_KEPT_BYTES + 1


def test_a_program_that_ends_while_it_should_become_ready_is_told_at_once(tmp_path: Path) -> None:
    lab = supervise(
        tmp_path,
        """
        try:
            with Supervisor(remember) as supervisor:
                full = "raise SystemExit('write failed: No space left on device')"
                supervisor.start(program("postgres", full, ready=lambda: False))
                supervisor.wait_until_ready("postgres")
        except Problem as problem:
            print(problem)
        """,
    )
    output = lab.communicate(timeout=PATIENCE)[0]
    assert (
        "postgres ended with exit code 1: write failed: No space left on device\n  -> free some space"
        in output
    )
