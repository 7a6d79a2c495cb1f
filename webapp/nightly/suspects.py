"""The commits between two revisions of the code, and what they changed, where this is a checkout."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from django.conf import settings

#: What is shown of a difference (characters), and how long git may take (s).
LONGEST, LIMIT = 200_000, 10
RANGE = re.compile(r"([0-9a-f]{7,40})\.\.([0-9a-f]{7,40})")
MOST = 50


@dataclass(frozen=True)
class Commit:
    revision: str
    author: str
    at: str
    subject: str


@dataclass(frozen=True)
class Suspects:
    """``commits``, the newest first, at most ``MOST`` of ``total``; ``changed`` is the difference of both
    ends, cut where it is long.
    """

    commits: tuple[Commit, ...]
    total: int
    changed: str
    is_cut: bool


def suspects(text: str) -> Suspects | None:
    """Those of ``aaaaaaa..bbbbbbb`` in an alert's words; ``None`` where git knows no such range."""
    found = RANGE.search(text)
    if found is None:
        return None
    ends = f"{found[1]}..{found[2]}"
    log = _git("log", "--format=%h%x09%an%x09%aI%x09%s", ends, "--")
    changed = _git("diff", "--no-color", "--no-ext-diff", found[1], found[2], "--")
    if log is None or changed is None:
        return None
    rows = [line.split("\t", 3) for line in log.splitlines()]
    commits = tuple(Commit(*row) for row in rows if len(row) == 4)
    return Suspects(commits[:MOST], len(commits), changed[:LONGEST], len(changed) > LONGEST)


def _git(*words: str) -> str | None:
    command = ["git", "-C", str(settings.ROOT), *words]
    try:
        ended = subprocess.run(command, capture_output=True, check=True, timeout=LIMIT)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.decode(errors="replace")
