"""A model is profiled here with torch's profiler; the step read from the trace agrees with the captured one
(2 %).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from experiments.core.options import WorkloadOptions
from experiments.models.build import build, chosen
from experiments.profiling.capture import Traced, trace
from experiments.readers.base import Reading, open_file
from experiments.workloads.model import ModelSource
from experiments.workloads.step import KINDS, Step

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda values: torch.optim.SGD(values, lr=0.01),
    "momentum": lambda values: torch.optim.SGD(values, lr=0.01, momentum=0.9),
    "adam": lambda values: torch.optim.Adam(values, foreach=False),
    "adamw": lambda values: torch.optim.AdamW(values, foreach=False),
}
MODELS = [
    ("mlp", "adam", {"batch": 4}),
    ("gpt2-tiny", "adamw", {"batch": 2}),
    ("resnet18", "momentum", {"batch": 4, "image": 64}),
]


def source(name: str, optimizer: str, sizes: dict[str, int]) -> ModelSource:
    return ModelSource(f"zoo:{name}", zoo=name, options=WorkloadOptions(optimizer=optimizer, **sizes))


def training_loop(
    traced: Traced,
    made: Callable[[Any], torch.optim.Optimizer] | None = None,
    set_to_none: bool = True,
) -> Callable[[], None]:
    """The step as anybody would write it: a module, ``backward`` and an optimizer of ``torch.optim``."""
    model = build(traced.source)
    optimizer = (made or OPTIMIZERS[chosen(traced.source).optimizer])(model.module.parameters())
    batch = traced.make_inputs()[-len(model.batch(True)) :]

    def step() -> None:
        optimizer.zero_grad(set_to_none)
        *inputs, target = batch
        output = model.module.body(*inputs)
        model.module._loss(output, target).backward()
        del output
        optimizer.step()

    step()  # optimizer state exists from here on
    return step


def profiled(path: Path, run: Callable[[], object], **options: Any) -> tuple[Reading, float]:
    """What is read from the trace of ``run``, and the profiler's own total of self times in seconds."""
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, **options
    ) as seen:
        run()
    seen.export_chrome_trace(str(path))
    return open_file(path, "auto", WorkloadOptions()).reading, seen.key_averages().self_cpu_time_total / 1e6


def bytes_of(step: Step, *kinds: str) -> int:
    return sum(int(step.tensors.bytes[step.tensors.kind == KINDS.index(kind)].sum()) for kind in kinds)


def agree(step: Step, captured: Step, unseen: int = 0) -> None:
    """``unseen``: bytes that the program held at the peak and that a trace may not tell from what nobody
    held.
    """
    # The scratch that the processor's library takes for a convolution is the host's: 47 MB on one without
    # AVX-512.
    peak = int((step.live_bytes - step.ops.workspace).max())
    assert 0.98 * (captured.live_peak - unseen) <= peak <= 1.02 * captured.live_peak
    assert int(step.tensors.bytes.sum()) == pytest.approx(int(captured.tensors.bytes.sum()), rel=0.02)
    assert bytes_of(step, "parameter", "gradient") == bytes_of(captured, "parameter", "gradient")
    assert step.persistent_bytes == pytest.approx(
        captured.persistent_bytes, abs=200
    )  # step counts of 4 or 8 bytes
    assert step.flops == captured.flops
    assert step.facts["parameters"] == captured.facts["parameters"]
    assert step.facts["batch"] == captured.facts["batch"]


@pytest.mark.parametrize(("name", "optimizer", "sizes"), MODELS, ids=[row[0] for row in MODELS])
def test_an_ordinary_training_loop_reads_as_the_captured_step(
    name: str, optimizer: str, sizes: dict[str, int], tmp_path: Path
) -> None:
    traced = trace(source(name, optimizer, sizes))
    reading, total = profiled(tmp_path / "trace.json.gz", training_loop(traced))
    agree(reading.value, traced.step)
    assert reading.value.seconds == pytest.approx(total, rel=0.001)
    assert reading.value.facts["training"]


@pytest.mark.parametrize(("name", "optimizer", "sizes"), MODELS, ids=[row[0] for row in MODELS])
def test_a_step_without_annotations_reads_as_the_captured_step(
    name: str, optimizer: str, sizes: dict[str, int], tmp_path: Path
) -> None:
    """The lab's own eager step: no ``Optimizer.step`` and no accumulation of gradients to tell
    parameters by.
    """
    traced = trace(source(name, optimizer, sizes))
    inputs = traced.make_inputs()
    reading, total = profiled(tmp_path / "trace.json", lambda: traced.eager(*inputs))
    # Nothing marks where the backward pass ends, so the logits (2 x 64 tokens, 256 words) count as let go.
    agree(reading.value, traced.step, 2 * 64 * 256 * 4 if name == "gpt2-tiny" else 0)
    assert reading.value.seconds == pytest.approx(total, rel=0.001)


def test_lists_of_tensors_and_fused_updates_read_alike(tmp_path: Path) -> None:
    traced = trace(source("gpt2-tiny", "adamw", {"batch": 2}))
    for options in ({"foreach": True}, {"fused": True}):
        step = training_loop(traced, lambda values, options=options: torch.optim.AdamW(values, **options))
        read, total = profiled(tmp_path / "trace.json", step)
        assert read.value.live_peak == pytest.approx(traced.step.live_peak, rel=0.02)
        assert read.value.persistent_bytes == pytest.approx(traced.step.persistent_bytes, abs=200)
        assert read.value.seconds == pytest.approx(total, rel=0.001)


def test_gradients_that_are_kept_between_steps_are_there_all_the_time(tmp_path: Path) -> None:
    traced = trace(source("mlp", "sgd", {"batch": 4}))
    step = training_loop(traced, set_to_none=False)
    read, _ = profiled(tmp_path / "trace.json", step)
    parameters = bytes_of(traced.step, "parameter")
    assert read.value.persistent_bytes == traced.step.persistent_bytes + parameters
    assert bytes_of(read.value, "gradient") == 0


def test_of_a_schedule_of_steps_the_last_is_read_with_its_modules(tmp_path: Path) -> None:
    traced = trace(source("mlp", "sgd", {"batch": 4}))
    step = training_loop(traced)
    plan = schedule(wait=1, warmup=1, active=2)
    path = tmp_path / "trace.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        schedule=plan,
    ) as seen:
        for _ in range(4):
            step()
            seen.step()
    seen.export_chrome_trace(str(path))
    read = open_file(path, "auto", WorkloadOptions()).reading.value
    agree(read, traced.step)
    events = json.loads(path.read_text())["traceEvents"]
    last = max(
        (event for event in events if event["name"] == "ProfilerStep#3"), key=lambda event: event["ts"]
    )
    assert read.seconds == pytest.approx(last["dur"] / 1e6, rel=0.02)
    assert read.facts["steps_in_trace"] == 2
    assert {module for module in read.ops.module if "Linear" in module} == {
        f"Sequential_0.Linear_{number}" for number in range(3)
    }
