"""Copies on CUDA, overlapped with the computation: a stream each way, pinned buffers, and two threads for
storage.

Bytes are allocated when the host issues an op, not when the device runs it. So while copies are under way the
host keeps ``AHEAD`` ops before the device, and a departing tensor keeps its bytes until its copy has arrived
(``departures``): the allocator then sees what the plan says of the device. Left to ``record_stream`` a
tensor's bytes would be free after all copies that were issued by then, and the host issues a whole step.

What goes to storage passes a pinned buffer that a thread writes out when the copy has arrived in it; at most
``STAGED`` bytes are on their way, then the next offload waits. Another thread reads it back and starts the
copy to the device. What torch keeps in host memory anyway (the seeds that an attention kernel has drawn) is
copied there at once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from experiments.memory.live.codec import unpack
from experiments.memory.live.copies import HostCopies
from experiments.memory.live.departures import Departures, Flights
from experiments.memory.live.ledger import Copy, Ledger

#: Bytes in pinned buffers that storage has not taken yet.
STAGED = 2 << 30
#: Ops that the host issues before the device has run them while copies are under way: enough to hide what
#: issuing one takes, few enough that their results do not count.
AHEAD = 4


class CudaCopies(HostCopies):
    """Copies on CUDA streams; events order them with the computation.

    ``_events`` is the latest copy of each tensor in either direction, ``_written`` and ``_coming`` the latest
    write to storage and read from there, by tensor. ``_flights`` are the device's ends of copies in flight
    by direction, ``_issued`` marks of the ops that the device may not have run.
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
        self._departures = Departures()
        self._flights = Flights(), Flights()
        self._issued: deque[torch.cuda.Event] = deque()

    def release(self, tensor: int, storage: torch.UntypedStorage) -> None:
        if tensor in self._coming:
            self.need(tensor)
        event = self._events.get(tensor)
        if event is None or event.query():  # type: ignore[no-untyped-call]
            super().release(tensor, storage)
        else:
            self._departures.add(tensor, event, storage)

    def prefetch(self, tensor: int, storage: torch.UntypedStorage, keep: bool = False) -> None:
        self._departures.free(tensor)
        self.make_room(self.away[tensor].plain)
        super().prefetch(tensor, storage, keep)

    def make_room(self, size: int) -> None:
        if self.capacity is None:
            return
        while self._departures and bytes_allocated() - self.beside + size > self.capacity:
            self._departures.free_oldest()

    def keep_pace(self) -> None:
        self._departures.collect()
        in_flight = [flights.land() for flights in self._flights]
        if not any(in_flight) and not self._coming:
            self._issued.clear()
            return
        self._issued.append(torch.cuda.current_stream().record_event())
        if len(self._issued) > AHEAD:
            self._issued.popleft().synchronize()

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
        self._departures.collect()
        self.keep_pace()

    def close(self) -> None:
        self._writer.shutdown()
        self._reader.shutdown()
        super().close()

    def _send(self, tensor: int, source: Tensor, tier: str) -> None:
        if not source.is_cuda:
            super()._send(tensor, source, tier)
            return
        to_file = tier == "storage"
        buffer = (
            self._staging(source.numel()) if to_file else self._buffer(tensor, source.numel(), pinned=True)
        )
        self._out.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._out):
            buffer.copy_(source, non_blocking=True)
            event = self._events[tensor] = self._out.record_event()
        self._flights[0].add(event, source)
        if to_file:
            self._written[tensor] = self._writer.submit(self._write, tensor, buffer, event)
            self._staged.append((self._written[tensor], source.numel()))

    def _fetch(self, tensor: int, copy: Copy, target: Tensor) -> None:
        if not target.is_cuda:
            super()._fetch(tensor, copy, target)
            return
        self._back.wait_stream(torch.cuda.current_stream())
        if copy.tier == "storage":
            buffer = self._free_buffer(copy.size)
            self._coming[tensor] = self._reader.submit(self._read, tensor, copy, buffer, target)
            return
        if tensor in self._events:
            self._back.wait_event(self._events[tensor])
        event = self._events[tensor] = self._up(self._buffers[tensor][: copy.size], copy, target)
        self._flights[1].add(event, target)

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


def bytes_allocated() -> int:
    """Bytes of all allocations of torch on the present GPU."""
    found: int = torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"]
    return found


def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
