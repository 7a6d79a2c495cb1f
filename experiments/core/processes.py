"""Work divided among processes that are forked from this one, with the answers of one process."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Generic, Self, TypeVar, cast

from experiments.core.knobs import knob

Item = TypeVar("Item")
Answer = TypeVar("Answer")
#: Seconds that children work between two signs of life.
SIGN_OF_LIFE = 0.5
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def search_processes() -> Any:
    """The knob of policies whose search is divided: what they answer does not depend on it."""
    return knob(1, "processes that the search is divided among", low=1, high=64)


def die_with_parent() -> None:
    """End this process when its parent ends, however that ends.

    Only Linux knows how; elsewhere the launcher's kill must do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


class Workers(Generic[Item, Answer]):
    """Processes forked from this one that answer ``call`` until the ``with`` block ends; one works here.

    A process has all that this one had when it was forked; what it changes is lost. What one ended without
    answering is answered here, so that errors come up as they do in one process.
    """

    def __init__(self, call: Callable[[Item], Answer], processes: int) -> None:
        self.call, self.count = call, processes
        self.children: dict[Connection, ForkProcess] = {}

    def __enter__(self) -> Self:
        try:
            for _ in range(self.count if self.count > 1 else 0):
                self._fork()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children.values():
            child.kill()
        for pipe in list(self.children):
            self._bury(pipe)

    def map(self, items: Sequence[Item], wait_with: Callable[[], None] = lambda: None) -> list[Answer]:
        """Return the answers to ``items``, in their order; the next one goes to whoever is done with one.

        ``wait_with`` is called twice a second while they work.
        """
        answers: dict[int, Answer] = {}
        left, busy = iter(range(len(items))), dict[Connection, int]()
        for pipe in list(self.children):
            self._send_next(pipe, items, left, busy)
        while busy:
            wait_with()
            for pipe in cast(list[Connection], wait(list(busy), SIGN_OF_LIFE)):
                place = busy.pop(pipe)
                try:
                    answers[place] = pipe.recv()
                except (EOFError, ConnectionError):
                    self._bury(pipe)
                    continue
                self._send_next(pipe, items, left, busy)
        return [answers[place] if place in answers else self.call(item) for place, item in enumerate(items)]

    def _fork(self) -> None:
        context = multiprocessing.get_context("fork")
        own, childs = context.Pipe()
        child = context.Process(target=_serve, args=(childs, self.call), daemon=True)
        child.start()
        childs.close()
        self.children[own] = child

    def _bury(self, pipe: Connection) -> None:
        child = self.children.pop(pipe)
        child.kill()
        child.join()
        pipe.close()

    def _send_next(
        self, pipe: Connection, items: Sequence[Item], left: Iterator[int], busy: dict[Connection, int]
    ) -> None:
        place = next(left, None)
        if place is None:
            return
        busy[pipe] = place
        with suppress(ConnectionError):  # it has ended, as will be heard
            pipe.send(items[place])


def map_in_processes(
    call: Callable[[Item], Answer],
    items: Sequence[Item],
    processes: int = 1,
    wait_with: Callable[[], None] = lambda: None,
) -> list[Answer]:
    """Return the answers to ``items``, in their order, by processes forked for them alone.

    ``wait_with`` is called twice a second while they work; what it raises ends them.
    """

    def answer(place: int) -> Answer:
        return call(items[place])

    with Workers(answer, min(processes, len(items))) as workers:
        return workers.map(range(len(items)), wait_with)


def _serve(pipe: Connection, call: Callable[[Item], Answer]) -> None:
    """Answer until killed; an error ends the child without a word."""
    die_with_parent()
    try:
        while True:
            pipe.send(call(pipe.recv()))
    finally:
        os._exit(1)
