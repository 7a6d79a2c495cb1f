"""Statuses of compiled models in the words of PyTorch's dashboard (``benchmarks/dynamo``), next to our own.

Its procedure, not ours: eager runs twice, then the compiled model once, and the first thing that goes wrong
names the status. Ours judges in float64 and may say that nothing can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PASS, FAIL_ACCURACY, FAIL_TO_RUN, OOM = "pass", "fail_accuracy", "fail_to_run", "OOM"
TWO_RUNS_DIFFER, TIMEOUT, INFRA_ERROR = "eager_two_runs_differ", "timeout", "infra_error"
#: Which run of eager did not end well: did it fail, or run out of memory.
EAGER_RUNS = (("eager_1st_run_fail", "eager_1st_run_OOM"), ("eager_2nd_run_fail", "eager_2nd_run_OOM"))
#: Every status that a run here can have, with what it means.
MEANINGS: Mapping[str, str] = {
    PASS: "the compiled model gives what eager gives",
    FAIL_ACCURACY: "it gives something else",
    FAIL_TO_RUN: "it cannot be compiled, or raises when it is called",
    OOM: "compiling or calling it ran out of the device's memory",
    TWO_RUNS_DIFFER: "two runs of eager from one seed do not give the same bits",
    EAGER_RUNS[0][0]: "eager itself raises",
    EAGER_RUNS[0][1]: "eager itself runs out of the device's memory",
    EAGER_RUNS[1][0]: "eager raises when it is run again",
    EAGER_RUNS[1][1]: "eager runs out of the device's memory when it is run again",
    TIMEOUT: "it took longer than a run may",
    INFRA_ERROR: "its process ended without a result",
}
#: Under which a run's notes have the status.
STATUS = "dashboard_status"


def dashboard_status(provenance: Mapping[str, Any]) -> str:
    """Return the status that a run's provenance tells; empty for any other word and where there is none."""
    notes = provenance.get("compilation")
    status = notes.get(STATUS) if isinstance(notes, Mapping) else None
    return status if isinstance(status, str) and status in MEANINGS else ""
