"""The five laws of compilation policies that can be simulated, whoever wrote them; the others are carried out
live only.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core import jsonio, registry
from experiments.core.spec import Outcome, load_outcome, load_spec, load_workload
from experiments.hardware import resolve
from experiments.run import run
from experiments.sources import step_of

MLP: dict[str, Any] = {"source": "zoo:mlp", "options": {"batch": 8, "training": False}}
DEVICE = resolve("v100-16g").device
#: Times of the schedules of a recorded operator, in ms.
RECORDED = (4.0, 2.0, 3.0)
every_policy = pytest.mark.parametrize("name", sorted(registry.family_policies("compilation")))
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("log") / "log.json"
    file.write_text("\n".join(record(tile, ms / 1e3) for tile, ms in enumerate(RECORDED, 1)))
    return file


def record(tile: int, seconds: float) -> str:
    """One trial of a dense layer of 8 x 4 by 2 x 4, as AutoTVM logs it."""
    tensors = [["TENSOR", [8, 4], "float32"], ["TENSOR", [2, 4], "float32"]]
    config = {"index": 0, "entity": [["tile", "sp", [-1, tile]]]}
    trial = {"input": ["llvm", "dense", tensors, {}], "config": config, "result": [[seconds], 0, 1.0, 0.0]}
    return json.dumps({**trial, "version": 0.2})


def carried_out(name: str, log: Path) -> Outcome:
    pytest.importorskip("torch")
    policy = registry.policy_class("compilation", name)
    if "simulated" not in policy.modes:
        pytest.skip("it is carried out live only")
    return outcome_of(name, str(log) if "tuning" in policy.workloads["simulated"] else "")


def asked(name: str, log: str) -> Outcome:
    workload = {"source": log} if log else MLP
    quick = dict(registry.policy_class("compilation", name).quick)
    spec = {"family": "compilation", "policy": name, "knobs": quick, "hardware": DEVICE.name}
    return run(load_spec({**spec, "workload": workload}))


outcome_of = functools.cache(asked)


def without_provenance(outcome: Outcome) -> str:
    return jsonio.canonical({**outcome.to_json(), "provenance": {}})


def value(outcome: Outcome, metric: str) -> float:
    return float(outcome.metrics[metric]["value"])


@every_policy
def test_its_plan_is_legal(name: str, log: Path) -> None:
    outcome = carried_out(name, log)
    assert (outcome.status, outcome.violations) == ("ok", []), outcome.reason


@every_policy
def test_it_is_repeatable(name: str, log: Path) -> None:
    first = carried_out(name, log)
    again = asked(name, str(log) if first.spec["workload"]["source"] == str(log) else "")
    assert without_provenance(again) == without_provenance(first)


@every_policy
def test_its_plan_survives_json(name: str, log: Path) -> None:
    text = jsonio.canonical(carried_out(name, log).to_json())
    assert jsonio.canonical(load_outcome(jsonio.loads(text, "outcome")).to_json()) == text


@every_policy
def test_closed_form_on_the_smallest_case(name: str, log: Path) -> None:
    """What it is compared with is the sum of the ops' rooflines and launches; the best schedule of a log is
    the least that was timed.
    """
    outcome = carried_out(name, log)
    if outcome.spec["workload"]["source"] == str(log):
        assert value(outcome, "latency") == min(RECORDED) / 1e3
        return
    step = step_of(load_workload(MLP), DEVICE)[0]
    eager = step.seconds + int(np.sum(~step.ops.view)) * DEVICE.kernels.launch
    assert value(outcome, "latency") * value(outcome, "speedup") == pytest.approx(eager, rel=1e-9)


@every_policy
def test_never_better_than_the_bound(name: str, log: Path) -> None:
    """All ops take their FLOPs at the device's fastest, and the reading of what the step begins with.

    What a policy stores in fewer bits is read in a quarter of the bytes (8 bits for 32) at least. A logged
    operator takes no less than its fastest record.
    """
    outcome = carried_out(name, log)
    if outcome.spec["workload"]["source"] == str(log):
        assert value(outcome, "latency") >= min(RECORDED) / 1e3
        return
    step = step_of(load_workload(MLP), DEVICE)[0]
    computing = float(step.ops.flops.sum()) / max(DEVICE.peak_flops.values())
    reading = float(step.tensors.bytes[step.persistent].sum()) / 4 / DEVICE.memory_bandwidth
    assert reading > computing > 0
    assert value(outcome, "latency") >= reading
