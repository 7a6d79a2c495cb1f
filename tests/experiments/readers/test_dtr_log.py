"""Operator logs of DTR's prototype: who holds which memory until when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.memory.interface import violations
from experiments.memory.policies.dtr import Dtr
from experiments.memory.simulator import Simulator
from experiments.readers.base import open_file
from experiments.workloads.step import KINDS, PHASES, Step
from tests.experiments.memory.steps import machine, plan_of

#: Overheads that the authors' simulator gives on their log of ResNet-32, by heuristic, at these shares of the
#: peak.
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
PUBLISHED = {
    "eq": (1.0131, 1.0248, 1.0463, 1.0737, 1.1068, 1.1404, 1.1786),
    "full": (1.0131, 1.0248, 1.0463, 1.0737, 1.1068, 1.1404, 1.1783),
    "local": (1.0131, 1.0413, 1.0675, 1.1333, 1.1965),
}


def line(word: str, **fields: Any) -> str:
    return json.dumps({"INSTRUCTION": word, **fields})


def constant(name: str, size: int) -> list[str]:
    return [line("CONSTANT", NAME=name), line("MEMORY", NAME=name, MEMORY=str(size))]


def call(operator: str, arguments: list[str], time: int, **results: tuple[int, int]) -> list[str]:
    """``results`` are (bytes, alias) by name."""
    rows = [line("CALL", NAME=operator, ARGS=arguments, TIME=str(time), RESULT=list(results))]
    for name, (size, alias) in results.items():
        rows += [line("MEMORY", NAME=name, MEMORY=str(size)), line("ALIAS", NAME=name, ALIAS=str(alias))]
    return rows


LOG = [
    *call("warm_up", [], 7, gone=(4, -1)),
    line("ANNOTATE", ANNOTATION="START"),
    *constant("w", 3),
    line("COPY", DST="held", SRC="w"),
    line("RELEASE", NAME="w"),
    *call("linear", ["held"], 1000, a=(8, -1)),
    *call("view", ["a"], 10, v=(8, 0)),
    line("RELEASE", NAME="a"),
    *constant("mask", 2),
    line("MUTATE", NAME="relu_", ARGS=["v", "mask"], MUTATE=[0], TIME="500"),
    *call("relu_backward", ["v"], 2000, g=(8, -1), h=(1, -1)),
    line("COPY", DST="grad", SRC="g"),
    line("RELEASE", NAME="g"),
    line("RELEASE", NAME="gone"),
    *call("add", ["grad"], 100, s=(8, -1)),
    line("COPY_FROM", DST="grad", SRC="s"),
    line("RELEASE", NAME="v"),
    line("RELEASE", NAME="h"),
]


def read(rows: list[str], tmp_path: Path) -> Any:
    file = tmp_path / "op.log"
    file.write_text("\n".join(rows) + "\n")
    return open_file(file, "auto", WorkloadOptions())


def test_a_log_is_a_step_of_storages(tmp_path: Path) -> None:
    opened = read(LOG, tmp_path)
    step: Step = opened.reading.value
    assert opened.reader.format == "dtr-log"
    assert step.ops.target == (
        "linear",
        "view",
        "LoadData",
        "relu_",
        "relu_backward",
        "add",
        "outputs",
    )
    assert [PHASES[p] for p in step.ops.phase] == ["forward"] * 4 + ["backward"] * 3
    assert step.ops.view.tolist() == [False, True, False, False, False, False, False]
    assert step.seconds == pytest.approx(3.61e-6)
    names = [name.split(": ")[1] for name in step.tensors.name]
    # relu_ makes v anew; the second v is the copy that was written.
    assert names == ["w", "a", "mask", "v", "g", "h", "s"]
    assert step.tensors.bytes.tolist() == [3, 8, 2, 8, 8, 1, 8]
    assert [KINDS[k] for k in step.tensors.kind] == [
        "buffer",
        "activation",
        "temporary",
        "activation",
        "temporary",
        "temporary",
        "gradient",
    ]
    assert step.outputs.lists() == [[1], [1], [2], [3], [4, 5], [6], []]
    assert any("1 releases of names" in warning for warning in opened.reading.warnings)


def test_memory_is_held_until_its_last_name_is_let_go_of(tmp_path: Path) -> None:
    step: Step = read(LOG, tmp_path).reading.value
    # a until relu_ has copied it, mask to the end, v and h until they are released behind add, g until its
    # last name means s.
    assert step.death.tolist()[1:] == [3, 6, 5, 5, 5, 6]
    assert step.live_bytes.tolist() == [11, 11, 13, 21, 22, 30, 13]
    assert Simulator(step, machine()).run(plan_of(Dtr(), step, machine())).peak_bytes == 30


def test_it_is_the_same_step_from_a_stored_file(tmp_path: Path) -> None:
    from experiments.workloads import storage

    step: Step = read(LOG, tmp_path).reading.value
    storage.save(step, tmp_path / "kept.npz")
    assert storage.load(tmp_path / "kept.npz").death.tolist() == step.death.tolist()


@pytest.mark.parametrize(
    ("rows", "fragment"),
    [
        ([*call("f", ["x"], 1, a=(1, -1))], "line 1: x is used before it is made"),
        ([*call("f", [], 1, a=(1, -1)), *call("g", [], 1, a=(1, -1))], "a is made a second time"),
        ([*call("f", [], 1, a=(1, 0))], "ALIAS = 0"),
        ([*call("f", [], 1)], "f has no result"),
        (call("f", [], 1, a=(1, -1))[:2], "the end of the file where a needs its ALIAS"),
        ([line("CONSTANT", NAME="w"), line("RELEASE", NAME="w")], "'RELEASE' where w needs its MEMORY"),
        ([*constant("w", 1)], "holds no operator"),
        ([*constant("w", 2**60)], "MEMORY = 1152921504606846976"),
        ([*constant("w", 1), line("MUTATE", NAME="f", ARGS=["w"], MUTATE=[1], TIME="1")], "MUTATE = 1"),
        ([*constant("w", 1), line("MUTATE", NAME="f", ARGS=["w"], MUTATE=[], TIME="1")], "MUTATE = []"),
        ([line("COPY", DST="b", SRC="a")], "a is used before it is made"),
        ([*call("f", [], -1, a=(1, -1))], "TIME = -1"),
        ([line("CALL", NAME="f", ARGS="x", TIME="1", RESULT=["a"])], "ARGS is str"),
        ([line("EXPLODE", NAME="f")], "instruction 'EXPLODE'"),
        ([line("RELEASE", NAME="a"), "{"], "line 2: not valid JSON"),
        ([line("RELEASE", NAME="a"), "[]"], "line 2: [] is no instruction"),
        ([line("RELEASE", NAME="a\u202e")], "NAME = "),
    ],
)
def test_a_log_with_a_lie_in_it_is_bad_input(rows: list[str], fragment: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        read(rows, tmp_path)
    assert fragment in str(refused.value) and "op.log" in str(refused.value)


@pytest.fixture(scope="module")
def resnet_32(shared_data: Path) -> Step:
    found = sorted((shared_data / "memory" / "dtr").glob("resnet32-56-*.log"))
    if not found:
        pytest.skip(
            "the authors' logs (simrd/logs.zip of uwsampl/dtr-prototype) are not in ../shared/data/memory/dtr"
        )
    step: Step = open_file(found[0], "auto", WorkloadOptions()).reading.value
    return step


def test_the_peak_of_the_log_of_resnet_32_is_the_published_one(resnet_32: Step) -> None:
    assert resnet_32.live_peak == pytest.approx(10_061.2e6, rel=1e-5)
    assert resnet_32.seconds == pytest.approx(0.2919, rel=1e-3)


@pytest.mark.parametrize("heuristic", sorted(PUBLISHED))
def test_overheads_on_the_log_of_resnet_32_are_the_published_ones(heuristic: str, resnet_32: Step) -> None:
    for share, published in zip(SHARES, PUBLISHED[heuristic], strict=False):
        on = machine(int(resnet_32.live_peak * share))
        plan = plan_of(Dtr(heuristic=heuristic), resnet_32, on)
        assert violations(plan, resnet_32, on) == []
        done = Simulator(resnet_32, on).run(plan)
        assert done.peak_bytes <= on.capacity
        assert done.step_time / resnet_32.seconds == pytest.approx(published, abs=0.0005)


def test_a_fifth_of_the_peak_is_enough_on_the_log_of_resnet_32(resnet_32: Step) -> None:
    plan = plan_of(Dtr(), resnet_32, machine(int(resnet_32.live_peak * 0.2)))
    assert plan.notes["overhead"] == pytest.approx(1.3322, abs=0.0005)
