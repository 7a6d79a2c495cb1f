"""The record of a run on several instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from experiments.serving.interface.phases.arrangement import Instance
from experiments.serving.interface.plan import ServingPlan


class InstancePass(NamedTuple):
    """Consecutive passes of one instance, which leave its first stage at ``free`` and its last at ``end``.

    ``used`` of its blocks were taken at their end. Of micro-batches that took turns ``free`` is ``start`` and
    how long the first stage worked, ``decode`` their mean.
    """

    instance: int
    start: float
    free: float
    end: float
    prefill: int
    decode: int
    steps: int
    used: int


class KvCopy(NamedTuple):
    """KV of ``size`` bytes that went from one instance to another; it was asked for at ``asked`` (s)."""

    request: int
    source: int
    goal: int
    size: float
    asked: float
    start: float
    end: float


@dataclass(frozen=True)
class PhasePlan:
    """``serving`` has what became of requests and all passes in their order.

    ``totals`` are the blocks of each instance, ``held_at_end`` how many of all are still taken.
    """

    instances: tuple[Instance, ...]
    totals: tuple[int, ...]
    serving: ServingPlan
    passes: tuple[InstancePass, ...]
    copies: tuple[KvCopy, ...]
    recomputed: int
    preemptions: int
    preempted: int
    extrapolated: int
    held_at_end: int
