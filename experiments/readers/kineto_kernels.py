"""Times of the device: each op takes the sum of the kernels, copies and fills that it launched.

A kernel leads to its op by ``External id``, else by the correlation of the runtime call that launched it.
What the host did meanwhile counts nothing: a step's time is the device's, without the gaps in which it had
nothing to do.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.readers.kineto_events import Call, Kernel, Trace
from experiments.readers.kineto_ops import Op, Reckoned, Window, walk


def timed_by_kernels(host: Reckoned, trace: Trace, part: Window) -> Reckoned:
    """``host`` with device times, where there are any.

    Kernels that no op launched become ops of their own: replayed graphs, and what extensions launch inside
    annotations or autograd's nodes.
    """
    if not trace.kernels:
        return host
    device = _busiest(trace.kernels)
    owner = _Owners(host.ops, trace)
    seconds = [0.0] * len(host.ops)
    alone: list[Op] = []
    used: list[Kernel] = []
    for kernel in trace.kernels:
        if kernel.device != device:
            continue
        index = owner.of(kernel)
        moment = owner.launch_time(kernel)
        if index is not None:
            seconds[index] += kernel.seconds
        elif part.start <= moment <= part.end:
            call = Call(kernel.name, "kernel", "", moment, moment, {})
            alone.append(Op(kernel.name, call, _phase_at(host.ops, moment), None, kernel.seconds, ()))
        else:
            continue
        used.append(kernel)
    for op, time in zip(host.ops, seconds, strict=True):
        op.seconds = time
    ops = tuple(sorted([*host.ops, *alone], key=lambda op: op.start))
    return replace(host, ops=ops, on_device=True, facts=_device_facts(used, alone))


def _busiest(kernels: Sequence[Kernel]) -> int:
    totals: dict[int, float] = {}
    for kernel in kernels:
        totals[kernel.device] = totals.get(kernel.device, 0.0) + kernel.seconds
    return max(sorted(totals), key=lambda device: totals[device])


def _phase_at(ops: Sequence[Op], time: float) -> str:
    index = bisect.bisect_right(ops, time, key=lambda op: op.start) - 1
    return ops[max(index, 0)].phase


def _device_facts(used: Sequence[Kernel], alone: Sequence[Op]) -> dict[str, float]:
    """``busy``: seconds in which at least one kernel ran; less than the sum where streams overlap."""
    busy, until = 0.0, -np.inf
    for kernel in sorted(used, key=lambda kernel: kernel.start):
        end = kernel.start + kernel.seconds
        busy += max(0.0, end - max(kernel.start, until))
        until = max(until, end)
    span = max((k.start + k.seconds for k in used), default=0.0) - min((k.start for k in used), default=0.0)
    return {
        "device_seconds": sum(kernel.seconds for kernel in used),
        "device_busy_seconds": float(busy),
        "device_span_seconds": span,
        "streams": float(len({kernel.stream for kernel in used})),
        "kernels": float(len(used)),
        "kernels_without_op": float(len(alone)),
    }


class _Owners:
    """Which op of the step launched a kernel."""

    def __init__(self, ops: Sequence[Op], trace: Trace) -> None:
        self.launches = trace.launches
        self.by_external: dict[int, int] = {}
        self.by_thread: dict[str, list[int]] = {}
        self.ops = ops
        for index, op in enumerate(ops):
            self.by_thread.setdefault(op.call.thread, []).append(index)
            for call in walk([op.call]):
                external = call.args.get("External id")
                if isinstance(external, int):
                    self.by_external[external] = index
        self.started = {
            call.args.get("External id"): call.start for roots in trace.roots.values() for call in walk(roots)
        }

    def of(self, kernel: Kernel) -> int | None:
        if kernel.external in self.by_external:
            return self.by_external[kernel.external]
        launch = self.launches.get(kernel.correlation)
        if launch is None:
            return None
        here = self.by_thread.get(launch.thread, [])
        position = bisect.bisect_right(here, launch.start, key=lambda index: self.ops[index].start) - 1
        if position < 0 or self.ops[here[position]].end < launch.start:
            return None
        return here[position]

    def launch_time(self, kernel: Kernel) -> float:
        """When the host asked for the kernel, as far as is told; else when it ran."""
        if kernel.external in self.started:
            return self.started[kernel.external]
        launch = self.launches.get(kernel.correlation)
        return launch.start if launch is not None else kernel.start
