"""What the walls of each tier hold against a hostile trial, as root and as a user: tried, and told in
docs/security.md.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from labtools import preflight
from labtools.problems import Problem
from tests.conftest import ROOT
from tests.workers.namespace import DISK, PROCESSES
from workers import bubblewrap, sandbox, trial_accounts
from workers.guard import confine, landlock, seccomp, view
from workers.sandbox import BUBBLEWRAP, LANDLOCK, LIMITS, SPARE_PROCESSES, Cell, Limits

CELLS = [
    (BUBBLEWRAP, "root"),
    (BUBBLEWRAP, "user"),
    (LANDLOCK, "root"),
    (LANDLOCK, "contained"),
    (LANDLOCK, "user"),
    (LIMITS, "root"),
    (LIMITS, "user"),
]
#: How docs/security.md calls the accounts of a worker.
CALLED = {"root": "root", "contained": "root of a container", "user": "a user"}
#: Everything may be seen, made and lost inside: processes, mounts, memory, names, network.
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--net", "--uts"]
NAMESPACES += ["--propagation", "private", "--mount-proc"]
#: From this version on Landlock keeps signals and abstract sockets in (Linux 6.12).
SCOPES = 6
#: What resource limits and refused calls cannot hold: files and servers are as the account's own rights say.
OF_ANY_ACCOUNT = {
    "read the command line of another process",
    "write into a folder that everybody may write",
    "read a stored file of another run",
    "connect to a server of this host",
    "connect to a local socket by its path",
    "connect to a local socket without a path",
    "send to a local socket by its path",
}
OF_THE_WORKERS_ACCOUNT = {
    "read a secret file of the worker",
    "read the environment of another process",
    "read the memory of another process",
    "signal another process",
    "list another trial's folder",
    "read another trial's file",
    "change a stored file",
    "change the mode of a stored file",
    "read shared memory of this host",
}
OPEN = {
    (LANDLOCK, "user"): {"change the mode of a stored file"},
    (LIMITS, "root"): OF_ANY_ACCOUNT,
    (LIMITS, "user"): OF_ANY_ACCOUNT | OF_THE_WORKERS_ACCOUNT,
}
BEGIN, END = "<!-- what the probe found -->", "<!-- end of what the probe found -->"


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if os.geteuid() != 0 or subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("only root can make the namespaces in which a hole harms nothing")


@functools.cache
def found(tier: str, account: str) -> dict[str, Any]:
    """What ``namespace.py`` tells of one tier and account."""
    if tier == BUBBLEWRAP and not bubblewrap.walls():
        pytest.skip("bubblewrap does not start here")
    if tier == LANDLOCK and landlock.version() < SCOPES:
        pytest.skip(f"Landlock {landlock.version()} of this kernel holds less than that of Linux 6.12")
    told = run_in_namespaces(tier, account)
    assert (told["look"]["exit_code"], told["look"]["cause"]) == (0, ""), told["look"]
    return told


def run_in_namespaces(tier: str, account: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        words = [sys.executable, "-m", "tests.workers.namespace", tier, account, folder]
        ran = subprocess.run([*NAMESPACES, *words], cwd=ROOT, capture_output=True, text=True, timeout=1000)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def attempts(tier: str, account: str) -> dict[str, str]:
    return dict(json.loads(found(tier, account)["look"]["log"]))


@pytest.mark.parametrize(("tier", "account"), CELLS)
def test_a_hostile_trial_finds_open_what_is_known_to_be_and_takes_no_more_than_its_limits(
    tier: str, account: str
) -> None:
    told, tried = found(tier, account), attempts(tier, account)
    holes = OPEN.get((tier, account), set())
    assert {name for name, ending in tried.items() if ending == "open"} == holes
    assert told["alive"] == ("signal another process" not in holes)
    assert told["stored"] == "a stored file"
    assert told["left in shared memory"] == ["planted"]
    assert told["fork"]["cause"] == f"started more than {PROCESSES:,} processes and threads"
    assert 0 < told["fork"]["log"].count(".") <= PROCESSES + SPARE_PROCESSES
    for kind in ("write", "write unlinked"):
        assert told[kind]["cause"] == f"wrote more than {DISK / 2**30:.3g} GiB of files"


def test_without_walls_the_attempts_succeed() -> None:
    tried = run_in_namespaces("none", "root")
    assert {name for name, ending in tried.items() if ending != "open"} == set()
    assert len(tried) == 39


def test_the_table_of_the_walls_is_what_the_probe_found() -> None:
    heads = [f"`{tier}`, {CALLED[account]}" for tier, account in CELLS]
    rows = [["a hostile trial tries to", *heads], ["---"] * (len(CELLS) + 1)]
    columns = [attempts(tier, account) for tier, account in CELLS]
    for name in columns[0]:
        rows.append([name, *("**open**" if column[name] == "open" else "held" for column in columns)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    document = (ROOT / "docs" / "security.md").read_text()
    assert document.partition(BEGIN)[2].partition(END)[0].strip() == table


def test_root_starts_no_trial_behind_limits_alone_unless_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "_first_that_starts", lambda: (LIMITS, "no Landlock here"))
    for is_root, unsafe in ((False, False), (False, True), (True, True)):
        monkeypatch.setattr(sandbox.trial_accounts, "is_needed", lambda is_root=is_root: is_root)
        assert sandbox.best_tier(unsafe) == LIMITS
    with pytest.raises(sandbox.NoWalls, match="no Landlock here") as refused:
        sandbox.best_tier()
    assert "--unsafe" in refused.value.remedy
    with pytest.raises(Problem, match="neither works here"):
        preflight.require_walls(unsafe=False)


def test_each_trial_has_an_account_that_no_other_has() -> None:
    with trial_accounts.borrow() as one, trial_accounts.borrow() as other:
        assert one is not None and other is not None
        assert one.uid != other.uid and one.gid == other.gid == trial_accounts.GROUP
        taken = one.uid
    with trial_accounts.borrow() as next_one:
        assert next_one is not None and next_one.uid == taken
    with pytest.raises(ValueError, match="without an account"):
        Cell(LIMITS, Path("/nowhere")).command(["true"], Limits(1, 1), None)


def test_a_stored_file_is_lent_to_trials_alone(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    stored.write_text("a stored file")
    stored.chmod(0o600)
    trial_accounts.lend(stored)
    about = stored.stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (0, trial_accounts.GROUP, 0o640)


def test_a_folder_that_trials_cannot_pass_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "python").mkdir(parents=True)
    closed.chmod(0o700)
    monkeypatch.setattr(view, "separate_mounts", lambda: False)
    monkeypatch.setattr(view, "first_closed", lambda path: closed if path.is_relative_to(closed) else None)
    with pytest.raises(PermissionError, match="an account of their own, which cannot pass"):
        confine.look_from({"passable": ["/usr", str(closed / "python")]})


def test_numbers_of_refused_calls_are_the_kernels() -> None:
    header = next(Path("/usr/include").glob("*/asm/unistd_64.h"), None)
    if header is None or os.uname().machine != "x86_64":
        pytest.skip("the kernel's headers are not installed")
    lines = (line.split() for line in header.read_text().splitlines())
    numbers = {words[1]: int(words[2]) for words in lines if words[:1] == ["#define"] and len(words) == 3}
    known = {name: pair[0] for name, pair in seccomp.DENIED.items() if f"__NR_{name}" in numbers}
    assert len(known) > 50
    assert known == {name: numbers[f"__NR_{name}"] for name in known}
