"""Roller's construction: processor seconds for each operator, how near its tiles come to all tiles, and to
measured times.

1. Constructing the tiles of the 119 operators of Roller's figure 10: seconds each, and the modeled time
   next to the bound that no tile passes (each element moved once, every unit busy).
2. Small operators: every program priced by the same model, what that costs, and how near the constructed ones
   come. The model knows no penalty for unaligned tiles beyond idle lanes and transactions: the best of all is
   a bound, not a peer. Top 1 and top 10 are shrunk until every unit has a block, as published; ``priced``: as
   far as the model likes best.
3. Our modeled times next to the measured ones of figure 10 on a V100 (TF's libraries, TVM, Ansor, Roller),
   shipped in its artifact as ``Figure10_op_perf_multi_v100.paper.dat`` (as published) and ``..._raw.dat``
   (run again).

Operators are in our format ``operators`` with the figure's names (C conv, D depthwise, E element-wise, M
matmul, P pool, R reduce). Ends with exit code 1 where constructing one operator takes longer than the limit.

    python benchmarks/roller_tiles.py [OPERATORS] [--measured FIGURE10.dat] [--each]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.oracles.enumeration import enumerate_all
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.interface.tile_graph import independent
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.group_tile import least_seconds
from experiments.compilation.planning.tiles.propagation import group_of
from experiments.compilation.policies.roller.construction import construct
from experiments.compilation.policies.roller.micro_model import estimate
from experiments.compilation.policies.roller.tiled_form import tiled_form
from experiments.compilation.simulator.listed_operators import expression
from experiments.core.options import WorkloadOptions
from experiments.hardware.specs import resolve
from experiments.readers.base import open_file
from experiments.workloads.operator_list import Operator

ROOT = Path(__file__).resolve().parent.parent
OPERATORS = ROOT / "experiments/suites/traces/roller-operators.txt"
MEASURED = ROOT.parent / "shared/data/compilation/roller_osdi22/Figure10_op_perf_multi_v100.paper.dat"
COLUMNS = ("TF", "TVM", "Ansor", "Roller-Top1", "Roller-Top10")
MILLISECOND = 1e-3
#: Small enough that all their programs can be priced.
SMALL: tuple[Expression, ...] = (
    operators.matmul(64, 64, 64, name="matmul 64 x 64 x 64"),
    operators.matmul(128, 96, 512, name="matmul 128 x 96 x 512"),
    operators.matmul(100, 90, 77, name="matmul 100 x 90 x 77"),
    operators.elementwise((64, 300), name="element-wise 64 x 300"),
    operators.reduction((256, 512), (1,), name="reduce 256 x 512"),
    operators.rowwise((128, 1000), (1,), name="softmax 128 x 1000"),
    operators.pooling(1, 8, (32, 32), (3, 3), stride=(2, 2), name="pool 8 x 32 x 32"),
    operators.convolution(1, 8, (14, 14), 8, (3, 3), padding=(1, 1), groups=8, name="depthwise 8 x 14 x 14"),
)


@dataclass(frozen=True)
class Row:
    """One operator: seconds to construct, modeled seconds of the first program and of the best of ten, and
    the bound.
    """

    name: str
    construction: float
    first: float
    best: float
    bound: float


def timed(operator: Operator, on: Architecture) -> Row:
    made = expression(operator)
    start = time.process_time()
    form = tiled_form(made)
    programs = construct(form, on).programs
    spent = time.process_time() - start
    seconds = [estimate(form, program, on).seconds for program in programs]
    alone = group_of(independent([made]), [made.name])
    bound = least_seconds(alone, on) - on.launch
    return Row(operator.name, spent, seconds[0], min(seconds), bound)


def geomean(ratios: Iterable[float]) -> float:
    return math.exp(float(np.mean([math.log(ratio) for ratio in ratios])))


def measured(path: Path) -> Mapping[str, Mapping[str, float]]:
    """Published seconds by operator and system; a table may stand in several parts side by side."""
    found, width = {}, 1 + len(COLUMNS)
    for line in path.read_text().splitlines()[1:]:
        cells = line.split("\t")
        for start in range(0, len(cells) - len(COLUMNS), width):
            if cells[start]:
                figures = (float(cell) * MILLISECOND for cell in cells[start + 1 : start + width])
                found[cells[start]] = dict(zip(COLUMNS, figures, strict=True))
    return found


def print_construction(rows: list[Row], limit: float) -> bool:
    print(f"{'class':<6}{'operators':>10}{'mean ms':>10}{'largest ms':>12}{'modeled / bound':>18}")
    for letter in [*sorted({row.name[0] for row in rows}), ""]:
        own = [row for row in rows if row.name.startswith(letter)]
        spent = [row.construction * 1e3 for row in own]
        near = geomean(row.best / row.bound for row in own)
        print(f"{letter or 'all':<6}{len(own):>10}{np.mean(spent):>10.2f}{max(spent):>12.2f}{near:>18.3f}")
    slowest = max(rows, key=lambda row: row.construction)
    print(f"slowest: {slowest.name}, {slowest.construction * 1e3:.2f} ms (limit {limit * 1e3:.0f} ms)\n")
    return slowest.construction < limit


def print_enumeration(on: Architecture) -> None:
    """All programs of small operators next to the constructed ones: how many, processor seconds, modeled
    times.
    """
    print(
        f"{'small operator':<24}{'all':>8}{'s':>7}{'looked at':>11}{'ms':>7}{'top 1':>8}{'top 10':>8}"
        f"{'priced':>8}  over the best"
    )
    ratios = []
    for made in SMALL:
        start = time.process_time()
        best = enumerate_all(made, on)
        middle = time.process_time()
        found = construct(made, on)
        spent = time.process_time() - middle
        every = construct(made, on, shrink="priced")
        first, *others = (estimate(made, program, on).seconds for program in found.programs)
        priced = min(estimate(made, program, on).seconds for program in every.programs)
        ratios.append(tuple(seconds / best.seconds for seconds in (first, min([first, *others]), priced)))
        print(
            f"{made.name:<24}{best.priced:>8}{middle - start:>7.2f}{found.examined:>11}{spent * 1e3:>7.1f}"
            + "".join(f"{ratio:>8.2f}" for ratio in ratios[-1])
        )
    means = "".join(f"{geomean(column):>8.2f}" for column in zip(*ratios, strict=True))
    print(f"{'geometric mean':<57}{means}\n")


def print_model(rows: list[Row], published: Mapping[str, Mapping[str, float]]) -> None:
    """How well the model tells Roller's own measured times: ratio, spread, correlation of logarithms and of
    ranks.
    """
    known = [row for row in rows if row.name in published]
    print("modeled / measured time of Roller's own kernels (top 10 next to the best of ten)")
    print(
        f"{'class':<6}{'n':>4}{'geomean':>9}{'within 25 %':>13}{'log corr.':>11}{'rank corr.':>12}"
        f"{'over the fastest':>18}"
    )
    for letter in [*sorted({row.name[0] for row in known}), ""]:
        own = [row for row in known if row.name.startswith(letter)]
        ours = np.array([row.best for row in own])
        theirs = np.array([published[row.name]["Roller-Top10"] for row in own])
        ratio = ours / theirs
        close = float(np.mean((ratio > 0.8) & (ratio < 1.25)))
        logs = float(np.corrcoef(np.log(ours), np.log(theirs))[0, 1])
        ranks = float(spearmanr(ours, theirs).statistic)
        fastest = geomean(row.best / min(published[row.name].values()) for row in own)
        print(
            f"{letter or 'all':<6}{len(own):>4}{geomean(ratio):>9.3f}{close:>13.2f}{logs:>11.3f}"
            f"{ranks:>12.3f}{fastest:>18.3f}"
        )
    print("\nspeed: measured time of others over ours (modeled) and over Roller's (measured)")
    print(f"{'against':<14}{'modeled':>9}{'published':>10}{'faster':>8}{'published':>10}")
    for system in ("Ansor", "TF", "TVM"):
        modeled = [published[row.name][system] / row.best for row in known]
        theirs_too = [published[row.name][system] / published[row.name]["Roller-Top10"] for row in known]
        wins = (sum(value > 1 for value in modeled), sum(value > 1 for value in theirs_too))
        print(f"{system:<14}{geomean(modeled):>9.3f}{geomean(theirs_too):>10.3f}{wins[0]:>8}{wins[1]:>10}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", type=Path, nargs="?", default=OPERATORS)
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--hardware", default="v100")
    parser.add_argument("--limit", type=float, default=0.05, help="seconds for one operator")
    parser.add_argument("--each", action="store_true", help="a line for each operator")
    chosen = parser.parse_args()
    on = Architecture(resolve(chosen.hardware).device)
    listed = open_file(chosen.operators, "operators", WorkloadOptions()).reading.value
    rows = [timed(operator, on) for operator in listed.operators]
    within = print_construction(rows, chosen.limit)
    print_enumeration(on)
    if chosen.measured.is_file():
        published = measured(chosen.measured)
        if chosen.each:
            for row in rows:
                theirs = published.get(row.name, {}).get("Roller-Top10", math.nan)
                print(
                    f"{row.name:<6}{row.best * 1e3:>10.4f} ms modeled{theirs * 1e3:>10.4f} ms "
                    f"measured{row.best / theirs:>8.2f}"
                )
        print_model(rows, published)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
