"""A deep network's step, lengthened from a few of its equal blocks, is the capture of all of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.profiling.capture import capture, trace
from experiments.workloads.lengthened import lengthen
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

pytestmark = pytest.mark.torch
DEPTHS = {"stage1": 2, "stage2": 7, "stage3": 9, "stage4": 1}


def network(preactivation: int = 0, optimizer: str = "momentum", **stages: int) -> ModelSource:
    sizes = {**DEPTHS, **stages, "preactivation": preactivation}
    options = WorkloadOptions(batch=2, image=32, optimizer=optimizer)
    return ModelSource("zoo:resnet2500", zoo="resnet2500", sizes=sizes, options=options)


def content(step: Step) -> dict[str, Any]:
    """Every column of the step, by name, as it prints (NaN equals itself)."""
    rows = {"inputs": step.inputs.lists(), "outputs": step.outputs.lists(), "facts": dict(step.facts)}
    tables = {"ops": step.ops, "tensors": step.tensors}
    columns = {
        f"{name}.{field.name}": getattr(table, field.name)
        for name, table in tables.items()
        for field in fields(table)
    }
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in columns.items()
    }
    return {**rows, **{name: [str(value) for value in column] for name, column in plain.items()}}


@pytest.mark.parametrize(("preactivation", "optimizer"), [(0, "momentum"), (1, "adamw"), (0, "sgd")])
def test_a_lengthened_step_is_the_capture_of_all_blocks(preactivation: int, optimizer: str) -> None:
    source = network(preactivation, optimizer)
    ours, whole = content(capture(source)), content(trace(source).step)
    assert [name for name in whole if ours[name] != whole[name]] == []


@pytest.mark.parametrize(("attention", "optimizer"), [("flash", "adamw"), ("math", "sgd")])
def test_a_transformers_blocks_are_counted_on_as_well(attention: str, optimizer: str) -> None:
    sizes = {"layers": 9, "width": 32, "heads": 2, "vocabulary": 64, "positions": 16}
    options = WorkloadOptions(batch=2, sequence=16, attention=attention, optimizer=optimizer)
    source = ModelSource("zoo:gpt2", zoo="gpt2", sizes=sizes, options=options)
    ours, whole = content(capture(source)), content(trace(source).step)
    assert [name for name in whole if ours[name] != whole[name]] == []


def test_too_few_blocks_and_blocks_that_differ_are_refused() -> None:
    step = trace(network(stage2=4, stage3=5)).step
    with pytest.raises(BadInput, match=r"4 blocks in 'features.stage2' .*expected 5 or more"):
        lengthen(step, "features.stage2", 3)
    targets = list(step.ops.target)
    place = next(op for op, name in enumerate(step.ops.module) if name.startswith("features.stage3.3."))
    targets[place] = "aten.other"
    object.__setattr__(step.ops, "target", tuple(targets))
    with pytest.raises(BadInput, match=r"blocks of 'features.stage3' differ"):
        lengthen(step, "features.stage3", 3)


def test_no_more_blocks_is_the_step_itself() -> None:
    step = trace(network(stage2=1, stage3=1)).step
    assert lengthen(step, "features.stage3", 0) is step
