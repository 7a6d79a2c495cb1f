"""No paper's sheet and no suite names a file that the package does not bring: a clone runs them all."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import experiments
from experiments.core.package_files import PREFIX, package_files
from experiments.core.suites import DATA, FOLDER
from experiments.models.catalog import NAMES
from experiments.models.served import SERVED
from experiments.sources import GENERATED
from experiments.workloads import generated_jobs, generated_requests

PACKAGE = Path(experiments.__file__).parent
LAWS = (*generated_jobs.KINDS, *generated_requests.KINDS)
SHEETS = sorted(PACKAGE.rglob("*.toml"))
#: Of a workload: what may name a file.
NAMING = ("source", "extra", "model")


def workloads(value: Any) -> Iterator[dict[str, Any]]:
    """Every table called ``workload`` in ``value``."""
    if isinstance(value, list):
        for entry in value:
            yield from workloads(entry)
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from [entry] if key == "workload" else workloads(entry)


def names_of(workload: dict[str, Any]) -> list[str]:
    row = {**workload.get("options", {}), **workload}
    return [row[name] for name in NAMING if row.get(name)]


def is_brought(name: str, sheet: Path) -> bool:
    """A model of the zoo or of those that are served, a file of the package, a trace drawn from a seed, or
    what a suite asks its user for (``--data``).
    """
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX) in package_files()
    if sheet.parent == FOLDER and name.startswith(DATA):
        return ".." not in Path(name).parts
    known = name.removeprefix("zoo:") in {*NAMES, *SERVED}
    return known or name.removeprefix(GENERATED) in LAWS


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_workload_of_a_sheet_is_brought(sheet: Path) -> None:
    named = [name for found in workloads(tomllib.loads(sheet.read_text())) for name in names_of(found)]
    assert [name for name in named if not is_brought(name, sheet)] == []


@pytest.mark.parametrize("name", ["../shared/x.json", "/tmp/x", "experiments/x.txt", "package:x", "x.txt"])
def test_a_path_is_not_brought(name: str) -> None:
    assert not is_brought(name, PACKAGE / "memory/policies/uvm.toml")
    assert not is_brought(name, FOLDER / "memory.toml")


def test_only_a_suite_asks_its_user_for_a_file() -> None:
    assert is_brought("data/x.txt", FOLDER / "memory.toml")
    assert not is_brought("data/x.txt", PACKAGE / "memory/policies/uvm.toml")
    assert not is_brought("data/../../x.txt", FOLDER / "memory.toml")
