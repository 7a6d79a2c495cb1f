"""Measures a plan: steps under it next to the same steps without it, their times, peaks, losses and
parameters.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from experiments.core.errors import Infeasible
from experiments.core.progress import Progress, part, silent
from experiments.hardware import Hardware, resolve
from experiments.memory.interface.machine import MemoryMachine, machine_of
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.live.copy_rates import copy_rates
from experiments.memory.live.cuda_copies import bytes_allocated
from experiments.memory.live.runner import StepRunner
from experiments.memory.live.turns import TimedRunner, seeded_state, take_turns
from experiments.profiling import timing
from experiments.profiling.capture import Traced, trace
from experiments.sources import with_roofline_times
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

STEPS = 5
#: The allocator of torch rounds allocations on a GPU up to a multiple of this.
BLOCK = 512


@dataclass(frozen=True)
class MeasuredPlan:
    """Bytes and seconds of a step under the plan, and how far it is from the unplanned steps.

    ``peak_bytes``: CPU exact live storages; CUDA the allocator's peak of active bytes, without the
    ``library_bytes`` that cuBLAS holds for good beside the step's tensors. ``step_time`` and
    ``unplanned_time`` are medians over the steps but the first. ``parameter_difference`` is the largest
    absolute difference over all parameters, optimizer state and buffers after the last step; 0.0 means
    bitwise equal. Both are ``None`` where the unplanned step does not fit the device. ``peaks`` are the most
    bytes of copies by tier off the device. ``ideal_share`` is the median of unplanned over planned seconds,
    step by step: on a CPU the two take turns. ``ratios`` are plain over packed bytes of every tensor that was
    compressed, the smallest in any step.
    """

    peak_bytes: int
    step_time: float
    unplanned_time: float | None
    losses: tuple[float, ...]
    unplanned_losses: tuple[float, ...]
    parameter_difference: float | None
    bytes_out: int
    bytes_back: int
    device: str
    ideal_share: float | None = None
    peaks: Mapping[str, int] = field(default_factory=dict)
    ratios: Mapping[int, float] = field(default_factory=dict)
    library_bytes: int = 0


class Session:
    """One model on this host: captured and profiled once, then measured under any number of plans."""

    def __init__(self, source: ModelSource, progress: Progress = silent) -> None:
        timing.refuse_compiled(source)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.source = source
        self._plain: dict[tuple[int, int], TimedRunner | None] = {}
        timing.flush_denormals()
        self.traced: Traced = trace(source, self.device, part(progress, 0.0, 0.4))
        self.step = self._profile(part(progress, 0.4, 1.0))

    def _profile(self, progress: Progress) -> Step:
        """Timed here; by roofline where the unplanned step, which timing runs, does not fit the device."""
        try:
            return timing.profile_cached(self.source, self.device, progress)
        except torch.OutOfMemoryError:
            return with_roofline_times(self.traced.step, self.hardware().device)

    @property
    def synchronous(self) -> bool:
        """Copies stop the computation."""
        return self.device == "cpu"

    def hardware(self, overrides: Mapping[str, Any] | None = None) -> Hardware:
        """Return this host as hardware for plans to be made for, with ``overrides`` of its figures.

        A GPU by the spec sheet of the product name that its driver reports.
        """
        name = "local" if self.device == "cpu" else torch.cuda.get_device_name()
        return resolve({"device": name, "overrides": overrides or {}})

    def machine(self, overrides: Mapping[str, Any] | None = None) -> MemoryMachine:
        """Return what plans are made for and simulated on.

        A CPU's copies are as fast as measured, unless overridden.
        """
        machine = replace(machine_of(self.hardware(overrides)), synchronous=self.synchronous)
        if not self.synchronous or "host_link_bandwidth" in (overrides or {}):
            return machine
        out, back = copy_rates()
        return replace(machine, out=out, back=back)

    def measure(
        self,
        plan: MemoryPlan,
        seed: int = 0,
        steps: int = STEPS,
        progress: Progress = silent,
        reference: Session | None = None,
        capacity: int | None = None,
    ) -> MeasuredPlan:
        """``steps`` steps under the plan and, where they fit, as many without it, from the same values.

        On a CPU they take turns; on CUDA the unplanned ones come first, so that the allocator's peak is the
        plan's. ``reference``: whose steps go unplanned (the whole batch, where this session's is in
        micro-batches). ``capacity``: device bytes that the plan was made for, where the device has more; an
        op then waits for what is leaving.
        """
        whole = reference or self
        if self.synchronous:
            plain = whole.plain_runner(seed) if whole.fits else None
        else:
            plain = whole.run_unplanned(seed, steps, part(progress, 0.0, 0.5))
        try:
            return self._measure_plan(plan, seed, steps, part(progress, 0.5, 1.0), plain, capacity)
        except torch.OutOfMemoryError as error:
            raise Infeasible(str(error).split("\n")[0], "the step under the plan") from None

    def _measure_plan(
        self,
        plan: MemoryPlan,
        seed: int,
        steps: int,
        progress: Progress,
        plain: TimedRunner | None,
        capacity: int | None,
    ) -> MeasuredPlan:
        inputs = self.traced.make_inputs(seed)
        with StepRunner(self.traced, plan) as runner:
            runner.begin(inputs)
            copies = runner.copies
            copies.capacity, copies.beside = capacity, self._held_by_libraries(inputs)
            if self.device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            planned = TimedRunner(runner, inputs, self.device, seeded_state(seed, self.device))
            take_turns([plain, planned] if plain and self.synchronous else [planned], steps, progress)
            peak = self._peak(runner) - copies.beside
            out, back = copies.bytes_out // steps, copies.bytes_back // steps
        return MeasuredPlan(
            peak_bytes=peak,
            step_time=statistics.median(planned.seconds[1:]),
            unplanned_time=statistics.median(plain.seconds[1:]) if plain else None,
            losses=tuple(planned.losses),
            unplanned_losses=tuple(plain.losses) if plain else (),
            parameter_difference=max(map(_difference, plain.inputs, inputs), default=0.0) if plain else None,
            bytes_out=out,
            bytes_back=back,
            device=torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            ideal_share=_share(plain, planned) if plain else None,
            peaks=dict(copies.copy_ledger.peaks),
            ratios=dict(copies.ratios),
            library_bytes=copies.beside,
        )

    def plain_runner(self, seed: int) -> TimedRunner:
        """The captured graph as it is."""
        graph, inputs = self.traced.graph_module, self.traced.make_inputs(seed)
        return TimedRunner(
            lambda values: graph(*values), inputs, self.device, seeded_state(seed, self.device)
        )

    @functools.cached_property
    def fits(self) -> bool:
        """The unplanned step fits the device: it is tried."""
        try:
            self.plain_runner(0).once()
        except torch.OutOfMemoryError:
            return False
        return True

    def run_unplanned(self, seed: int, steps: int, progress: Progress = silent) -> TimedRunner | None:
        """Run steps without a plan, once for each seed; ``None`` where they do not fit.

        Their values are in host memory.
        """
        if (seed, steps) not in self._plain:
            self._plain[seed, steps] = self._run_unplanned(seed, steps, progress)
        return self._plain[seed, steps]

    def _run_unplanned(self, seed: int, steps: int, progress: Progress) -> TimedRunner | None:
        try:
            runner = self.plain_runner(seed)
            take_turns([runner], steps, progress)
        except torch.OutOfMemoryError:
            return None
        return replace(runner, inputs=[value.cpu() for value in runner.inputs])

    def _held_by_libraries(self, inputs: list[Tensor]) -> int:
        """Bytes on a GPU that are neither the step's ``inputs`` nor constants of the graph."""
        if self.device == "cpu":
            return 0
        module = self.traced.graph_module
        ours = [*inputs, *module.parameters(), *module.buffers()]
        storages = {
            value.untyped_storage()._cdata: value.untyped_storage() for value in ours if value.is_cuda
        }
        own = sum(-(-storage.nbytes() // BLOCK) * BLOCK for storage in storages.values())
        return max(0, bytes_allocated() - own)

    def _peak(self, runner: StepRunner) -> int:
        if self.device == "cuda":
            return int(torch.cuda.memory_stats()["active_bytes.all.peak"])
        return runner.ledger.peak


def _share(plain: TimedRunner, planned: TimedRunner) -> float:
    pairs = zip(plain.seconds[1:], planned.seconds[1:], strict=True)
    return statistics.median(ideal / taken for ideal, taken in pairs)


def _difference(expected: Tensor, value: Tensor) -> float:
    """Largest absolute difference; infinite where one has a NaN that the other has not."""
    ours = value.cpu()
    if torch.equal(expected, ours):
        return 0.0
    gap = (expected.double() - ours.double()).abs().max().item()
    return float(gap) if gap == gap else float("inf")
