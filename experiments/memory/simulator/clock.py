"""Where a simulated step stands: its time, and the op that runs or comes next."""

from __future__ import annotations

from experiments.workloads.step import Step


class StepClock:
    """``now`` is the time of the compute lane, ``at`` the op that runs or comes next (-1: none yet)."""

    __slots__ = ("at", "now", "step")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.restart()

    def restart(self) -> None:
        """A new step begins."""
        self.now, self.at = 0.0, -1

    def place(self) -> str:
        """Where the step stands, for messages."""
        ops = self.step.ops
        if self.at < 0:
            return "start of the step"
        if self.at >= len(ops):
            return "end of the step"
        return f"op {self.at} ({ops.name[self.at]}, {self.step.phase_of(self.at)})"
