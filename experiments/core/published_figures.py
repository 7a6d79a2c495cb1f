"""Published figures next to ours: the errors, and how many of them are as small as was asked for."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.paper import ROUNDING, WIDEST
from experiments.core.verdicts import FITTED, NOT_REPRODUCED, REPRODUCED


@dataclass(frozen=True)
class Against:
    """A published figure next to ours; ``error`` is relative to it.

    A ``reservation`` says why there can be no verdict: what the source leaves open, or does otherwise;
    ``assumed`` what our run takes for granted where the source says nothing; ``fitted`` marks rows that
    constants were fitted on.
    """

    title: str
    published: float
    ours: float | None
    reservation: str = ""
    assumed: str = ""
    fitted: bool = False

    @property
    def verdict(self) -> str:
        """Return the word of the one rule (``docs/verdicts.md``); none where there is a reservation."""
        if self.reservation:
            return ""
        if self.fitted:
            return FITTED
        return REPRODUCED if self.size <= WIDEST + ROUNDING else NOT_REPRODUCED

    @property
    def error(self) -> float | None:
        return None if self.ours is None or not self.published else self.ours / self.published - 1

    @property
    def size(self) -> float:
        """Return the error without its sign; infinite where our run has no answer."""
        return float("inf") if self.error is None else abs(self.error)


def mean_error(rows: Sequence[Against]) -> float | None:
    """Of the errors without their sign; ``None`` where a run has no answer."""
    return (
        statistics.fmean(row.size for row in rows)
        if rows and all(row.error is not None for row in rows)
        else None
    )


@dataclass(frozen=True)
class Agreement:
    """How well rows agree: a ``share`` ``within`` an error, the ``median`` as well.

    Rows with a reservation, and those that constants were fitted on, do not count.
    """

    rows: tuple[Against, ...]
    within: float
    median: float
    share: float = 1.0

    @property
    def with_verdict(self) -> list[Against]:
        return [row for row in self.rows if row.verdict not in ("", FITTED)]

    @property
    def near(self) -> int:
        """The number of rows whose error is as small as asked."""
        return sum(row.size <= self.within for row in self.with_verdict)

    @property
    def median_error(self) -> float:
        """Infinite where half the rows have no answer."""
        return statistics.median(row.size for row in self.with_verdict)

    @property
    def holds(self) -> bool:
        return self.near >= self.share * len(self.with_verdict) and self.median_error <= self.median

    @property
    def words(self) -> str:
        """``15 of 16 within 15 %, median 4.2 % (asked: 6 %)``."""
        found = "none" if self.median_error == float("inf") else f"{self.median_error:.1%}"
        share = "" if self.share == 1 else f" (asked: {self.share:.0%} of them)"
        return (
            f"{self.near} of {len(self.with_verdict)} within {self.within:.0%}{share}, "
            f"median {found} (asked: {self.median:.0%})"
        )


def verdicts_in_words(rows: Sequence[Against]) -> str:
    """``9 fitted, 88 reproduced, 54 not reproduced, 23 without a verdict``; empty where there are none."""
    counts = Counter(row.verdict for row in rows)
    words = [f"{counts[word]} {word}" for word in (FITTED, REPRODUCED, NOT_REPRODUCED) if counts[word]]
    return ", ".join([*words, *([f"{counts['']} without a verdict"] if counts[""] else [])])
