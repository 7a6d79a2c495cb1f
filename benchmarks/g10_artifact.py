"""The G10 artifact's rules here and in its own C++ simulator: seconds of planning and simulating, and what
comes out.

    python -m benchmarks.g10_artifact [FOLDER OF G10 TRACES]

The peer's seconds were measured once, on another machine: the artifact (platformxlab/G10) walks a table of
every page and sorts all intervals, comparing areas anew, on every pick. The step times that it published
stand next to ours.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from experiments.core import registry
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.memory.interface import DeviceView, machine_of
from experiments.memory.simulator import Simulator
from experiments.sources import step_of

TRACES = Path(__file__).resolve().parents[2] / "shared/data/memory/g10"
#: Policy, trace, the peer's seconds, the most that ours may take, and the peer's step time in seconds.
CASES = (
    ("flashneuron", "BERT_Base_256", 34.0, 0.3, 12_258_600_000 / 1.2e9),
    ("g10-host", "SENet154_1024", 709.0, 6.0, 175_298_400_000 / 1.2e9),
)
REPEATS = 3


def once(policy_name: str, trace: Path) -> tuple[float, float]:
    """CPU seconds of planning and simulating one step, and its step time."""
    machine = machine_of(resolve("g10-a100"))
    step, _ = step_of(Workload(str(trace)), None)
    policy = registry.create("memory", policy_name, {"preset": "artifact"})
    started = time.process_time()
    simulator = Simulator(step, machine)
    view = DeviceView(machine, simulator.estimate, np.random.default_rng(0), simulator.split)
    found = simulator.run(policy.plan(step, view))  # type: ignore[attr-defined]
    return time.process_time() - started, found.step_time


def print_cases(folder: Path) -> None:
    print(f"{'policy':12} {'trace':14} {'ours s':>8} {'limit s':>8} {'peer s':>8} {'step s':>9} {'peer':>9}")
    for policy, trace, peer, limit, published in CASES:
        runs = [once(policy, folder / f"{trace}.json.gz") for _ in range(REPEATS)]
        spent, step_time = min(runs)
        print(
            f"{policy:12} {trace:14} {spent:8.3f} {limit:8.1f} {peer:8.0f} {step_time:9.3f} {published:9.3f}"
            f" {'ok' if spent <= limit else 'TOO SLOW'}"
        )


if __name__ == "__main__":
    print_cases(Path(sys.argv[1]) if len(sys.argv) > 1 else TRACES)
