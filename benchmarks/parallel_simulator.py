"""Slots per second of the parallel simulator, against a bare dependency replay of the same slots.

The bare replay is a bound: a fixed-point loop over ranks that knows only slot times and the dependencies of a straight
pipeline; no messages, no memory, no events. Both must agree on the span, which is (m+p-1)(F+B).

    python benchmarks/parallel_simulator.py [--stages 16] [--micro-batches 64 256 1024]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.parallel.interface import FORWARD, ParallelPlan, Slot
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

FORWARD_SECONDS, BACKWARD_SECONDS = 1.0, 2.0


def bare_replay(plan: ParallelPlan) -> float:
    """The span: each rank runs its next slot as soon as the slot of the neighbouring stage is done."""
    done: dict[Slot, float] = {}
    position, now = [0] * len(plan.workers), [0.0] * len(plan.workers)
    last, advanced = len(plan.stages) - 1, True
    while advanced:
        advanced = False
        for rank, worker in enumerate(plan.workers):
            while position[rank] < len(worker.slots):
                slot = worker.slots[position[rank]]
                forward = slot.kind == FORWARD
                neighbour = slot.stage + (-1 if forward else 1)
                needed = slot._replace(stage=neighbour) if 0 <= neighbour <= last else None
                if needed is not None and needed not in done:
                    break
                start = max(now[rank], done[needed] if needed else 0.0)
                now[rank] = done[slot] = start + (FORWARD_SECONDS if forward else BACKWARD_SECONDS)
                position[rank] += 1
                advanced = True
    return max(now)


def measure(stages: int, micro_batches: int) -> tuple[int, float, float]:
    """Slots, seconds of the simulator and seconds of the bare replay."""
    model, hardware = chain(stages, output_bytes=1.0, stash_bytes=1.0), cluster(1, stages)
    asked = estimate(model, hardware)
    plan = OneForwardOneBackward(micro_batches=micro_batches).place(model, hardware, micro_batches, asked)
    start = time.perf_counter()
    found = simulate(plan, asked)
    simulated = time.perf_counter()
    span = bare_replay(plan)
    replayed = time.perf_counter()
    expected = (micro_batches + stages - 1) * (FORWARD_SECONDS + BACKWARD_SECONDS)
    if not (abs(found.step_time - expected) < 1e-6 and span == expected):
        raise SystemExit(f"spans differ: {found.step_time}, {span}, expected {expected}")
    return 2 * stages * micro_batches, simulated - start, replayed - simulated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[64, 256, 1024])
    options = parser.parse_args()
    print(f"{'slots':>8} {'simulator':>14} {'bare replay':>14} {'share of bound':>15}")
    for micro_batches in options.micro_batches:
        slots, simulated, bare = measure(options.stages, micro_batches)
        print(f"{slots:8d} {slots / simulated:10.0f} /s {slots / bare:11.0f} /s {bare / simulated:14.1%}")


if __name__ == "__main__":
    main()
