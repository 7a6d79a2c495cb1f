"""The same spec twice gives the same bytes but for the provenance, whatever the clocks say meanwhile."""

from __future__ import annotations

import ast
import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.core import jsonio, registry
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.spec import load_spec
from experiments.core.time_limit import limit_time
from experiments.memory.planning.milp import NodeBound
from experiments.run import run
from tests.experiments.contracts.statements import statements

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
CLOCKS = ("monotonic", "perf_counter", "process_time", "thread_time", "time")
#: Modules that a simulated run may load and that read a clock, and what for.
MAY_READ_A_CLOCK = {
    "run.py": "provenance: when a run began and how long it took",
    "core/time_limit.py": "a limit set from outside of a run, and told; none by default",
    "core/progress.py": "how often progress is written",
    "commands/advise.py": "how long the answer took, printed beside it",
    "commands/suites.py": "provenance: how long a suite took, and whether it ends within the limit",
    "commands/claim_checks.py": "provenance: how long a claim took, for the time left of the next run",
    "compilation/simulator/tiles.py": "provenance: what constructing kernels took",
    "compilation/planning/tuning/session.py": "the budget of a measured run; a replay has none",
}
#: Parts whose runs are measured, or that measure runs; and what other people's programs log with.
MEASURING = ("live", "profiling", "validate", "client")

TRAIN = {"batch": 8, "optimizer": "adamw"}
POOR = {"device": "v100-16g", "overrides": {"memory_bytes": 60e6}, "remote": "optane-pmem"}
RICH = {"device": "v100-16g", "remote": "optane-pmem"}
TWO_NODES = {"cluster": {"nodes": 2, "devices_per_node": 4, "device": "v100-16g", "network": "ib-100g"}}
REQUESTS = "arrival,prompt,output\n0,100,20\n0.1,50,10\n0.2,10,5\n"
JOBS = "job,submit,gpus,service\n0,0,1,75\n1,5,2,79\n2,6,1,10\n"
ALONE = "job,submit,gpus,service\n0,0,1,75\n1,5,1,79\n2,6,1,10\n"
TOLD = """job,submit,gpus,service,user,name,class,tenant,utilization
0,0,1,75,ada,a,guaranteed,left,0.5
1,5,2,79,ben,b,opportunistic,right,0.9
2,6,1,10,ada,a,guaranteed,left,0.7
"""
#: Jobs with deadlines, models and steps, and how fast the models run by GPU count and task by task.
ELASTIC = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration
0,0,300,bert,400,64,1,300
1,5,400,bert,300,64,2,267
2,6,50,bert,400,64,1,50
"""
THROUGHPUTS = "global_batch_size,1,2,4\n64,1.0,1.5,2.0\n"
SPEEDS = "model,cpus,memory,steps_per_second\nbert,1,1e9,1.0\nbert,4,1e9,2.0\n"
TASKS = "model,tasks_per_round,sync_seconds,v100\nbert,3,0.5,2\n"
TRAINED = """name,time,application,num_replicas,batch_size
ncf-0,0,ncf,1,64
ncf-1,5,ncf,2,64
ncf-2,6,ncf,1,64
"""
#: Pollux' measurements of an application.
TRACES = {
    "placements": "placement,local_bsz,step_time,sync_time\n1,32,.5,0\n1,64,.9,0\n2,32,.6,.1\n2,64,1,.1\n",
    "scalability": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,32,.9,.4\n",
    "validation-64": "progress,iteration,metric,grad_sqr,grad_var\n40,40,.5,2,1\n90,90,.6,1,2\n",
    "validation-256": "progress,iteration,metric,grad_sqr,grad_var\n40,20,.5,2,1\n90,40,.6,1,2\n",
}
SCENARIO = json.dumps(
    {
        "duration": 20,
        "models": [
            {"name": "a", "slo": 0.3, "rate": 20, "latency": 0.05, "bytes": 5e9},
            {"name": "b", "slo": 0.5, "rate": 5, "latency": 0.1, "bytes": 5e9},
        ],
    }
)
#: Two models whose layers take turns on one device.
SHARED = json.dumps(
    {
        "duration": 0.5,
        "models": [
            {"name": "asked", "slo": 0.3, "rate": 20, "class": "real_time", "layers": [
                {"seconds": 0.002, "bytes": 4e6}, {"seconds": 0.003, "bytes": 8e6}]},
            {"name": "filler", "rate": 0, "class": "best_effort", "layers": [
                {"seconds": 0.004, "bytes": 4e6}, {"seconds": 0.001, "bytes": 2e6}]},
        ],
    }
)  # fmt: skip
#: A chain between a device and a cloud.
SPLIT = json.dumps(
    {
        "uplink": 1e7, "downlink": 1e7, "round_trip": 0.005, "input_bytes": 4e5, "output_bytes": 1e3,
        "operators": [
            {"name": "a", "device": 0.01, "cloud": 0.001, "bytes": 1e5},
            {"name": "b", "device": 0.01, "cloud": 0.001, "bytes": 5e4},
            {"name": "c", "device": 0.01, "cloud": 0.001},
        ],
    }
)  # fmt: skip
OPERATORS = "M1 matmul m=128 n=1000 k=64\n"


def log_line(tile: int) -> str:
    """One record of a tuning log: so many rows to a tile, in as many milliseconds."""
    config = {"index": 0, "entity": [["tile", "sp", [-1, tile]], ["unroll", "ot", 0]]}
    given = ["llvm", "dense", [["TENSOR", [8, 4], "float32"], ["TENSOR", [2, 4], "float32"]], {}]
    return json.dumps(
        {"input": given, "config": config, "result": [[1e-3 * tile], 0, 1.0, 0.0], "version": 0.2}
    )


def files(folder: Path) -> dict[str, str]:
    """By what they hold the files that workloads are read from."""
    texts = {
        "requests.csv": REQUESTS,
        "jobs.csv": JOBS,
        "alone.csv": ALONE,
        "told.csv": TOLD,
        "elastic.csv": ELASTIC,
        "bert.csv": THROUGHPUTS,
        "tasks.csv": TASKS,
        "trained.csv": TRAINED,
        "speeds.csv": SPEEDS,
        "operators.txt": OPERATORS,
        "scenario.json": SCENARIO,
        "shared.json": SHARED,
        "split.json": SPLIT,
        "log.json": "\n".join(log_line(tile) for tile in (1, 2, 4)),
    }
    texts |= {f"traces/ncf/{name}.csv": text for name, text in TRACES.items()}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {"traces": str(folder / "traces")} | {name.partition(".")[0]: str(folder / name) for name in texts}


def workloads(family: str, folder: Path) -> list[dict[str, Any]]:
    """The smallest runs of a family, one of which is for every policy of it."""
    held = files(folder)
    tiny = {"source": "zoo:gpt2-tiny", "options": TRAIN}
    convolutions = {"source": "zoo:resnet18", "options": {"batch": 4, "image": 64, "optimizer": "momentum"}}
    experts = {"source": "zoo:moe", "options": {"batch": 16, "sequence": 64}}
    tables = {"source": "zoo:dlrm", "options": {"batch": 1024}}
    found: dict[str, list[tuple[dict[str, Any], Any]]] = {
        "memory": [(tiny, POOR), (convolutions, POOR), (tiny, RICH), (convolutions, RICH)],
        "parallel": [(tiny, TWO_NODES), (experts, TWO_NODES), (tables, TWO_NODES)],
        "compilation": [
            ({"source": "zoo:mlp", "options": {"batch": 4}}, "v100-16g"),
            ({"source": held["operators"]}, "v100-16g"),
            ({"source": held["log"]}, "v100-16g"),
        ],
        "cluster": [
            ({"source": held["jobs"]}, TWO_NODES),
            ({"source": held["alone"]}, TWO_NODES),
            ({"source": held["told"]}, TWO_NODES),
            ({"source": held["elastic"], "options": {"extra": held["bert"]}}, TWO_NODES),
            ({"source": held["elastic"], "options": {"extra": held["tasks"]}}, TWO_NODES),
            ({"source": held["trained"], "options": {"extra": held["traces"]}}, TWO_NODES),
            ({"source": held["elastic"], "options": {"extra": held["speeds"]}}, TWO_NODES),
        ],
        "serving": [
            ({"source": held["requests"], "options": {"model": "llama2-7b"}}, "a100-80g"),
            ({"source": held["requests"], "options": {"model": "llama2-7b"}}, TWO_NODES),
            ({"source": held["scenario"]}, TWO_NODES),
            ({"source": held["shared"]}, "v100-16g"),
            ({"source": held["split"]}, "cpu-generic"),
            ({"source": "zoo:palm-8b", "options": {"batch": 8}}, TWO_NODES),
        ],
    }
    return [{"workload": workload, "hardware": hardware} for workload, hardware in found[family]]


def leaping_clock() -> Iterator[float]:
    """An hour passes between two looks."""
    return itertools.count(1e6, 3600.0)


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a run without what may differ from run to run."""
    outcome = run(load_spec(spec)).to_json()
    del outcome["provenance"]
    return outcome


