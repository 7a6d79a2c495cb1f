"""Runs Triton schedules of a product in a process of its own.

A fault of the GPU's context ends only this process.

One JSON object a line in and out: ``{"task": {"m", "n", "k", "dtype", "seed"}}`` makes operands and the
float64 reference; ``{"blocks": {...}, "repeats": N, "least": SECONDS}`` answers ``{"repeats": [...]}``,
``{"wrong": what}`` or ``{"error": class, "detail": what}``; ``{"eager": true, ...}`` times torch's own
product. Under Triton's interpreter it runs on the CPU (times then say nothing).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from experiments.compilation.live.timing import time_repeats
from experiments.compilation.live.triton_kernels.launch import BlockSizes, matmul

#: Half the distance from 1 to the next number of a type.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class GpuProduct:
    """The operands of one task on the device and what is right."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        generator = torch.Generator().manual_seed(asked["seed"])
        dtype = getattr(torch, asked["dtype"])
        sizes = ((asked["m"], asked["k"]), (asked["k"], asked["n"]))
        self.left, self.right = (
            torch.randn(size, generator=generator).to(self.device, dtype) for size in sizes
        )
        left, right = self.left.double(), self.right.double()
        self.reference = left @ right
        # Sums are kept in float32; the result is rounded once more to the operands' type.
        sums = (asked["k"] + 1) * ROUNDING["float32"] * (left.abs() @ right.abs())
        self.bound = 1.01 * (sums + 2 * ROUNDING[asked["dtype"]] * self.reference.abs())

    def eager(self) -> torch.Tensor:
        return self.left @ self.right

    def wrong(self, found: torch.Tensor) -> str:
        """Return the first element that is further off than rounding explains."""
        bad = ~((found.double() - self.reference).abs() <= self.bound)
        if not bool(bad.any()):
            return ""
        row, column = divmod(int(bad.flatten().to(torch.uint8).argmax()), bad.shape[1])
        got, right = float(found[row, column]), float(self.reference[row, column])
        return f"element [{row}, {column}] is {got:.8g} instead of {right:.8g}"


def answer(product: GpuProduct, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what one question gives.

    A schedule that needs more than the GPU has is an answer, not a crash.
    """
    if asked.get("eager"):
        return {"repeats": time_repeats(product.eager, product.device, asked["repeats"], asked["least"])}
    blocks = BlockSizes(**asked["blocks"])

    def call() -> torch.Tensor:
        return matmul(product.left, product.right, None, blocks)

    try:
        wrong = product.wrong(call())
    except OutOfResources as error:
        return {"error": "instantiation", "detail": str(error).splitlines()[0]}
    except CompilationError as error:
        return {"error": "device compiler", "detail": str(error).splitlines()[0]}
    if wrong:
        return {"wrong": wrong}
    return {"repeats": time_repeats(call, product.device, asked["repeats"], asked["least"])}


def main() -> None:
    product: GpuProduct | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "task" in asked:
            product, said = GpuProduct(asked["task"]), {"ready": True}
        else:
            assert product is not None, "asked before any task"
            said = answer(product, asked)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
