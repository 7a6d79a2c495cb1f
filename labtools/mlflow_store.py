"""`./lab import-mlflow`: the runs of an MLflow store as logs of own runs, each stored once however often.

A store is a SQLite file, `postgresql://...` or a folder `mlruns`. Nothing of MLflow is needed. A run keeps
its id, so what comes again is known to the server. Files come too where they are in a folder
(`mlflow_files`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from experiments.client.own_run import LONGEST_EXPERIMENT, LONGEST_PARAM, LONGEST_RUN, TAG
from experiments.client.server import Refused, Server
from labtools.imported import figure_names, one_line, plain_value, send
from labtools.mlflow_files import FileFolders, StoredFile, Unreached, files_below, send_files
from labtools.mlflow_names import unescape
from labtools.mlflow_record import EXPORTED, PLACES, beginning_of, parse
from labtools.problems import Problem

#: Ends of runs, by MLflow's words and by the numbers that its folders have.
ENDS = {"FINISHED": "succeeded", "FAILED": "failed", "KILLED": "cancelled"}
NUMBERED = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
RUNS = """
    SELECT runs.run_uuid, runs.name, experiments.name, runs.status, runs.start_time, runs.end_time,
           runs.artifact_uri
    FROM runs JOIN experiments ON experiments.experiment_id = runs.experiment_id
    WHERE runs.lifecycle_stage = 'active' ORDER BY runs.start_time, runs.run_uuid
"""
#: Models of MLflow 3 lie next to the runs that logged them.
MODELS = (
    "SELECT name, artifact_location FROM logged_models WHERE lifecycle_stage = 'active' AND source_run_id = "
)
Point = tuple[str, float, int, int]


@dataclass
class StoredRun:
    """A run of a store; moments in milliseconds, ``points`` are (figure, value, moment, step).

    ``models`` are the names of those that it logged, and where their files are.
    """

    id: str
    name: str
    experiment: str
    status: str
    start: int
    end: int
    files: str | None = None
    models: Sequence[tuple[str, str]] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    points: Sequence[Point] = ()


def import_store(store: str, url: str, artifacts: Path | None = None) -> int:
    """Send every run that has ended, with its files; say what became of each."""
    server, sent, left = Server.at(url), 0, 0
    folders, unreached = FileFolders.of(_path_of(store), artifacts), Counter[str]()
    with TemporaryDirectory() as folder:
        for run in read_store(store):
            if run.status not in ENDS:
                print(f"{run.id} {run.name}: {run.status.lower()}, left out until it has ended")
                left += 1
                continue
            if EXPORTED in run.tags and _is_a_policys(server, run):
                print(f"{run.id} {run.name}: is in the lab already, where a policy's run has its id")
                left += 1
                continue
            records, dropped = records_of(run)
            send(server, Path(folder), UUID(run.id), run.name, records)
            told = f", {dropped} points at negative steps left out" if dropped else ""
            files = _send_files(server, run, folders, unreached)
            print(f"{run.id} {run.name}: {len(run.points) - dropped} points{told}{files}", flush=True)
            sent += 1
    for reason, times in unreached.items():
        print(f"files of {times} runs were left out: {reason}")
    print(f"{sent} runs of {store} are in the lab, {left} were left out")
    return 0


def _is_a_policys(server: Server, run: StoredRun) -> bool:
    """Whether it left this lab, and was no program's log there."""
    return _knows(server, "runs", run) and not _knows(server, "logs", run)


def _knows(server: Server, kind: str, run: StoredRun) -> bool:
    try:
        server.get(f"/api/v1/{kind}/{UUID(run.id)}")
    except Refused as refusal:
        if refusal.status == 404:
            return False
        raise
    return True


def _send_files(server: Server, run: StoredRun, folders: FileFolders, unreached: Counter[str]) -> str:
    """What is said of the run's files; why those of a whole folder are not read is counted."""
    found: list[StoredFile] = []
    reasons = set()
    for prefix, uri in (("", run.files), *((f"{name}/", uri) for name, uri in run.models)):
        try:
            found += files_below(folders.locate(uri), prefix) if uri else ()
        except Unreached as reason:
            reasons.add(str(reason))
    unreached.update(reasons)
    if not found:
        return ""
    try:
        there, left = send_files(server, UUID(run.id), found)
    except Refused as refusal:  # the run is in the lab's trash, say
        return f", no files: {refusal.args[0]}"
    return "; ".join([f", {there} file{'' if there == 1 else 's'}", *left])


def records_of(run: StoredRun) -> tuple[list[Any], int]:
    """The run as records of a log, and how many points at negative steps are not among them."""
    is_ours = EXPORTED in run.tags
    beginning = beginning_of(run.name, run.start, run.params, run.tags) if is_ours else _beginning(run)
    known = {name for name, *_ in run.points}
    names = {name: unescape(name, run.tags) for name in known} if is_ours else figure_names(known)
    kept = [point for point in run.points if point[3] >= 0]
    points = [
        [step, moment / 1000, {names[name]: plain_value(value)}]
        for name, value, moment, step in sorted(kept, key=lambda point: (point[2], point[3], point[0]))
    ]
    reason = run.tags.get("lab.reason", "") if is_ours else ""
    end = {"state": ENDS[run.status], "reason": reason, "at": (run.end or run.start) / 1000}
    return [{"begin": beginning}, *points, {"end": end}], len(run.points) - len(kept)


