"""``torchao``: the library's own quantization of linear layers, ``quantize_`` with one of its configurations."""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from experiments.compilation.live.backends.base import Compiled, Task, clocked, unsupported

#: Configurations whose kernels run on NVIDIA GPUs only.
GPU_ONLY = ("Int4WeightOnlyConfig", "Float8DynamicActivationFloat8WeightConfig")


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    name = options["config"]
    if importlib.util.find_spec("torchao") is None:
        raise unsupported("torchao is not installed (`pip install torchao`)", "torchao")
    if name in GPU_ONLY and task.device != "cuda":
        raise unsupported(f"{name} needs an NVIDIA GPU", "torchao")
    library = importlib.import_module("torchao.quantization")
    sizes = {"group_size": options["group"]} if "group" in options else {}
    module = copy.deepcopy(task.module)
    before = module_bytes(module)
    with clocked() as clock, torch.no_grad():
        library.quantize_(module, getattr(library, name)(**sizes))
        module(*task.inputs)
    metrics = {
        "model_bytes": module_bytes(module),
        "model_bytes_before": before,
        "rewrites": float(_quantized(module)),
    }
    return Compiled(module, clock.wall, clock.cpu, metrics, {"config": name, **sizes})


def module_bytes(module: nn.Module) -> float:
    """Parameters and buffers, each once, a quantized one as the tensors that it is made of."""
    found = {id(value): value for value in (*module.parameters(), *module.buffers())}
    return float(
        sum(plain.numel() * plain.element_size() for value in found.values() for plain in _plain(value))
    )


def _plain(value: Tensor) -> Iterator[Tensor]:
    if not hasattr(value, "__tensor_flatten__"):
        yield value
        return
    names, _ = value.__tensor_flatten__()
    for name in names:
        yield from _plain(getattr(value, name))


def _quantized(module: nn.Module) -> int:
    return sum(hasattr(value, "__tensor_flatten__") for value in module.parameters())
