"""`./lab import-wandb`: the runs in a folder of Weights & Biases as logs of own runs, each stored once.

A run's file (`run-ID.wandb`) is a log in LevelDB's format: blocks of 32 KiB, in them records that may lie in
several parts, each a protobuf message. Nothing of W&B is needed: the few fields that are read are described
here.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from experiments.client.own_run import (
    LONGEST_EXPERIMENT,
    LONGEST_PARAM,
    LONGEST_RUN,
    MOST_PARAMS,
    MOST_TAGS,
    TAG,
    flatten,
)
from experiments.client.server import LabError, Refused, Server
from labtools.imported import figure_names, one_line, plain_value, send
from labtools.problems import Problem

MAGIC, HEADER_BYTES, BLOCK_BYTES = b":W&B", 7, 32 * 1024
#: Kinds of a part of a record: all of it, its first part, one between, its last.
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
PART = struct.Struct("<IHB")
#: A file without an end that was written to so lately (seconds) may be of a run that goes on.
STILL_WRITTEN = 3600.0
NO_END = "its log of W&B has no end: the program was killed, or the file was copied before it ended"
PLAIN = ("string", "bool", "int64", "int32", "double")
#: Fields by message: name, number and type, where one may come often with a star.
MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Item": {
        "key": (1, "string"),
        "nested_key": (2, "string*"),
        "boolean": (4, "bool"),
        "integer": (5, "int64"),
        "number": (6, "double"),
        "value_json": (16, "string"),
    },
    "Step": {"num": (1, "int64")},
    "History": {"item": (1, "Item*"), "step": (2, "Step")},
    "Config": {"update": (1, "Item*")},
    "Moment": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "Run": {
        "run_id": (1, "string"),
        "entity": (2, "string"),
        "project": (3, "string"),
        "config": (4, "Config"),
        "run_group": (6, "string"),
        "display_name": (8, "string"),
        "notes": (9, "string"),
        "tags": (10, "string*"),
        "host": (13, "string"),
        "start_time": (17, "Moment"),
    },
    "Exit": {"exit_code": (1, "int32")},
    "Record": {"history": (2, "History"), "config": (5, "Config"), "run": (17, "Run"), "exit": (18, "Exit")},
}


@dataclass
class FoundRun:
    """A run of a file.

    ``points`` are (figure, value, moment, step); ``others`` names what is no number; without an end
    ``exit_code`` is ``None``. ``written`` is when its file was last.
    """

    id: str = ""
    entity: str = ""
    project: str = ""
    group: str = ""
    name: str = ""
    notes: str = ""
    host: str = ""
    start: float = 0.0
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    points: list[tuple[str, float, float, int]] = field(default_factory=list)
    others: set[str] = field(default_factory=set)
    exit_code: int | None = None
    written: float = 0.0

    def resumed_as(self, later: FoundRun) -> FoundRun:
        """Both parts as one run, which ended as the later one did."""
        config, points = {**self.config, **later.config}, [*self.points, *later.points]
        others, start = self.others | later.others, min(self.start, later.start)
        return replace(later, config=config, points=points, others=others, start=start)

    @property
    def uuid(self) -> UUID:
        """The same however often the run is brought in."""
        return uuid5(NAMESPACE_URL, f"wandb://{self.entity}/{self.project}/{self.id}")


def import_folder(folder: Path, url: str) -> int:
    """Send every run below the folder; say what became of each."""
    server, sent, left = Server.at(url), 0, 0
    with TemporaryDirectory() as scratch:
        for run in runs_in(folder):
            if run.exit_code is None and time.time() - run.written < STILL_WRITTEN:
                print(f"{run.id} {run.name}: may still run, left out until its file rests for an hour")
                left += 1
                continue
            try:
                send(server, Path(scratch), run.uuid, run.name, records_of(run))
            except LabError as error:
                if not isinstance(error.__cause__, Refused):
                    raise
                print(f"{run.id} {run.name}: left out, {error.__cause__.args[0]}")
                left += 1
                continue
            told = f"; no numbers: {', '.join(sorted(run.others)[:8])}" if run.others else ""
            print(f"{run.id} {run.name}: {len(run.points)} points{told}", flush=True)
            sent += 1
    print(f"{sent} runs of {folder} are in the lab, {left} were left out")
    return 0


def runs_in(folder: Path) -> list[FoundRun]:
    """The runs of all files; one that was resumed has several, and goes on where it was."""
    found: dict[UUID, FoundRun] = {}
    for path in files_in(folder):
        run = read_file(path)
        found[run.uuid] = found[run.uuid].resumed_as(run) if run.uuid in found else run
    return list(found.values())


def files_in(folder: Path) -> list[Path]:
    """Every run's file once, whatever links lead to it, the oldest first."""
    found = sorted({path.resolve() for path in folder.rglob("*.wandb")}, key=lambda path: path.parent.name)
    if not found:
        raise Problem(f"there is no run of W&B in {folder}", "the folder wandb of a program's checkout")
    return found


