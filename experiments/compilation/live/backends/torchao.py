"""``torchao``: the library's own quantization of linear layers, ``quantize_`` with one of its configurations.

What it kept of a weight is read back, so that the run can be held to a model that has these values, and these
values to the noise that the scheme may make. Layers whose sizes its kernels do not take stay as they are, and
are named.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.compilation.live.backends.base import (
    CompilationFailed,
    Compiled,
    Task,
    clock_compilation,
    unsupported_backend,
)
from experiments.compilation.live.kept_weights import KeptWeight, float8_sqnr, scheme_sqnr
from experiments.compilation.planning.numerics.quantization import Scheme


@dataclass(frozen=True)
class Library:
    """A configuration: its module and name there, its arguments, and what its kernels need.

    ``capability`` is that of an NVIDIA GPU, ``None`` for every device; ``dtype`` the only type of weights, if
    any; outputs come in multiples of ``rows``.
    """

    module: str
    name: str
    arguments: Mapping[str, Any]
    capability: tuple[int, int] | None = None
    dtype: torch.dtype | None = None
    rows: int = 1

    def takes(self, layer: nn.Module, path: str) -> bool:
        """Return whether the layer is to be quantized.

        The library then still leaves out those that groups do not divide.
        """
        return isinstance(layer, nn.Linear) and layer.out_features % self.rows == 0


def configuration(method: str, group: int, device: str) -> Library:
    """Return the library's configuration of a method of ``torchao_methods`` on this device."""
    plain = "torchao.quantization"
    if method == "int8 weights":
        return Library(plain, "Int8WeightOnlyConfig", {})
    if method == "int8 weights and activations":
        return Library(plain, "Int8DynamicActivationInt8WeightConfig", {})
    if method == "int4 weights" and device == "cpu":
        module = "torchao.prototype.quantization.int4"
        return Library(module, "PrototypeInt4WeightOnlyConfig", {"group_size": group}, rows=16)
    if method == "int4 weights":
        tiles = {"group_size": group, "int4_packing_format": "tile_packed_to_4d"}
        return Library(plain, "Int4WeightOnlyConfig", tiles, (8, 0), torch.bfloat16)
    granularity = "PerRow" if method.endswith("row") else "PerTensor"
    dtype = torch.bfloat16 if granularity == "PerRow" else None
    name = "Float8DynamicActivationFloat8WeightConfig"
    return Library(plain, name, {"granularity": granularity}, (8, 9), dtype)


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    if importlib.util.find_spec("torchao") is None:
        raise unsupported_backend("torchao is not installed (`pip install torchao`)", "torchao")
    scheme = Scheme(**options["scheme"])
    chosen = configuration(options["method"], scheme.group, task.device)
    _refuse(chosen, task)
    module = copy.deepcopy(task.module)
    with clock_compilation() as clock, torch.no_grad():
        _quantize(module, chosen, task)
    kept = _kept_weights(module, task.module, scheme if options["number"] == "integer" else None)
    metrics = {
        "model_bytes": module_bytes(module),
        "model_bytes_before": module_bytes(task.module),
        "rewrites": float(len(kept)),
    }
    report = {"config": chosen.name, "refused": _explain_unquantized(module, kept)}
    return Compiled(module, clock.wall, clock.cpu, metrics, report, kept=tuple(kept))


def _refuse(chosen: Library, task: Task) -> None:
    """What this host or model lacks for the kernels."""
    if chosen.capability is not None:
        needs = "{}.{}".format(*chosen.capability)
        if task.device != "cuda":
            raise unsupported_backend(f"{chosen.name} needs an NVIDIA GPU of capability {needs}", "torchao")
        if torch.cuda.get_device_capability() < chosen.capability:
            raise unsupported_backend(f"{chosen.name} needs capability {needs}", "torchao")
    types = {layer.weight.dtype for layer in task.module.modules() if isinstance(layer, nn.Linear)}
    if chosen.dtype is not None and types - {chosen.dtype}:
        raise unsupported_backend(
            f"{chosen.name} takes {chosen.dtype} weights only, these are {types}", "torchao"
        )


def _quantize(module: nn.Module, chosen: Library, task: Task) -> None:
    """In place, and one call: kernels refuse sizes then at the latest."""
    library = importlib.import_module("torchao.quantization")
    arguments = dict(chosen.arguments)
    if "granularity" in arguments:
        arguments["granularity"] = getattr(library, arguments["granularity"])()
    config = getattr(importlib.import_module(chosen.module), chosen.name)(**arguments)
    try:
        library.quantize_(module, config, chosen.takes)
        module(*task.inputs)
    except (NotImplementedError, AssertionError, ValueError, ImportError) as error:
        said = str(error).splitlines() or [type(error).__name__]
        raise CompilationFailed(f"{chosen.name}: {said[0]}") from error


def _kept_weights(module: nn.Module, original: nn.Module, scheme: Scheme | None) -> list[KeptWeight]:
    """Return every quantized weight with its original."""
    found = []
    for path, layer in module.named_modules():
        if isinstance(layer, nn.Linear) and _is_quantized(layer.weight):
            truth = original.get_submodule(path).weight
            assert isinstance(truth, Tensor)
            expected = float8_sqnr() if scheme is None else scheme_sqnr(truth, scheme)
            values, size = _values(layer.weight), _bytes(layer.weight)
            found.append(KeptWeight(f"{path}.weight", truth, values, size, expected=expected, tied=False))
    return found


def _is_quantized(value: Tensor) -> bool:
    return hasattr(value, "__tensor_flatten__")


@torch.no_grad()
def _values(weight: Tensor) -> Tensor:
    """Return what the codes stand for; a layout that cannot be turned back is multiplied by the identity."""
    try:
        return weight.dequantize()
    except NotImplementedError:
        identity = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
        return F.linear(identity, weight).t()


def _explain_unquantized(module: nn.Module, kept: list[KeptWeight]) -> dict[str, str]:
    """What was not quantized and why: layers, or the whole of a model that is a program of ops."""
    quantized = {weight.path for weight in kept}
    if not any(isinstance(layer, nn.Linear) for layer in module.modules()):
        return {
            "model": "has no torch.nn.Linear, which is all that the library looks for; engine own reads ops"
        }
    return {
        f"{path}.weight": f"no kernel of the library for {tuple(layer.weight.shape)}"
        for path, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and f"{path}.weight" not in quantized
    }


def module_bytes(module: nn.Module) -> float:
    """Parameters and buffers, each once, a quantized one as the tensors that it is made of."""
    found = {id(value): value for value in (*module.parameters(), *module.buffers())}
    return float(sum(map(_bytes, found.values())))


def _bytes(value: Tensor) -> int:
    return sum(plain.numel() * plain.element_size() for plain in _plain(value))


def _plain(value: Tensor) -> Iterator[Tensor]:
    if not _is_quantized(value):
        yield value
        return
    names, _ = value.__tensor_flatten__()  # type: ignore[attr-defined]
    for name in names:
        yield from _plain(getattr(value, name))
