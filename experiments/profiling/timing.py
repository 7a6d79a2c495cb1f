"""Op times on this host: the traced step is run for real with a clock tick after each op.

On a CPU the ticks are wall-clock readings, on CUDA events of the stream, so an op's time includes the wait
for its launch when the device is ahead of Python; the times of one pass sum to that pass. Each op gets its
median over several passes. Every pass starts from the same parameters: training on would drive gradients into
denormal numbers, which a CPU multiplies slowly. The facts say how the sum compares with plain eager steps
timed on the same tensors.
"""

from __future__ import annotations

import copy
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, fx

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part, silent
from experiments.hardware.local import cpu_field
from experiments.profiling import cache, sparsity
from experiments.profiling.capture import Traced, trace
from experiments.workloads import storage
from experiments.workloads.model import COMPILED, ModelSource
from experiments.workloads.step import Floats, Step

#: Passes after the warm-up: at least the first of these, and at most the second while the budget lasts.
FEWEST_PASSES, MOST_PASSES = 3, 9
BUDGET_SECONDS = 30.0


class Clock(Protocol):
    """``tick`` marks a moment; ``intervals`` gives the seconds between marks once all work is done."""

    def tick(self) -> None: ...
    def intervals(self) -> Floats: ...


class WallClock:
    def __init__(self) -> None:
        self._marks: list[float] = []

    def tick(self) -> None:
        self._marks.append(time.perf_counter())

    def intervals(self) -> Floats:
        return np.diff(np.array(self._marks))


class DeviceClock:
    """CUDA events on the current stream."""

    def __init__(self) -> None:
        self._marks: list[torch.cuda.Event] = []

    def tick(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append(event)

    def intervals(self) -> Floats:
        torch.cuda.synchronize()
        pairs = zip(self._marks[:-1], self._marks[1:], strict=True)
        return np.array([first.elapsed_time(second) / 1e3 for first, second in pairs])


def new_clock(device: str) -> Clock:
    return DeviceClock() if torch.device(device).type == "cuda" else WallClock()


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name(device: str) -> str:
    """The name that goes with measured times: the GPU's, or ``cpu:`` and the processor's."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu:{cpu_field('model name') or platform.machine()}"


def profile(source: ModelSource, device: str | None = None, progress: Progress = silent) -> Step:
    """The Step of ``source``, its ops timed and its activations' zeros counted on ``device``.

    By default it is CUDA if there is any.
    """
    refuse_compiled(source)
    flush_denormals()
    device = device or default_device()
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise BadInput("no CUDA device on this host", "device", "cpu")
    traced = trace(source, device, part(progress, 0.0, 0.2))
    progress(0.2, "making inputs")
    inputs = traced.make_inputs(seed=0)
    zeros = sparsity.measure(traced, inputs)
    times = measure(traced, inputs, part(progress, 0.25, 1.0))
    step = traced.step.timed(times.ops, "measured", device_name(device))
    step = replace(step, tensors=replace(step.tensors, sparsity=zeros))
    facts = {
        "eager_step_seconds": times.eager,
        "sum_over_eager": float(times.ops.sum()) / times.eager,
        "passes": times.passes,
        "threads": torch.get_num_threads(),
    }
    return replace(step, facts={**step.facts, **facts})


def refuse_compiled(source: ModelSource) -> None:
    """Raise ``BadInput`` where kernels are compiled: such a step is known op by op, but not run so."""
    if source.kernels == COMPILED:
        what = f"compiled kernels of {source.name} are simulated; ops are measured one by one, as eager ones"
        raise BadInput(what, "options.kernels", "auto or eager, or simulated mode")


def profile_cached(source: ModelSource, device: str, progress: Progress = silent) -> Step:
    """The step timed on this host, from the cache or timed now.

    It is kept by host, device and number of threads.
    """
    place = [platform.node(), device_name(device), torch.get_num_threads()]
    path = cache.folder() / "profiles" / f"{jsonio.digest([cache.key(source), *place])}.npz"
    if path.is_file():
        return storage.load(path)
    step = profile(source, device, progress)
    cache.store(step, path)
    return step


def flush_denormals() -> None:
    """Make this process round denormal numbers to zero, as GPUs do.

    A CPU multiplies them a hundred times slower. Gradients of deep networks end there after a few steps, and
    a step's time would tell of that instead of its ops.
    """
    torch.set_flush_denormal(True)


@dataclass(frozen=True)
class Times:
    """Median seconds of each op, median seconds of an eager step, and over how many passes."""

    ops: Floats
    eager: float
    passes: int


def measure(traced: Traced, inputs: Sequence[Tensor], progress: Progress = silent) -> Times:
    """Time ops and eager steps in turn, so that a busy host slows both alike.

    Leaves ``inputs`` as they were.
    """
    pristine = [value.clone() for value in inputs]
    clocks: list[Clock] = []
    ticking = with_ticks(traced, lambda: clocks[-1].tick())
    rows: list[Floats] = []
    eager: list[float] = []
    start = time.perf_counter()
    for count in range(MOST_PASSES + 1):
        clocks.append(new_clock(traced.device))
        with torch.no_grad():
            ticking(*inputs)
        rows.append(clocks[-1].intervals())
        _restore(inputs, pristine)
        eager.append(_seconds(lambda: traced.eager(*inputs), traced.device))
        _restore(inputs, pristine)
        progress((count + 1) / (MOST_PASSES + 1), "timing ops and whole steps")
        if count >= FEWEST_PASSES and time.perf_counter() - start > BUDGET_SECONDS:
            break
    return Times(np.median(np.array(rows[1:]), axis=0), statistics.median(eager[1:]), len(rows) - 1)


def _restore(inputs: Sequence[Tensor], pristine: Sequence[Tensor]) -> None:
    for value, start in zip(inputs, pristine, strict=True):
        value.copy_(start)


def _seconds(run: Callable[[], object], device: str) -> float:
    _synchronize(device)
    start = time.perf_counter()
    run()
    _synchronize(device)
    return time.perf_counter() - start


def with_ticks(traced: Traced, tick: Callable[[], None]) -> fx.GraphModule:
    """A copy of the graph that calls ``tick`` before its first op and after each op."""

    def mark() -> None:
        tick()

    module = copy.deepcopy(traced.graph_module)
    graph = module.graph
    ops = set(traced.step.ops.name)
    first = True
    for node in list(graph.nodes):
        if node.name not in ops:
            continue
        if first:
            with graph.inserting_before(node):
                graph.call_function(mark)
            first = False
        with graph.inserting_after(node):
            graph.call_function(mark)
    module.recompile()
    return module


def _synchronize(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
