"""Processes forked from a loaded one: their own pipes, environment and end, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from experiments.core.errors import LabError
from experiments.core.forked import ForkedProcess, ForkServer, server_of
from tests.conftest import ROOT
from tests.experiments.process_states import becomes

MODULE = "tests.experiments.core.forked_program"
SECONDS = 30.0
Start = Callable[..., ForkedProcess]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(MODULE)
    yield server
    server.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "log").open("w+b") as file:
        yield file


def tell(server: ForkServer, log: IO[bytes], *names: str, **environment: str) -> list[str]:
    """What a process says of itself."""
    process = server.start(["tell", *names], environment, log, speaks=True)
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read().decode().split()
    assert process.wait(SECONDS) == 0
    return said


def text_of(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode()


def test_a_process_hears_speaks_and_has_its_own_arguments(server: ForkServer, log: IO[bytes]) -> None:
    """The first one's pipes end although the second, which was forked later, still runs."""
    one, other = (server.start(["echo", name], {}, log, hears=True, speaks=True) for name in ("one", "other"))
    for process, name in ((one, "one"), (other, "other")):
        assert process.stdin is not None and process.stdout is not None
        assert process.poll() is None
        with process.stdin as entry:
            entry.write(b"word\n")
        with process.stdout as output:
            assert output.read() == f"{name} word\n".encode()
        assert process.wait(SECONDS) == 0
    assert text_of(log) == ""


def test_one_that_neither_hears_nor_speaks_has_no_input_and_writes_to_its_log(
    server: ForkServer, log: IO[bytes]
) -> None:
    process = server.start(["echo", "alone"], {}, log)
    assert (process.stdin, process.stdout) == (None, None)
    assert process.wait(SECONDS) == 0
    assert text_of(log) == "alone\n"


def test_what_the_program_loads_is_loaded_once_and_shared(server: ForkServer, log: IO[bytes]) -> None:
    one, other = (tell(server, log, "loaded", "parent") for _ in range(2))
    assert one == other
    assert one[0] == one[-1], "the process that loaded it is their parent"


def test_the_environment_is_what_was_asked_for_alone(server: ForkServer, log: IO[bytes]) -> None:
    assert tell(server, log, "variable", VARIABLE="this") == ["this"]
    assert tell(server, log, "variable") == []


def test_random_numbers_are_not_those_of_another_process(server: ForkServer, log: IO[bytes]) -> None:
    assert tell(server, log, "random") != tell(server, log, "random")


@pytest.mark.parametrize(
    ("arguments", "code", "last"),
    [(["fail", "luck"], 1, "ValueError: no luck"), (["exit", "7"], 7, None), (["exit", "0"], 0, None)],
)
def test_an_end_is_told_with_its_code_and_an_error_with_its_traceback(
    server: ForkServer, log: IO[bytes], arguments: list[str], code: int, last: str | None
) -> None:
    assert server.start(arguments, {}, log).wait(SECONDS) == code
    lines = text_of(log).splitlines()
    assert (lines[-1] if lines else None) == last
    assert not lines or any(line.startswith("Traceback") for line in lines)


def test_a_process_is_stopped_continued_and_killed(server: ForkServer, log: IO[bytes]) -> None:
    process = server.start(["sleep"], {}, log)
    process.send_signal(signal.SIGSTOP)
    assert becomes(process.pid, "T")
    process.send_signal(signal.SIGCONT)
    assert becomes(process.pid, "S")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(SECONDS) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    process.kill()  # of one that has ended nothing is asked


def test_an_interrupt_of_the_terminal_reaches_the_processes_and_not_the_server(
    server: ForkServer, log: IO[bytes]
) -> None:
    process = server.start(["sleep"], {}, log)
    [parent] = tell(server, log, "parent")
    os.kill(int(parent), signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 1
    assert "KeyboardInterrupt" in text_of(log)
    assert tell(server, log, "parent") == [parent]


def test_a_closed_server_leaves_nobody_even_where_one_is_stopped(log: IO[bytes]) -> None:
    server = ForkServer(MODULE)
    process = server.start(["sleep"], {}, log)
    process.send_signal(signal.SIGSTOP)
    server.close()
    assert server.has_ended
    assert becomes(process.pid, "", "Z")
    assert process.wait(SECONDS) == -signal.SIGKILL


def test_a_killed_server_takes_its_processes_along_and_the_next_request_has_another(log: IO[bytes]) -> None:
    server = server_of(MODULE)
    assert server_of(MODULE) is server
    process = server.start(["sleep"], {}, log)
    [parent] = tell(server, log, "parent")
    os.kill(int(parent), signal.SIGKILL)
    assert process.wait(SECONDS) == -signal.SIGKILL
    assert becomes(process.pid, "", "Z")
    with pytest.raises(LabError, match="a process could not be started"):
        server.start(["exit", "0"], {}, log)
    assert server_of(MODULE) is not server
    assert server_of(MODULE).start(["exit", "0"], {}, log).wait(SECONDS) == 0
    server_of(MODULE).close()


def test_nobody_outlives_a_killed_asker(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time; from experiments.core.forked import ForkServer;"
        f"server = ForkServer('{MODULE}'); log = open(sys.argv[1], 'wb');"
        "asleep, frozen = (server.start(['sleep'], {}, log) for _ in range(2));"
        "frozen.send_signal(signal.SIGSTOP);"
        "print(server.pid, asleep.pid, frozen.pid, flush=True); time.sleep(3600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as asker:
        assert asker.stdout is not None
        pids = [int(word) for word in asker.stdout.readline().split()]
        assert len(pids) == 3 and becomes(pids[2], "T")
        asker.kill()
    assert all(becomes(pid, "", "Z") for pid in pids)


def test_a_program_that_has_threads_is_refused_and_so_is_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(LabError, match=r"nowhere did not start: .*No module named"):
        ForkServer("tests.experiments.core.nowhere")
    monkeypatch.setenv("THREADED", "1")
    with pytest.raises(LabError, match="1 thread was started by what was loaded"):
        ForkServer(MODULE)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_process_keeps_the_memory_that_it_frees(server: ForkServer, log: IO[bytes]) -> None:
    process = server.start(["step"], {}, log, speaks=True)
    assert process.stdout is not None
    with process.stdout:
        assert int(process.stdout.read()) < 100
    assert process.wait(SECONDS) == 0