SIMULATED = [policy for policy in registry.all_policies() if "simulated" in policy.modes]


@pytest.mark.torch
@pytest.mark.parametrize("policy", SIMULATED, ids=lambda policy: f"{policy.family}/{policy.name}")
def test_the_same_spec_gives_the_same_bytes_whatever_the_clocks_say(
    policy: type[Policy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    own = {"family": policy.family, "policy": policy.name, "knobs": dict(policy.quick)}
    for given in workloads(policy.family, tmp_path):
        spec = {**own, **given}
        try:
            first = answer(spec)
        except BadInput:
            continue
        if first["status"] != "ok":
            continue
        with monkeypatch.context() as patched:
            for clock in CLOCKS:
                patched.setattr(time, clock, leaping_clock().__next__)
            second = answer(spec)
        assert jsonio.canonical(second) == jsonio.canonical(first)
        return
    pytest.fail("no workload of its family is for it: add the smallest one that is")


def test_only_modules_that_say_why_read_a_clock() -> None:
    found = {
        str(path.relative_to(EXPERIMENTS))
        for path in EXPERIMENTS.rglob("*.py")
        if not set(path.relative_to(EXPERIMENTS).parts) & set(MEASURING)
        and re.search(r"\btime\b", path.read_text())
        and "time" in imports_of(path)
    }
    assert found == set(MAY_READ_A_CLOCK)


def imports_of(path: Path) -> set[str]:
    """Names of the modules that a file imports."""
    nodes = statements(ast.parse(path.read_text()))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


def test_no_solver_is_given_a_time_limit_of_its_own() -> None:
    """Only what is left of the run's, which is none unless somebody outside sets it."""
    assert NodeBound().options(gap=1e-4).keys() == {"node_limit", "mip_rel_gap"}
    with limit_time(60.0):
        assert 59 < NodeBound().options(gap=1e-4)["time_limit"] <= 60
    limited = [
        str(path.relative_to(EXPERIMENTS))
        for path in EXPERIMENTS.rglob("*.py")
        if "live" not in path.parts and '"time_limit"' in path.read_text()
    ]
    assert limited == ["memory/planning/milp.py"]
