"""`./lab export-mlflow`: a project's runs as a store of MLflow, which others and `import-mlflow` can read."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.client.lab import Lab
from experiments.client.server import Refused
from labtools.mlflow_folder import MlflowFolder
from labtools.mlflow_record import ExportedRun, add_points, record_of
from labtools.progress import ProgressLine

NOT_IN_NAMES = re.compile(r"[^\w.\-]+")
LONGEST_NAME = 120


def export(folder: Path, url: str, search: str = "", documents: bool = False) -> int:
    """Write every run that ``search`` finds into ``folder``, or what is new of them; ``documents``: with the
    whole outcome of each, by a request of its own.
    """
    lab = Lab(url)
    total, store = lab.count(search), MlflowFolder(folder, lab.server.url)
    done, line, began = Counter[str](), ProgressLine(), time.monotonic()
    for row in lab.runs(search, details=True):
        run, asked = record_of(row), {**row, "documents": documents}
        if store.has(run, asked) and not _is_being_logged(row):
            done["there already"] += 1
        else:
            _write(lab, store, run, asked)
            done["written"] += 1
        line.show(_say(done, total, time.monotonic() - began))
    store.close()
    line.close(f"{done['written']} runs written, {done['there already']} were there: {store.folder}")
    return 0


def _is_being_logged(row: Mapping[str, Any]) -> bool:
    """Its points may be more while its last figures are the same."""
    return row["details"]["logged"] is not None and row["state"] == "running"


def _say(done: Counter[str], total: int, seconds: float) -> str:
    count = done.total()
    left = seconds / count * max(0, total - count)
    return f"{count:,} of {max(total, count):,} runs, about {left:.0f} s to go"


def _write(lab: Lab, store: MlflowFolder, run: ExportedRun, row: Mapping[str, Any]) -> None:
    key, logged, files = str(row["id"]), row["details"]["logged"], store.begin(run)
    if logged:
        add_points(run, {name: _points(lab, key, name) for name in logged["series"]})
        _add_files(lab, key, logged, run, files)
    elif row["documents"] and (outcome := _outcome(lab, key)):
        run.texts["outcome.json"] = json.dumps(outcome, indent=1).encode()
    store.finish(run, row)


def _outcome(lab: Lab, key: str) -> dict[str, Any] | None:
    """``None`` of a run that has not ended, or ended without one."""
    try:
        return lab.outcome(key)
    except Refused as refusal:
        if refusal.status == 404:
            return None
        raise


def _points(lab: Lab, key: str, name: str) -> list[tuple[int, float, int]]:
    told = lab.points(key, name)
    rows = zip(told["moments"], told["values"], told["steps"], strict=True)
    return [(round(1000 * moment), value, int(step)) for moment, value, step in rows]


def _add_files(lab: Lab, key: str, logged: Mapping[str, Any], run: ExportedRun, folder: Path) -> None:
    """Tables as JSON, pictures and files as they are, and what the checkout had that its revision has not."""
    if logged["tables"]:
        run.texts["tables.json"] = json.dumps(lab.tables(key)).encode()
    if logged["has_diff"]:
        run.texts["changes.diff"] = lab.difference(key).encode()
    for image in lab.images(key) if logged["images"] else ():
        name = f"{_file_name(image['name'])}-{image['step']}-{image['id']}.{_file_name(image['kind'])}"
        run.texts[f"picture-{name}"] = lab.image(key, image["id"])
    taken = set(run.texts)
    for file in lab.files(key) if logged["files"] else ():
        name = _file_name(file["name"])
        lab.download(file["sha256"], folder / (f"{file['sha256'][:8]}-{name}" if name in taken else name))
        taken.add(name)


def _file_name(name: str) -> str:
    """One part of a path, whatever it is called in the lab."""
    return NOT_IN_NAMES.sub("_", name).lstrip(".")[-LONGEST_NAME:] or "unnamed"
