"""A run of a server carried out again here: its files by hash, and whether its figures are the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from experiments.client.server import Server
from labtools.problems import Problem
from labtools.repeat import compare, fetch_files

CONTENT = b'{"model_type": "gpt2"}'
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Files(Server):
    """Answers every file with what it is told."""

    def download(self, path: str) -> bytes:
        assert path == f"/api/v1/files/{SHA256}"
        return CONTENT if self.token == "whole" else CONTENT[1:]


def spec(**options: Any) -> dict[str, Any]:
    return {"policy": "baseline", "workload": {"source": f"../config.json@{SHA256}", "options": options}}


def outcome(step_time: float, mode: str = "simulated") -> dict[str, Any]:
    metrics = {"step_time": {"value": step_time, "unit": "s", "lower_is_better": True}}
    return {"spec": {"mode": mode}, "status": "ok", "metrics": metrics}


def test_files_are_placed_under_their_own_names(tmp_path: Path) -> None:
    """A name leads nowhere outside; a model of the zoo needs no file."""
    found = fetch_files(Files("", "whole"), spec(extra=f"side.json@{SHA256}", model="zoo:gpt2"), tmp_path)
    for place, name in (
        (found["workload"]["source"], "config.json"),
        (found["workload"]["options"]["extra"], "side.json"),
    ):
        assert Path(place).name == name
        assert Path(place).is_relative_to(tmp_path)
        assert Path(place).read_bytes() == CONTENT
    assert found["workload"]["options"]["model"] == "zoo:gpt2"
    assert (
        fetch_files(Files("", ""), {"workload": {"source": "zoo:gpt2"}}, tmp_path)["workload"]["source"]
        == "zoo:gpt2"
    )


def test_a_damaged_file_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="arrived damaged"):
        fetch_files(Files("", "broken"), spec(), tmp_path)


def test_figures_are_the_same_or_not() -> None:
    lines, same = compare(outcome(0.5), outcome(0.5))
    assert (same, lines[-1]) == (True, "the same")
    assert lines[1].split() == ["step_time", "0.5", "0.5"]
    assert compare(outcome(0.5), outcome(0.6))[1] is False
    assert compare(outcome(0.5, "measured"), outcome(0.6, "measured"))[1] is True
