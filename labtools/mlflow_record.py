"""A run of the lab as MLflow has runs, with what MLflow has no place for in tags `lab.…`, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from labtools.mlflow_names import escape, escape_all, unescape, whole_names

#: A run with this tag left a lab; its value is the run's id there.
EXPORTED = "lab.run"
PARAM, TAG, PLACE = "lab.param.", "lab.tag.", "lab.environment."
#: States by MLflow's words and, as its folders have them, numbers; one that it has not is in `lab.state` too.
STATUSES = {"queued": "SCHEDULED", "running": "RUNNING", "succeeded": "FINISHED", "cancelled": "KILLED"}
NUMBERS = {"RUNNING": 1, "SCHEDULED": 2, "FINISHED": 3, "FAILED": 4, "KILLED": 5}
#: What MLflow has tags of its own for, by our name.
PLACES = {"revision": "mlflow.source.git.commit", "command": "mlflow.source.name", "user": "mlflow.user"}
#: Characters that MLflow takes.
LONGEST_PARAM, LONGEST_TAG = 6000, 8000
ASKED = ("family", "policy", "hardware", "mode", "seed")
Point = tuple[int, float, int]


@dataclass
class ExportedRun:
    """What is written of a run; moments in milliseconds, ``points`` are (moment, value, step) by figure.

    ``texts`` are files of it by name.
    """

    id: str
    name: str
    experiment: str
    experiment_id: str
    status: str
    start: int
    end: int | None
    user: str
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: dict[str, list[Point]] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)


def record_of(row: Mapping[str, Any]) -> ExportedRun:
    """A run as the API lists it with details; points of a logged run come apart."""
    details, start = row["details"], _moment(row["started_at"] or row["queued_at"])
    run = ExportedRun(
        id=str(row["id"]).replace("-", ""),
        name=row["policy"],
        experiment=details["experiment_name"] or row["policy"] or "runs",
        experiment_id=str(row["experiment"] or f"none of {row['project']}"),
        status=STATUSES.get(row["state"], "FAILED"),
        start=start,
        end=_moment(row["finished_at"]) if row["finished_at"] else None,
        user=details["by"] or "",
    )
    values = dict(details["spec"].get("knobs", {})) if details["logged"] else _params_of(row, details["spec"])
    names = escape_all(values)
    run.params = {names[name]: _text(value)[:LONGEST_PARAM] for name, value in values.items()}
    run.tags = _tags(row, run) | whole_names(values)
    run.tags |= {f"{PARAM}{names[n]}": json.dumps(v) for n, v in values.items() if not _says_itself(v)}
    if not details["logged"]:
        figures = {name: told["value"] for name, told in row["metrics"].items()}
        add_points(run, {name: [(run.end or start, value, 0)] for name, value in figures.items()})
        run.texts["spec.json"] = json.dumps(details["spec"], indent=1).encode()
    return run


def _params_of(row: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a policy's run was asked for, by the names that a search has for it."""
    workload = spec.get("workload", {})
    knobs = {f"knob.{name}": value for name, value in spec.get("knobs", {}).items()}
    options = {f"option.{name}": value for name, value in workload.get("options", {}).items()}
    return {**{name: row[name] for name in ASKED}, "workload": workload.get("source"), **knobs, **options}


def _tags(row: Mapping[str, Any], run: ExportedRun) -> dict[str, str]:
    details, logged = row["details"], row["details"]["logged"] or {}
    environment = {"revision": details["revision"], "user": run.user} | logged.get("environment", {})
    tags = {EXPORTED: str(row["id"]), "mlflow.runName": run.name, "mlflow.note.content": details["note"]}
    tags |= {f"lab.{name}": row[name] for name in ("project", "state", "reason")}
    tags |= {"lab.experiment": details["experiment_name"], "lab.kind": details["kind"]}
    if logged:
        tags |= {"lab.hardware": row["hardware"], "lab.seed": str(row["seed"])}
    tags |= {f"{TAG}{name}": "true" for name in details["tags"]}
    told = {PLACES.get(n) or f"{PLACE}{escape(n, parts=False)}": _text(v) for n, v in environment.items()}
    whole = {name: text for name, text in (tags | told).items() if text}
    long = {name: text for name, text in whole.items() if len(text) > LONGEST_TAG}
    if long:
        run.texts["tags.json"] = json.dumps(long, indent=1).encode()
    return {name: text[:LONGEST_TAG] for name, text in whole.items()} | whole_names(environment)


def add_points(run: ExportedRun, points: Mapping[str, list[Point]]) -> None:
    names = escape_all(points)
    run.points = {names[name]: found for name, found in points.items() if found}
    run.tags |= whole_names(points)


def beginning_of(name: str, start: int, params: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, Any]:
    """The beginning of the log of a run that left a lab, as it was there."""
    places = {theirs: ours for ours, theirs in PLACES.items()}
    environment = {places[tag]: text for tag, text in tags.items() if tag in places}
    for tag, text in tags.items():
        if tag.startswith(PLACE):
            environment[unescape(tag.removeprefix(PLACE), tags)] = text
    return {
        "name": name,
        "experiment": tags.get("lab.experiment", ""),
        "params": {unescape(shown, tags): _value(shown, text, tags) for shown, text in params.items()},
        "tags": [tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG)],
        "hardware": tags.get("lab.hardware", ""),
        "seed": _seed(tags.get("lab.seed", "")),
        "environment": {**environment, "imported from": "MLflow"},
        "started": start / 1000,
    }


def parse(text: str) -> Any:
    """The number or truth that a text says, as JSON and Python write them; else the text."""
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    for kind in (int, float):
        try:
            found = kind(text)
        except ValueError:
            continue
        is_finite = found == found and abs(found) < 2**63
        return found if is_finite else text
    return text


def _says_itself(value: Any) -> bool:
    """Whether the text of a value is read back as just it."""
    text = _text(value)
    read = parse(text)
    return type(read) is type(value) and read == value and text.isprintable() and text.strip() == text


def _value(shown: str, text: str, tags: Mapping[str, str]) -> Any:
    try:
        found = json.loads(tags[f"{PARAM}{shown}"])
    except (KeyError, ValueError):
        return parse(text)
    return found if found is None or isinstance(found, bool | int | float | str) else text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _seed(text: str) -> int:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def _moment(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
