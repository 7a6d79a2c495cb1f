"""What suites gave, as a file that ships: every run's figures, with revision, host and versions
(``docs/evidence``).

Written by ``suites --run --out FILE``, loaded at set-up, so that no table is empty on the first day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.core import jsonio
from experiments.core.dashboard import dashboard_status
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.precision import states_in_words
from experiments.core.spec import Outcome
from experiments.core.suites import Suite

#: What the file says of itself.
FORMAT = "mlsys-suites-1"
#: How such a file in ``docs/evidence`` is called; the date is that of its newest suite.
PATTERN = "suites-*.json"
#: What a row of a suite, and one of a run, cannot be without.
OF_A_SUITE = ("suite", "digest", "revision", "at", "seconds", "left_out", "runs")
OF_A_RUN = ("title", "spec", "status", "reason", "metrics")
#: A run that bad input kept from being carried out at all.
REFUSED = "failed"


@dataclass
class SuiteEvidence:
    """Rows by the suite's name, and what is the same in all of them: host and versions."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def row(self, suite: Suite) -> dict[str, Any] | None:
        """Return the row of the suite as it now is; ``None`` where a run or a file of it changed since."""
        row = self.rows.get(suite.name)
        return row if row is not None and row["digest"] == suite.digest else None

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **self.about, "suites": list(self.rows.values())}


def load_suite_evidence(path: Path) -> SuiteEvidence:
    """Read such a file; ``BadInput`` names it and what is wrong."""
    try:
        data = jsonio.loads(path.read_bytes(), path.name)
    except OSError as error:
        raise BadInput(str(error), path.name, "a readable file") from None
    return suite_evidence_of(data, path.name)


def suite_evidence_of(data: Any, where: str) -> SuiteEvidence:
    """Return what parsed JSON says; ``BadInput`` for another format or a row without its fields."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BadInput("not the evidence of suites", where, f"format {FORMAT}")
    rows = {}
    for row in data.get("suites", []):
        _require(row, OF_A_SUITE, where)
        for run in row["runs"]:
            _require(run, OF_A_RUN, where)
        rows[str(row["suite"])] = row
    return SuiteEvidence(rows, {name: data[name] for name in data if name not in ("format", "suites")})


def _require(row: Any, names: Iterable[str], where: str) -> None:
    missing = [name for name in names if not isinstance(row, dict) or name not in row]
    if missing:
        raise BadInput(f"{row!r:.80} lacks {', '.join(missing)}", where, ", ".join(names))


def newest_suite_evidence(folder: Path) -> Path | None:
    """Return the newest file of suites in a folder of evidence, by the date in its name."""
    return max(folder.glob(PATTERN), default=None)


def run_row(title: str, source: str, outcome: Outcome) -> dict[str, Any]:
    """Return a run as evidence keeps it: what was asked, how it ended, and its figures in SI units.

    ``source`` is the workload as the suite names it, which is the same on every host.
    """
    found = outcome.provenance
    return {
        "title": title,
        "spec": _in_short(outcome.spec, source),
        "status": outcome.status,
        "reason": outcome.reason or "",
        "metrics": {name: entry["value"] for name, entry in outcome.metrics.items()},
        "seconds": round(found["seconds"], 3),
        "workload_sha256": found["workload_sha256"],
        "states": states_in_words(found),
        "dashboard": dashboard_status(found),
    }


def refused_row(title: str, spec: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return a run that could not be carried out here, with the reason."""
    return {"title": title, "spec": dict(spec), "status": REFUSED, "reason": reason, "metrics": {}}


def _in_short(spec: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return a spec with those options alone that are not as they always are."""
    workload, usual = spec["workload"], asdict(WorkloadOptions())
    told = {name: value for name, value in workload["options"].items() if value != usual.get(name)}
    return {**spec, "workload": {**workload, "source": source, "options": told}}
