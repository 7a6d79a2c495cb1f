"""How fast the memory simulator is, against a bound in the same run.

    python -m benchmarks.memory_simulator [FOLDER OF G10 TRACES]

The bound is a walk over the ops that does nothing but add up times and count bytes in and out: what any
simulator in plain Python must do at least. Events are ops plus moves. Each plan is simulated bare and
watched, as a run page draws it: ``times`` is how much longer that takes. The GPT-2 step is captured once
(needs torch). At the end the rules of G10's release are timed against the release's own simulator
(``benchmarks.g10_artifact``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import g10_artifact
from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.memory.interface import DeviceView, MemoryMachine, MemoryPlan, MemoryPool, machine_of
from experiments.memory.interface.transform import order_fault
from experiments.memory.simulator import Simulator, run_shared
from experiments.memory.simulator.recorder import StepRecorder, StepRecording
from experiments.sources import step_of
from experiments.workloads.step import Step

TRACES = Path(__file__).resolve().parents[2] / "shared/data/memory/g10"
POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("baseline", {}),
    ("swap_all", {}),
    ("vdnn-all", {}),
    ("checkpoint", {}),
)
HARDWARE = {"device": "a100-80g", "overrides": {"memory_bytes": 512e9, "host_memory_bytes": 2e12}}
REPEATS = 7
#: Candidate evaluations that a search makes on one step, and the time that they may take.
EVALUATIONS, MOST_SECONDS = 1000, 60


def best(call: Callable[[], object]) -> float:
    """CPU seconds of the fastest of several calls."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def bare_walk(step: Step) -> Callable[[], object]:
    seconds, sizes = step.ops.seconds.tolist(), step.tensors.bytes.tolist()
    touched = [row.tolist() for row in step.touched]
    last, persistent = step.last_use.tolist(), step.persistent.tolist()

    def walk() -> float:
        now, used, present = 0.0, 0, set()
        for op, tensors in enumerate(touched):
            for tensor in tensors:
                if tensor not in present:
                    present.add(tensor)
                    used += sizes[tensor]
            now += seconds[op]
            for tensor in tensors:
                if last[tensor] == op and not persistent[tensor]:
                    used -= sizes[tensor]
        return now

    return walk


def workloads(folder: Path) -> dict[str, Workload]:
    found = {name: Workload(str(folder / f"{name}.json.gz")) for name in ("BERT_Base_256", "SENet154_1024")}
    options = WorkloadOptions(batch=8, sequence=1024)
    return {name: w for name, w in found.items() if Path(w.source).is_file()} | {
        "gpt2": Workload("zoo:gpt2", options=options)
    }


