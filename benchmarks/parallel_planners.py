"""Seconds and quality of each planner on the 14 published layer profiles, against data parallelism and a
lower bound.

Quality is the simulated step over the lower bound: all devices busy with an equal share of the work, nothing
sent. Every plan is carried out by the same event simulator; a plan that is none, or that beats the bound,
ends the benchmark with exit code 1. Profiles whose samples nobody counted have no data parallelism of whole
samples.

    python benchmarks/parallel_planners.py [--data ../shared/data] [--nodes 1] [--per-node 4] [--models
    alexnet vgg16]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.core import registry
from experiments.core.errors import BadInput, Infeasible
from experiments.core.options import WorkloadOptions
from experiments.hardware import Hardware, resolve
from experiments.parallel.interface import PlanningEstimate, model_estimate, violations
from experiments.parallel.simulator import evaluate, simulate
from experiments.readers.base import open_file
from experiments.workloads.layers import LayerGraph

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "data_parallel"
#: Policy and the knobs it is run with.
PLANNERS: tuple[tuple[str, dict[str, Any]], ...] = (
    (BASELINE, {}),
    ("optcnn", {"judge": "simulator"}),
    ("flexflow", {"budget": 50, "starts": "data_parallel", "judge": "simulator"}),
    ("tofu", {}),
    ("unity", {"judge": "simulator"}),
    ("alpa", {"micro_batches": 1}),
)


@dataclass(frozen=True)
class Row:
    """Seconds of the search and of the simulated step; what the plan predicted, if it did."""

    searched: float
    step: float
    predicted: float | None


def planned(name: str, knobs: dict[str, Any], model: LayerGraph, estimate: PlanningEstimate) -> Row | None:
    """Nothing where the model does not divide as the policy needs."""
    policy = registry.create("parallel", name, knobs)
    start = time.perf_counter()
    try:
        plan = policy.place(model, estimate.cluster, model.batch, estimate)  # type: ignore[attr-defined]
    except (BadInput, Infeasible):
        return None
    searched = time.perf_counter() - start
    if wrong := violations(plan, model, estimate.cluster):
        raise SystemExit(f"{name} on {model.name}: {wrong[0]}")
    step = simulate(plan, estimate).step_time / plan.steps
    return Row(searched, step, plan.notes.get("predicted_step_time"))


def compared(model: LayerGraph, cluster: Hardware) -> tuple[float, dict[str, Row]]:
    """Prints one line; the lower bound and every planner's row."""
    estimate = model_estimate(model, cluster, evaluate)
    bound = float(estimate.layer_seconds.sum()) * model.batch / cluster.device_count
    rows = {name: planned(name, knobs, model, estimate) for name, knobs in PLANNERS}
    cells = [f"{cell(row, bound):>22}" for row in rows.values()]
    print(
        f"{model.name.removesuffix('.txt'):<14} {len(model):>6} {bound * 1e3:>9.1f}" + "".join(cells),
        flush=True,
    )
    found = {name: row for name, row in rows.items() if row is not None}
    for name, row in found.items():
        if row.step < bound * (1 - 1e-9):
            raise SystemExit(f"{name} on {model.name}: {row.step} s is below the bound of {bound} s")
    return bound, found


def cell(row: Row | None, bound: float) -> str:
    return f"{row.step * 1e3:.1f} ({row.step / bound:.2f}) {row.searched:.2f} s" if row else "-"


def summary(results: Sequence[tuple[float, dict[str, Row]]]) -> None:
    """Over the profiles that have the baseline: geometric mean over the bound, gain over the baseline, search
    seconds.
    """
    print()
    print(
        f"{'planner':<14} {'step / bound':>13} {'data parallel / step':>21} {'simulated / predicted':>22} "
        f"{'search s':>9}"
    )
    for name, _ in PLANNERS:
        kept = [(b, rows) for b, rows in results if BASELINE in rows and name in rows]
        over = geometric([rows[name].step / bound for bound, rows in kept])
        gain = geometric([rows[BASELINE].step / rows[name].step for _, rows in kept])
        known = [(rows[name].step, rows[name].predicted) for _, rows in kept]
        told = geometric([step / predicted for step, predicted in known if predicted])
        spent = sum(rows[name].searched for _, rows in results if name in rows)
        print(f"{name:<14} {over:>13.3f} {gain:>21.3f} {told:>22.3f} {spent:>9.1f}")


def geometric(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--device", default="v100-32g")
    parser.add_argument("--node-link", default="pcie3-x16")
    parser.add_argument("--network", default="eth-10g")
    parser.add_argument("--models", nargs="*")
    options = parser.parse_args()
    shape = {"nodes": options.nodes, "devices_per_node": options.per_node, "device": options.device}
    cluster = resolve({"cluster": {**shape, "node_link": options.node_link, "network": options.network}})
    folder = options.data / "parallel/pipedream_profiles"
    names = options.models or sorted(p.stem for p in folder.glob("*.txt") if not p.stem.startswith("LICENSE"))
    print("step in ms (over the bound) and seconds of the search")
    print(f"{'model':<14} {'layers':>6} {'bound ms':>9}" + "".join(f"{name:>22}" for name, _ in PLANNERS))
    results = []
    for name in names:
        model = open_file(folder / f"{name}.txt", "auto", WorkloadOptions()).reading.value
        results.append(compared(model, cluster))
    summary(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
