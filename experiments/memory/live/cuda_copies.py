"""Copies on CUDA, overlapped with the computation: a stream each way, pinned buffers, and two threads for
storage.

The caching allocator hands out the bytes of a departing tensor only after its copy (``record_stream``). What
goes to storage passes a pinned buffer that a thread writes out when the copy has arrived in it; at most
``STAGED`` bytes are on their way, then the next offload waits. Another thread reads it back and starts the
copy to the device.
"""

from __future__ import annotations

from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from experiments.memory.live.codec import unpack
from experiments.memory.live.copies import HostCopies
from experiments.memory.live.ledger import Copy, Ledger

#: Bytes in pinned buffers that storage has not taken yet.
STAGED = 2 << 30


class CudaCopies(HostCopies):
    """Copies on CUDA streams; events order them with the computation.

    ``_events`` is the latest copy of each tensor in either direction, ``_written`` and ``_coming`` the latest
    write to storage and read from there, by tensor.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._out, self._back = _stream(), _stream()
        self._events: dict[int, torch.cuda.Event] = {}
        self._writer, self._reader = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._written: dict[int, Future[None]] = {}
        self._coming: dict[int, Future[torch.cuda.Event]] = {}
        self._staged: deque[tuple[Future[None], int]] = deque()
        self._free: defaultdict[int, list[Tensor]] = defaultdict(list)

    def need(self, tensor: int) -> None:
        if tensor in self._coming:
            self._events[tensor] = self._coming.pop(tensor).result()
        if tensor in self._events:
            torch.cuda.current_stream().wait_event(self._events[tensor])

    def wait(self, tensor: int) -> None:
        if tensor in self._written and tensor not in self._coming:
            self._written[tensor].result()
        self.need(tensor)

    def content(self, tensor: int) -> Tensor:
        """Complete: no copy reads or writes the buffer any more."""
        if tensor in self._events:
            self._events[tensor].synchronize()
        return super().content(tensor)

    def finish(self) -> None:
        for tensor in list(self._coming):
            self.need(tensor)
        torch.cuda.synchronize()

    def close(self) -> None:
        self._writer.shutdown()
        self._reader.shutdown()
        super().close()

    def _send(self, tensor: int, source: Tensor, tier: str) -> None:
        to_file = tier == "storage"
        buffer = (
            self._staging(source.numel()) if to_file else self._buffer(tensor, source.numel(), pinned=True)
        )
        self._out.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._out):
            buffer.copy_(source, non_blocking=True)
            event = self._events[tensor] = self._out.record_event()
        source.record_stream(self._out)
        if to_file:
            self._written[tensor] = self._writer.submit(self._write, tensor, buffer, event)
            self._staged.append((self._written[tensor], source.numel()))

    def _fetch(self, tensor: int, copy: Copy, target: Tensor) -> None:
        self._back.wait_stream(torch.cuda.current_stream())
        target.record_stream(self._back)
        if copy.tier == "storage":
            buffer = self._free_buffer(copy.size)
            self._coming[tensor] = self._reader.submit(self._read, tensor, copy, buffer, target)
            return
        if tensor in self._events:
            self._back.wait_event(self._events[tensor])
        self._events[tensor] = self._up(self._buffers[tensor][: copy.size], copy, target)

    def _up(self, content: Tensor, copy: Copy, target: Tensor) -> torch.cuda.Event:
        """From a pinned buffer to the device, decoded there if it is packed."""
        with torch.cuda.stream(self._back):
            if copy.word:
                unpack(content.to(target.device, non_blocking=True), copy.word, target)
            else:
                target.copy_(content, non_blocking=True)
            event: torch.cuda.Event = self._back.record_event()
            return event

    def _write(self, tensor: int, buffer: Tensor, arrived: torch.cuda.Event) -> None:
        arrived.synchronize()
        self.arena.write(tensor, buffer)
        self._free[buffer.numel()].append(buffer)

    def _read(self, tensor: int, copy: Copy, buffer: Tensor, target: Tensor) -> torch.cuda.Event:
        self._written[tensor].result()
        self.arena.read(tensor, buffer)
        event = self._up(buffer, copy, target)
        event.synchronize()
        self._free[buffer.numel()].append(buffer)
        return event

    def _staging(self, size: int) -> Tensor:
        """A pinned buffer, once storage has taken enough of what is on its way."""
        while self._staged and sum(staged for _, staged in self._staged) + size > STAGED:
            self._staged.popleft()[0].result()
        return self._free_buffer(size)

    def _free_buffer(self, size: int) -> Tensor:
        free = self._free[size]
        return free.pop() if free else torch.empty(size, dtype=torch.uint8, pin_memory=True)


def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
