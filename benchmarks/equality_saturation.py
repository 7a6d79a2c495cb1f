"""Equality saturation next to the backtracking search, with the same rules and prices: cost of the graph,
seconds spent.

Prices are a named device's roofline, so that the figures repeat. The first row is three projections of one
input, whose equality with one product is checked; its time counts e-graph, proof and selection, after one
call that loads libraries and tests the rules. Ends with exit code 1 where a selected graph costs more than
the search's.

    python benchmarks/equality_saturation.py [--models resnet18 bert-base googlenet] [--budget 100] [--on
    v100-16g]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.compilation.interface import Graph, Rewritten, Workbench
from experiments.compilation.live.costs import Bench, Roofline
from experiments.compilation.live.graphs import graph_of
from experiments.compilation.live.types import Inference
from experiments.compilation.planning.substitutions.optimize import optimize_graph, rulebook
from experiments.compilation.planning.substitutions.search import SearchLimits
from experiments.compilation.planning.substitutions.standard import standard_verdicts
from experiments.compilation.policies.egglog.optimize import saturate_graph
from experiments.compilation.policies.egglog.saturate import Bounds
from experiments.core.options import WorkloadOptions
from experiments.core.progress import silent
from experiments.hardware import resolve
from experiments.workloads.model import ModelSource

MILLISECOND = 1e-3
ALPHA = 1.05


@dataclass(frozen=True)
class Row:
    name: str
    ops: int
    before: float
    search: tuple[float, float]
    ours: tuple[float, float]
    proved: bool


def timed(work: Callable[[], Rewritten]) -> tuple[Rewritten, float]:
    start = time.process_time()
    done = work()
    return done, time.process_time() - start


def row(name: str, graph: Graph, bench: Workbench, budget: int) -> Row:
    rules = rulebook(standard_verdicts())
    found, searching = timed(lambda: optimize_graph(graph, bench, rules, SearchLimits(ALPHA, budget)))
    ours, saturating = timed(lambda: saturate_graph(graph, bench, rules, Bounds()))
    costs = bench.cost(found.graph), bench.cost(ours.graph)
    proved = bool(ours.search["proved_cheapest"] and ours.search["saturated"])
    return Row(name, len(graph.ops), bench.cost(graph), (costs[0], searching), (costs[1], saturating), proved)


def projections() -> Graph:
    """Query, key and value of one input, of unequal widths, and what reads them."""
    import torch
    from torch import nn

    from experiments.compilation.live.backends.base import Task

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = nn.Linear(768, 768), nn.Linear(768, 768), nn.Linear(768, 512)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), -1) @ self.v(x)

    return Task(Attention().eval(), (torch.randn(128, 768),), "cpu").graph


def printed(rows: list[Row]) -> None:
    print(
        f"{'graph':<14}{'ops':>5}{'before':>11}{'search':>11}{'saturated':>11}   seconds of each   proved "
        "cheapest"
    )
    for one in rows:
        costs = "".join(
            f"{value / MILLISECOND:>8.4f} ms" for value in (one.before, one.search[0], one.ours[0])
        )
        print(
            f"{one.name:<14}{one.ops:>5}{costs}{one.search[1]:>10.3f}{one.ours[1]:>8.3f}   "
            f"{'yes' if one.proved else 'no'}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["resnet18", "bert-base", "googlenet"])
    parser.add_argument("--budget", type=int, default=100, help="expansions of the search")
    parser.add_argument("--on", default="v100-16g", help="whose roofline prices ops")
    given = parser.parse_args()
    device = resolve(given.on).device
    bench = Bench(Inference(), Roofline(device))
    qkv = projections()
    row("warm-up", qkv, bench, given.budget)
    rows = [row("projections", qkv, bench, given.budget)]
    for name in given.models:
        source = ModelSource(f"zoo:{name}", zoo=name, options=WorkloadOptions(batch=1))
        rows.append(row(name, graph_of(source, 0, silent), bench, given.budget))
    printed(rows)
    costlier = [one.name for one in rows if one.ours[0] > one.search[0] * (1 + 1e-9)]
    print(
        f"more expensive than the search: {', '.join(costlier)}"
        if costlier
        else "no selected graph is more expensive than the search's"
    )
    return 1 if costlier else 0


if __name__ == "__main__":
    sys.exit(main())
