"""Files that make ``torch.export.load`` run code of theirs: it does run there, and nothing of it runs here.

Each file is a sound program of one open size and a buffer that is no weight, with one thing changed. The code
of each makes a folder of its own name, so that one sees whether it ran. The control loads them all with plain
``torch.export.load`` in a child process.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.readers.base import open_file  # noqa: E402
from tests.experiments.readers.crafted_pt2 import CONSTANTS, GRAPH, WEIGHTS, edited, members_of, packed  # noqa: E402

pytestmark = pytest.mark.torch

Members = dict[str, bytes]


class MakesFolder:
    """A pickle that makes ``folder`` when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.folder,))


class Line(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.line(x) + self.shift
        return y


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Members:
    file = tmp_path_factory.mktemp("pt2") / "model.pt2"
    rows = ({0: torch.export.Dim("rows")},)
    torch.export.save(torch.export.export(Line(), (torch.ones(4, 3),), dynamic_shapes=rows), file)
    return members_of(file)


def pickled_weight(members: Members, folder: Path) -> None:
    edited(WEIGHTS, lambda c: c["config"]["line.weight"].update(use_pickle=True))(members)
    members["data/weights/weight_0"] = pickle.dumps(MakesFolder(folder))


def pickled_constant(members: Members, folder: Path) -> None:
    edited(CONSTANTS, lambda c: c["config"]["shift"].update(use_pickle=True))(members)
    members["data/constants/tensor_0"] = pickle.dumps(MakesFolder(folder))


def sample_inputs(members: Members, folder: Path) -> None:
    members["data/sample_inputs/model.pt"] = pickle.dumps(MakesFolder(folder))


def size_expression(members: Members, folder: Path) -> None:
    """torch gives the expression of an open size to sympy, which evaluates it as Python."""
    code = f"Symbol('s77') + __import__('os').mkdir({str(folder)!r})"

    def change(content: Any) -> None:
        values = content["graph_module"]["graph"]["tensor_values"]
        values["x"]["sizes"][0]["as_expr"]["expr_str"] = code

    edited(GRAPH, change)(members)


#: What our reader says; "" where it reads the rest of the file and leaves the trap unopened.
WAYS: dict[str, tuple[Callable[[Members, Path], None], str]] = {
    "weight": (pickled_weight, r"line\.weight.*is a pickle"),
    "constant": (pickled_constant, r"shift.*is a pickle"),
    "inputs": (sample_inputs, ""),
    "size": (size_expression, "is an expression"),
}

LOAD_ALL = """
import json, sys, torch
for file in json.loads(sys.argv[1]):
    try:
        torch.export.load(file)
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def crafted(sound: Members, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("crafted")
    for name, (change, _) in WAYS.items():
        members = dict(sound)
        change(members, folder / f"ran-{name}")
        (folder / f"{name}.pt2").write_bytes(packed(members))
    return {name: folder / f"{name}.pt2" for name in WAYS}


@pytest.mark.parametrize("name", WAYS)
def test_nothing_of_the_file_runs_here(name: str, crafted: dict[str, Path]) -> None:
    file, refusal = crafted[name], WAYS[name][1]
    if refusal:
        with pytest.raises(BadInput, match=refusal):
            open_file(file, "auto", WorkloadOptions())
    else:
        made = build(open_file(file, "auto", WorkloadOptions(batch=5)).reading.value)
        assert made.inputs[0].shape == (5, 3), "a batch comes from the graph's own description"
    assert not (file.parent / f"ran-{name}").exists()


def test_all_of_it_runs_in_torchs_own_loader(crafted: dict[str, Path]) -> None:
    """The control: comes last, as the folders it finds are those that must not be there before."""
    files = [str(file) for file in crafted.values()]
    child = subprocess.run(
        [sys.executable, "-c", LOAD_ALL, json.dumps(files)], capture_output=True, text=True, timeout=600
    )
    assert child.returncode == 0, child.stderr[-2000:]
    ran = [name for name, file in crafted.items() if (file.parent / f"ran-{name}").is_dir()]
    assert ran == list(WAYS)
