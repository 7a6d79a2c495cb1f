"""The heaviest operators of a model or a list.

Tasks, their measurement, best schedules against torch's own.
"""

from __future__ import annotations

import functools
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from experiments.compilation.interface.tuning import TuningPolicy, TuningProposal, TuningTask, TuningTrial
from experiments.compilation.live.backends.base import unsupported_backend
from experiments.compilation.live.preparation import prepare
from experiments.compilation.live.timing import (
    CLOCKS,
    PROCESSOR,
    WALL,
    Clock,
    Rounds,
    Timed,
    in_turns,
    time_repeats,
)
from experiments.compilation.live.tuning.gpu import GpuBench
from experiments.compilation.live.tuning.host import LEAST_SECONDS, HostBench
from experiments.compilation.live.tuning.model_tasks import (
    ModelOperator,
    heaviest,
    host_task,
    of_graph,
    of_list,
)
from experiments.compilation.live.tuning.rivals import Compared, figures_over, row_of
from experiments.compilation.live.tuning.triton_schedules import gpu_task
from experiments.compilation.planning.tuning.session import History
from experiments.core.progress import Progress
from experiments.workloads.model import ModelSource
from experiments.workloads.operator_list import OperatorList

#: Rounds in which a best schedule and torch's operator take turns.
TURNS = 9
#: What each language has schedules for.
HOST_KINDS, HOST_DTYPES = ("matmul", "conv2d"), ("float32",)
GPU_KINDS, GPU_DTYPES = ("matmul",), ("float32", "float16", "bfloat16")


class Bench:
    """Everything that a tuning run measures.

    A context: sources, libraries and operands lie in a folder of its own.
    """

    def __init__(
        self,
        source: ModelSource | OperatorList,
        policy: TuningPolicy,
        seed: int,
        progress: Progress,
        file: Path | None,
    ) -> None:
        on_gpu = _on_gpu(policy.language)
        self._threads = policy.threads or torch.get_num_threads()
        progress(0.02, "finding the heaviest operators")
        if isinstance(source, OperatorList):
            found = of_list(source)
        else:
            found = of_graph(prepare(source, False, seed, progress, file).graph)
        kinds, dtypes = (GPU_KINDS, GPU_DTYPES) if on_gpu else (HOST_KINDS, HOST_DTYPES)
        self.operators = tuple(
            operator
            for operator in heaviest(found, 10_000, kinds, dtypes)
            if not on_gpu or _is_flat(operator)
        )[: policy.tasks]
        self.tasks: tuple[TuningTask, ...] = tuple(
            gpu_task(operator) if on_gpu else host_task(operator, policy.from_sketches, self._threads)
            for operator in self.operators
        )
        self._on_gpu, self._seed = on_gpu, seed
        self._stack = ExitStack()
        self._compiled = policy.compiled
        self.notes: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._began = _spent()
        if self._on_gpu:
            self._gpu = self._stack.enter_context(closing(GpuBench(self.tasks, self.operators, self._seed)))
        else:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-schedules-")))
            host = HostBench(self.tasks, folder, self._seed, self._threads)
            self._host = self._stack.enter_context(closing(host))
            self._stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(self._threads)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.notes["language"] = "triton" if self._on_gpu else "c++"
        if not self._on_gpu:
            self.notes["compiler_seconds"] = self._host.compiling
        self._stack.close()  # children are counted once they have ended
        wall, cpu = (after - before for after, before in zip(_spent(), self._began, strict=True))
        self.notes |= {"wall_seconds": wall, "cpu_seconds": cpu, "threads": self._threads}
        self.notes["clock"] = self._clock

    @property
    def _clock(self) -> str:
        """The clock that times are read off.

        Where one thread of this host computes, the time it used of a processor is what it would take alone.
        """
        return PROCESSOR if self._threads == 1 and not self._on_gpu else WALL

    def measure(self, proposals: Sequence[TuningProposal]) -> Iterator[TuningTrial]:
        """Yield each proposal compiled, checked and timed."""
        return (self._gpu if self._on_gpu else self._host).measure(proposals)

    def compare(self, history: History, progress: Progress) -> Compared:
        """Each best schedule and the library's operators in turns; over all tasks the weighted sums."""
        rows: list[dict[str, Any]] = []
        taken: list[Rounds] = []
        for place, task in enumerate(self.tasks):
            progress(place / len(self.tasks), f"torch's own {task.name}")
            best = history.best(place)
            if best is None:
                rows.append({})
                continue
            taken.append(in_turns(self.calls(place, best.proposal), self._seed, TURNS))
            rows.append(row_of(taken[-1]))
        notes: dict[str, Any] = {"load": os.getloadavg()[0]}
        if not rows or not all(rows):
            return Compared({}, tuple(rows), notes)
        metrics, rivals = figures_over(self.tasks, taken, self._seed)
        return Compared(metrics, tuple(rows), notes | rivals)

    def calls(self, place: int, best: TuningProposal) -> dict[str, Timed]:
        """Each gives the seconds of one call of what it is named after."""
        if self._on_gpu:
            return {"ours": lambda: self._gpu.again(best), "torch": lambda: self._gpu.eager_seconds(place)}
        eager = self._host.eager(place)
        rivals = {"torch": eager, "prepacked": self._host.prepacked(place)}
        if self._compiled:
            rivals["compiled"] = torch.compile(eager)
        clock = CLOCKS[self._clock]
        timed: dict[str, Timed] = {
            name: functools.partial(_seconds_of, call, clock) for name, call in rivals.items() if call
        }
        return {"ours": lambda: self._host.again(best), **timed}


def _on_gpu(language: str) -> bool:
    """Return whether schedules are Triton's; ``Infeasible`` where that was asked for and there is no GPU."""
    if language == "triton" and not torch.cuda.is_available():
        raise unsupported_backend("Triton schedules are timed on a GPU", "triton")
    return language == "triton" or (language == "auto" and torch.cuda.is_available())


def _is_flat(operator: ModelOperator) -> bool:
    return [axis for axis, _ in operator.nest.spatial] == ["m", "n"]


def _seconds_of(call: Callable[[], Any], clock: Clock) -> float:
    return time_repeats(call, "cpu", 1, LEAST_SECONDS, clock)[0]


def _spent() -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and the children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in usage)
