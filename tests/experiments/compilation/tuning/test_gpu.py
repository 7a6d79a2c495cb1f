"""Triton schedules of a product, in their child process; under Triton's interpreter (its times say nothing)
where there is no GPU.
"""

from contextlib import closing

import pytest

from experiments.compilation.interface.tuning import TuningProposal
from experiments.compilation.live.tuning.model_tasks import ModelOperator
from experiments.compilation.live.tuning.operators import matmul
from experiments.compilation.live.tuning.triton_schedules import gpu_task

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed; CUDA builds of torch bring it")


def test_a_schedule_of_uneven_sides_is_right_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.compilation.live.tuning import gpu

    monkeypatch.setattr(gpu, "ANSWER_SECONDS", 280.0)  # the child imports torch and Triton first
    operator = ModelOperator(matmul(40, 24, 33), "float32", calls=2)
    task = gpu_task(operator)
    config = {"m": 32, "n": 16, "k": 32, "group": 4, "warps": 2, "stages": 3}
    environment = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    with closing(gpu.GpuBench([task], [operator], 0, environment)) as bench:
        (trial,) = bench.measure([TuningProposal(0, task.space.index(config))])
        assert (trial.error, trial.detail) == ("", "")
        assert len(trial.repeats) == 3
        assert bench.eager_seconds(0) > 0


def test_an_element_further_off_than_rounding_explains_is_named() -> None:
    from experiments.compilation.live.tuning.gpu_child import GpuProduct

    product = GpuProduct({"m": 3, "n": 4, "k": 5, "dtype": "float16", "seed": 0})
    found = product.eager()
    assert product.wrong(found) == ""
    found[1, 2] += 1
    assert product.wrong(found).startswith("element [1, 2] is ")
    found[1, 2] = float("nan")
    assert product.wrong(found).startswith("element [1, 2] is nan")
