"""The lines of a log: what a program says of itself, one JSON value a line (docs/own-runs.md).

``[step, moment, {"loss": 0.3}]`` are points; everything else is an object with one key: ``begin`` (the first
line of every log), ``progress``, ``table``, ``image``, ``tags`` and ``end``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from experiments.core.errors import BadInput
from webapp.api.gate import check_storable
from webapp.history.models import TAG, TAG_IN_WORDS
from webapp.logged.models import FIGURE
from webapp.logged.pictures import KINDS, Picture, read_picture
from webapp.names import is_name
from webapp.runs.models import LONGEST_METRIC, Run

#: Of one log, and of one value in it.
MOST_PARAMS, MOST_TAGS, LONGEST_VALUE, LONGEST_DIFF, LONGEST_ENVIRONMENT = 1000, 20, 2000, 2**20, 2**16
#: Of a table, and the bytes of its rows.
MOST_ROWS, MOST_COLUMNS, LARGEST_TABLE = 1000, 50, 2**18
FIGURE_IN_WORDS = f"a word of up to {LONGEST_METRIC} characters without ( ) < > = ! , : and quotes"
ENDS = (Run.State.SUCCEEDED, Run.State.FAILED, Run.State.CANCELLED)
BROKEN = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
#: The last moment that a date can say.
LAST_MOMENT = 253_402_300_799.0
NEW_LINE = b"\n"


@dataclass(frozen=True)
class Beginning:
    """What a run is called and was given; ``started`` is its own clock's."""

    name: str
    experiment: str
    params: Mapping[str, Any]
    hardware: str
    seed: int
    tags: tuple[str, ...]
    environment: Mapping[str, Any]
    diff: str
    started: datetime


@dataclass(frozen=True)
class End:
    state: str
    reason: str
    at: datetime


@dataclass
class Records:
    """What some lines say. ``points`` are (step, moment, value) by the name of their series."""

    begin: Beginning | None = None
    points: dict[str, list[tuple[int, float, float]]] = field(default_factory=dict)
    tables: dict[tuple[str, int], tuple[list[str], list[Any]]] = field(default_factory=dict)
    images: dict[tuple[str, int], Picture] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    progress: tuple[float, str] | None = None
    end: End | None = None


def read_records(body: bytes, is_first: bool) -> Records:
    """The records of whole lines; ``BadInput`` names the line, from 1. ``is_first``: the log begins here."""
    if not body.endswith(NEW_LINE):
        raise BadInput("the last line has no end", "body", "lines that each end with a line feed")
    found = Records()
    for number, line in enumerate(body[:-1].split(NEW_LINE), 1):
        where = f"line {number}"
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BadInput(f"no JSON: {error}", where, "a JSON array or object") from None
        if (found.begin is None and is_first) != (isinstance(record, dict) and "begin" in record):
            raise BadInput(
                "a log begins with begin, once", where, '{"begin": {"name": ...}} as its first line'
            )
        if found.end is not None:
            raise BadInput("something stands behind the end", where, "end as the last line")
        _read_record(record, where, found)
    return found


def _read_record(record: Any, where: str, found: Records) -> None:
    match record:
        case [step, at, dict(values)]:
            _read_points(step, at, values, where, found)
        case {"begin": dict(told)} if len(record) == 1:
            found.begin = _beginning(told, where)
        case {"progress": [fraction, words]} if len(record) == 1:
            done = _number(fraction, f"{where}.progress")
            found.progress = (min(max(done, 0.0), 1.0), _text(words, f"{where}.progress", 120))
        case {"table": dict(told)} if len(record) == 1:
            name, step = _named_at(told, ("columns", "rows"), f"{where}.table")
            found.tables[name, step] = _table(told, f"{where}.table")
        case {"image": dict(told)} if len(record) == 1:
            name, step = _named_at(told, ("data",), f"{where}.image")
            found.images[name, step] = _image(told["data"], f"{where}.image")
        case {"tags": tags} if len(record) == 1:
            found.tags += _tags(tags, where)
        case {"end": dict(told)} if len(record) == 1:
            found.end = _end(told, where)
        case _:
            raise BadInput(
                f"{str(record)!r:.80} is no record",
                where,
                "[step, moment, {name: value}], begin, progress, table, image, tags or end",
            )


def _named_at(told: Mapping[str, Any], others: tuple[str, ...], where: str) -> tuple[str, int]:
    """The name and the step of what has these fields besides, and none else."""
    known = ("name", "step", *others)
    if set(told) != set(known):
        raise BadInput(f"its fields are {', '.join(sorted(told))[:120]}", where, ", ".join(known))
    name = told["name"]
    if not isinstance(name, str) or not FIGURE.fullmatch(name) or not is_name(name):
        raise BadInput(f"{name!r:.80} is no name", where, FIGURE_IN_WORDS)
    return name, _step(told["step"], where)


def _table(told: Mapping[str, Any], where: str) -> tuple[list[str], list[Any]]:
    columns, rows = told["columns"], told["rows"]
    if not isinstance(columns, list) or not 0 < len(columns) <= MOST_COLUMNS:
        raise BadInput("no columns", f"{where}.columns", f"a list of 1 to {MOST_COLUMNS} names")
    names = [_name(one, f"{where}.columns", 120) for one in columns]
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise BadInput("no rows", f"{where}.rows", f"a list of up to {MOST_ROWS} rows")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise BadInput("no row", f"{where}.rows[{number}]", f"a list of {len(names)} values")
        for value in row:
            if not (value is None or isinstance(value, bool | int | float | str)):
                raise BadInput(f"{value!r:.60} is no value", f"{where}.rows[{number}]", "text or a number")
    if len(orjson.dumps(rows)) > LARGEST_TABLE:
        raise BadInput("a table that is too large", where, f"at most {LARGEST_TABLE:,} bytes of rows")
    check_storable(rows, f"{where}.rows")
    return names, rows


