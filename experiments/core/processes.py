"""Work divided among processes that are forked from this one, with the answers of one process."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

from experiments.core.knobs import knob

Item = TypeVar("Item")
Answer = TypeVar("Answer")
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


def map_in_processes(
    call: Callable[[Item], Answer], items: Sequence[Item], processes: int = 1
) -> list[Answer]:
    """Return the answers to ``items``, in their order.

    A child has all that this process has; what it changes is lost. What a child ended without answering is
    answered here, so that errors come up as they do in one process.
    """
    answers: dict[int, Answer] = {}
    if processes > 1 and len(items) > 1:
        answers = _answer_in_children(call, items, min(processes, len(items)))
    return [answers[place] if place in answers else call(item) for place, item in enumerate(items)]


def _answer_in_children(
    call: Callable[[Item], Answer], items: Sequence[Item], count: int
) -> dict[int, Answer]:
    """The next item goes to whoever is done with one."""
    context = multiprocessing.get_context("fork")
    answers: dict[int, Answer] = {}
    busy: dict[Connection, int] = {}
    left = iter(range(len(items)))
    children = []
    for _ in range(count):
        own, childs = context.Pipe()
        child = context.Process(target=_serve, args=(childs, call, items), daemon=True)
        child.start()
        childs.close()
        children.append(child)
        _send_next(own, left, busy)
    try:
        while busy:
            for pipe in cast(list[Connection], wait(list(busy))):
                place = busy.pop(pipe)
                try:
                    answers[place] = pipe.recv()
                except EOFError:
                    continue
                _send_next(pipe, left, busy)
    finally:
        for child in children:
            child.kill()
            child.join()
    return answers


def _send_next(pipe: Connection, left: Iterator[int], busy: dict[Connection, int]) -> None:
    place = next(left, None)
    if place is not None:
        pipe.send(place)
        busy[pipe] = place


def _serve(pipe: Connection, call: Callable[[Item], Answer], items: Sequence[Item]) -> None:
    """Answer until killed; an error ends the child without a word."""
    die_with_parent()
    try:
        while True:
            pipe.send(call(items[pipe.recv()]))
    finally:
        os._exit(1)
