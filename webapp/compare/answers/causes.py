"""Why runs fell out, in a few words, so that those with one reason are told together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.units import human
from webapp.compare.answers.case import Case
from webapp.compare.entries import Entry
from webapp.runs.models import Run

#: ``op 2105 (mm_42, forward): what is wrong``, as a memory run says where it stopped.
AT_OP = re.compile(r"op \d+ \((?P<op>[^)]*)\): (?P<what>.*)")
#: What a run says is wrong at an op, and what is said of all of them.
AT_OPS = (
    ("find no hole", "no hole of memory is large enough at {}"),
    ("nothing can be evicted", "nothing is left to evict at {}"),
    ("", "memory runs out at {}"),
)
#: A size that a reason has digit by digit, its unit told with the first.
BYTES = re.compile(r"\b(\d{7,})(?: bytes)?\b")
#: So long a reason is said in a sentence.
LONGEST = 140


@dataclass(frozen=True)
class Cause:
    """Runs that fell out for one reason. ``missing`` are the bytes that each lacks, where they are known."""

    words: str
    entries: tuple[Entry, ...]
    missing: tuple[float, ...]

    @property
    def least(self) -> float | None:
        return min(self.missing, default=None)

    @property
    def most(self) -> float | None:
        return max(self.missing, default=None)


def causes_of(case: Case) -> tuple[Cause, ...]:
    """The reasons why runs fell out, that of the most first."""
    groups: dict[str, list[Entry]] = {}
    for entry in case.fallen:
        groups.setdefault(words_of(entry.run), []).append(entry)
    found = [Cause(words, tuple(entries), _missing(case, entries)) for words, entries in groups.items()]
    return tuple(sorted(found, key=lambda cause: -len(cause.entries)))


def _missing(case: Case, entries: Sequence[Entry]) -> tuple[float, ...]:
    needed = [memory for entry in entries if (memory := case.need(entry).memory) is not None]
    return tuple(size - case.capacity for size in needed if case.capacity is not None)


def words_of(run: Run) -> str:
    """``memory runs out at mm_42, forward``; a reason of another form as it was given, without its place."""
    if run.state in (Run.State.FAILED, Run.State.CANCELLED):
        return f"the run {'failed' if run.state == Run.State.FAILED else 'was cancelled'}"
    clauses = run.reason.split("; ")
    if at := AT_OP.match(clauses[0]):
        words = next(words for mark, words in AT_OPS if mark in at["what"])
        return words.format(at["op"])
    if run.family == "parallel" and len(clauses) > 1:
        return clauses[-1]
    return _without_place(clauses[0])[:LONGEST] or "it gave no reason"


def _without_place(clause: str) -> str:
    words = clause.partition(": ")[2] or clause
    return BYTES.sub(lambda found: human(float(found[1]), "bytes"), words) if "bytes" in words else words
