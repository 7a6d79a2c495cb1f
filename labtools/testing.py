"""`./lab test`: style, types, walls and tests, against a Postgres and a Valkey of its own. `./lab walks`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from labtools import installation, processes
from labtools.layout import Layout

GIB = 2**30
#: Letters of the walks (tests/webapp/walks).
WALKS = "abcdef"
#: Each has a database of Valkey, of which there are sixteen, and may hold a few GB.
MOST_PROCESSES = 8


@dataclass(frozen=True)
class Step:
    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    name: str
    seconds: float
    code: int
    closing_line: str = ""


def run(layout: Layout, fast: bool, pytest_arguments: Sequence[str], arguments: Sequence[str]) -> int:
    prepare(layout, arguments)
    began = time.monotonic()
    executor = ThreadPoolExecutor(1)
    try:
        types = executor.submit(_carry_out, layout, type_check(layout), os.environ, quiet=True)
        results = [_carry_out(layout, step, os.environ) for step in style_checks(layout)]
        tests = run_tests(layout, pytest_arguments, fast)
        results += [types.result(), tests]
    finally:
        processes.end_descendants()
    return report(results, time.monotonic() - began)


def walk(layout: Layout, letters: Sequence[str], arguments: Sequence[str]) -> int:
    """Walk the first hour in a browser, each walk to its end, and print its clicks and seconds."""
    prepare(layout, arguments)
    os.environ["LAB_WALKS"] = "".join(letters) or WALKS
    try:
        return run_tests(layout, ["tests/webapp/walks"]).code
    finally:
        processes.end_descendants()


def prepare(layout: Layout, arguments: Sequence[str]) -> None:
    """Make the environment of the tests and go on inside it."""
    layout.make()
    installation.ensure(layout, installation.RUNTIME_AND_TESTS, torch_index=os.environ.get("LAB_TORCH_INDEX"))
    installation.continue_inside(layout, arguments)
    processes.adopt_orphans()


def style_checks(layout: Layout) -> list[Step]:
    """Checks of a second, that need no server. What each looks at stands in pyproject.toml."""
    python = str(layout.python)
    return [
        Step("ruff check", (python, "-m", "ruff", "check", ".")),
        Step("ruff format", (python, "-m", "ruff", "format", "--check", ".")),
        # By module: the installed script names the folder it was installed in.
        Step("lint-imports", (python, "-c", "from importlinter.cli import lint_imports_command as m; m()")),
    ]


def type_check(layout: Layout) -> Step:
    """A minute on one core: it runs concurrently with the tests, and what it says is printed when it ends."""
    return Step("mypy", (str(layout.python), "-m", "mypy", "experiments", "webapp", "workers", "labtools"))


def report(results: Sequence[Result], seconds: float) -> int:
    """Print what happened in so many seconds, pytest's own closing line last; 1 where anything failed."""
    print("\nstep           seconds  result")
    for result in results:
        outcome = "ok" if result.code == 0 else f"FAILED (exit code {result.code})"
        print(f"{result.name:<14} {result.seconds:>7.1f}  {outcome}")
    failed = [result.name for result in results if result.code]
    print(f"total          {seconds:>7.1f}  ", end="")
    print(f"FAILED: {', '.join(failed)}" if failed else "ok")
    print("\n".join(result.closing_line for result in results if result.closing_line), flush=True)
    return 1 if failed else 0


def run_tests(layout: Layout, extra: Sequence[str], fast: bool = False) -> Result:
    """Carry out all tests, or those that pytest is asked for by ``extra``, against servers of their own."""
    from workers.services import temporary_servers

    command = [str(layout.python), "-m", "pytest", "--durations=15"]
    command += ["-m", "not slow"] if fast else []
    command += [] if extra else in_processes(cores())
    command += ["--color=yes"] if sys.stdout.isatty() else []
    with scratch_folder() as folder, temporary_servers(folder) as servers:
        found = {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
        own = {"LAB_VAR": str(folder / "var"), "DJANGO_SETTINGS_MODULE": "webapp.settings.test"}
        # Processes share the cores; torch's threads would only wait for each other.
        threads = {} if extra else {"OMP_NUM_THREADS": "1"}
        # Hundreds of processes are started, and none shall compile anew what it imports.
        compiled = {"PYTHONDONTWRITEBYTECODE": ""}
        environment = os.environ | found | own | threads | compiled
        return _carry_out(layout, Step("pytest", (*command, *extra)), environment)


def in_processes(cores: int) -> list[str]:
    """Options of pytest: three processes for two cores, since tests also wait, for servers and browsers. A
    file's tests stay together, for what they share; files begin in the order in which they were collected.
    """
    if cores == 1:
        return []
    processes = min(cores + cores // 2, MOST_PROCESSES)
    return ["-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder"]


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in memory where there is room, else on disk; the database's account may pass through it."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > GIB
    folder = Path(tempfile.mkdtemp(prefix="lab-test-", dir=memory if roomy else None))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _carry_out(layout: Layout, step: Step, environment: Mapping[str, str], quiet: bool = False) -> Result:
    """Run a step, its output passed on as it comes, or where ``quiet`` at its end."""
    began = time.monotonic()
    output = bytearray()
    with subprocess.Popen(
        step.command,
        cwd=layout.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for chunk in chain([f"\n=== {step.name}\n".encode()], _chunks(process.stdout.fileno())):
                output += chunk
                if not quiet:
                    _write(chunk)
        except BaseException:
            process.kill()
            raise
    if quiet:
        _write(output)
    closing = closing_line(output[-4000:].decode(errors="replace")) if step.name == "pytest" else ""
    return Result(step.name, time.monotonic() - began, process.returncode, closing)


def _chunks(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, 65536):
        yield chunk


def _write(output: bytes | bytearray) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def closing_line(output: str) -> str:
    """pytest's last word, as `12 passed, 1 skipped in 3.21s` with or without its frame and colors."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output.splitlines()]
    closing = [
        line
        for line in lines
        if re.search(r"\b(passed|failed|errors?|skipped|no tests ran)\b.* in [\d.]+s", line)
    ]
    return closing[-1] if closing else ""
