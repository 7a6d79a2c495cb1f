"""Welder's greedy connection next to every partition of small graphs, and the best tiles next to all tiles
of a group.

For each graph: modeled microseconds of operators by themselves, as connected greedily, and of the best
partition (all are tried, with the same search for tiles); traffic before and after; tiles looked at. Then,
for single operators, the priority of the tile that the search of 2,000 finds over that of the best of all
tiles. Ends with exit code 1 where the greedy kernels are slower than the best partition by more than the
limit.

    python benchmarks/welder_tiles.py [--hardware v100] [--limit 1.1]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.oracles.examples import EXAMPLES
from benchmarks.oracles.partitions import best_partition
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.interface.tile_graph import TileGraph, independent
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.group_tile import evaluate
from experiments.compilation.planning.tiles.propagation import group_of
from experiments.compilation.policies.welder.connection import Welding
from experiments.compilation.policies.welder.tile_search import axis_sizes, first_steps, search
from experiments.hardware.specs import resolve

OPERATORS: dict[str, Expression] = {
    "matmul 1024 x 1024 x 1024": operators.matmul(1024, 1024, 1024),
    "matmul 96 x 1000 x 72": operators.matmul(96, 1000, 72),
    "conv 3x3, 64 filters, 28 x 28": operators.convolution(1, 64, (28, 28), 64, (3, 3), padding=(1, 1)),
    "depthwise 5x5, 42 x 83 x 83": operators.convolution(
        1, 42, (83, 83), 42, (5, 5), padding=(2, 2), groups=42
    ),
    "softmax 4096 x 1000": operators.rowwise((4096, 1000), (1,)),
    "transpose 512 x 768": operators.transpose((512, 768), (1, 0)),
}
Answer = TypeVar("Answer")


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    start = time.process_time()
    answer = work()
    return answer, time.process_time() - start


def print_graph(name: str, graph: TileGraph, on: Architecture) -> float:
    """Prints a row; greedy time over the best partition's."""
    welding = Welding(graph, on)
    kernels, spent = timed(welding.run)
    looked = welding.examined
    apart = welding.unfused_kernels()
    best, exhaustive = timed(lambda: best_partition(Welding(graph, on)))
    seconds = [sum(kernel.seconds for kernel in chosen) for chosen in (apart, kernels, best.kernels)]
    moved = [sum(kernel.moved_bytes for kernel in chosen) for chosen in (apart, kernels)]
    print(
        f"{name:<20}{len(graph.nodes):>4}{len(kernels):>8}"
        + "".join(f"{value * 1e6:>10.2f}" for value in seconds)
        + f"{moved[0] / 1e6:>10.2f}{moved[1] / 1e6:>10.2f}{looked:>9}{spent:>8.2f}{best.partitions:>6}"
        f"{best.valid:>6}{exhaustive:>8.2f}"
    )
    return seconds[1] / seconds[2]


def print_search(name: str, expression: Expression, on: Architecture) -> None:
    group = group_of(independent([expression]), [expression.name])
    found, spent = timed(lambda: search(group, on))
    steps = first_steps(group, on)
    choices = [axis_sizes(extent, 1) for extent in group.domain]

    def everything() -> list[float]:
        made = (evaluate(group, tile, steps, on) for tile in itertools.product(*choices))
        return [tile.priority for tile in made if tile is not None]

    priorities, exhaustive = timed(everything)
    chosen = evaluate(group, found.tiles[0].tile, steps, on)
    assert chosen is not None, "it was a candidate"
    ratio = chosen.priority / min(priorities)
    print(
        f"{name:<32}{found.examined:>8}{spent * 1e3:>9.1f}{len(priorities):>9}{exhaustive * 1e3:>9.1f}"
        f"{ratio:>8.3f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hardware", default="v100")
    parser.add_argument("--limit", type=float, default=1.1, help="greedy time over the best partition's")
    chosen = parser.parse_args()
    on = Architecture(resolve(chosen.hardware).device)
    print(f"modeled microseconds and megabytes on {on.name}; seconds of this processor")
    print(
        f"{'graph':<20}{'ops':>4}{'kernels':>8}{'apart us':>10}{'greedy':>10}{'best':>10}{'apart MB':>10}"
        f"{'greedy':>10}{'tiles':>9}{'s':>8}{'all':>6}{'valid':>6}{'s':>8}"
    )
    worst = max(print_graph(name, make(), on) for name, make in EXAMPLES.items())
    print(f"greedy over best, worst: {worst:.3f}\n")
    print(f"{'operator':<32}{'searched':>8}{'ms':>9}{'all':>9}{'ms':>9}{'ratio':>8}")
    for name, expression in OPERATORS.items():
        print_search(name, expression, on)
    return 0 if worst <= chosen.limit else 1


if __name__ == "__main__":
    sys.exit(main())
