"""Schedules compiled with this host's C++ compiler and measured in a child process, after a check
in float64.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.compilation.interface.tuning import Contraction, TuningProposal, TuningTask, TuningTrial
from experiments.compilation.live.backends.base import CompilationFailed, unsupported_backend
from experiments.compilation.live.tuning import cpp
from experiments.compilation.live.tuning.answers import NoAnswer, TimedTasks
from experiments.compilation.live.tuning.child import difference
from experiments.compilation.live.tuning.prepacked import prepacked_call
from experiments.compilation.live.tuning.reference import Operands, eager_call, operands_of
from experiments.compilation.planning.tuning.schedules import schedule_of

FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-w")
COMPILE_SECONDS, RUN_SECONDS = 60.0, 20.0
#: Times that a schedule is measured, and the least seconds of each.
REPEATS, LEAST_SECONDS = 3, 0.004


class HostBench:
    """Measures proposals of C++ tasks on so many threads.

    ``folder`` is private to the run and holds all its files.
    """

    def __init__(self, tasks: Sequence[TuningTask], folder: Path, seed: int, threads: int) -> None:
        self._tasks, self._folder, self._seed, self._threads = tasks, folder, seed, threads
        self._compiler = compiler()
        command = [sys.executable, "-I", str(Path(__file__).with_name("child.py"))]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self._child = TimedTasks(command, environment, self._operands)
        self.compiling = 0.0

    def close(self) -> None:
        """End the child process that times."""
        self._child.close()

    def measure(self, proposals: Sequence[TuningProposal]) -> Iterator[TuningTrial]:
        """Check and time one schedule after another.

        As many as there are cores are compiled before, concurrently.
        """
        cores = os.cpu_count() or 1
        for start in range(0, len(proposals), cores):
            some = proposals[start : start + cores]
            with ThreadPoolExecutor(cores) as pool:
                built = list(pool.map(self._built, some))
            for proposal, (library, spent) in zip(some, built, strict=True):
                yield self._trial(proposal, library, spent)

    def _built(self, proposal: TuningProposal) -> tuple[Path | NoAnswer, float]:
        """Return the library or why there is none, and the seconds that it took."""
        started = time.perf_counter()
        try:
            library: Path | NoAnswer = self.library(proposal)
        except NoAnswer as failure:
            library = failure
        return library, time.perf_counter() - started

    def _trial(self, proposal: TuningProposal, library: Path | NoAnswer, spent: float) -> TuningTrial:
        started = time.perf_counter()
        self.compiling += spent
        try:
            if isinstance(library, NoAnswer):
                raise library
            repeats = self._times(proposal.task, library, REPEATS)
        except NoAnswer as failure:
            spent += time.perf_counter() - started
            return TuningTrial(proposal, error=failure.error, detail=str(failure), spent=spent)
        return TuningTrial(proposal, tuple(repeats), spent=spent + time.perf_counter() - started)

    def _times(self, task: int, library: Path, repeats: int) -> list[float]:
        """Return seconds of one call, each time; ``NoAnswer`` says why there are none."""
        asked = {"library": str(library), "repeats": repeats, "least": LEAST_SECONDS}
        return self._child.repeats(task, {**asked, "alone": self._threads == 1}, RUN_SECONDS)

    def again(self, proposal: TuningProposal) -> float:
        """Return seconds of one call of a schedule that was measured before, once more."""
        return self._times(proposal.task, self.library(proposal), 1)[0]

    def eager(self, task: int) -> Callable[[], Tensor]:
        """Torch's own operator on the task's operands."""
        return eager_call(_nest(self._tasks[task]), *self._stored(task, "in0", "in1"))

    def prepacked(self, task: int) -> Callable[[], Tensor] | None:
        """The library's operator with its weight packed beforehand, once it was seen to be right.

        ``None`` where there is none.
        """
        in0, in1, reference, bound = self._stored(task, "in0", "in1", "reference", "bound")
        call = prepacked_call(_nest(self._tasks[task]), in0, in1)
        if call is not None and (wrong := difference(call().numpy(), reference.numpy(), bound.numpy())):
            raise CompilationFailed(f"{self._tasks[task].name} on a packed weight: {wrong}")
        return call

    def _stored(self, task: int, *names: str) -> list[Tensor]:
        folder = Path(self._operands(task))
        return [torch.from_numpy(np.load(folder / f"{name}.npy")) for name in names]

    def library(self, proposal: TuningProposal) -> Path:
        """Return the compiled schedule; ``NoAnswer`` where it cannot be."""
        task = self._tasks[proposal.task]
        nest = _nest(task)
        stem = self._folder / f"task{proposal.task}-{proposal.index}"
        if stem.with_suffix(".so").exists():
            return stem.with_suffix(".so")
        try:
            text = cpp.source(nest, schedule_of(nest, task.space.config(proposal.index)))
        except cpp.Unschedulable as problem:
            raise NoAnswer("instantiation", str(problem)) from None
        stem.with_suffix(".cpp").write_text(text)
        self._compile(stem)
        return stem.with_suffix(".so")

    def _compile(self, stem: Path) -> None:
        target = str(stem.with_suffix(".so"))
        command = [self._compiler, *FLAGS, str(stem.with_suffix(".cpp")), "-o", target]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS)
        except subprocess.TimeoutExpired:
            raise NoAnswer("compile time-out", f"no program in {COMPILE_SECONDS:g} s") from None
        if done.returncode:
            raise NoAnswer("host compiler", (done.stderr.strip().splitlines() or ["no message"])[0])

    def _operands(self, task: int) -> str:
        """Return the folder with the task's operands, made when first asked for."""
        folder = self._folder / f"operands{task}"
        if not folder.exists():
            folder.mkdir()
            _store(operands_of(_nest(self._tasks[task]), self._seed), folder)
        return str(folder)


def _nest(task: TuningTask) -> Contraction:
    assert task.nest is not None, "only tasks with a loop nest are compiled"
    return task.nest


def _store(operands: Operands, folder: Path) -> None:
    for name in ("in0", "in1", "reference", "bound"):
        np.save(folder / f"{name}.npy", getattr(operands, name).numpy())


def compiler() -> str:
    """Return the C++ compiler that Inductor uses here; ``Infeasible`` where there is none."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return str(get_cpp_compiler())
    except InvalidCxxCompiler:
        raise unsupported_backend("no C++ compiler on this host (g++, or CXX set to one)", "c++") from None