def pools(step: Step) -> Iterator[MemoryPool]:
    """Every kind of allocator, with what it needs to serve ``step``."""
    yield MemoryPool("first_fit")
    yield MemoryPool("best_fit")
    yield MemoryPool("two_ended", high=tuple(range(0, len(step.tensors), 2)))
    yield MemoryPool("classes", classes=tuple((2**power, 400) for power in range(9, 36)))
    starts = np.concatenate(([0], np.cumsum(-(-step.tensors.bytes // 512) * 512)))
    yield MemoryPool("planned", offsets=tuple(enumerate(starts[:-1].tolist())))
    yield MemoryPool("caching")


def print_policies(name: str, step: Step, machine: MemoryMachine) -> None:
    """Planning and simulating: events per second against the bound, for each policy."""
    simulator = Simulator(step, machine)
    bound = best(bare_walk(step))
    print(
        f"{name:14} {'(bound)':22} {len(step.ops):6} {0:6} {'':8} {bound:8.4f} {len(step.ops) / bound:10,.0f}"
    )
    view = DeviceView(machine, simulator.estimate, np.random.default_rng(0), simulator.split)
    for policy_name, knobs in POLICIES:
        policy = registry.create("memory", policy_name, knobs)
        started = time.process_time()
        plan = policy.plan(step, view)  # type: ignore[attr-defined]
        print_row(name, policy_name, step, plan, machine, time.process_time() - started, bound)
        if policy_name == "swap_all":
            for pool in pools(step):
                pooled = replace(plan, space=pool)
                wide = replace(machine, capacity=2**46)
                print_row(name, f"swap_all, {pool.kind}", step, pooled, wide, 0.0, bound)


def print_row(
    name: str, label: str, step: Step, plan: MemoryPlan, machine: MemoryMachine, planning: float, bound: float
) -> None:
    simulator = Simulator(step, machine)
    spent = best(lambda: simulator.run(plan))
    drawn = best(lambda: watch(simulator, plan))
    events = len(step.ops) + len(plan.moves)
    print(
        f"{name:14} {label:22} {len(step.ops):6} {len(plan.moves):6} {planning:8.4f} {spent:8.4f}"
        f" {events / spent:10,.0f} {bound / spent:9.2f} {drawn:10.4f} {drawn / spent:6.2f}"
    )


def watch(simulator: Simulator, plan: MemoryPlan) -> StepRecording:
    """The same step, simulated with everything kept that a run page draws."""
    recorder = StepRecorder()
    simulator.run(plan, recorder=recorder)
    return recorder.recording


def other_order(step: Step, seed: int) -> tuple[int, ...]:
    """The ops in order but for one pair of neighbors that do not depend on one another."""
    random = np.random.default_rng(seed)
    count = len(step.ops)
    while True:
        at = int(random.integers(count - 1))
        order = [*range(at), at + 1, at, *range(at + 2, count)]
        if order_fault(step, order) is None:  # a swap of two neighbors is its own inverse
            return tuple(order)


def print_search(name: str, step: Step, machine: MemoryMachine) -> None:
    """What a search over plans costs: the same swaps again and again, and in other orders of the ops."""
    simulator = Simulator(step, machine)
    plan = registry.create("memory", "swap_all", {}).plan(step, None)  # type: ignore[attr-defined]
    started = time.process_time()
    for _ in range(EVALUATIONS):
        simulator.estimate(plan)
    spent = time.process_time() - started
    print(f"{name}: {EVALUATIONS} evaluations of a swap plan in {spent:.1f} s (at most {MOST_SECONDS})")
    orders = [MemoryPlan(order=other_order(step, seed)) for seed in range(EVALUATIONS // 10)]
    started = time.process_time()
    for candidate in orders:
        simulator.estimate(candidate)
    each = (time.process_time() - started) / len(orders)
    print(
        f"{name}: {each * 1e3:.1f} ms for each plan in another order: {EVALUATIONS} in "
        f"{each * EVALUATIONS:.1f} s"
    )
    for discipline in ("fair", "turns"):
        started = time.process_time()
        run_shared(step, [plan, plan], machine, discipline)
        print(f"{name}: two devices on one link, {discipline}: {time.process_time() - started:.2f} s")


def print_genetic(name: str, step: Step, machine: MemoryMachine) -> None:
    """SwapAdvisor: so many candidates planned and timed, on a device that holds half of what is live."""
    halved = replace(machine, capacity=step.live_peak // 2)
    simulator = Simulator(step, halved)
    view = DeviceView(halved, simulator.estimate, np.random.default_rng(0), simulator.split)
    policy = registry.create("memory", "swapadvisor", {"evaluations": EVALUATIONS})
    started = time.process_time()
    plan = policy.plan(step, view)  # type: ignore[attr-defined]
    spent = time.process_time() - started
    done = simulator.run(plan)
    print(
        f"{name}: {plan.notes['evaluations']} candidates of SwapAdvisor in {spent:.1f} s (at most "
        f"{MOST_SECONDS});"
        f" the step takes {done.step_time / plan.notes['predicted_time']:.4f} of what the search predicts"
    )


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else TRACES
    hardware = resolve(HARDWARE)
    machine = machine_of(hardware)
    header = f"{'step':14} {'policy':22} {'ops':>6} {'moves':>6} {'plan s':>8} {'step s':>8}"
    print(f"{header} {'events/s':>10} {'of bound':>9} {'watched s':>10} {'times':>6}")
    steps = {name: step_of(workload, hardware.device)[0] for name, workload in workloads(folder).items()}
    for name, step in steps.items():
        print_policies(name, step, machine)
    for name, step in steps.items():
        if name == "BERT_Base_256":
            print_search(name, step, machine)
            print_genetic(name, step, machine)
    if "BERT_Base_256" in steps:
        g10_artifact.print_cases(folder)


if __name__ == "__main__":
    main()
