"""How long each parallel policy takes with nothing but defaults: a 7B model on 64 H100.

    python -m benchmarks.try_all_policies [--batch 512] [--only zero,alpa] [--timeout 120]

Each is a process of its own (``python -m experiments run``). Seconds are the processor's: other work on the
machine counts little.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.child_seconds import children_seconds
from experiments.core import registry
from experiments.parallel.interface import ParallelPolicy

#: Seconds that a policy may take.
MARK = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--only", default="", help="names with commas")
    parser.add_argument("--timeout", type=float, default=120.0)
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else names()
    rows = [_row(name, arguments.batch, arguments.timeout) for name in chosen]
    answered = [row for row in rows if row[1] == "ok"]
    slow = [row[0] for row in answered if row[2] > MARK]
    print(f"{len(answered)} of {len(rows)} answer, {len(answered) - len(slow)} within {MARK:g} s", *slow)


def names() -> list[str]:
    """Return the policies that plan a model on a cluster."""
    found = registry.family_policies("parallel").values()
    return [policy.name for policy in found if issubclass(policy, ParallelPolicy)]


def _row(name: str, batch: int, timeout: float) -> tuple[str, str, float]:
    spec = {
        "family": "parallel",
        "policy": name,
        "workload": {"source": "zoo:llama2-7b", "options": {"batch": batch}},
        "hardware": {"cluster": {"nodes": 8, "node": "dgx-h100"}},
    }
    before = children_seconds()
    status, said = _run(spec, timeout)
    seconds = children_seconds() - before
    print(f"{name:20} {status:12} {seconds:6.1f} s  {said}", flush=True)
    return name, status, seconds


def _run(spec: dict[str, object], timeout: float) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "spec.json"), Path(folder, "outcome.json")
        asked.write_text(json.dumps(spec))
        command = [sys.executable, "-m", "experiments", "run", str(asked), "--out", str(answer)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return "timeout", ""
        if not answer.is_file():
            return "error", done.stderr.strip().splitlines()[-1][:120]
        outcome = json.loads(answer.read_text())
    step = outcome["metrics"].get("step_time")
    return outcome["status"], f"{step['value']:.2f} s a step" if step else str(outcome["reason"])[:120]


if __name__ == "__main__":
    main()
