"""Every example of ``docs/adding-a-policy.md`` works as printed, and touches no other file."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "adding-a-policy.md").read_text()
CLUSTER = {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "v100-32g"}}
LAYERS = {"source": "package:sixteen-equal-layers.txt", "options": {"batch": 8}}
MLP = {"source": "zoo:mlp", "options": {"batch": 16}}
INFERENCE = {"source": "zoo:mlp", "options": {"batch": 16, "training": False}}
JOBS = "submit,gpus,service\n0,4,100\n1,4,100\n2,4,100\n"
REQUESTS = "arrival,prompt,output\n0,8,4\n0,8,4\n"

#: A run of each example beyond the walk-through, and the metrics that can be worked out by hand.
RUNS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "lru_swap": (
        {
            "family": "memory",
            "workload": {"source": "zoo:mlp", "options": {"batch": 4096}},
            "hardware": {"device": "a100-40g", "overrides": {"memory_bytes": 46e6}},
        },
        {},
    ),
    "replicate": ({"family": "parallel", "workload": MLP, "hardware": CLUSTER}, {"bubble_fraction": 0.0}),
    "in_order": (
        {
            "family": "parallel",
            "knobs": {"stages": 2, "micro_batches": 4},
            "workload": MLP,
            "hardware": CLUSTER,
        },
        {},
    ),
    "double_negation": (
        {
            "family": "compilation",
            "workload": {"source": "negations.onnx", "options": {"training": False}},
            "hardware": "v100-16g",
        },
        {"ops": 1.0, "rewrites": 1.0, "max_abs_error": 0.0},
    ),
    "as_it_is": (
        {"family": "compilation", "workload": INFERENCE, "hardware": "local", "mode": "measured"},
        {},
    ),
    # The first from 0 to 100, the newest to 200, the second to 300: (100 + 198 + 299) / 3
    "last_come": (
        {"family": "cluster", "workload": {"source": "jobs.csv"}, "hardware": CLUSTER},
        {"avg_jct": 199.0, "makespan": 300.0},
    ),
    "one_by_one": ({"family": "serving", "workload": {"source": "requests.csv"}, "hardware": "a100-80g"}, {}),
    "one_at_a_time": (
        {"family": "serving", "workload": {"source": "requests.csv"}, "hardware": "a100-80g"},
        {"rejected_requests": 0.0, "preemptions": 0.0, "batch_size_mean": 1.0},
    ),
}


def files_on_the_page() -> dict[str, str]:
    return dict(re.findall(r"^`(experiments/\S+)`:\n```\w+\n(.*?)^```", PAGE, re.M | re.S))


def negations() -> bytes:
    """x -> neg -> neg -> relu, as an ONNX model."""
    names = ("x", "y", "z", "out")
    kinds = ("Neg", "Neg", "Relu")
    nodes = [helper.make_node(kind, [names[i]], [names[i + 1]]) for i, kind in enumerate(kinds)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "out")]
    graph = helper.make_graph(nodes, "negations", [ends[0]], [ends[1]])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the domain with the page's files in it; a policy without a sheet on the page has an empty
    one.
    """
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(
        ROOT / "experiments", folder / "experiments", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, text in files_on_the_page().items():
        (folder / name).write_text(text)
        if name.endswith(".py"):
            (folder / name).with_suffix(".toml").touch()
    (folder / "jobs.csv").write_text(JOBS)
    (folder / "requests.csv").write_text(REQUESTS)
    (folder / "negations.onnx").write_bytes(negations())
    return folder


#: What the walk-through types: the name of its answer, and the words after ``python -m experiments``.
TYPED = {
    "list": ["list", "--family", "memory"],
    "claims": ["claims", "--policy", "swap_largest", "--run", "--json"],
}
#: Each command writes what it prints to a file; torch is loaded once for all of them.
COMMANDS = """
import contextlib, json, sys
from experiments.__main__ import main
for name, words in json.loads(sys.argv[1]).items():
    with open(name + ".out", "w") as out, contextlib.redirect_stdout(out):
        code = main(words)
    assert code == 0, f"{name}: exit code {code}"
"""


@pytest.fixture(scope="module")
def answers(lab: Path) -> dict[str, str]:
    """What the commands of the page and a run of each example print, in a process that has this lab alone."""
    for policy, (spec, _) in RUNS.items():
        (lab / f"{policy}.json").write_text(json.dumps({"policy": policy, **spec}))
    words = TYPED | {policy: ["run", f"{policy}.json"] for policy in RUNS}
    command = [sys.executable, "-c", COMMANDS, json.dumps(words)]
    done = subprocess.run(command, cwd=lab, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: (lab / f"{name}.out").read_text() for name in words}


def test_every_example_is_run_here() -> None:
    examples = {Path(name).stem for name in files_on_the_page()}
    assert examples == {"swap_largest", *RUNS}


def test_an_example_that_ships_is_shown_as_it_is() -> None:
    shipped = {name: ROOT / name for name in files_on_the_page() if (ROOT / name).exists()}
    assert [Path(name).stem for name in shipped] == ["lru_swap"]
    assert all(files_on_the_page()[name] == file.read_text() for name, file in shipped.items())


def test_the_two_files_of_the_walk_through_are_all_it_takes(answers: dict[str, str]) -> None:
    assert "swap_largest" in answers["list"]
    rows = json.loads(answers["claims"])
    assert [row["verdict"] for row in rows] == ["fits"], rows


@pytest.mark.parametrize("policy", RUNS)
def test_each_example_runs(answers: dict[str, str], policy: str) -> None:
    figures = RUNS[policy][1]
    outcome = json.loads(answers[policy])
    assert (outcome["status"], outcome["violations"]) == ("ok", []), outcome["reason"]
    assert {name: outcome["metrics"][name]["value"] for name in figures} == pytest.approx(figures)
