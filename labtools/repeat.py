"""`./lab repeat RUN --server URL`: carry a stored run out again here, and compare its figures."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.client.server import Server
from labtools.layout import Layout
from labtools.problems import Problem

#: How a stored spec names a file: its name and the hash of its content.
BY_HASH = re.compile(r"(?P<name>[^\0]*)@(?P<sha256>[0-9a-f]{64})")


def repeat(layout: Layout, run: str, url: str) -> int:
    """Fetch spec and files by hash, run them, print both figures; 0 where a simulated run gives the same."""
    server = Server.at(url)
    stored = server.get(f"/api/v1/runs/{run}/outcome")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked, told = folder / "spec.json", folder / "outcome.json"
        asked.write_text(json.dumps(fetch_files(server, stored["spec"], folder)))
        command = [str(layout.python), "-m", "experiments", "run", str(asked), "--out", str(told)]
        ended = subprocess.run(command, cwd=layout.root, stdout=subprocess.DEVNULL, check=False)
        if not told.is_file():
            return ended.returncode or 1
        again = json.loads(told.read_bytes())
    lines, same = compare(stored, again)
    print("\n".join(lines))
    return 0 if same else 1


def fetch_files(server: Server, spec: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The spec with every file that it names by hash placed in ``folder``, and called by its path there."""
    workload = spec["workload"]
    named = {"source": workload["source"], **workload.get("options", {})}
    placed = {
        field: _fetch(server, found, folder)
        for field, value in named.items()
        if isinstance(value, str) and (found := BY_HASH.fullmatch(value))
    }
    source = placed.pop("source", workload["source"])
    options = {**workload.get("options", {}), **placed}
    return {**spec, "workload": {**workload, "source": source, "options": options}}


def _fetch(server: Server, named: re.Match[str], folder: Path) -> str:
    content = server.download(f"/api/v1/files/{named['sha256']}")
    if hashlib.sha256(content).hexdigest() != named["sha256"]:
        raise Problem(f"{named['name']} arrived damaged", "try again")
    place = folder / named["sha256"] / (Path(named["name"]).name or "file")
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(content)
    return str(place)


def compare(stored: Mapping[str, Any], again: Mapping[str, Any]) -> tuple[list[str], bool]:
    """A line for each figure, and whether all are the same; measured ones are only shown."""
    lines = [f"{'metric':<32} {'stored':>14} {'again':>14}"]
    for name in sorted({**stored["metrics"], **again["metrics"]}):
        values = [_value(outcome["metrics"].get(name)) for outcome in (stored, again)]
        lines.append(f"{name:<32} {values[0]:>14} {values[1]:>14}")
    if stored["spec"].get("mode") == "measured":
        return [*lines, "measured: figures differ from host to host and from time to time"], True
    same = all(stored[part] == again[part] for part in ("status", "metrics"))
    return [*lines, "the same" if same else "NOT the same: another revision or another torch?"], same


def _value(row: Mapping[str, Any] | None) -> str:
    return "-" if row is None else f"{row['value']:.6g}"
