"""Synergy beside its authors' simulator, which was run on the trace that they replayed.

There a round's end is every job's end, and nothing starts between rounds; so completion times are some 3 %
longer. A job that is cut counts as fast as on an equal part whatever it is left with, which the order by time
left feels most: those figures are not compared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.cluster.interface import Machine, Machines
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.readers.job_profiles.resource_speeds import SYNERGY_CPUS, SYNERGY_MEMORY

#: Seconds of a step on 3 processors, and speeds relative to that by processors: all the memory there is.
MODELS: dict[str, tuple[float, tuple[float, ...]]] = {
    "alexnet": (0.6, (0.3, 0.66, 1, 1.25, 1.53, 1.75, 2, 2.94, 2.94)),
    "shufflenet": (0.615, (0.3, 0.66, 1, 1.25, 1.53, 1.75, 2, 2.89, 2.89)),
    "res18": (0.64, (0.37, 0.72, 1, 1.3, 1.53, 1.75, 2.4, 2.4, 2.4)),
    "mobilenet": (0.71, (0.37, 0.72, 1, 1.3, 1.49, 1.55, 1.55, 1.55, 1.55)),
    "res50": (0.78, (0.4, 0.74, 1, 1.15, 1.15, 1.15, 1.15, 1.15, 1.15)),
    "deepspeech": (0.757, (0.3, 0.66, 1, 1, 1, 1, 1, 1, 1)),
    "gnmt": (0.12, (1,) * 9),
    "lstm": (0.011, (1,) * 9),
    "transformer": (0.67, (1,) * 9),
}
#: What the two smallest amounts of memory allow at most; those of language need little.
LEAST, SECOND = {"gnmt": 1.0, "lstm": 1.0, "transformer": 1.0}, {"alexnet": 2.0, "shufflenet": 2.0}
#: Mean completion times (s) by servers, order and rule, of the authors' simulator.
THEIRS = {
    (1, "las", "equal"): 73_833.26,
    (1, "las", "greedy"): 72_135.26,
    (1, "las", "tune"): 63_609.26,
    (2, "las", "equal"): 34_596.26,
    (2, "las", "greedy"): 32_097.26,
    (2, "las", "tune"): 28_677.26,
    (1, "srtf", "equal"): 41_070.26,
    (1, "srtf", "greedy"): 34_710.26,
    (2, "srtf", "equal"): 22_260.26,
}


def write_speeds(folder: Path) -> Path:
    rows = ["model,cpus,memory,steps_per_second"]
    for model, (step, curve) in MODELS.items():
        for cpus, relative in zip(SYNERGY_CPUS, curve, strict=True):
            for place, memory in enumerate(SYNERGY_MEMORY):
                most = (LEAST.get(model, 0.1), SECOND.get(model, np.inf), np.inf, np.inf, np.inf)[place]
                rows.append(f"{model},{cpus:g},{memory:g},{min(relative, most) / step:.9g}")
    file = folder / "speeds.csv"
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.mark.parametrize(("servers", "order", "rule"), THEIRS)
def test_completion_times_are_those_of_the_authors_simulator(
    servers: int, order: str, rule: str, shared_data: Path, tmp_path: Path
) -> None:
    options = WorkloadOptions(extra=str(write_speeds(tmp_path)))
    trace = open_file(shared_data / "cluster/synergy/dynamic_srtf.log", "auto", options).reading.value
    machines = Machines([Machine(f"server {row}", 8, "v100", 24.0, 500e9) for row in range(servers)])
    policy = registry.create("cluster", "synergy", {"order": order, "allocation": rule})
    plan = simulate(trace, machines, policy, performance_of(trace, machines))  # type: ignore[arg-type]
    ours = figures(plan, trace, machines)["avg_jct"]
    assert ours == pytest.approx(THEIRS[servers, order, rule], rel=0.03)
