"""A step is captured once; its ops are timed for real."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.profiling import cache, capture, timing  # noqa: E402
from experiments.workloads import storage  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402

pytestmark = pytest.mark.torch


def mlp(batch: int, **options: object) -> ModelSource:
    return ModelSource("zoo:mlp", zoo="mlp", options=WorkloadOptions(batch=batch, **options))  # type: ignore[arg-type]


@pytest.fixture
def lab_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    return tmp_path / "steps"


def test_a_step_is_captured_once(lab_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cache.capture_cached(mlp(4))
    monkeypatch.setattr(capture, "capture", lambda *_, **__: pytest.fail("captured again"))
    assert storage.dumps(cache.capture_cached(mlp(4))) == storage.dumps(first)
    assert [path.suffix for path in lab_cache.iterdir()] == [".npz"]


def test_only_what_changes_the_step_changes_its_key() -> None:
    assert cache.key(mlp(4)) != cache.key(mlp(5))
    assert cache.key(mlp(4)) == cache.key(mlp(4, steps=1000))


def test_a_damaged_cache_file_is_captured_again(lab_cache: Path) -> None:
    step = cache.capture_cached(mlp(4))
    (path,) = lab_cache.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert storage.dumps(cache.capture_cached(mlp(4))) == storage.dumps(step)


def test_a_cached_step_is_read_without_torch(lab_cache: Path) -> None:
    cache.capture_cached(mlp(4))
    code = (
        "import sys\n"
        "from experiments.core.options import WorkloadOptions\n"
        "from experiments.profiling.cache import capture_cached\n"
        "from experiments.workloads.model import ModelSource\n"
        "step = capture_cached(ModelSource('zoo:mlp', zoo='mlp', options=WorkloadOptions(batch=4)))\n"
        "assert len(step.ops) and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_profile_measures_every_op_and_the_whole_step() -> None:
    reports: list[float] = []
    step = timing.profile(mlp(4), "cpu", lambda fraction, what: reports.append(fraction))
    assert step.timing == "measured" and step.timed_on.startswith("cpu:")
    assert (step.ops.seconds > 0).all()
    assert step.facts["sum_over_eager"] == pytest.approx(step.seconds / step.facts["eager_step_seconds"])
    assert reports == sorted(reports) and reports[-1] == 1.0


def test_timing_leaves_the_inputs_as_they_were() -> None:
    traced = capture.trace(mlp(4))
    inputs = traced.make_inputs(seed=0)
    timing.measure(traced, inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, traced.make_inputs(seed=0), strict=True))


def test_ticks_fall_between_ops_and_leave_the_graph_alone() -> None:
    traced = capture.trace(mlp(4))
    before, ticks = traced.graph_module.code, []
    with torch.no_grad():
        timing.with_ticks(traced, lambda: ticks.append(1))(*traced.make_inputs(seed=0))
    assert len(ticks) == len(traced.step.ops) + 1
    assert traced.graph_module.code == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has CUDA")
def test_a_host_without_cuda_says_so() -> None:
    with pytest.raises(BadInput, match="no CUDA device"):
        timing.profile(mlp(4), "cuda")


def test_wall_clock_intervals_lie_between_ticks() -> None:
    clock = timing.WallClock()
    for _ in range(3):
        clock.tick()
    assert clock.intervals().shape == (2,) and (clock.intervals() >= 0).all()
    assert clock.intervals().dtype == np.float64


def test_a_profile_counts_the_zeros_of_real_activations(lab_cache: Path) -> None:
    step = timing.profile(mlp(64), "cpu")
    share = {
        step.ops.target[op]: step.tensors.sparsity[step.outputs[op][0]]
        for op in range(len(step.ops))
        if step.phase_of(op) == "forward" and len(step.outputs[op])
    }
    relu = next(value for target, value in share.items() if "relu" in target)
    dense = next(value for target, value in share.items() if "addmm" in target)
    assert 0.3 < relu < 0.7  # an untrained layer sends about half of its units to zero
    assert dense < 0.01
    loaded = storage.load(io.BytesIO(storage.dumps(step)))
    assert np.array_equal(loaded.tensors.sparsity, step.tensors.sparsity, equal_nan=True)
