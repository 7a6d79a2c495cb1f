"""Apache Otava, which finds steps by means and a test of significance: asked in a Python of its own, since it
wants another numpy than the lab.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

#: Indices at which each series steps, by its usual window and p-value.
SCRIPT = """
import json, sys
from otava.analysis import compute_change_points
out = []
for values in json.load(sys.stdin):
    found, _ = compute_change_points(values, window_len=30, max_pvalue=0.001, min_magnitude=0.0)
    out.append([int(point.index) for point in found])
print(json.dumps(out))
"""
#: Seconds that it has for all series together.
PATIENCE = 120.0


def change_points(python: str, series: Sequence[Sequence[float]]) -> list[list[int]]:
    """Where Otava finds each series to step.

    ``OSError``, ``SubprocessError`` or ``ValueError`` where ``python`` has none that answers.
    """
    command, asked = [python, "-I", "-c", SCRIPT], json.dumps([list(values) for values in series])
    ran = subprocess.run(
        command, input=asked, capture_output=True, text=True, check=True, timeout=PATIENCE, env={}
    )
    found: list[list[int]] = json.loads(ran.stdout)
    if len(found) != len(series):
        raise ValueError(f"{len(found)} answers to {len(series)} series")
    return found
