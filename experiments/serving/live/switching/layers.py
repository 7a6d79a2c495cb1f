"""A model whose weights lie in one region, layer after layer, in host memory and on the device.

A layer is a module with weights or buffers of its own; they stand in the order in which a pass first calls
them. What a module has that is never called itself (parts of a fused attention) belongs to the module around
it. So any run of layers is copied with one call, and nothing is allocated for it (PipeSwitch, section 4.3).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models.build import build
from experiments.models.model import Model
from experiments.workloads.model import ModelSource

#: Where tensors begin in a region.
ALIGNMENT = 512
WARM_UPS, RUNS = 3, 7
SMALL_COPIES = 256


class Mark:
    """A moment of a stream, or of the host where there are none."""

    def __init__(self, on_cuda: bool) -> None:
        self._event = torch.cuda.Event(enable_timing=True) if on_cuda else None  # type: ignore[no-untyped-call]
        if self._event is not None:
            self._event.record()
        self._time = time.perf_counter()

    def wait(self) -> None:
        """Return when the device is there."""
        if self._event is not None:
            self._event.synchronize()

    def since(self, other: Mark) -> float:
        """Seconds from another moment, both of which are past."""
        if self._event is None or other._event is None:
            return self._time - other._time
        return float(other._event.elapsed_time(self._event)) / 1e3


@dataclass(frozen=True)
class Layer:
    """A module and where its weights lie in the region, in bytes."""

    module: nn.Module
    begin: int
    end: int


class LayeredModel:
    """A model on ``device``, with inputs of its batch drawn from ``seed``."""

    def __init__(self, source: ModelSource, device: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.made: Model = build(source)
        self.training = source.options.training
        self.device, self.on_cuda = device, torch.device(device).type == "cuda"
        generator = torch.Generator().manual_seed(seed)
        given = [one.sample(torch.float32, generator) for one in self.made.batch(self.training)]
        self.module = self.made.module
        self.inputs = [one.to(device) for one in given]
        owned = list(self._find_layers(self._first_calls([one.cpu() for one in given])))
        size = sum(_room_of(tensor) for _, tensors in owned for _, tensor in tensors)
        self.host = torch.empty(max(1, size), dtype=torch.uint8, pin_memory=self.on_cuda)
        self.region = torch.empty(max(1, size), dtype=torch.uint8, device=device)
        self.layers = list(self._place(owned))
        self.region.copy_(self.host)

    @torch.no_grad()
    def _first_calls(self, inputs: list[Tensor]) -> list[nn.Module]:
        """Modules in the order in which a pass first calls them."""
        order: dict[nn.Module, None] = {}
        hooks = [
            module.register_forward_pre_hook(lambda module, _: order.setdefault(module))
            for module in self.module.modules()
        ]
        self.module(*inputs)
        for hook in hooks:
            hook.remove()
        return list(order)

    def _find_layers(self, called: list[nn.Module]) -> Iterator[tuple[nn.Module, list[tuple[str, Tensor]]]]:
        """Layers with the full names of their tensors; a shared one belongs to the first that has it."""
        known = dict(self.module.named_modules())
        tensors: dict[nn.Module, list[tuple[str, Tensor]]] = {module: [] for module in called}
        state = (*self.module.named_parameters(), *self.module.named_buffers())
        for name, tensor in state:
            owner = name.rpartition(".")[0]
            while known[owner] not in tensors:
                owner = owner.rpartition(".")[0]
            tensors[known[owner]].append((name, tensor))
        return ((module, found) for module, found in tensors.items() if found)

    def _place(self, owned: list[tuple[nn.Module, list[tuple[str, Tensor]]]]) -> Iterator[Layer]:
        """Copy the weights to the host's region, and make the module's those of the device's region."""
        end = 0
        moved: dict[Tensor, Tensor] = {}
        for module, tensors in owned:
            begin = end
            for _, tensor in tensors:
                _view(self.host, end, tensor).copy_(tensor)
                moved[tensor] = _view(self.region, end, tensor)
                end += _room_of(tensor)
            yield Layer(module, begin, end)
        for module in self.module.modules():
            for weight in module._parameters.values():
                if weight is not None:
                    weight.data = moved[weight]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = moved[buffer]

    def bytes_of(self, first: int, last: int) -> int:
        return self.layers[last - 1].end - self.layers[first].begin if last > first else 0

    def fetch(self, first: int, last: int) -> None:
        """Copy the weights of these layers to the device with one call, in the current stream."""
        part = slice(self.layers[first].begin, self.layers[last - 1].end)
        self.region[part].copy_(self.host[part], non_blocking=True)

    def keep(self) -> None:
        """Copy all weights back to the host, in the current stream."""
        self.host.copy_(self.region, non_blocking=True)

    def clear(self) -> None:
        """Forget the weights on the device: what was not fetched is not there."""
        self.region.zero_()
        if self.on_cuda:
            torch.cuda.synchronize()

    @torch.inference_mode()
    def layer_seconds(self) -> list[float]:
        """Median seconds of each layer, from its begin to the next one's."""
        place = {layer.module: index for index, layer in enumerate(self.layers)}
        marks: dict[int, Mark] = {}

        def note(module: nn.Module, _: object) -> None:
            marks.setdefault(place[module], Mark(self.on_cuda))

        hooks = [layer.module.register_forward_pre_hook(note) for layer in self.layers]
        found: list[list[float]] = []
        for run in range(WARM_UPS + RUNS):
            marks.clear()
            begin = Mark(self.on_cuda)
            self.module(*self.inputs)
            ends = [marks[index] for index in range(1, len(self.layers))] + [Mark(self.on_cuda)]
            ends[-1].wait()
            if run >= WARM_UPS:
                starts = [begin, *ends[:-1]]
                found.append([end.since(start) for start, end in zip(starts, ends, strict=True)])
        for hook in hooks:
            hook.remove()
        return [statistics.median(column) for column in zip(*found, strict=True)]

    def copy_costs(self) -> tuple[float, float]:
        """Bytes a second of copies to the device from pinned memory, and seconds of a call."""
        small, there = self.host[:ALIGNMENT], self.region[:ALIGNMENT]
        whole = median_seconds(lambda: self.region.copy_(self.host, non_blocking=True), self.on_cuda)

        def many() -> None:
            for _ in range(SMALL_COPIES):
                there.copy_(small, non_blocking=True)

        call = median_seconds(many, self.on_cuda) / SMALL_COPIES
        return len(self.host) / max(whole - call, 1e-9), call


def new_stream(on_cuda: bool) -> Any:
    """Return a stream of the device; ``None`` where there are none."""
    return torch.cuda.Stream() if on_cuda else None  # type: ignore[no-untyped-call]


def median_seconds(call: Callable[[], object], on_cuda: bool) -> float:
    """Median seconds until the device has done what a call asks of it."""
    found = []
    for _ in range(WARM_UPS + RUNS):
        begin = Mark(on_cuda)
        call()
        end = Mark(on_cuda)
        end.wait()
        found.append(end.since(begin))
    return statistics.median(found[WARM_UPS:])


def _room_of(tensor: Tensor) -> int:
    return -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT


def _view(region: Tensor, begin: int, like: Tensor) -> Tensor:
    """The bytes of ``region`` from ``begin`` as a tensor of the same type and shape.

    It counts its own versions: to write one buffer changes no other for autograd, as a slice would.
    """
    made = torch.empty(0, dtype=like.dtype, device=region.device)
    strides = torch.empty(like.shape, device="meta").stride()
    return made.set_(region.untyped_storage(), begin // like.itemsize, like.shape, strides)
