"""Requests that no instances serve, were they empty."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.serving.interface.phases import DECODE, InstanceView
from experiments.serving.interface.refusals import over_memory


def lacking_memory(prompt: int, output: int, views: Sequence[InstanceView]) -> str:
    """Return why a request is refused; empty where it is not.

    Its prompt and first token may come to any instance, its answer to the largest one for answers.
    """
    slots = min(view.pool.total * view.pool.size for view in views)
    if prompt + 1 > slots:
        return over_memory(prompt, output, slots)
    answering = [view.pool.total * view.pool.size for view in views if view.instance.role == DECODE]
    if output > 1 and prompt + output - 1 > max(answering, default=slots):
        return over_memory(prompt, output, max(answering, default=slots))
    return ""
