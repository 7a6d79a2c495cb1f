"""How many draws of rounding a difference is given before it is a difference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from experiments.compilation.live.agreement import USUAL_DRAWS, Triple, disagreement  # noqa: E402
from experiments.compilation.live.reference import coarser  # noqa: E402

pytestmark = pytest.mark.torch
ROWS, COLUMNS = 64, 32


class Draws:
    """The truth as rounding moves it: a millionth everywhere, and row 3 by a bend in draw ``bends``."""

    def __init__(self, truth: Tensor, bends: int) -> None:
        self.truth, self.bends, self.made = truth, bends, 0

    def __call__(self) -> Iterator[Tensor]:
        for number in range(1, 33):
            self.made = number
            moved = self.truth * (1 + 1e-6 * (-1) ** number)
            if number == self.bends:
                moved[3] *= 1.01
            yield moved


def judge(own: Tensor, truth: Tensor, bends: int) -> tuple[str, int]:
    draws = Draws(truth, bends)
    return disagreement(Triple("weight", truth, truth.float(), own.float()), 1.0, draws), draws.made


def test_a_bend_that_the_first_draws_missed_is_found_by_a_later_one() -> None:
    """One row is a hundredth off: what a draw gives that takes the other side, here the twentieth."""
    truth = torch.linspace(1, 2, ROWS * COLUMNS, dtype=torch.float64).reshape(ROWS, COLUMNS)
    own = truth.clone()
    own[3] *= 1.01
    assert judge(own, truth, bends=20) == ("", 20)
    complaint, made = judge(own, truth, bends=0)
    assert "allowed difference" in complaint and made == 32


def test_what_is_wrong_in_more_places_than_a_bend_reaches_is_not_drawn_for_longer() -> None:
    truth = torch.linspace(1, 2, ROWS * COLUMNS, dtype=torch.float64).reshape(ROWS, COLUMNS)
    complaint, made = judge(truth * 1.01, truth, bends=20)
    assert "allowed difference" in complaint and made == USUAL_DRAWS


def test_a_single_wrong_place_stays_wrong_however_often_rounding_is_drawn() -> None:
    truth = torch.linspace(1, 2, ROWS * COLUMNS, dtype=torch.float64).reshape(ROWS, COLUMNS)
    own = truth.clone()
    own[5, 7] *= 1.01
    complaint, made = judge(own, truth, bends=20)
    assert "element 167 is" in complaint and made == 32


def test_a_gpu_that_convolves_with_ten_bits_is_asked_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TF32 keeps 10 bits of a significand where float32 keeps 23: operands move 2 ** 13 times as far."""
    convolve, multiply = torch.ops.aten.convolution.default, torch.ops.aten.mm.default
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert coarser(convolve, torch.float32, "cuda") == 2**13
    assert coarser(multiply, torch.float32, "cuda") == 1
    assert coarser(convolve, torch.float32, "cpu") == coarser(convolve, torch.bfloat16, "cuda") == 1
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert coarser(convolve, torch.float32, "cuda") == 1
