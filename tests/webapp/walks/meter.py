"""Processor seconds of a worker and of all that it starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

#: A process that ends is known up to this many seconds before: nobody is left to ask, since what a sandbox
#: held is not counted by those above it.
INTERVAL = 0.5


class Meter:
    """Asks the processes below ``head`` now and then how much they have used."""

    def __init__(self, head: int) -> None:
        self._head = psutil.Process(head)
        self._used: dict[psutil.Process, float] = {}
        self._ended = threading.Event()

    @property
    def seconds(self) -> float:
        return sum(self._used.copy().values())

    def watch(self) -> None:
        while not self._ended.wait(INTERVAL):
            for process in (self._head, *self._head.children(recursive=True)):
                self._ask(process)

    def _ask(self, process: psutil.Process) -> None:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            return
        self._used[process] = times.user + times.system

    def stop(self) -> None:
        self._ended.set()


@contextmanager
def metering(head: int) -> Iterator[Meter]:
    meter = Meter(head)
    thread = threading.Thread(target=meter.watch, daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        meter.stop()
        thread.join()