def _image(data: Any, where: str) -> Picture:
    try:
        decoded = base64.b64decode(data, validate=True)
    except (ValueError, TypeError):
        raise BadInput("no picture", f"{where}.data", f"{KINDS} in base64") from None
    return read_picture(decoded, f"{where}.data")


def _step(step: Any, where: str) -> int:
    if type(step) is not int or not 0 <= step < 2**62:
        raise BadInput(f"{step!r:.40} is no step", where, "an integer of at least 0")
    return step


def _read_points(step: Any, at: Any, values: dict[str, Any], where: str, found: Records) -> None:
    step = _step(step, where)
    moment = _moment(at, where).timestamp()
    for name, value in values.items():
        series = found.points.get(name)
        if series is None:
            if not FIGURE.fullmatch(name) or not is_name(name):
                raise BadInput(f"{name!r:.80} names no figure", where, FIGURE_IN_WORDS)
            series = found.points[name] = []
        series.append((step, moment, _value(value, where, name)))


def _value(value: Any, where: str, name: str) -> float:
    if type(value) is float or type(value) is int:
        return float(value)
    if isinstance(value, str) and value in BROKEN:
        return BROKEN[value]
    raise BadInput(f"{name} is {value!r:.40}", where, f"a number, or {', '.join(BROKEN)} as text")


def _beginning(told: Mapping[str, Any], where: str) -> Beginning:
    where = f"{where}.begin"
    known = ("name", "experiment", "params", "hardware", "seed", "tags", "environment", "diff", "started")
    unknown = sorted(set(told) - set(known))
    if unknown:
        raise BadInput(f"{unknown[0]!r:.80} is not known", where, ", ".join(known))
    check_storable({name: value for name, value in told.items() if name != "diff"}, where)
    name = _name(told.get("name"), f"{where}.name", 80)
    experiment = told.get("experiment")
    environment = told.get("environment", {})
    if not isinstance(environment, dict) or len(orjson.dumps(environment)) > LONGEST_ENVIRONMENT:
        raise BadInput(
            "no environment", f"{where}.environment", f"an object of up to {LONGEST_ENVIRONMENT} bytes"
        )
    diff = told.get("diff", "")
    if isinstance(diff, str):  # of files that are no text
        diff = diff.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    seed = told.get("seed", 0)
    if type(seed) is not int or not -(2**63) <= seed < 2**63:
        raise BadInput(f"{seed!r:.40} is no seed", f"{where}.seed", "an integer of 64 bits")
    return Beginning(
        name,
        name if experiment is None else _name(experiment, f"{where}.experiment", 160),
        _params(told.get("params", {}), f"{where}.params"),
        _text(told.get("hardware", ""), f"{where}.hardware", 120),
        seed,
        tuple(_tags(told.get("tags", []), where)),
        environment,
        _text(diff, f"{where}.diff", LONGEST_DIFF),
        _moment(told.get("started"), f"{where}.started"),
    )


def _params(told: Any, where: str) -> dict[str, Any]:
    if not isinstance(told, dict) or len(told) > MOST_PARAMS:
        raise BadInput("no parameters", where, f"an object of up to {MOST_PARAMS} names and values")
    for name, value in told.items():
        if not 0 < len(name) <= 120 or not is_name(name):
            raise BadInput(f"{name!r:.80} names no parameter", where, "a line of up to 120 characters")
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise BadInput(f"{name} is {value!r:.60}", where, "text, a number, true, false or null")
        if isinstance(value, str) and len(value) > LONGEST_VALUE:
            raise BadInput(f"{name} has {len(value)} characters", where, f"at most {LONGEST_VALUE}")
    return told


def _tags(told: Any, where: str) -> list[str]:
    where = f"{where}.tags"
    if not isinstance(told, list) or len(told) > MOST_TAGS:
        raise BadInput("no tags", where, f"a list of up to {MOST_TAGS} words")
    for tag in told:
        if not isinstance(tag, str) or not TAG.fullmatch(tag):
            raise BadInput(f"{tag!r:.80} is no tag", where, TAG_IN_WORDS)
    return told


def _end(told: Mapping[str, Any], where: str) -> End:
    state = told.get("state")
    if state not in ENDS:
        raise BadInput(f"{state!r:.40} is no end", f"{where}.end.state", ", ".join(ENDS))
    reason = _text(told.get("reason", ""), f"{where}.end.reason", 8000)
    return End(str(state), reason, _moment(told.get("at"), f"{where}.end.at"))


def _name(value: Any, where: str, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not is_name(value):
        raise BadInput(f"{value!r:.80} is no name", where, f"a line of up to {longest} characters")
    return value


def _text(value: Any, where: str, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise BadInput(f"{value!r:.60} is not that", where, f"text of up to {longest} characters")
    check_storable(value, where)
    return value


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise BadInput(f"{value!r:.40} is no number", where, "a finite number")
    return float(value)


def _moment(value: Any, where: str) -> datetime:
    if type(value) not in (int, float) or not 0 <= value < LAST_MOMENT:
        raise BadInput(f"{value!r:.40} is no moment", where, "seconds since 1970")
    return datetime.fromtimestamp(value, UTC)
