"""Numbers in fewer bits beside a policy's own, and our matmul beside cuBLAS: what this host supports, and how
fast.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.core.progress import Progress
from experiments.validate.cells import (
    EVERYTHING,
    UNSUPPORTED,
    Chosen,
    ValidationCell,
    compare,
    left_out,
)

#: Square products that are timed beside cuBLAS: size and type. The goal is 70 % of its speed.
MATMULS = ((4096, "float16"), (4096, "bfloat16"), (8192, "bfloat16"), (2048, "float32"))
GROUPS = {"granularity": "group", "symmetric": False, "engine": "torchao", "bits": 4}


class NumericsRow(NamedTuple):
    """What tells it apart, the policy with its knobs and, on a GPU, the type that the model computes in."""

    title: str
    policy: str
    knobs: dict[str, Any]
    dtype: str = "float32"


ROWS = (
    NumericsRow("8-bit weights and activations", "quantize", {"activations": "dynamic"}),
    NumericsRow(
        "8-bit weights and activations by torchao",
        "quantize",
        {"activations": "dynamic", "engine": "torchao"},
    ),
    NumericsRow("4-bit weights by torchao", "quantize", {**GROUPS, "group": 32}, "bfloat16"),
    NumericsRow(
        "8-bit floats by torchao",
        "quantize",
        {"number": "float", "activations": "dynamic", "engine": "torchao"},
        "bfloat16",
    ),
    NumericsRow("bfloat16, training", "mixed_precision", {"training": True}),
)
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cpu": ("zoo:gpt2-tiny", {"batch": 1, "sequence": 64}),
    "cuda": ("zoo:gpt2", {"batch": 8, "sequence": 1024}),
}


def plans(device: str) -> list[tuple[str, dict[str, Any], dict[str, Any], str]]:
    """The rows as a room's plans.

    Policy, knobs, further options of the workload, what tells the cell apart.
    """
    return [
        (row.policy, row.knobs, {"dtype": row.dtype} if device == "cuda" else {}, f": {row.title}")
        for row in ROWS
    ]


TITLE = "triton: beside cuBLAS"


def cells(progress: Progress, chosen: Chosen = EVERYTHING) -> Iterator[ValidationCell]:
    """Our matmul at every size; a host without a GPU has these cells too, with the reason."""
    for size, dtype in MATMULS:
        model = f"matmul {size} {dtype}"
        progress(1.0, model)
        if chosen.out_of_time:
            yield left_out(model, "compilation", TITLE)
        else:
            yield _matmul_cell(model, size, dtype)


def _matmul_cell(model: str, size: int, dtype: str) -> ValidationCell:
    clock = time.perf_counter()
    rates = registry.load_module("compilation", "live.matmul_rate")
    try:
        rate = rates.beside_cublas(size, dtype)
    except Infeasible as error:
        return ValidationCell(
            model, "compilation", TITLE, UNSUPPORTED, str(error), {}, {}, time.perf_counter() - clock
        )
    metrics = {"latency": rate.triton, "cublas_share": rate.share, "max_relative_difference": rate.difference}
    reason = None if rate.agrees else f"{rate.difference:.3g} away from cuBLAS, {rate.tolerance:.3g} allowed"
    took = time.perf_counter() - clock
    status = "failed" if reason else "ok"
    return ValidationCell(model, "compilation", TITLE, status, reason, compare(metrics, {}), metrics, took)
