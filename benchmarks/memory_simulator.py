"""How fast the memory simulator is, against a bound in the same run.

    python -m benchmarks.memory_simulator [FOLDER OF G10 TRACES]

The bound is a walk over the ops that does nothing but add up times and count bytes in and out: what any simulator in
plain Python must do at least. Events are ops plus moves. The GPT-2 step is captured once (needs torch).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core import registry
from experiments.core.spec import Workload, WorkloadOptions
from experiments.hardware import resolve
from experiments.memory.interface import DeviceView, machine_of
from experiments.memory.simulator import Simulator
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


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else TRACES
    hardware = resolve(HARDWARE)
    machine = machine_of(hardware)
    print(
        f"{'step':14} {'policy':11} {'ops':>6} {'moves':>6} {'plan s':>8} {'step s':>8} {'events/s':>10} {'of bound':>9}"
    )
    for name, workload in workloads(folder).items():
        step, _ = step_of(workload, hardware.device)
        bound = best(bare_walk(step))
        print(
            f"{name:14} {'(bound)':11} {len(step.ops):6} {0:6} {'':8} {bound:8.4f} {len(step.ops) / bound:10,.0f}"
        )
        simulator = Simulator(step, machine)
        view = DeviceView(machine, simulator.estimate, np.random.default_rng(0))
        for policy_name, knobs in POLICIES:
            policy = registry.create("memory", policy_name, knobs)
            started = time.process_time()
            plan = policy.plan(step, view)  # type: ignore[attr-defined]
            planning = time.process_time() - started
            spent = best(lambda: simulator.run(plan))  # noqa: B023
            events = len(step.ops) + len(plan.moves)
            print(
                f"{name:14} {policy_name:11} {len(step.ops):6} {len(plan.moves):6} {planning:8.4f} {spent:8.4f}"
                f" {events / spent:10,.0f} {bound / spent:9.2f}"
            )


if __name__ == "__main__":
    main()
