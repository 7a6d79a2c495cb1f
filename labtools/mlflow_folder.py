"""A folder `mlruns` as MLflow has it, written run by run: none stands there half.

It is ours by a file in it, which remembers from which lab and which number each experiment got. A run is
written in a folder next to it, since MLflow takes every folder in it for an experiment, and moved to its
place once it is whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from labtools.mlflow_record import NUMBERS, ExportedRun, Point
from labtools.problems import Problem

MARK = ".lab-export.json"
#: A run is written anew where what the lab says of it has another digest.
DIGEST = "lab.digest"


class MlflowFolder:
    """``server`` is the address of the lab whose runs it has."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder, self._mark = folder.resolve(), folder / MARK
        self._experiments = self._open(server)
        self._part = self.folder.with_name(f".{self.folder.name}.lab-export")
        self._server = server
        self.close()
        self._remember()

    def _open(self, server: str) -> dict[str, str]:
        """Numbers of experiments by their key; raises ``Problem`` for what is not ours."""
        if self.folder.exists() and not self.folder.is_dir():
            raise Problem(f"{self.folder} is no folder", "name one that is empty, or is not there yet")
        if not self._mark.exists():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise Problem(f"{self.folder} has other files", "name a folder that is empty")
            self.folder.mkdir(parents=True, exist_ok=True)
            return {}
        try:
            told = json.loads(self._mark.read_text())
            known, experiments = str(told["server"]), {str(k): str(int(v)) for k, v in told["of"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Problem(f"{self._mark} cannot be read", "export into another folder") from None
        if known != server:
            raise Problem(f"{self.folder} has the runs of {known}", "export into another folder")
        return experiments

    def close(self) -> None:
        """Leave nothing next to the folder."""
        shutil.rmtree(self._part, ignore_errors=True)

    def has(self, run: ExportedRun, row: Mapping[str, Any]) -> bool:
        """Whether it is there as the lab has it now."""
        return self._read_digest(run) == digest_of(row)

    def _read_digest(self, run: ExportedRun) -> str:
        number = self._experiments.get(run.experiment_id, "")
        with suppress(OSError):
            return (self.folder / number / run.id / "tags" / DIGEST).read_text()
        return ""

    def begin(self, run: ExportedRun) -> Path:
        """The folder of the run's own files, which ``finish`` brings to its place with it."""
        files = self._part / run.id / "artifacts"
        shutil.rmtree(files.parent, ignore_errors=True)
        files.mkdir(parents=True)
        return files

    def finish(self, run: ExportedRun, row: Mapping[str, Any]) -> None:
        """Write the rest of the run and put it where MLflow looks for it."""
        number = self._number_of(run)
        part, place = self._part / run.id, self.folder / number / run.id
        _write_texts(part / "params", run.params)
        _write_texts(part / "tags", {**run.tags, DIGEST: digest_of(row)})
        _write_texts(part / "metrics", {name: _lines(points) for name, points in run.points.items()})
        for name, content in run.texts.items():
            (part / "artifacts" / name).write_bytes(content)
        (part / "meta.yaml").write_text(_yaml(_meta_of_run(run, number, place)))
        shutil.rmtree(place, ignore_errors=True)
        part.rename(place)

    def _number_of(self, run: ExportedRun) -> str:
        """MLflow has numbers for experiments, and no two of one name."""
        if run.experiment_id not in self._experiments:
            number = self._experiments[run.experiment_id] = str(len(self._experiments) + 1)
            place = self.folder / number
            place.mkdir(exist_ok=True)
            name = f"{run.experiment} ({run.experiment_id[:8]})"
            told = {"artifact_location": place.as_uri(), "experiment_id": number, "name": name}
            (place / "meta.yaml").write_text(_yaml({**told, "lifecycle_stage": "active"}))
            self._remember()
        return self._experiments[run.experiment_id]

    def _remember(self) -> None:
        part = self._mark.with_suffix(".new")
        part.write_text(json.dumps({"server": self._server, "of": self._experiments}))
        part.replace(self._mark)


def digest_of(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _meta_of_run(run: ExportedRun, number: str, place: Path) -> dict[str, Any]:
    told: dict[str, Any] = {"run_id": run.id, "experiment_id": number}
    told |= {"artifact_uri": (place / "artifacts").as_uri()}
    told |= {"run_uuid": run.id, "run_name": run.name, "user_id": run.user, "status": NUMBERS[run.status]}
    told |= {"start_time": run.start, "end_time": run.end, "lifecycle_stage": "active", "tags": []}
    return told | {"source_type": 4, "source_name": "", "source_version": "", "entry_point_name": ""}


def _yaml(told: Mapping[str, Any]) -> str:
    """JSON of a value is YAML, too."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in told.items())


def _write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")


def _lines(points: list[Point]) -> str:
    return "".join(f"{moment} {value!r} {step}\n" for moment, value, step in points)
