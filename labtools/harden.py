"""`./lab harden`: the long versions of tests that the suite carries out in short, their figures in a file."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labtools import processes, testing
from labtools.layout import Layout
from labtools.problems import Problem

FORMAT = "mlsys-harden-1"
#: Names the file to which tests add what they measured (tests/figures.py).
REPORT = "LAB_HARDEN_REPORT"


@dataclass(frozen=True)
class Check:
    """``asked`` is what must hold, ``tests`` are pytest's arguments, ``environment`` makes them long."""

    asked: str
    tests: tuple[str, ...]
    environment: Mapping[str, str]


#: Files with tests that have cases which the suite leaves out.
VARIED = (
    "tests/experiments/cluster/test_fragments.py",
    "tests/experiments/cluster/test_live_processes.py",
    "tests/experiments/memory/test_combined.py",
    "tests/experiments/profiling/test_update_memory.py",
    "tests/experiments/readers/test_onnx.py",
    "tests/experiments/serving/sharing/test_switching_live.py",
    "tests/webapp/artifacts/test_workload_pages.py",
    "tests/webapp/compare/test_sweep_page.py",
    "tests/webapp/history/test_leaderboards.py",
    "tests/webapp/history/test_page.py",
    "tests/webapp/logged/test_pages.py",
    "tests/webapp/logged/test_shown.py",
    "tests/webapp/nightly/test_bisection.py",
    "tests/webapp/nightly/test_changes.py",
    "tests/webapp/palette/test_palette.py",
    "tests/webapp/reports/test_reports.py",
    "tests/webapp/runs/test_cluster_figure.py",
    "tests/webapp/runs/test_node_lists.py",
    "tests/webapp/runs/test_serving_figure.py",
)
CHECKS = {
    "storage": Check(
        "files away for 20 s: no run fails, none is rejected",
        ("tests/workers/test_faults.py", "-k", "away_for_a_while"),
        {"LAB_STORAGE_AWAY": "20"},
    ),
    "database": Check(
        "200 faults between workers and database: no run lost, none doubled",
        ("tests/workers/test_database_faults.py",),
        {"LAB_DATABASE_FAULTS": "200"},
    ),
    "restarts": Check(
        "a worker killed 20 times: its run is at work again within 7 s (p95)",
        ("tests/setup/test_whole_lab.py",),
        {"LAB_RESTARTS": "20"},
    ),
    "kills": Check(
        "50 kills of workers and trials: no run lost, none doubled, nothing left behind",
        ("tests/workers/test_faults.py", "-k", "kills"),
        {"LAB_KILLS": "50"},
    ),
    "uploads": Check(
        "every hostile container, pickle and program through the pages: rejected with its reason",
        ("tests/webapp/test_hostile_uploads.py",),
        {"LAB_HOSTILE": "12,1"},
    ),
    "lengthened": Check(
        "every type of configuration: its step lengthened from a few blocks is the capture of all of them",
        ("tests/experiments/profiling/test_lengthened.py",),
        {"LAB_LENGTHENED": "all"},
    ),
    "soak": Check(
        "5,000 short runs: less than 10 % growth of the worker's memory, nothing held open, no orphan file",
        ("tests/workers/test_soak.py",),
        {"LAB_SOAK": "5000"},
    ),
    "walls": Check(
        "1,024 processes and 16 GiB on disk, in each tier, as root and as a user: stopped, nothing reached",
        ("tests/workers/test_walls.py",),
        {"LAB_PROBE_PROCESSES": "1024", "LAB_PROBE_DISK_BYTES": str(16 * 2**30)},
    ),
    "requests": Check(
        "20,000 made-up requests: none answered by 5xx",
        ("tests/webapp/test_made_up_requests.py",),
        {"MADE_UP_REQUESTS": "20000"},
    ),
    "two-hosts": Check(
        "50 uploads and 200 runs on two hosts, one slow, cut and killed: none rejected or lost, same bytes",
        ("tests/workers/test_two_hosts.py",),
        {"LAB_TWO_HOSTS": "50,200"},
    ),
    "study": Check(
        "36 runs of four schedulers on two hosts, one killed on the way: the rows of one host to the byte",
        ("tests/workers/test_study.py",),
        {"LAB_STUDY": "4000"},
    ),
    "planted": Check(
        "500 drawn modules of each kind: no wrong rewrite accepted, no right one rejected",
        ("tests/experiments/compilation/test_planted.py",),
        {"LAB_PLANTED": "500"},
    ),
    "schedulers": Check(
        "FGD, best fit and random over ten seeds within half a point, Pollux at full load within 5 %",
        (
            *("tests/experiments/cluster/test_published.py", "tests/experiments/cluster/test_fragments.py"),
            *("-k", "default_trace_over_seeds or pollux_is_ahead or within_a_tenth_of_pollux"),
        ),
        {"LAB_SCHEDULERS": "10"},
    ),
    "variants": Check(
        "tests of which the suite carries out the first cases (tests/variants.py): all cases",
        VARIED,
        {"LAB_VARIANTS": "1"},
    ),
}


def harden(layout: Layout, names: Sequence[str], out: Path, arguments: Sequence[str]) -> int:
    """Carry out the checks of ``names`` (all where there are none); 1 where one of them does not hold.

    What the file says of others stays; it is written anew after each.
    """
    chosen = list(names) or list(CHECKS)
    known = _read(out)
    testing.prepare(layout, arguments)
    try:
        for name in chosen:
            known[name] = {"name": name, **_carry_out(layout, CHECKS[name])}
            told = {"format": FORMAT, "checks": list(known.values())}
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(told, indent=1) + "\n")
    finally:
        processes.end_descendants()
    rows = [known[name] for name in chosen]
    print("\n" + "\n".join(map(_line, rows)) + f"\nwritten to {out}", flush=True)
    return int(any(row["verdict"] != "holds" for row in rows))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """What the file says so far, by check."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        if found["format"] == FORMAT:
            return {row["name"]: row for row in found["checks"]}
    except (ValueError, KeyError, TypeError):
        pass
    raise Problem(f"{path} holds something else", "name another file with --out")


def _carry_out(layout: Layout, check: Check) -> dict[str, Any]:
    from experiments.run import revision

    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "figures.jsonl"
        os.environ.update({**check.environment, REPORT: str(report)})
        try:
            result = testing.run_tests(layout, (*check.tests, "--timeout=0"))
        finally:
            for name in (*check.environment, REPORT):
                os.environ.pop(name, None)
        lines = report.read_text().splitlines() if report.exists() else []
    return {
        "asked": check.asked,
        "verdict": "holds" if result.code == 0 else "does not hold",
        "figures": {name: value for line in lines for name, value in json.loads(line).items()},
        "tests": result.closing_line.strip("= "),
        "environment": dict(check.environment),
        "seconds": round(time.monotonic() - began),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": revision(),
        "host": {"system": platform.platform(), "cores": testing.cores(), "load before": round(load, 2)},
    }


def _line(row: Mapping[str, Any]) -> str:
    figures = ", ".join(f"{name} {value}" for name, value in row["figures"].items())
    head = f"{row['name']:<10} {row['verdict']:<14} {row['seconds']:>6} s  {row['asked']}"
    return f"{head}\n{'':<11}{figures or row['tests']}"
