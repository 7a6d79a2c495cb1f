"""What Triton's interpreter gets wrong or lets pass, each as a small kernel; prints its figures as JSON.

Run by ``test_triton_kernels.py`` in a process of its own, because TRITON_INTERPRET counts only before the
import.
"""

import json
import math
import sys

import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError


@triton.jit
def add_kernel(x, y, out, CAST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    left, right = tl.load(x + at), tl.load(y + at)
    if CAST:
        left, right = left.to(tl.float32), right.to(tl.float32)
    tl.store(out + at, left + right)


@triton.jit
def unmasked_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@triton.jit
def lost_update_kernel(counter):
    tl.store(counter, tl.load(counter) + 1)


@triton.jit
def dot_kernel(x, out, SIDE: tl.constexpr):
    at = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    block = tl.load(x + at)
    tl.store(out + at, tl.dot(block, block, input_precision="ieee"))


@triton.jit
def range_kernel(out, SIZE: tl.constexpr):
    tl.store(out + tl.arange(0, SIZE), tl.arange(0, SIZE))


@triton.jit
def integers_kernel(x, out):
    value = tl.load(x)
    tl.store(out, value * value)
    tl.store(out + 1, tl.load(x + 1) // tl.load(x + 2))


@triton.jit
def softmax_kernel(x, out, columns, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < columns, other=OTHER)
    raised = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + at, raised / tl.sum(raised, axis=0), mask=at < columns)


@triton.jit
def half_sum_kernel(x, out, steps, LANES: tl.constexpr):
    lanes = tl.arange(0, LANES)
    total = tl.zeros((LANES,), tl.float16)
    for step in range(steps):
        total += tl.load(x + step * LANES + lanes)
    tl.store(out + lanes, total)


@triton.jit
def max_kernel(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.max(tl.load(x + tl.arange(0, BLOCK)), axis=0))


@triton.jit
def cut_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(tl.bfloat16))


def bfloat16() -> tuple[float, float]:
    """Error of 1 + 2 in bfloat16 as it is, and cast after the load."""
    x, y = torch.full((16,), 1.0).bfloat16(), torch.full((16,), 2.0).bfloat16()
    errors = []
    for cast in (False, True):
        out = torch.zeros(16)
        add_kernel[(1,)](x, y, out, CAST=cast, BLOCK=16)
        errors.append(float((out - 3).abs().max()))
    return errors[0], errors[1]


def beyond_the_end() -> float:
    """What the eighth element of a tensor of four is: the neighbor's number."""
    memory, out = torch.arange(8.0), torch.zeros(8)
    unmasked_kernel[(1,)](memory[:4], out, BLOCK=8)
    return float(out[7])


def lost_updates() -> int:
    counter = torch.zeros(1, dtype=torch.int32)
    lost_update_kernel[(100,)](counter)
    return int(counter)


def small_dot() -> float:
    x, out = torch.eye(4) * 3, torch.zeros(4, 4)
    dot_kernel[(1,)](x, out, SIDE=4)
    return float(out[2, 2])


def odd_range() -> str:
    try:
        range_kernel[(1,)](torch.zeros(12, dtype=torch.int32), SIZE=12)
    except (InterpreterError, ValueError) as error:
        return str(error)
    return ""


def tuned() -> str:
    try:
        triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[])(
            unmasked_kernel
        )[(1,)](torch.zeros(32), torch.zeros(32))
    except (RuntimeError, AttributeError) as error:
        return str(error)
    return ""


def integers() -> list[int]:
    """65536 squared, and -7 // 2, in 32 bits."""
    out = torch.zeros(2, dtype=torch.int32)
    integers_kernel[(1,)](torch.tensor([65536, -7, 2], dtype=torch.int32), out)
    return out.tolist()


def masked_with(other: float, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    softmax_kernel[(1,)](x, out, x.numel(), OTHER=other, BLOCK=triton.next_power_of_2(x.numel()))
    return out


def half_sum() -> float:
    out = torch.zeros(2, dtype=torch.float16)
    half_sum_kernel[(1,)](torch.ones(5000, dtype=torch.float16), out, 2500, LANES=2)
    return float(out.max())


def highest() -> float:
    out = torch.zeros(1)
    max_kernel[(1,)](torch.tensor([1.0, math.nan, 2.0, 0.0]), out, BLOCK=4)
    return float(out)


def transposed() -> list[float]:
    """The first row of a transposed tensor, passed without its strides."""
    out = torch.zeros(4)
    unmasked_kernel[(1,)](torch.arange(4.0).reshape(2, 2).t(), out, BLOCK=4)
    return out[:2].tolist()


def cut() -> float:
    """1 + 2^-7 x 0.75 lies three quarters of the way to the next bfloat16."""
    out = torch.zeros(1, dtype=torch.bfloat16)
    cut_kernel[(1,)](torch.tensor([1 + 0.75 * 2**-7]), out, BLOCK=1)
    return float(out)


def main() -> None:
    near = torch.full((37,), -50.0) + torch.linspace(0, 1, 37)
    plain, cast = bfloat16()
    figures = {
        "bfloat16_error": plain if math.isfinite(plain) else 1e30,
        "bfloat16_error_after_a_cast": cast,
        "beyond_the_end": beyond_the_end(),
        "lost_updates": lost_updates(),
        "small_dot": small_dot(),
        "odd_range": odd_range(),
        "autotune": tuned(),
        "integers": integers(),
        "softmax_padded_with_zero": float((masked_with(0.0, near) - near.softmax(0)).abs().max()),
        "softmax_padded_with_minus_infinity": float(
            (masked_with(-math.inf, near) - near.softmax(0)).abs().max()
        ),
        "softmax_of_minus_infinity_is_nan": bool(
            masked_with(-math.inf, torch.full((4,), -math.inf)).isnan().all()
        ),
        "half_sum": half_sum(),
        "highest": highest(),
        "transposed": transposed(),
        "cut": cut(),
    }
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
