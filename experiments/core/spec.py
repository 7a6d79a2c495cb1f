"""RunSpec and Outcome: the two JSON contracts of the command line, the workers and the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from experiments.core import jsonio, knobs
from experiments.core.errors import BadInput
from experiments.core.metrics import metric
from experiments.core.options import WorkloadOptions
from experiments.core.policy import FAMILIES, MODES

STATUSES = ("ok", "infeasible", "rejected", "failed")


@dataclass(frozen=True)
class Workload:
    """What a run is given: a file or a model of the zoo.

    ``source`` is a file, ``zoo:name`` or ``package:name`` (a file that the package brings); ``format`` one of
    the readers or ``auto`` (decided by content).
    """

    source: str
    format: str = "auto"
    options: WorkloadOptions = field(default_factory=WorkloadOptions)


@dataclass(frozen=True)
class RunSpec:
    """One run: the policy with its knobs, the workload, the hardware, the seed and the mode.

    ``hardware`` is a sheet name, a device with overrides, a cluster, a list of node groups or local.
    """

    family: str
    policy: str
    workload: Workload
    hardware: str | Mapping[str, Any] | Sequence[Any]
    knobs: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "simulated"
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def spec_id(self) -> str:
        """Return the SHA-256 of the canonical JSON.

        Complete the knobs first (``run.complete``) for a stable identity.
        """
        return jsonio.digest(self.to_json())


def _fields(data: Any, where: str, required: set[str], optional: set[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BadInput(f"{data!r:.80} is not an object", where, "a JSON object")
    for name in data:
        if name not in required | optional:
            allowed = ", ".join(sorted(required | optional))
            raise BadInput(f"unknown field {name!r} = {data[name]!r:.80}", where, allowed)
    for name in sorted(required):
        if name not in data:
            raise BadInput(f"field {name!r} is missing", where, f"fields {', '.join(sorted(required))}")
    return data


def _choice(value: Any, allowed: Sequence[str], where: str) -> str:
    if value not in allowed:
        raise BadInput(f"{value!r:.80} is not a choice", where, "one of " + ", ".join(allowed))
    return str(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise BadInput(f"{value!r:.80} is not a name", where, "a non-empty string")
    return value


def load_spec(data: Any) -> RunSpec:
    """A RunSpec from parsed JSON. ``BadInput`` names the field and its value."""
    row = _fields(data, "spec", {"family", "policy", "workload", "hardware"}, {"knobs", "mode", "seed"})
    knob_values = row.get("knobs", {})
    if not isinstance(knob_values, dict):
        raise BadInput(f"{knob_values!r:.80} is not an object", "spec.knobs", "a JSON object")
    seed = row.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise BadInput(f"{seed!r:.80} is not a seed", "spec.seed", "an integer from 0 to 2**63-1")
    return RunSpec(
        family=_choice(row["family"], FAMILIES, "spec.family"),
        policy=_text(row["policy"], "spec.policy"),
        workload=load_workload(row["workload"]),
        hardware=_hardware(row["hardware"]),
        knobs=knob_values,
        mode=_choice(row.get("mode", "simulated"), MODES, "spec.mode"),
        seed=seed,
    )


def load_workload(data: Any) -> Workload:
    row = _fields(data, "spec.workload", {"source"}, {"format", "options"})
    options = row.get("options", {})
    if not isinstance(options, dict):
        raise BadInput(f"{options!r:.80} is not an object", "spec.workload.options", "a JSON object")
    return Workload(
        source=_text(row["source"], "spec.workload.source"),
        format=_text(row.get("format", "auto"), "spec.workload.format"),
        options=knobs.load(WorkloadOptions, options, "spec.workload.options"),
    )


def _hardware(value: Any) -> str | dict[str, Any] | list[Any]:
    if isinstance(value, str | dict | list) and value:
        return value
    raise BadInput(
        f"{value!r:.80} is not hardware", "spec.hardware", "a sheet name, an object or a list of node groups"
    )


@dataclass(frozen=True)
class Series:
    """A curve of an outcome: ``y`` over ``x``.

    ``unit`` is of ``y``; ``x`` is in seconds unless ``x_unit`` says otherwise.
    """

    unit: str
    x: Sequence[float]
    y: Sequence[float]
    x_unit: str = "s"

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.unit, "x_unit": self.x_unit, "x": list(self.x), "y": list(self.y)}


#: What a simulated run's notes call the seconds that its planning took on this host, by names of
#: ``core.metrics``.
CLOCKS = "clocks"


@dataclass(frozen=True)
class Result:
    """What a family hands back for one run; ``run.run`` adds spec and provenance and makes the Outcome."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    violations: tuple[str, ...] = ()
    status: str = "ok"
    reason: str | None = None
    workload_sha256: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_violations(
        cls,
        violations: Sequence[str],
        plan: Mapping[str, Any] = MappingProxyType({}),
        workload_sha256: str = "",
    ) -> Result:
        """Return the end of a run whose plan is impossible.

        The first violation is the reason, and there are no figures.
        """
        return cls(
            status="rejected",
            reason=violations[0],
            violations=tuple(violations),
            plan=plan,
            workload_sha256=workload_sha256,
        )


