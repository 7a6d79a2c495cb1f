"""Numbers in fewer bits and kernels of our own: which of them this host supports, how far off and how fast they are."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from experiments.core.errors import Infeasible, LabError
from experiments.core.progress import Progress, part
from experiments.run import run
from experiments.validate.cells import Cell, cell_spec, compared

#: Square products that are timed beside cuBLAS: size and type. The goal is 70 % of its speed.
MATMULS = ((4096, "float16"), (4096, "bfloat16"), (8192, "bfloat16"), (2048, "float32"))
GROUPS = {"granularity": "group", "symmetric": False, "engine": "torchao", "bits": 4}


class Row(NamedTuple):
    """What to call it, the policy with its knobs and, on a GPU, the type that the model computes in."""

    title: str
    policy: str
    knobs: Mapping[str, Any]
    dtype: str = "float32"


ROWS = (
    Row("8-bit weights", "quantize", {}),
    Row("8-bit weights and activations", "quantize", {"activations": "dynamic"}),
    Row("8-bit weights and activations by torchao", "quantize", {"activations": "dynamic", "engine": "torchao"}),
    Row("4-bit weights by torchao", "quantize", {**GROUPS, "group": 32}, "bfloat16"),
    Row("8-bit floats by torchao", "quantize", {"number": "float", "activations": "dynamic", "engine": "torchao"}, "bfloat16"),
    Row("bfloat16", "mixed_precision", {}),
    Row("bfloat16, training", "mixed_precision", {"training": True}),
    Row("Triton's kernels", "triton", {}),
)  # fmt: skip
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cpu": ("zoo:gpt2-tiny", {"batch": 2, "sequence": 32}),
    "cuda": ("zoo:gpt2", {"batch": 8, "sequence": 1024}),
}


def cells(device: str, progress: Progress) -> Iterator[Cell]:
    count = len(ROWS) + len(MATMULS)
    for done, row in enumerate(ROWS):
        progress(done / count, row.title)
        yield _row_cell(row, device, part(progress, done / count, (done + 1) / count))
    for done, (size, dtype) in enumerate(MATMULS, len(ROWS)):
        progress(done / count, f"matmul {size} {dtype}")
        yield _matmul_cell(size, dtype)


def _row_cell(row: Row, device: str, progress: Progress) -> Cell:
    clock = time.perf_counter()
    model, options = MODELS[device]
    dtype = row.dtype if device == "cuda" else "float32"
    title = f"{row.policy}: {row.title}"
    spec = cell_spec(model, {**options, "dtype": dtype}, "compilation", row.policy, knobs=row.knobs)
    try:
        outcome = run(spec, progress)
    except LabError as error:
        status = "infeasible" if isinstance(error, Infeasible) else "failed"
        return Cell(model, "compilation", title, status, str(error), {}, {}, time.perf_counter() - clock)
    metrics = {name: found["value"] for name, found in outcome.metrics.items()}
    took = time.perf_counter() - clock
    figures = compared(metrics, {})
    return Cell(model, "compilation", title, outcome.status, outcome.reason, figures, metrics, took)


def _matmul_cell(size: int, dtype: str) -> Cell:
    clock = time.perf_counter()
    model, title = f"matmul {size} {dtype}", "triton: beside cuBLAS"
    rates = importlib.import_module("experiments.compilation.live.matmul_rate")
    try:
        rate = rates.beside_cublas(size, dtype)
    except Infeasible as error:
        return Cell(
            model, "compilation", title, "infeasible", str(error), {}, {}, time.perf_counter() - clock
        )
    metrics = {"latency": rate.triton, "cublas_share": rate.share, "max_relative_difference": rate.difference}
    reason = None if rate.agrees else f"{rate.difference:.3g} away from cuBLAS, {rate.tolerance:.3g} allowed"
    took = time.perf_counter() - clock
    status = "failed" if reason else "ok"
    return Cell(model, "compilation", title, status, reason, compared(metrics, {}), metrics, took)
