"""`./lab up` on a machine where something is in the way: one clear line each, and what to do."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: What `./lab` needs before anything is installed.
FILES = ("lab", "requirements.txt", "requirements-dev.txt", "constraints.txt")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was ever installed or started."""
    made = tmp_path / "checkout"
    made.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, made)
    for folder in ("labtools", "experiments/client"):
        shutil.copytree(ROOT / folder, made / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "experiments" / "__init__.py", made / "experiments")
    return made


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def up(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    rest = {name: value for name, value in os.environ.items() if name not in ("LAB_VAR", "PYTHONPATH")}
    command = [sys.executable, "lab", "up", *arguments]
    return subprocess.run(command, cwd=checkout, env=rest | environment, capture_output=True, text=True)


def test_a_busy_port_is_told_before_anything_is_installed(checkout: Path, busy: int) -> None:
    refused = up(checkout, "--port", str(busy))
    what, remedy = refused.stderr.splitlines()
    assert (refused.returncode, what) == (1, f"lab: port {busy} is used by another program")
    assert remedy.startswith("  -> ./lab up --port ")
    assert not (checkout / ".venv").exists()


def test_the_record_of_a_killed_lab_is_cleared_away_and_stops_nothing(checkout: Path, busy: int) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    child = {"name": "web", "pid": os.getpid(), "started": "another start"}
    stale = {"pid": gone.pid, "started": "1", "port": 8000, "children": [child]}
    (checkout / "var").mkdir()
    (checkout / "var" / "lab.json").write_text(json.dumps(stale))
    started = up(checkout, "--port", str(busy))
    # The process that has the number now, this one, is left alone; the start goes on to the next obstacle.
    assert started.stdout == (
        f"An earlier lab (process {gone.pid}) ended without clearing up; "
        "cleared up: nothing was left running\n"
    )
    assert started.stderr.startswith(f"lab: port {busy} is used")
    assert not (checkout / "var" / "lab.json").exists()


def test_a_python_without_venv_is_told_with_the_package_that_has_it(checkout: Path) -> None:
    stub = checkout / "stub"
    stub.mkdir()
    (stub / "venv.py").write_text("raise ImportError('No module named venv')\n")
    refused = up(checkout, "--port", free_port(), PYTHONPATH=str(stub))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines() == [
        f"lab: this Python ({sys.executable}) lacks the module venv",
        f"  -> on Debian or Ubuntu: sudo apt install python{version}-venv",
    ]


def test_a_small_disk_is_told_with_what_is_needed(checkout: Path) -> None:
    body = f'cp -r "$1" "$2/c" && cd "$2/c" && exec {sys.executable} lab up --port {free_port()}'
    refused = on_a_small_disk("16m", checkout, body)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines() == [
        "lab: 0.0 GiB free where the checkout is, the packages need 3 GiB",
        "  -> free some space, or move the checkout to a larger disk",
    ]


@pytest.mark.parametrize("size", ["8k", "1m", "20m"])
def test_a_disk_that_is_full_when_the_database_is_made_is_told(checkout: Path, size: str) -> None:
    prepare = """
import sys
from pathlib import Path
from workers.embedded import Postgres, ServiceError
try:
    Postgres(Path(sys.argv[1]) / "postgres", 1).prepare()
except (ServiceError, OSError) as error:
    print(error)
"""
    body = f"cd {ROOT} && exec {sys.executable} -c '{prepare}' \"$2\""
    told = on_a_small_disk(size, checkout, body).stdout
    assert told.startswith("the disk is full: initdb failed: ")
    assert "No space left on device" in told or "could not extend file" in told  # PostgreSQL's own words
    assert told.count("\n") == 1


def on_a_small_disk(size: str, checkout: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run ``body`` (``$1`` the checkout, ``$2`` a folder with ``size`` bytes) where nobody else sees the
    disk.
    """
    small = checkout.parent / "small"
    small.mkdir()
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")
    script = f'mount -t tmpfs -o size={size},mode=777 tmpfs "$2" && {body}'
    environment = {name: value for name, value in os.environ.items() if name != "LAB_VAR"}
    return subprocess.run(
        [*alone, "sh", "-c", script, "sh", str(checkout), str(small)],
        env=environment,
        capture_output=True,
        text=True,
    )


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