def metrics_json(values: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Metric values with unit and direction from the catalog; an unlisted name or a NaN is an error."""
    out = {}
    for name, value in values.items():
        known = metric(name)
        out[name] = {"value": float(value), "unit": known.unit, "lower_is_better": known.lower_is_better}
    jsonio.canonical(out)
    return out


@dataclass(frozen=True)
class Outcome:
    """What a RunSpec led to: its metrics, plan and curves, or the reason why there are none.

    Everything but ``provenance`` is a function of the spec and the workload's bytes.
    """

    spec: dict[str, Any]
    spec_id: str
    status: str
    reason: str | None
    metrics: dict[str, dict[str, Any]]
    series: dict[str, dict[str, Any]]
    plan: dict[str, Any]
    violations: list[str]
    provenance: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def load_outcome(data: Any) -> Outcome:
    """Return an Outcome from parsed JSON, such as an import from another host.

    It is checked field by field, spec and id included.
    """
    names = set(Outcome.__dataclass_fields__)
    row = _fields(data, "outcome", names, set())
    spec = load_spec(row["spec"])
    if jsonio.digest(row["spec"]) != row["spec_id"]:
        raise BadInput(
            f"{row['spec_id']!r:.80} is not the hash of the spec", "outcome.spec_id", "its SHA-256"
        )
    _choice(row["status"], STATUSES, "outcome.status")
    values = {
        name: _metric_value(name, entry) for name, entry in _object(row["metrics"], "outcome.metrics").items()
    }
    for name in ("series", "plan", "provenance"):
        _object(row[name], f"outcome.{name}")
    for name, curve in row["series"].items():
        _check_curve(curve, f"outcome.series.{name}")
    if row["reason"] is not None and not isinstance(row["reason"], str):
        raise BadInput(f"{row['reason']!r:.80} is not a reason", "outcome.reason", "a string or null")
    if not isinstance(row["violations"], list) or not all(isinstance(v, str) for v in row["violations"]):
        raise BadInput("not a list of strings", "outcome.violations", "a list of strings")
    return Outcome(**{**row, "metrics": metrics_json(values), "spec": {**row["spec"], "family": spec.family}})


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.80} is not an object", where, "a JSON object")
    return value


def _check_curve(curve: Any, where: str) -> None:
    """Two lists of numbers of one length, as ``Series.to_json`` writes them."""
    row = _fields(curve, where, {"unit", "x", "y"}, {"x_unit"})
    for axis in ("x", "y"):
        numbers = row[axis]
        if not isinstance(numbers, list) or not all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in numbers
        ):
            raise BadInput("not a list of numbers", f"{where}.{axis}", "a list of numbers")
    if len(row["x"]) != len(row["y"]):
        raise BadInput(f"{len(row['x'])} x and {len(row['y'])} y", where, "as many x as y")


def _metric_value(name: str, entry: Any) -> float:
    value = entry.get("value") if isinstance(entry, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadInput(
            f"{entry!r:.80} has no numeric value", f"outcome.metrics.{name}", '{"value": number, ...}'
        )
    return float(value)