def _beginning(run: StoredRun) -> dict[str, Any]:
    words = {name: value for name, value in run.tags.items() if not name.startswith("mlflow.")}
    tags = [tag for tag in (f"{name}.{value}" for name, value in words.items()) if TAG.fullmatch(tag)]
    environment = {ours: run.tags[theirs] for ours, theirs in PLACES.items() if theirs in run.tags}
    environment |= {f"tag {n}": v[:2000] for n, v in words.items() if f"{n}.{v}" not in tags[:20]}
    return {
        "name": one_line(run.name or run.id, LONGEST_RUN),
        "experiment": one_line(run.experiment or "MLflow", LONGEST_EXPERIMENT),
        "params": {one_line(name, LONGEST_PARAM): _parse_param(value) for name, value in run.params.items()},
        "tags": tags[:20],
        "environment": {**environment, "imported from": "MLflow"},
        "started": run.start / 1000,
    }


def _parse_param(value: str) -> Any:
    """A parameter, which MLflow has as text, as the number or truth that it says."""
    found = parse(value)
    return found[:2000].replace("\x00", "") if isinstance(found, str) else found


def read_store(store: str) -> Iterator[StoredRun]:
    """The runs that are not deleted, the oldest first."""
    path = _path_of(store)
    if path is None:
        yield from _read_postgres(store)
    elif path.is_dir():
        yield from _read_folder(path)
    elif path.is_file():
        yield from _read_sqlite(path)
    else:
        raise Problem(
            f"there is no MLflow store {store}", "a SQLite file, postgresql://..., or a folder mlruns"
        )


def _path_of(store: str) -> Path | None:
    """The store's file or folder; ``None`` for one that a server of Postgres has."""
    if store.startswith(("postgresql://", "postgres://")):
        return None
    return Path(store.removeprefix("sqlite:///").removeprefix("file://"))


def _read_sqlite(path: Path) -> Iterator[StoredRun]:
    import sqlite3  # not every Python was built with it, and every command of ./lab comes by here

    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            has_models = "SELECT 1 FROM sqlite_master WHERE name = 'logged_models'"
            yield from _read_tables(connection.execute, "?", has_models)
    except sqlite3.DatabaseError as error:
        raise Problem(
            f"{path} is no MLflow store: {error}", "the SQLite file of a tracking server"
        ) from error


def _read_postgres(address: str) -> Iterator[StoredRun]:
    import psycopg

    try:
        with psycopg.connect(address) as connection:
            has_models = "SELECT 1 WHERE to_regclass('logged_models') IS NOT NULL"
            yield from _read_tables(connection.execute, "%s", has_models)
    except psycopg.Error as error:
        raise Problem(f"the MLflow store does not answer: {error}", "check the address") from error


def _read_tables(execute: Callable[..., Any], mark: str, has_models: str) -> Iterator[StoredRun]:
    knows_models = execute(has_models).fetchone() is not None
    for identity, *told in execute(RUNS).fetchall():
        run = StoredRun(str(identity), *told)
        one = (identity,)
        run.params = dict(execute(f"SELECT key, value FROM params WHERE run_uuid = {mark}", one).fetchall())
        run.tags = dict(execute(f"SELECT key, value FROM tags WHERE run_uuid = {mark}", one).fetchall())
        run.models = execute(MODELS + mark, one).fetchall() if knows_models else ()
        columns = "key, value, timestamp, step, is_nan"
        rows = execute(f"SELECT {columns} FROM metrics WHERE run_uuid = {mark}", one).fetchall()
        run.points = [(key, math.nan if nan else value, at, step) for key, value, at, step, nan in rows]
        yield run


def _read_folder(folder: Path) -> Iterator[StoredRun]:
    """Files of `mlruns`: a line of a metric is moment, value and step; meta.yaml has flat lines."""
    found, models = [], _models_below(folder)
    for meta in folder.glob("*/*/meta.yaml"):
        told, experiment = _meta(meta), _meta(meta.parent.parent / "meta.yaml")
        if told.get("lifecycle_stage", "active") != "active" or "run_id" not in told:
            continue
        run = StoredRun(
            told["run_id"],
            told.get("run_name", ""),
            experiment.get("name", ""),
            NUMBERED.get(told.get("status", ""), told.get("status", "")),
            int(told.get("start_time") or 0),
            int(told["end_time"]) if told.get("end_time", "null").isdigit() else 0,
        )
        own = meta.parent / "artifacts"
        run.files = str(own) if own.is_dir() else told.get("artifact_uri")
        run.models = models.get(run.id, ())
        run.params, run.tags = _texts(meta.parent / "params"), _texts(meta.parent / "tags")
        run.points = list(_points(meta.parent / "metrics"))
        found.append(run)
    yield from sorted(found, key=lambda run: (run.start, run.id))


def _models_below(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Models of MLflow 3 by the run that logged them."""
    found: dict[str, list[tuple[str, str]]] = {}
    for meta in sorted(folder.glob("*/models/*/meta.yaml")):
        told = _meta(meta)
        if told.get("lifecycle_stage", "active") == "active":
            place = (told.get("name", ""), str(meta.parent / "artifacts"))
            found.setdefault(told.get("source_run_id", ""), []).append(place)
    return found


def _meta(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    pairs = (line.partition(":") for line in path.read_text().splitlines())
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def _texts(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else ()
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def _points(folder: Path) -> Iterator[Point]:
    for name, text in _texts(folder).items():
        for line in text.splitlines():
            moment, value, *step = line.split()
            yield name, float(value), int(moment), int(step[0]) if step else 0
