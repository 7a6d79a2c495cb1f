"""Every import contract holds, and is seen to fail when it is violated."""

import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import networkx
import pytest

from tests.conftest import ROOT

LINT = [str(Path(sys.executable).with_name("lint-imports")), "--config", "pyproject.toml"]

#: contract, file that violates it, and the line planted there
VIOLATIONS = [
    ("Workers use the web app, the web app the domain", "experiments/core/planted.py", "import webapp.urls"),
    ("Workers use the web app, the web app the domain", "webapp/planted.py", "import workers"),
    ("The domain knows no framework", "experiments/workloads/planted.py", "import django"),
    ("Torch is loaded only where", "experiments/memory/policies/planted.py", "import torch"),
    ("Torch is loaded only where", "webapp/planted.py", "import experiments.profiling.capture"),
    ("Families build on one another", "experiments/memory/policies/planted.py", "import experiments.serving"),
    ("Families build on one another", "experiments/core/planted.py", "import experiments.run"),
    ("Inside a family", "experiments/cluster/policies/planted.py", "import experiments.cluster.simulator"),
    ("Inside a family", "experiments/cluster/planted.py", "CROWD = True"),
    (
        "Inside a family",
        "experiments/parallel/planning/planted.py",
        "import experiments.parallel.policies.dapple",
    ),
    (
        "A system's file or folder is private",
        "experiments/memory/policies/planted.py",
        "import experiments.memory.policies.vdnn",
    ),
    (
        "A system's file or folder is private",
        "experiments/parallel/experiment/planted.py",
        "import experiments.parallel.policies.dapple.pivot",
    ),
    ("Within a web app", "webapp/runs/models.py", "import webapp.runs.services"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for package in ("experiments", "webapp", "workers"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(tree: Path) -> str:
    return subprocess.run(LINT, cwd=tree, capture_output=True, text=True, timeout=600).stdout


def test_imports_go_in_no_circle() -> None:
    """At run time: a function may name the class that it is given (a move and its run) for the type checker
    alone.
    """
    graph = grimp.build_graph(
        "experiments", "webapp", "workers", exclude_type_checking_imports=True, cache_dir=None
    )
    imports = networkx.DiGraph(
        (module, imported)
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    )
    circles = [sorted(one) for one in networkx.strongly_connected_components(imports) if len(one) > 1]
    assert circles == []


def broken(report: str) -> list[str]:
    return [line for line in report.splitlines() if line.endswith("BROKEN")]


def test_the_tree_keeps_every_contract(tree: Path) -> None:
    report = lint(tree)
    assert "0 broken" in report, report


@pytest.mark.parametrize(("contract", "place", "line"), VIOLATIONS)
def test_a_planted_violation_is_seen(tree: Path, contract: str, place: str, line: str) -> None:
    planted = tree / place
    before = planted.read_text() if planted.exists() else None
    planted.write_text(f"{before or ''}\n{line}\n")
    try:
        report = lint(tree)
    finally:
        planted.write_text(before) if before is not None else planted.unlink()
    assert any(contract in name for name in broken(report)), report
