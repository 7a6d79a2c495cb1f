"""The mechanisms that recipes name, one file each; each is loaded when it is asked for.

A backend is a function ``build(task, options) -> Compiled``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

from experiments.compilation.live.backends.base import (
    CompilationFailed,
    Compiled,
    OutOfMemory,
    Task,
    unsupported_backend,
)
from experiments.core.errors import BadInput

#: Backend of a recipe: its module here.
BACKENDS: Mapping[str, str] = {
    "eager": "eager",
    "inductor": "torch_compile",
    "onnxruntime": "onnxruntime",
    "buckets": "shape_buckets",
    "cuda_graph": "cuda_graph",
    "torchao": "torchao",
    "triton": "triton",
    "guards": "guards",
    "whole_graph": "whole_graph",
    "rtasks": "rtasks",
}


def compile_task(backend: str, options: Mapping[str, Any], task: Task) -> Compiled:
    """Return ``task`` carried out by ``backend``.

    ``CompilationFailed`` where it cannot compile the model, ``Infeasible`` where this host cannot offer it.
    """
    if backend not in BACKENDS:
        raise BadInput(f"no backend {backend!r}", "recipe", "one of " + ", ".join(BACKENDS))
    module = importlib.import_module(f"{__name__}.{BACKENDS[backend]}")
    try:
        made: Compiled = module.build(task, options)
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"{backend}: {str(error).splitlines()[0]}") from error
    return made


__all__ = [
    "BACKENDS",
    "CompilationFailed",
    "Compiled",
    "OutOfMemory",
    "Task",
    "compile_task",
    "unsupported_backend",
]
