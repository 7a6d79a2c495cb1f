"""TVM tuning logs: both tuners' records, and what is refused with its line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.readers.tvm_records import flops_of
from experiments.summaries import summary
from experiments.workloads.tuning_log import TuningLog, best_so_far

AUTOTVM: dict[str, Any] = {
    "i": [
        "cuda",
        "topi_nn_dense",
        [["TENSOR", [4, 8], "float32"], ["TENSOR", [2, 8], "float32"]],
        {},
        None,
        {
            "i": 3,
            "t": "direct",
            "c": None,
            "e": [["tile_x", "sp", [-1, 2]], ["ann", "an", ["unroll", "none"]], ["inline", "ot", True]],
        },
    ],
    "r": [[1e-3, 3e-3], 0, 0.5, 1e9],
    "v": 0.1,
}
ANSOR: dict[str, Any] = {
    "i": [
        ['["matmul", 512, 512]', "llvm"],
        [
            [],
            [
                ["CHW", 2, "local"],
                ["SP", 2, 0, 512, [1, 16, 32], 1],
                ["RE", 2, [0, 1]],
                ["FU", 2, [0, 1]],
                ["AN", 2, 0, 3],
                ["PR", 2, 0, "auto_unroll_max_step$64"],
            ],
        ],
    ],
    "r": [[2e-3], 0, 0.5, 1e9],
    "v": "v0.6",
}


def read(folder: Path, *rows: dict[str, Any] | str, format: str = "auto") -> TuningLog:
    path = folder / "a.log"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    value: Any = open_file(path, format, WorkloadOptions()).reading.value
    assert isinstance(value, TuningLog)
    return value


def changed(row: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**row, **fields}


def test_a_record_of_autotvm(tmp_path: Path) -> None:
    log = read(tmp_path, AUTOTVM, "", changed(AUTOTVM, r=[[1e9], 4, 0.1, 1e9]))
    (task,) = log.tasks
    assert (log.tuner, task.operator, task.target, len(log), log.valid) == (
        "autotvm",
        "topi_nn_dense",
        "cuda",
        2,
        1,
    )
    assert task.seconds[0] == 2e-3, "the mean of the repeats"
    assert np.isnan(task.seconds[1]), "a placeholder is no time"
    assert task.error.tolist() == [0, 4]
    assert task.line.tolist() == [1, 3]
    assert task.flops == 2 * 4 * 8 * 2
    values = {knob.name: knob.values for knob in task.knobs}
    assert values == {
        "template": ("direct",),
        "tile_x": ((-1, 2),),
        "ann": (("unroll", "none"),),
        "inline": (1,),
    }


def test_records_of_ansor_differ_by_sketch_and_by_numbers(tmp_path: Path) -> None:
    steps = ANSOR["i"][1][1]
    other = changed(ANSOR, i=[ANSOR["i"][0], [[], steps[1:]]])
    (task,) = read(tmp_path, ANSOR, other).tasks
    knobs = {knob.name: knob.values for knob in task.knobs}
    assert len(knobs["sketch"]) == 2
    assert knobs["SP 1"] == ((1, 16, 32),)
    assert knobs["PR 1"] == (64,)
    assert knobs["CHW 1"] == ('[2,"local"]', None), "the second has no such step"
    assert task.digits[0].tolist() != task.digits[1].tolist()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("{", "line 2: not valid JSON"),
        ("[1]", "line 2: is no JSON object"),
        (changed(AUTOTVM, r=[[1e-3], 9, 0.5, 1e9]), "error number 9"),
        (changed(AUTOTVM, r=[[], 0, 0.5, 1e9]), "line 2: result: times"),
        (changed(AUTOTVM, r=[[-1.0], 0, 0.5, 1e9]), "line 2: result: time: -1.0"),
        (changed(AUTOTVM, r=[[1e9], 0, 0.5, 1e9]), "time: 1000000000.0"),
        (changed(AUTOTVM, i=AUTOTVM["i"][:4]), "line 2: config"),
        (
            changed(AUTOTVM, i=[*AUTOTVM["i"][:5], {"e": [["x", "sp", [1]], ["x", "sp", [2]]]}]),
            "'x' appears twice",
        ),
        (changed(AUTOTVM, i=[*AUTOTVM["i"][:5], {"e": [["x", "zz", 1]]}]), "sp | re | an | ot"),
        (changed(AUTOTVM, i=[*AUTOTVM["i"][:5], {"e": [["x", "ot", {"a": 1}]]}]), "knob x"),
        (ANSOR, "a record of ansor among those of autotvm"),
    ],
)
def test_a_bad_record_is_told_by_its_line(tmp_path: Path, row: Any, why: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, AUTOTVM, row, format="tvm-log")
    assert why in str(caught.value)
    assert "line 2" in str(caught.value)


@pytest.mark.parametrize(
    "step", [["XX", 1], ["SP", 0, 0, 8], ["SP", 0, 0, 8, [0], 1], ["SP", 0, 0, 8, "4", 1], 7, []]
)
def test_a_bad_step_is_told(tmp_path: Path, step: Any) -> None:
    with pytest.raises(BadInput, match="line 1: step 0"):
        read(tmp_path, changed(ANSOR, i=[ANSOR["i"][0], [[], [step]]]), format="tvm-log")


def test_nothing_but_records_is_recognized(tmp_path: Path) -> None:
    for text in ('{"i": 3}', '{"input": "x"}', "128 128 28 28\nbest runtime: 2.9"):
        with pytest.raises(BadInput, match="not a format"):
            read(tmp_path, text)
    with pytest.raises(BadInput, match="holds no record"):
        read(tmp_path, "\n\n", format="tvm-log")


def test_flops_are_told_where_the_arguments_say(tmp_path: Path) -> None:
    data, weight = ["TENSOR", [1, 192, 14, 14], "float32"], ["TENSOR", [64, 192, 3, 3], "float32"]
    convolution = [data, weight, [2, 2], [1, 1], [1, 1], "NCHW"]
    assert flops_of("topi_nn_conv2d", convolution) == 2 * 192 * 9 * 64 * 7 * 7
    assert (
        flops_of("topi_nn_conv2d", [data, weight, [2, 2], [0, 1, 2, 1], [1, 1]]) == 2 * 192 * 9 * 64 * 7 * 7
    )
    assert flops_of("softmax", [data]) is None
    assert (
        flops_of("depthwise_conv2d", [data, ["TENSOR", [192, 1, 3, 3], "float32"], [1, 1], [1, 1], [1, 1]])
        is None
    )


def test_the_real_logs(shared_data: Path) -> None:
    folder = shared_data / "compilation/autotvm_ansor_logs"
    log: Any = open_file(folder / "matmul_65536_1024_1024.log", "auto", WorkloadOptions()).reading.value
    assert (len(log), log.valid, len(log.tasks)) == (1000, 584, 1)
    assert np.isnan(best_so_far(log.tasks[0].seconds)[:100]).all()
    cards = {card["label"]: card["value"] for card in summary(log)["cards"]}
    assert cards["failed: instantiation"] == 355
    assert cards["its best time"] == 0.360597962
    log = open_file(folder / "osdi20_dense_tuned_1000.log", "auto", WorkloadOptions()).reading.value
    assert (len(log), log.valid, len(log.tasks)) == (1230, 782, 20)
