"""Peak memory of a call: the bytes that a side holds between calls, and the most that a call adds to them.

Counted as for memory plans: on CUDA what the allocator has given out (its peak of active bytes), on a CPU the
exact bytes of storages, here as torch's allocator reports every one that it gives and takes back, inside of
compiled code too. Eager and ours are both on the device; neither is charged for the other's.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from experiments.compilation.live.backends.base import Compiled, Task
from experiments.compilation.live.model_state import named_tensors

#: How the profiler calls what the allocator reports.
ALLOCATION = "[memory]"
#: What a tensor without a storage raises when it is asked for one.
NO_STORAGE = (NotImplementedError, RuntimeError)
#: Storages by their identity, with their bytes.
Storages = dict[int, int]


@dataclass(frozen=True)
class PeakMemory:
    """The most bytes at once on the device during a call of ours, and of eager."""

    ours: int
    eager: int

    @property
    def compression_ratio(self) -> float:
        """Eager's over ours, as PyTorch's dashboard has it."""
        return self.eager / self.ours


def peak_memory(
    task: Task, compiled: Compiled, ours: Callable[[], Any], eager: Callable[[], Any]
) -> PeakMemory:
    """Return the peaks of single calls of ``compiled`` and of the task's module."""
    own, plain = (storages_of(_held_by(side, task), task.device) for side in (compiled.call, task.module))
    made = sum(size for key, size in own.items() if key not in plain)
    hidden = max(0, compiled.kept_bytes - made)
    parameters = [*task.module.parameters(), *(compiled.parameters or {}).values()]
    added = [_added_by(call, task.device, parameters) for call in (ours, eager)]
    return PeakMemory(sum(own.values()) + hidden + added[0], sum(plain.values()) + added[1])


def live_bytes(device: str) -> int:
    """Return the bytes of tensors on ``device``, whoever holds them."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        return int(torch.cuda.memory_stats()["active_bytes.all.current"])
    tensors = [one for one in gc.get_objects() if issubclass(type(one), Tensor)]
    return sum(storages_of(tensors, device).values())


def storages_of(tensors: Iterable[Tensor], device: str) -> Storages:
    """Return the storages on ``device`` behind ``tensors``, each once."""
    found: Storages = {}
    for tensor in tensors:
        for part in _parts(tensor):
            try:
                storage = part.untyped_storage()
                if storage.device.type == device:
                    found[storage._cdata] = storage.nbytes()
            except NO_STORAGE:
                if part.device.type == device:
                    found[id(part)] = part.numel() * part.element_size()
    return found


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Return the tensors that one of a library's own kind is made of; a plain one itself."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from _parts(getattr(tensor, name))


def _held_by(call: Callable[..., Any], task: Task) -> list[Tensor]:
    """Return the tensors that a side holds and the batch; what is no module computes with the task's."""
    module = call if isinstance(call, nn.Module) else task.module
    return [*(value for _, value in named_tensors(module)), *task.inputs]


def _added_by(call: Callable[[], Any], device: str, parameters: Iterable[Tensor]) -> int:
    """Return the most bytes that a call has at once beyond those from before it, gradients among them."""
    parameters = list(parameters)
    _forget_gradients(parameters)
    added = _on_cuda(call) if device == "cuda" else _on_cpu(call)
    _forget_gradients(parameters)
    return added


def _forget_gradients(parameters: Iterable[Tensor]) -> None:
    for value in parameters:
        value.grad = None


def _on_cuda(call: Callable[[], Any]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = int(torch.cuda.memory_stats()["active_bytes.all.current"])
    call()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_stats()["active_bytes.all.peak"]) - before


def _on_cpu(call: Callable[[], Any]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    reports = [event for event in seen.profiler.kineto_results.events() if event.name() == ALLOCATION]
    reports.sort(key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in reports), default=0)
