"""Roller's construction on a list of operators: processor seconds each, and our modelled time beside published measured ones.

The figures are those of Roller's figure 10 on a V100 (milliseconds of TF's libraries, TVM, Ansor and Roller), shipped in
its artifact as ``Figure10_op_perf_multi_v100.paper.dat`` (as published) and ``..._raw.dat`` (run again). The operators'
sizes come in a file of our format ``operators`` with the figure's names (C conv, D depthwise, E element-wise, M matmul,
P pool, R reduce). Ends with exit code 1 where constructing one operator takes longer than the limit.

    python benchmarks/roller_tiles.py OPERATORS [--measured FIGURE10.dat] [--each]
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

from experiments.compilation.kernels.architecture import Architecture, architecture
from experiments.compilation.kernels.construction import construct
from experiments.compilation.kernels.from_list import expression
from experiments.compilation.kernels.micro_model import estimate
from experiments.compilation.kernels.rolled import tiled_form
from experiments.core.spec import WorkloadOptions
from experiments.hardware.specs import resolve
from experiments.readers.base import open_file
from experiments.workloads.operator_list import Operator

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT.parent / "shared/data/compilation/roller_osdi22/Figure10_op_perf_multi_v100.paper.dat"
COLUMNS = ("TF", "TVM", "Ansor", "Roller-Top1", "Roller-Top10")
MILLISECOND = 1e-3


@dataclass(frozen=True)
class Row:
    """One operator: seconds to construct, modelled seconds of the first program and of the best of ten."""

    name: str
    construction: float
    first: float
    best: float


def timed(operator: Operator, on: Architecture) -> Row:
    start = time.process_time()
    form = tiled_form(expression(operator))
    programs = construct(form, on).programs
    spent = time.process_time() - start
    seconds = [estimate(form, program, on).seconds for program in programs]
    return Row(operator.name, spent, seconds[0], min(seconds))


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
    print(f"{'class':<6}{'operators':>10}{'mean ms':>10}{'largest ms':>12}")
    for letter in sorted({row.name[0] for row in rows}):
        own = [row.construction * 1e3 for row in rows if row.name[0] == letter]
        print(f"{letter:<6}{len(own):>10}{np.mean(own):>10.2f}{max(own):>12.2f}")
    slowest = max(rows, key=lambda row: row.construction)
    mean = np.mean([row.construction for row in rows])
    print(
        f"all {len(rows)}: mean {mean * 1e3:.2f} ms, slowest {slowest.name} {slowest.construction * 1e3:.2f} ms\n"
    )
    return slowest.construction < limit


def print_model(rows: list[Row], published: Mapping[str, Mapping[str, float]]) -> None:
    """How well the model tells Roller's own measured times: ratio, spread, correlation of logarithms and of ranks."""
    known = [row for row in rows if row.name in published]
    print("modelled / measured time of Roller's own kernels (top 10 beside the best of ten)")
    print(f"{'class':<6}{'n':>4}{'geomean':>9}{'within 25 %':>13}{'log corr.':>11}{'rank corr.':>12}")
    for letter in [*sorted({row.name[0] for row in known}), ""]:
        own = [row for row in known if row.name.startswith(letter)]
        ours = np.array([row.best for row in own])
        theirs = np.array([published[row.name]["Roller-Top10"] for row in own])
        ratio = ours / theirs
        close = float(np.mean((ratio > 0.8) & (ratio < 1.25)))
        logs = float(np.corrcoef(np.log(ours), np.log(theirs))[0, 1])
        ranks = float(spearmanr(ours, theirs).statistic)
        print(
            f"{letter or 'all':<6}{len(own):>4}{geomean(ratio):>9.3f}{close:>13.2f}{logs:>11.3f}{ranks:>12.3f}"
        )
    print("\nspeed: measured time of others over ours (modelled) and over Roller's (measured)")
    print(f"{'against':<14}{'modelled':>9}{'published':>10}{'faster':>8}{'published':>10}")
    for system in ("Ansor", "TF", "TVM"):
        modelled = [published[row.name][system] / row.best for row in known]
        theirs_too = [published[row.name][system] / published[row.name]["Roller-Top10"] for row in known]
        wins = (sum(value > 1 for value in modelled), sum(value > 1 for value in theirs_too))
        print(f"{system:<14}{geomean(modelled):>9.3f}{geomean(theirs_too):>10.3f}{wins[0]:>8}{wins[1]:>10}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", type=Path)
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--hardware", default="v100")
    parser.add_argument("--limit", type=float, default=0.05, help="seconds for one operator")
    parser.add_argument("--each", action="store_true", help="a line for each operator")
    chosen = parser.parse_args()
    on = architecture(resolve(chosen.hardware).device)
    listed = open_file(chosen.operators, "operators", WorkloadOptions()).reading.value
    rows = [timed(operator, on) for operator in listed.operators]
    within = print_construction(rows, chosen.limit)
    if chosen.measured.is_file():
        published = measured(chosen.measured)
        if chosen.each:
            for row in rows:
                theirs = published.get(row.name, {}).get("Roller-Top10", math.nan)
                print(
                    f"{row.name:<6}{row.best * 1e3:>10.4f} ms modelled{theirs * 1e3:>10.4f} ms measured{row.best / theirs:>8.2f}"
                )
        print_model(rows, published)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
