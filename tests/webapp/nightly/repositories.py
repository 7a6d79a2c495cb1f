"""Git repositories that tests make: a package and commits that change it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

#: Nobody's settings and nobody's name.
ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    **{f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, check=True)
    return done.stdout.decode().strip()


def commits(folder: Path, count: int, change: Callable[[int], None]) -> Sequence[str]:
    """A repository with so many commits, each with what ``change`` made of its files; their revisions."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "-q")
    found = []
    for number in range(count):
        change(number)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
        found.append(git(folder, "rev-parse", "HEAD"))
    return found
