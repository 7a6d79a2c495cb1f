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
#: What of a checkout a run is carried out by.
PACKAGE = ("experiments",)


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


def commits_between(text: str) -> list[Commit] | None:
    """The last revision that gave the old figure and those after it that changed the package, the oldest
    first; ``None`` where git knows no such range.
    """
    found = RANGE.search(text)
    if found is None:
        return None
    form = "--format=%H%x09%an%x09%aI%x09%s"
    first = _git("log", "-1", form, found[1], "--")
    others = _git("log", "--reverse", form, f"{found[1]}..{found[2]}", "--", *PACKAGE)
    if first is None or others is None:
        return None
    rows = [line.split("\t", 3) for line in (first + others).splitlines()]
    return [Commit(*row) for row in rows if len(row) == 4]


def _git(*words: str) -> str | None:
    command = ["git", "-C", str(settings.CODE_ROOT), *words]
    try:
        ended = subprocess.run(command, capture_output=True, check=True, timeout=LIMIT)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.decode(errors="replace")
