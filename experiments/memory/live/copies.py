"""Copies of tensors between the device and host memory, and the bytes that are on the device.

A tensor leaves by shrinking its storage to nothing and returns by growing it again, so every view of it stays valid.
On CUDA both copies run on streams of their own beside the computation, through pinned buffers that are used again in
every step; the caching allocator hands out the bytes of a departing tensor only after its copy (``record_stream``).
On a CPU the copies are plain and the computation waits for them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class Ledger:
    """Exact bytes of the storages that are alive, by watching the storages themselves through weak references."""

    def __init__(self) -> None:
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.live = 0
        self.peak = 0

    def enter(self, storage: torch.UntypedStorage) -> None:
        """Count ``storage`` at its present size, instead of at what it counted before."""
        key = storage._cdata
        self.live += storage.nbytes() - self._drop(key)
        self._alive[key] = (_watch(storage), storage.nbytes())
        self.peak = max(self.peak, self.live)

    def sweep(self, keys: list[int]) -> None:
        """Take the storages of ``keys`` that no longer exist off the account."""
        for key in keys:
            if key in self._alive and _is_gone(self._alive[key][0]):
                self.live -= self._drop(key)

    def _drop(self, key: int) -> int:
        return self._alive.pop(key)[1] if key in self._alive else 0


class HostCopies:
    """Copies on a CPU: the other side is a second buffer in the same memory, used again in every step."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._buffers: dict[int, Tensor] = {}
        self.bytes_out = self.bytes_back = 0

    def offload(self, tensor: int, storage: torch.UntypedStorage) -> None:
        """Start the copy of ``storage`` to the host."""
        self._buffer(tensor, storage.nbytes()).copy_(_bytes_of(storage))
        self.bytes_out += storage.nbytes()

    def release(self, tensor: int, storage: torch.UntypedStorage) -> None:
        """Give the device bytes back, as soon as the copy has ended."""
        storage.resize_(0)
        self.ledger.enter(storage)

    def prefetch(self, tensor: int, storage: torch.UntypedStorage) -> None:
        """Start the copy back."""
        buffer = self._buffers[tensor]
        storage.resize_(buffer.numel())
        self.ledger.enter(storage)
        _bytes_of(storage).copy_(buffer)
        self.bytes_back += buffer.numel()

    def need(self, tensor: int) -> None:
        """Before the computation uses ``tensor`` or waits for it."""

    def finish(self) -> None:
        """Before the step's time is taken."""

    def _buffer(self, tensor: int, size: int, pinned: bool = False) -> Tensor:
        if tensor not in self._buffers:
            self._buffers[tensor] = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        return self._buffers[tensor]


class CudaCopies(HostCopies):
    """Copies on CUDA streams; events order them with the computation."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._out, self._back = _stream(), _stream()
        self._events: dict[int, torch.cuda.Event] = {}

    def offload(self, tensor: int, storage: torch.UntypedStorage) -> None:
        source = _bytes_of(storage)
        buffer = self._buffer(tensor, source.numel(), pinned=True)
        self._out.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._out):
            buffer.copy_(source, non_blocking=True)
            self._events[tensor] = self._out.record_event()
        source.record_stream(self._out)
        self.bytes_out += source.numel()

    def prefetch(self, tensor: int, storage: torch.UntypedStorage) -> None:
        buffer = self._buffers[tensor]
        storage.resize_(buffer.numel())
        self.ledger.enter(storage)
        target = _bytes_of(storage)
        self._back.wait_stream(torch.cuda.current_stream())
        self._back.wait_event(self._events[tensor])
        with torch.cuda.stream(self._back):
            target.copy_(buffer, non_blocking=True)
            self._events[tensor] = self._back.record_event()
        target.record_stream(self._back)
        self.bytes_back += buffer.numel()

    def need(self, tensor: int) -> None:
        if tensor in self._events:
            torch.cuda.current_stream().wait_event(self._events[tensor])

    def finish(self) -> None:
        torch.cuda.synchronize()


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    """The storage as a flat tensor of bytes that shares its memory."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _watch(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]


def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
