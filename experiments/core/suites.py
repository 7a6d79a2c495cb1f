"""Suites: named sets of runs in ``experiments/suites/*.toml``, for nightly benchmarks and paper tables.

::

    title = "Memory policies on GPT-2"
    [defaults]                 # merged into every run
    family = "memory"
    hardware = "a100-40g"
    [[run]]
    title = "vDNN, everything"
    policy = "vdnn-all"
    [run.workload]
    source = "zoo:gpt2"        # or a file below experiments/suites
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.spec import RunSpec, load_spec

FOLDER = Path(__file__).resolve().parent.parent / "suites"


@dataclass(frozen=True)
class Suite:
    """A title, what it is for, and the runs as ``(title, RunSpec JSON)``."""

    name: str
    title: str
    about: str
    runs: tuple[tuple[str, Mapping[str, Any]], ...]

    def specs(self) -> list[tuple[str, RunSpec]]:
        return [(title, load_spec(dict(row))) for title, row in self.runs]


def suite_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """The suite called ``name``; ``BadInput`` names the file and the run that is wrong."""
    if name not in suite_names():
        raise BadInput(f"unknown suite {name!r}", "suite", "one of " + ", ".join(suite_names()))
    try:
        data = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(str(error), f"{name}.toml", "a TOML file") from None
    defaults = data.get("defaults", {})
    runs = tuple(_run(defaults, row) for row in data.get("run", []))
    suite = Suite(name, data.get("title", name), data.get("about", ""), runs)
    suite.specs()
    return suite


def _run(defaults: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    merged = {**defaults, **row}
    title = merged.pop("title", merged.get("policy", "?"))
    return title, _placed(merged)


def _placed(row: dict[str, Any]) -> dict[str, Any]:
    """A source that is a file below the suites' folder is found from anywhere."""
    workload = row.get("workload")
    if not isinstance(workload, dict) or not isinstance(workload.get("source"), str):
        return row
    file = FOLDER / workload["source"]
    return {**row, "workload": {**workload, "source": str(file)}} if file.is_file() else row
