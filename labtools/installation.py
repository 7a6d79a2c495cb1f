"""`.venv` and what is installed in it: made once, brought up to date when the requirement files change."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from labtools.layout import Layout
from labtools.preflight import without_password
from labtools.problems import FULL_DISK_REMEDY, Problem, is_about_a_full_disk
from labtools.progress import PipProgress, ProgressLine

RUNTIME = ("requirements.txt",)
RUNTIME_AND_TESTS = ("requirements.txt", "requirements-dev.txt")
GIB = 2**30
# The environment measured 1.9 GiB with a CPU build of torch; a CUDA build and its libraries take 6 GiB more.
NEEDED_BYTES = 3 * GIB
NEEDED_BYTES_CUDA = 9 * GIB


def ensure(layout: Layout, files: Sequence[str], torch_index: str | None = None) -> None:
    """Make the environment if it is missing and install the files whose text changed since the last time."""
    if not _find_outdated(layout, files):
        return
    with _one_at_a_time(layout):
        outdated = _find_outdated(layout, files)
        if outdated:
            require_disk_space(layout)
            if not environment_works(layout):
                _make_environment(layout)
            _install(layout, outdated, torch_index)
            _remember(layout, outdated)


def is_inside(layout: Layout) -> bool:
    return Path(sys.prefix).resolve() == layout.environment.resolve()


def continue_inside(layout: Layout, arguments: Sequence[str]) -> None:
    """Go on as the environment's Python: the same process, now with the installed packages."""
    if not is_inside(layout):
        os.execv(layout.python, [str(layout.python), str(layout.root / "lab"), *arguments])


def environment_works(layout: Layout) -> bool:
    """False also for an environment whose Python was removed or that was copied from another machine."""
    try:
        return subprocess.run([layout.python, "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def is_up_to_date(layout: Layout, files: Sequence[str]) -> bool:
    return not _find_outdated(layout, files)


def require_venv_module() -> None:
    missing = [name for name in ("venv", "ensurepip") if not _can_import(name)]
    if missing:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Problem(
            f"this Python ({sys.executable}) lacks the module {' and '.join(missing)}",
            f"on Debian or Ubuntu: sudo apt install python{version}-venv",
        )


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def require_disk_space(layout: Layout) -> None:
    free = shutil.disk_usage(layout.root).free
    if free < NEEDED_BYTES:
        raise Problem(
            f"{free / GIB:.1f} GiB free where the checkout is, the packages need {NEEDED_BYTES / GIB:.0f} "
            "GiB",
            "free some space, or move the checkout to a larger disk",
        )


def explain_pip(output: str, log: Path, torch_index: str | None = None) -> Problem:
    """The Problem behind a pip run that failed; ``torch_index`` where it asked only there."""
    if is_about_a_full_disk(output):
        return Problem("the disk became full while packages were installed", FULL_DISK_REMEDY)
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    what = f"pip could not install the packages: {errors[-1] if errors else 'it gave no reason'}"
    if torch_index and "No matching distribution found" in output:
        at = f"at {without_password(torch_index)}"
        return Problem(
            f"{what} {at}", f"check --torch-index (or LAB_TORCH_INDEX), or leave it out; log: {log}"
        )
    if any(sign in output for sign in ("NewConnectionError", "Max retries exceeded", "ConnectTimeoutError")):
        return Problem(what, f"check the network, or the proxy and index in pip's configuration; log: {log}")
    if "No matching distribution found" in output:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return Problem(
            what, f"there is no build for Python {python} here: try Python 3.11 or 3.12; log: {log}"
        )
    return Problem(what, f"read {log}")


def _make_environment(layout: Layout) -> None:
    require_venv_module()
    print(f"Making the environment {layout.environment}", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", layout.environment], capture_output=True, text=True
    )
    if made.returncode:
        lines = (made.stdout + made.stderr).strip().splitlines() or ["no reason given"]
        if is_about_a_full_disk(made.stderr):
            raise Problem("the disk became full while the environment was made", FULL_DISK_REMEDY)
        raise Problem(f"python -m venv failed: {lines[-1]}", f"remove {layout.environment} and start again")


def _install(layout: Layout, files: Sequence[str], torch_index: str | None) -> None:
    if torch_index:
        # Without its dependencies: such an index carries few other packages, and not the pinned versions.
        only_there = ["--no-deps", "--index-url", torch_index]
        _pip(layout, [*only_there, _torch_requirement(layout)], torch_index)
    _pip(layout, [part for name in files for part in ("-r", str(layout.root / name))])


def _torch_requirement(layout: Layout) -> str:
    lines = (layout.root / "requirements.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def _pip(layout: Layout, arguments: Sequence[str], torch_index: str | None = None) -> None:
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command = [str(layout.python), "-m", "pip", "install", *options, *arguments]
    log = layout.logs / "pip.log"
    line = ProgressLine()
    progress = PipProgress(lambda: next(layout.environment.glob("lib/python3*/site-packages"), None))
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        try:
            for text in _lines_or_ticks(pip):
                output.append(text)
                progress.read(text)
                line.show(progress.describe())
        finally:
            # A pip left running would go on writing into the environment of the next attempt.
            pip.terminate()
            log.write_text("".join(output))
    if pip.returncode:
        line.close("Installing packages: failed")
        raise explain_pip("".join(output), log, torch_index)
    line.close(progress.summary())


def _lines_or_ticks(process: subprocess.Popen[str]) -> Iterator[str]:
    """Lines as they come, and an empty text each half second, so that the clock on the line moves."""
    lines: queue.Queue[str | None] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=_pour, args=(process.stdout, lines), daemon=True)
    reader.start()
    while True:
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            process.wait()
            return
        yield line


def _pour(source: Iterator[str], into: queue.Queue[str | None]) -> None:
    for line in source:
        into.put(line)
    into.put(None)


def _find_outdated(layout: Layout, files: Sequence[str]) -> list[str]:
    installed = _read_fingerprints(layout)
    return [name for name in files if installed.get(name) != _fingerprint(layout, name)]


def _fingerprint(layout: Layout, name: str) -> str:
    digest = hashlib.sha256()
    for part in (name, "constraints.txt"):
        digest.update((layout.root / part).read_bytes())
    return digest.hexdigest()


def _stamp(layout: Layout) -> Path:
    return layout.environment / "lab-installed.json"


def _read_fingerprints(layout: Layout) -> dict[str, str]:
    """File name to fingerprint; empty where the environment itself no longer works."""
    try:
        stamps: dict[str, str] = json.loads(_stamp(layout).read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return {}
    return stamps if is_inside(layout) or environment_works(layout) else {}


def _remember(layout: Layout, files: Sequence[str]) -> None:
    stamps = _read_fingerprints(layout) | {name: _fingerprint(layout, name) for name in files}
    _stamp(layout).write_text(json.dumps(stamps, indent=1))


@contextmanager
def _one_at_a_time(layout: Layout) -> Iterator[None]:
    """Two ./lab that install at once would undo each other: the second waits."""
    with (layout.var / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another ./lab is installing packages; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
