"""Slots per second of the parallel simulator, against a bare dependency replay of the same slots.

The bare replay is a bound: a fixed-point loop over ranks that knows only slot times and the dependencies
between stages; no messages, no memory, no events. Both must agree on the span, which is the schedule's closed
form. Last, a plan as Megatron's for 1,536 devices: 12 stages x 8 tensor-parallel x 16 data-parallel, with all
their messages.

    python benchmarks/parallel_simulator.py [--stages 16] [--micro-batches 64 256 1024]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.hardware import resolve
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    Collective,
    ParallelPlan,
    PipelineSchedule,
    Sharding,
    Slot,
    Stage,
    Worker,
)
from experiments.parallel.policies.chimera import Chimera
from experiments.parallel.policies.interleaved import Interleaved
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.policies.zero import Zero
from experiments.parallel.policies.zero_bubble import ZeroBubble
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

FORWARD_SECONDS = 1.0

#: Policy, its knobs, backward seconds, and the span for p devices and m micro-batches.
SCHEDULES: dict[str, tuple[type[PipelineSchedule], dict[str, Any], float, Callable[[int, int], float]]] = {
    "1F1B": (OneForwardOneBackward, {}, 2.0, lambda p, m: 3 * (m + p - 1)),
    "interleaved": (Interleaved, {"chunks": 2}, 2.0, lambda p, m: 3 * (2 * m + p - 1)),
    "ZB-H1": (ZeroBubble, {"variant": "h1"}, 2.0, lambda p, m: 3 * m + p - 1),
    "ZB-V": (ZeroBubble, {"variant": "v"}, 2.0, lambda p, m: 6 * m + p - 1),
    "Chimera": (Chimera, {}, 1.0, lambda p, m: 2 * m + p - 2),
}


def bare_replay(plan: ParallelPlan, seconds: dict[str, float]) -> float:
    """The span: each rank runs its next slot as soon as the slot that it needs is done."""
    done: dict[Slot, float] = {}
    position, now = [0] * len(plan.workers), [0.0] * len(plan.workers)
    last, advanced = len(plan.stages) - 1, True
    while advanced:
        advanced = False
        for rank, worker in enumerate(plan.workers):
            while position[rank] < len(worker.slots):
                slot = worker.slots[position[rank]]
                needed = needed_by(slot, last)
                if needed is not None and needed not in done:
                    break
                start = max(now[rank], done[needed] if needed else 0.0)
                now[rank] = done[slot] = start + seconds[slot.kind]
                position[rank] += 1
                advanced = True
    return max(now)


def needed_by(slot: Slot, last: int) -> Slot | None:
    """The slot of another rank that ``slot`` waits for; what its own rank did before, its order
    already says.
    """
    neighbor = slot.stage + {FORWARD: -1, BACKWARD: 1, WEIGHT: 0}[slot.kind]
    return slot._replace(stage=neighbor) if slot.kind != WEIGHT and 0 <= neighbor <= last else None


def measure(name: str, devices: int, micro_batches: int) -> tuple[int, float, float]:
    """Slots, seconds of the simulator and seconds of the bare replay."""
    kind, knobs, backward, closed_form = SCHEDULES[name]
    policy = kind(micro_batches=micro_batches, **knobs)
    model = chain(len(policy.hosts(devices)), backward=backward, output_bytes=1.0, stash_bytes=1.0)
    hardware = cluster(1, devices)
    asked = estimate(model, hardware)
    plan = policy.place(model, hardware, micro_batches, asked)
    slots = [slot for worker in plan.workers for slot in worker.slots]
    split = 2 if any(slot.kind == WEIGHT for slot in slots) else 1
    start = time.perf_counter()
    found = simulate(plan, asked)
    simulated = time.perf_counter()
    span = bare_replay(plan, {FORWARD: FORWARD_SECONDS, BACKWARD: backward / split, WEIGHT: backward / split})
    replayed = time.perf_counter()
    expected = closed_form(devices, micro_batches)
    if not (abs(found.step_time - expected) < 1e-6 and span == expected):
        raise SystemExit(f"{name}: spans differ: {found.step_time}, {span}, expected {expected}")
    return len(slots), simulated - start, replayed - simulated


def megatron(micro_batches: int, stages: int = 12, tensor: int = 8, data: int = 16) -> tuple[int, float]:
    """Slots and seconds of a plan with two all-reduces a layer and pass, replicas that meet, stages on a
    network.
    """
    layers, policy = 8 * stages, OneForwardOneBackward(micro_batches=micro_batches)
    sums = (Collective("all_reduce", 5e7),) * 2
    workers = []
    for stage in range(stages):
        order = policy.order(stage, stages, micro_batches)
        for replica in range(data):
            own = [slot._replace(micro_batch=slot.micro_batch + replica * micro_batches) for slot in order]
            first = tensor * len(workers)
            workers.append(Worker(tuple(range(first, first + tensor)), tuple(own)))
    plan = ParallelPlan(
        batch=data * micro_batches,
        micro_batches=data * micro_batches,
        mesh=(("pipeline", stages), ("data", data), ("tensor", tensor)),
        stages=tuple(Stage(8 * s, 8 * s + 8, tuple(range(s * data, (s + 1) * data))) for s in range(stages)),
        workers=tuple(workers),
        shardings=tuple(Sharding(n, "column", tensor, tensor, tensor, sums, sums) for n in range(layers)),
    )
    node = {"device": "a100-80g", "devices_per_node": tensor, "network": "ib-200g", "rails": tensor}
    hardware = resolve({"cluster": {"nodes": stages * data, **node}})
    model = chain(layers, 0.01, 0.02, parameter_bytes=3.6e9, output_bytes=5e7, stash_bytes=1e6)
    asked = estimate(model, hardware, "float16")
    start = time.perf_counter()
    simulate(plan, asked)
    return sum(len(worker.slots) for worker in workers), time.perf_counter() - start


def zero(devices: int = 1536, layers: int = 98) -> float:
    """Seconds of ZeRO-3 on all devices, each layer gathered twice and reduced once."""
    node = {"device": "a100-80g", "devices_per_node": 8, "network": "ib-200g", "rails": 8}
    hardware = resolve({"cluster": {"nodes": devices // 8, **node}})
    model = chain(layers, 0.01, 0.02, parameter_bytes=3.6e9, output_bytes=5e7, stash_bytes=1e6)
    asked = estimate(model, hardware, "float16")
    plan = Zero(stage=3).place(model, hardware, devices, asked)
    start = time.perf_counter()
    simulate(plan, asked)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[64, 256, 1024])
    options = parser.parse_args()
    print(f"{'schedule':12} {'slots':>8} {'simulator':>14} {'bare replay':>14} {'share of bound':>15}")
    for name in SCHEDULES:
        for micro_batches in options.micro_batches:
            slots, simulated, bare = measure(name, options.stages, micro_batches)
            rates = f"{slots / simulated:10.0f} /s {slots / bare:11.0f} /s {bare / simulated:14.1%}"
            print(f"{name:12} {slots:8d} {rates}")
    for micro_batches in (12, 96):
        slots, simulated = megatron(micro_batches)
        what = f"1,536 devices, {micro_batches} micro-batches in {simulated:.2f} s"
        print(f"{'Megatron':12} {slots:8d} {slots / simulated:10.0f} /s   {what}")
    print(
        f"{'ZeRO-3':12} {2 * 1536:8d} {2 * 1536 / (seconds := zero()):10.0f} /s   1,536 devices in "
        f"{seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
