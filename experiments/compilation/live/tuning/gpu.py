"""Triton schedules of products measured on this host's GPU, in a child process, after a check in float64."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import experiments
from experiments.compilation.interface.tuning import TuningProposal, TuningTask, TuningTrial
from experiments.compilation.live.tuning.answers import NoAnswer, TimedTasks
from experiments.compilation.live.tuning.model_tasks import ModelOperator

#: A product takes milliseconds and most schedules are compiled in three seconds; some of those with tiles of
#: 256 by 256 and five stages would take minutes, and are none that a search wants (as long as Ansor's builder
#: waits).
ANSWER_SECONDS = 15.0
REPEATS, LEAST_SECONDS = 3, 0.01
CHILD = "experiments.compilation.live.tuning.gpu_child"


class GpuBench:
    """Measures proposals of Triton tasks."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        operators: Sequence[ModelOperator],
        seed: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._tasks, self._operators, self._seed = tasks, operators, seed
        root = str(Path(experiments.__file__).parent.parent)
        variables = {**os.environ, "PYTHONPATH": root, **(environment or {})}
        self._child = TimedTasks([sys.executable, "-m", CHILD], variables, self._sizes)

    def close(self) -> None:
        """End the child process that times."""
        self._child.close()

    def measure(self, proposals: Sequence[TuningProposal]) -> Iterator[TuningTrial]:
        """Compile, check and time one schedule after another."""
        for proposal in proposals:
            started = time.perf_counter()
            try:
                repeats = self._time(proposal, REPEATS)
            except NoAnswer as failure:
                spent = time.perf_counter() - started
                yield TuningTrial(proposal, error=failure.error, detail=str(failure), spent=spent)
            else:
                yield TuningTrial(proposal, tuple(repeats), spent=time.perf_counter() - started)

    def again(self, proposal: TuningProposal) -> float:
        """Return seconds of one call of a schedule that was measured before, once more."""
        return self._time(proposal, 1)[0]

    def eager_seconds(self, task: int) -> float:
        """Return seconds of one call of torch's own product."""
        return self._ask(task, {"eager": True}, 1)[0]

    def _time(self, proposal: TuningProposal, repeats: int) -> list[float]:
        blocks = self._tasks[proposal.task].space.config(proposal.index)
        return self._ask(proposal.task, {"blocks": blocks}, repeats)

    def _ask(self, task: int, question: dict[str, Any], repeats: int) -> list[float]:
        asked = {**question, "repeats": repeats, "least": LEAST_SECONDS}
        return self._child.repeats(task, asked, ANSWER_SECONDS)

    def _sizes(self, task: int) -> dict[str, Any]:
        """Return what the child makes the task's operands from."""
        operator = self._operators[task]
        sizes = {name: dict(operator.nest.axes)[name] for name in ("m", "n", "k")}
        return {**sizes, "dtype": operator.dtype, "seed": self._seed}
