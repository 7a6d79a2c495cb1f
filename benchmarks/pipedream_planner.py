"""Seconds of PipeDream's planner on published profiles, next to those of the released planner for the same
cases.

The peer is ``optimizer_graph_hierarchical`` of msr-fiddle/pipedream@7db6a1c, whose times (on a busy host) and
pipeline times stand with the cases in ``pipedream_planner_open.json``. Pipeline times must agree within 1e-5
s, or the benchmark ends with exit code 1.

    python benchmarks/pipedream_planner.py [--data ../shared/data]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.core.options import WorkloadOptions
from experiments.parallel.planning.stages.cuts import cuts_of
from experiments.parallel.planning.stages.stage_search import ClusterLevel, StageSearchRules, search
from experiments.readers.base import open_file

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-5
#: Larger graphs: model, machines, pipeline time and seconds of the peer, run once on two busy cores of a
#: server.
LARGER = (
    ("resnet50", [4], 0.162880924, 1.9),
    ("resnet50", [4, 4], 0.047042024, 108.0),
    ("resnet101", [8], 0.096591656, 13.1),
    ("densenet121", [4], 0.089976000, 5.2),
    ("gnmt_large", [8], 0.082845000, 77.7),
)
BANDWIDTHS = {1: [1e9], 2: [1e10, 1e9]}


def planned(data: Path, model: str, levels: list[ClusterLevel]) -> tuple[float, float]:
    """Pipeline time, and the seconds to find it (without reading the file)."""
    graph = open_file(
        data / f"parallel/pipedream_profiles/{model}.txt", "auto", WorkloadOptions()
    ).reading.value
    start = time.perf_counter()
    found = search(cuts_of(graph), levels, StageSearchRules())
    return found.seconds, time.perf_counter() - start


def compared(
    data: Path, model: str, levels: list[ClusterLevel], peer: float, peer_seconds: float
) -> tuple[float, float]:
    """Prints a row; the difference of the pipeline times and the seconds of the search."""
    seconds, spent = planned(data, model, levels)
    shape = "x".join(str(level.count) for level in levels)
    print(f"{model:<12} {shape:>9} {seconds:11.5f} {peer:9.5f} {spent:9.3f} {peer_seconds:7.2f}")
    return abs(seconds - peer), spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    data = parser.parse_args().data
    cases = [
        (case["model"], case["machines"], case["bw_Bps"], case["pp_time_s"], case["seconds_contended"])
        for case in json.loads((data / "parallel/pipedream_planner_open.json").read_text())["cases"]
    ]
    larger = [(model, counts, BANDWIDTHS[len(counts)], peer, spent) for model, counts, peer, spent in LARGER]
    print(f"{'model':<12} {'machines':>9} {'pipeline s':>11} {'peer s':>9} {'search s':>9} {'peer s':>7}")
    worst = 0.0
    for title, rows in (("published cases", cases), ("larger graphs", larger)):
        found = [
            compared(
                data, model, [ClusterLevel(*pair) for pair in zip(counts, widths, strict=True)], peer, spent
            )
            for model, counts, widths, peer, spent in rows
        ]
        worst = max(worst, *(difference for difference, _ in found))
        print(
            f"{len(found)} {title}: {sum(spent for _, spent in found):.2f} s, worst difference {worst:.1e} s"
        )
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
