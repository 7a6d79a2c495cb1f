"""Device memory that copies in flight still read or write: what leaves when they have arrived, what stays.

Events are those of a stream on which the copies run one after the other.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import torch
from torch import Tensor


class Event(Protocol):
    """What a stream has come to (``torch.cuda.Event``)."""

    def query(self) -> bool:
        """Return whether it has."""
        ...

    def synchronize(self) -> None:
        """Wait until it has."""
        ...


class Departures:
    """Tensors that leave the device when their copies have arrived, the oldest first."""

    def __init__(self) -> None:
        self._leaving: dict[int, tuple[Event, torch.UntypedStorage]] = {}

    def __bool__(self) -> bool:
        return bool(self._leaving)

    def add(self, tensor: int, event: Event, storage: torch.UntypedStorage) -> None:
        """``storage`` of ``tensor`` is given back once ``event`` has come."""
        self.free(tensor)
        self._leaving[tensor] = event, storage

    def collect(self) -> None:
        """Give back what has arrived."""
        for tensor, (event, _) in list(self._leaving.items()):
            if not event.query():
                return
            self.free(tensor)

    def free(self, tensor: int) -> None:
        """Wait until ``tensor`` has left, if it is leaving."""
        if tensor in self._leaving:
            event, storage = self._leaving.pop(tensor)
            event.synchronize()
            storage.resize_(0)

    def free_oldest(self) -> None:
        """Wait until the first in line has left."""
        self.free(next(iter(self._leaving)))


class Flights:
    """The device's ends of copies in flight: they stay whatever becomes of the tensors."""

    def __init__(self) -> None:
        self._ends: deque[tuple[Event, Tensor]] = deque()

    def add(self, event: Event, end: Tensor) -> None:
        """``end`` is read or written until ``event``."""
        self._ends.append((event, end))

    def land(self) -> bool:
        """Let go of what has arrived; whether anything is in flight still."""
        while self._ends and self._ends[0][0].query():
            self._ends.popleft()
        return bool(self._ends)
