"""TASO's search on BERT-base, priced by roofline: wall time of a number of expansions, with the rules that
come with the lab and with a file of rules. Goal: 1,000 expansions in under 60 s.

``python benchmarks/taso_search.py [RULES ...] [--model NAME] [--budget N] [--alpha A]``
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.commands.output import table
from experiments.compilation.interface import Graph
from experiments.compilation.live.costs import Bench, Roofline
from experiments.compilation.live.preparation import prepare
from experiments.compilation.live.types import Inference
from experiments.compilation.policies.taso import Taso
from experiments.core.options import WorkloadOptions
from experiments.core.progress import Bar
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.sources import load
from experiments.workloads.model import ModelSource
from experiments.workloads.substitutions import Substitutions

GOAL_SECONDS = 60.0


@dataclass(frozen=True)
class Row:
    rules: str
    usable: int
    expanded: int
    search_seconds: float
    seconds: float
    cpu_seconds: float
    gain: float

    def cells(self) -> list[str]:
        return [
            self.rules,
            str(self.usable),
            str(self.expanded),
            f"{self.search_seconds:.1f}",
            f"{self.seconds:.1f}",
            f"{self.cpu_seconds:.1f}",
            f"{self.gain:.3f}",
        ]


def searched(graph: Graph, policy: Taso, device: str, rules: Substitutions | None, name: str) -> Row:
    bench = Bench(Inference("cpu"), Roofline(resolve(device).device), Bar(), rules=rules)
    wall, cpu = time.perf_counter(), time.process_time()
    found = policy.rewrite(graph, bench)
    spent, used = time.perf_counter() - wall, time.process_time() - cpu
    figures = found.search
    return Row(
        name,
        int(figures["rules"]),
        int(figures["explored"]),
        figures["seconds"],
        spent,
        used,
        figures["cost_before"] / figures["cost_after"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", nargs="*", help="files of rules, besides those that come with the lab")
    parser.add_argument("--model", default="bert-base")
    parser.add_argument("--device", default="v100-16g")
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--alpha", type=float, default=1.05)
    asked = parser.parse_args()
    options = WorkloadOptions(batch=1, training=False)
    source = ModelSource(f"zoo:{asked.model}", zoo=asked.model, options=options)
    graph = prepare(source, False, 0).graph
    policy = Taso(alpha=asked.alpha, budget=asked.budget)
    rows = [searched(graph, policy, asked.device, None, "own")]
    for file in asked.rules:
        rules = load(Workload(file)).value
        rows.append(searched(graph, policy, asked.device, rules, Path(file).name))
    headings = ["rules", "usable", "expanded", "search s", "in all s", "processor s", "cost before / after"]
    print(f"{asked.model}: {len(graph.computing)} ops; load average {os.getloadavg()[0]:.1f}")
    print(table(headings, [row.cells() for row in rows]))
    slowest = max(row.search_seconds for row in rows)
    print(f"slowest search {slowest:.1f} s; goal {GOAL_SECONDS:.0f} s for 1,000 expansions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
