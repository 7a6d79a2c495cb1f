"""Triton kernels against torch in float64 under Triton's interpreter, and what that interpreter does not
notice.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytestmark = pytest.mark.torch
pytest.importorskip("triton", reason="Triton is not installed; CUDA builds of torch bring it")

from experiments.compilation.live.triton_kernels.interpreter import Interpreter, NoTriton  # noqa: E402

TRAPS = Path(__file__).with_name("interpreter_traps.py")


@pytest.fixture(scope="module")
def run() -> Iterator[Interpreter]:
    child = Interpreter()
    yield child
    child.close()


def distance(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact).abs().max())


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_a_sum_of_more_than_a_block(run: Interpreter) -> None:
    x, y = random(3001), random(3001, seed=1)
    assert torch.equal(run("add", x, y), x + y)


@pytest.mark.parametrize("columns", [1, 37, 1024, 70_001])
def test_softmax_of_short_and_long_rows(run: Interpreter, columns: int) -> None:
    # 70,001 columns do not fit one block: the row is gone over twice. Near -50 a padding with 0 would show.
    x = random(3, columns) * 5 - 50
    assert distance(run("softmax", x), x.double().softmax(-1)) < 1e-6


def test_rows_of_minus_infinity_are_torchs(run: Interpreter) -> None:
    for columns in (4, 70_001):
        x = torch.full((2, columns), -torch.inf)
        x[1, ::2] = 0.0
        ours = run("softmax", x)
        assert ours[0].isnan().all()
        assert distance(ours[1], x[1].double().softmax(-1)) < 1e-7


def test_matmul_masks_rows_columns_and_depth(run: Interpreter) -> None:
    # No size divides a block of 16 or 256: a missing mask would read the next row, or beyond the end.
    for rows, inner, columns in ((33, 17, 19), (1, 1, 1), (300, 257, 270)):
        a, b = random(rows, inner) + 1, random(inner, columns) + 1
        exact = a.double() @ b.double()
        assert distance(run("matmul", a, b), exact) < 1e-5 * float(exact.abs().max())


def test_matmul_of_many_blocks_in_groups_of_rows(run: Interpreter) -> None:
    # 11 x 2 blocks: a group of 8 rows of blocks and one of 3; every block must be computed exactly once.
    a, b = random(2700, 3), random(3, 300)
    assert distance(run("matmul", a, b), a.double() @ b.double()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_summed_in_float32(run: Interpreter, dtype: torch.dtype) -> None:
    # 4096 ones: a sum kept in float16 would stop at 2048, one in bfloat16 at 256.
    ones = torch.ones(2, 4096, dtype=dtype)
    assert run("linear", ones, ones).tolist() == [[4096.0, 4096.0]] * 2
    x, weight, bias = random(33, 17).to(dtype), random(19, 17).to(dtype), random(19).to(dtype)
    exact = (x.double() @ weight.double().t() + bias.double()).to(dtype).double()
    ours = run("linear", x, weight, bias)
    assert ours.dtype == dtype
    assert distance(ours, exact) <= float(exact.abs().max()) * torch.finfo(dtype).eps


def test_gelu_with_its_bias_is_the_exact_form(run: Interpreter) -> None:
    x, bias = random(5, 7), random(7, seed=1)
    exact = F.gelu(x.double() + bias.double())
    assert distance(run("bias_gelu", x, bias), exact) < 1e-6
    assert distance(run("bias_gelu", x), F.gelu(x.double())) < 1e-6
    assert distance(F.gelu(x + bias, approximate="tanh"), exact) > 1e-5


def test_a_linear_layer_and_its_gelu(run: Interpreter) -> None:
    x, weight, bias = random(2, 16, 64), random(192, 64, seed=1), random(192, seed=2)
    exact = F.gelu(F.linear(x.double(), weight.double(), bias.double()))
    assert distance(run("linear_gelu", x, weight, bias), exact) < 2e-5


def test_layer_norm_keeps_its_digits_far_from_zero(run: Interpreter) -> None:
    # Around 1000 the mean of squares less the square of the mean would lose all digits of the variance.
    x, weight, bias = random(4, 37) + 1000, random(37, seed=1), random(37, seed=2)
    exact = F.layer_norm(x.double(), (37,), weight.double(), bias.double())
    assert distance(run("layer_norm", x, weight, bias), exact) < 1e-3
    assert distance(run("layer_norm", x - 1000), F.layer_norm(x.double() - 1000, (37,))) < 1e-5


def test_what_does_not_fit_is_said(run: Interpreter) -> None:
    with pytest.raises(ValueError, match="inner sizes 3 and 4 differ"):
        run("matmul", random(2, 3), random(4, 2))
    with pytest.raises(ValueError, match="longer than a block"):
        run("layer_norm", random(1, 65_537))


def test_without_triton_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoTriton, match="not installed"):
        Interpreter()


@pytest.fixture(scope="module")
def traps() -> Any:
    found = subprocess.run(
        [sys.executable, str(TRAPS)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        check=True,
    )
    return json.loads(found.stdout)


def test_bfloat16_arithmetic_is_garbage_until_it_is_cast(traps: Any) -> None:
    assert traps["bfloat16_error"] > 1e3
    assert traps["bfloat16_error_after_a_cast"] == 0


def test_a_cast_to_bfloat16_cuts_instead_of_rounding(traps: Any) -> None:
    assert traps["cut"] == 1.0  # rounded it would be 1 + 2^-7


def test_loads_beyond_the_end_read_the_neighbor(traps: Any) -> None:
    assert traps["beyond_the_end"] == 7.0


def test_a_race_is_not_seen(traps: Any) -> None:
    assert traps["lost_updates"] == 100  # a GPU loses some of the hundred updates


def test_blocks_below_sixteen_pass(traps: Any) -> None:
    assert traps["small_dot"] == 9.0


def test_ranges_are_powers_of_two_and_nothing_can_be_tuned(traps: Any) -> None:
    assert "power of 2" in traps["odd_range"]
    assert "0 active drivers" in traps["autotune"]


def test_integers_wrap_and_divide_as_on_a_gpu(traps: Any) -> None:
    assert traps["integers"] == [0, -3]  # 65536^2 in 32 bits; Python's -7 // 2 is -4


def test_padding_of_a_softmax_is_minus_infinity(traps: Any) -> None:
    assert traps["softmax_padded_with_zero"] > 0.04  # all of it: the padding took every bit of the sum
    assert traps["softmax_padded_with_minus_infinity"] < 1e-8
    assert traps["softmax_of_minus_infinity_is_nan"]


def test_half_sums_stop_and_maxima_skip_nan(traps: Any) -> None:
    assert traps["half_sum"] == 2048  # of 2500 ones in each lane
    assert traps["highest"] == 2.0


def test_a_transposed_tensor_without_strides_is_read_as_it_lies(traps: Any) -> None:
    assert traps["transposed"] == [0.0, 1.0]  # its first row is [0, 2]
