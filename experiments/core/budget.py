"""How much a search may look at: counted in evaluations, so that the same spec gives the same answer on every
host.
"""

from __future__ import annotations

from experiments.core.progress import Progress, silent
from experiments.core.time_limit import say_ended, time_is_up

#: What a plan calls the sentence that says that a search ended at its bound.
ENDED_AT = "ended_at"


class Budget:
    """Evaluations that a search may make.

    A search either takes each one before it makes it and stops where ``take`` refuses, or spends what a piece
    of work took and stops where ``take(0)`` refuses, or, after the first, where the run's limit of time is
    reached; ``caveat`` then says so. All are reported to ``progress``, which may raise to cancel.
    """

    def __init__(self, most: int, progress: Progress = silent, unit: str = "evaluations") -> None:
        self.most, self.unit = most, unit
        self.done = 0
        self.ended_early = False
        self.ended_for_time = False
        self._progress = progress

    def take(self, count: int = 1, step: str = "") -> bool:
        """Count so many more evaluations and report them, unless that would be more than there may be."""
        if self.done + count > self.most:
            self.ended_early = True
            return False
        bound = self.done if count else self.done - 1  # with which it would have ended here
        if bound > 0 and time_is_up():
            self.ended_early = self.ended_for_time = True
            self.most = bound
            return False
        self.spend(count, step)
        return True

    def spend(self, count: int, step: str = "") -> None:
        """Count and report evaluations that are made whatever is left."""
        self.done += count
        self.report(step)

    def report(self, step: str = "") -> None:
        """Report how far the search is, for work between two evaluations."""
        share = self.done / self.most if self.most else 1.0
        self._progress(min(1.0, share), step or f"{self.done} of at most {self.most} {self.unit}")

    def caveat(self, knob: str) -> dict[str, str]:
        """Return the note that says at which ``knob`` the search ended; nothing where it ended by itself."""
        if self.ended_for_time:
            return {ENDED_AT: say_ended(f"{self.done} {self.unit}", knob, self.most)}
        return caveat(self.most, self.unit, knob) if self.ended_early else {}


def caveat(most: int, unit: str, knob: str) -> dict[str, str]:
    """Return the note that says at which bound a search ended."""
    return {ENDED_AT: f"the search ended at its bound of {most} {unit} (knob {knob}) with the best so far"}