def records_of(run: FoundRun) -> list[Any]:
    """The run as records of a log."""
    tags = [tag for tag in run.tags if TAG.fullmatch(tag)][:MOST_TAGS]
    told = {"host": run.host, "notes": run.notes[:2000], "entity": run.entity}
    told |= {f"tag {number}": tag[:200] for number, tag in enumerate(run.tags) if tag not in tags}
    group = f"{run.project}: {run.group}" if run.group else run.project
    config = list(flatten(run.config).items())[:MOST_PARAMS]
    params = {one_line(name, LONGEST_PARAM): value for name, value in config}
    beginning = {
        "name": one_line(run.name or run.id, LONGEST_RUN),
        "experiment": one_line(group or "W&B", LONGEST_EXPERIMENT),
        "params": params,
        "tags": tags,
        "environment": {name: value for name, value in told.items() if value}
        | {"imported from": "Weights & Biases"},
        "started": run.start,
    }
    names = figure_names({name for name, *_ in run.points})
    points = [[step, at, {names[name]: plain_value(value)}] for name, value, at, step in run.points]
    last = max((at for *_, at, _ in run.points), default=run.start)
    state = "succeeded" if run.exit_code == 0 else "failed"
    reason = NO_END if run.exit_code is None else f"exit code {run.exit_code}" if run.exit_code else ""
    return [{"begin": beginning}, *points, {"end": {"state": state, "reason": reason, "at": last}}]


def read_file(path: Path) -> FoundRun:
    """What a run's file tells; ``Problem`` for one that is none."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise Problem(f"{path} is no run of W&B", "a file run-ID.wandb as the wandb package writes it")
    kind, found = _record_type(), FoundRun(written=path.stat().st_mtime)
    for body in records_in(data):
        record = kind()
        try:
            record.ParseFromString(body)
        except ValueError as error:
            raise Problem(f"{path} cannot be read: {error}", "a whole file") from error
        _take(record, found)
    if not found.id:
        raise Problem(f"{path} names no run", "a file of which more than the beginning was written")
    return found


def records_in(data: bytes) -> Iterator[bytes]:
    """The records of a log, up to its end or to where it was cut off."""
    place, parts = HEADER_BYTES, b""
    while place + PART.size <= len(data):
        left = BLOCK_BYTES - place % BLOCK_BYTES
        if left < PART.size:
            place += left
            continue
        _, size, kind = PART.unpack_from(data, place)
        body = data[place + PART.size : place + PART.size + size]
        if kind == 0 or len(body) < size:
            return
        place += PART.size + size
        parts = body if kind in (WHOLE, FIRST) else parts + body
        if kind in (WHOLE, LAST):
            yield parts


def _take(record: Any, found: FoundRun) -> None:
    if record.HasField("run"):
        run = record.run
        found.id, found.entity, found.project = run.run_id, run.entity, run.project
        found.group, found.name, found.notes = run.run_group, run.display_name, run.notes
        found.host, found.tags = run.host, tuple(run.tags)
        found.start = run.start_time.seconds + run.start_time.nanos * 1e-9
        _take_config(run.config.update, found)
    if record.HasField("config"):
        _take_config(record.config.update, found)
    if record.HasField("history"):
        _take_history(record.history, found)
    if record.HasField("exit"):
        found.exit_code = record.exit.exit_code


def _take_config(items: Sequence[Any], found: FoundRun) -> None:
    for item in items:
        name = _name(item)
        if not name.startswith("_wandb"):
            found.config[name] = _value(item)


def _take_history(history: Any, found: FoundRun) -> None:
    """Numbers become points; W&B's own columns say when, and at which step."""
    values = {_name(item): _value(item) for item in history.item}
    step = values.get("_step", history.step.num)
    at = values.get("_timestamp", found.start)
    for name, value in values.items():
        if name.startswith("_"):
            continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            found.points.append((name, float(value), float(at), max(0, int(step))))
        else:
            found.others.add(name)


def _name(item: Any) -> str:
    return ".".join(item.nested_key) or str(item.key)


def _value(item: Any) -> Any:
    for name in ("boolean", "integer", "number"):
        if item.HasField(name):
            return getattr(item, name)
    try:
        return json.loads(item.value_json) if item.value_json else None
    except ValueError:
        return item.value_json


def _record_type() -> Any:
    """The message of a record, made of ``MESSAGES``; what else a record has is passed over."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind = descriptor_pb2.FieldDescriptorProto
    plain = {name: getattr(kind, f"TYPE_{name.upper()}") for name in PLAIN}
    file = descriptor_pb2.FileDescriptorProto(name="run.proto", package="run", syntax="proto2")
    for message, fields in MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, (number, told) in fields.items():
            of = told.removesuffix("*")
            label = kind.LABEL_REPEATED if told.endswith("*") else kind.LABEL_OPTIONAL
            one = made.field.add(name=name, number=number, label=label)
            if of in plain:
                one.type = plain[of]
            else:
                one.type, one.type_name = kind.TYPE_MESSAGE, f".run.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("run.Record"))
