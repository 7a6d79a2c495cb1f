"""``run(spec) -> Outcome``: carries out one run without Django and records its provenance."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, cast

import experiments
from experiments.core import registry
from experiments.core.completion import complete
from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.core.policy import Policy
from experiments.core.progress import Progress, forward_only, silent
from experiments.core.reading import refuse_unreadable
from experiments.core.spec import Outcome, Result, RunSpec, metrics_json
from experiments.core.time_limit import limit_time
from experiments.sources import complete_options, load


class Family(Protocol):
    """What ``experiments/<family>/experiment.py`` offers: carry out one completed spec."""

    def carry_out(self, spec: RunSpec, policy: Policy, progress: Progress) -> Result: ...


def run(spec: RunSpec, progress: Progress = silent, search_seconds: float | None = None) -> Outcome:
    """Carry out ``spec``; bad input raises. Searches end after ``search_seconds`` with the best so far.

    A plan that does not fit is an outcome with status ``infeasible``, one that nothing could carry out an
    outcome with status ``rejected``.
    """
    started, clock = datetime.now(UTC), time.perf_counter()
    spec, policy = complete(spec)
    loaded = load(spec.workload)
    refuse_unreadable(type(policy), spec.mode, loaded.kind, spec.workload.source)
    spec = replace(spec, workload=complete_options(spec.workload, loaded, policy.fp32_gradients))
    progress = forward_only(progress)
    family = cast(Family, registry.load_module(spec.family, "experiment"))
    with limit_time(search_seconds) as limit:
        try:
            result = family.carry_out(spec, policy, progress)
        except Infeasible as error:
            result = Result(status="infeasible", reason=str(error))
        except ImpossiblePlan as error:
            result = Result.from_violations(error.violations)
    progress(1.0, "done")
    ended = {}
    if limit is not None and limit.ended:
        spec = replace(spec, knobs={**spec.knobs, **limit.reached})
        ended = {"search_seconds": limit.seconds, "knobs_reached": limit.reached}
    provenance = {
        "revision": revision(),
        "versions": versions(),
        "host": host(),
        "workload_sha256": result.workload_sha256,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - clock, 6),
        **ended,
        **result.notes,
    }
    return _outcome(spec, result, provenance)


def _outcome(spec: RunSpec, result: Result, provenance: dict[str, Any]) -> Outcome:
    return Outcome(
        spec=spec.to_json(),
        spec_id=spec.spec_id,
        status=result.status,
        reason=result.reason,
        metrics=metrics_json(result.metrics),
        series={name: series.to_json() for name, series in result.series.items()},
        plan=dict(result.plan),
        violations=list(result.violations),
        provenance=provenance,
    )


def revision() -> str:
    """The commit of this checkout (``LAB_REVISION`` in a container), else the package version."""
    if os.environ.get("LAB_REVISION"):
        return os.environ["LAB_REVISION"]
    root = Path(__file__).resolve().parent.parent
    head = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(head, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return experiments.__version__


def versions() -> dict[str, str]:
    """Versions of what can change a number; torch without importing it."""
    found = {"python": platform.python_version(), "experiments": experiments.__version__}
    for package in ("numpy", "scipy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def host() -> dict[str, Any]:
    """Where the run happened: name, system, cores and, once torch is loaded, the accelerator."""
    facts: dict[str, Any] = {"name": platform.node(), "system": platform.platform(), "cores": os.cpu_count()}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
    return facts
