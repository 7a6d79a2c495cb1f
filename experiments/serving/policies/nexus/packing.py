"""Squishy bin packing (Nexus, section 6.1): sessions on devices that take turns, batches that shrink.

A session is a model with its objective and rate. It first fills whole devices at its largest batch; the rest
of its rate shares a device with others, each running its batch once in a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.serving.interface.deployment import DeployedModel

#: Rates that are less than this share of a device are not worth one.
LEAST_RATE = 1e-9
#: By how much of a request a batch may be over a whole number, and seconds over a bound, as rounding.
BATCH_TOLERANCE, ROUNDING = 1e-3, 1e-9
#: Batches that are tried of a model without a profile.
MOST_BATCH = 1024


@dataclass(frozen=True)
class Session:
    """A model at a rate, with what its requests may take on a device (s) after what the host takes."""

    place: int
    model: DeployedModel
    rate: float
    budget: float

    def latency(self, batch: int) -> float:
        return math.fsum(self.model.cost.stage_times(batch, 1, 1))

    @property
    def most(self) -> int:
        """The largest batch that is tried: one, where no objective says how long requests may wait."""
        return (self.model.cost.largest_batch or MOST_BATCH) if math.isfinite(self.budget) else 1

    def largest(self, seconds: float) -> int:
        """The largest batch before the first whose pass takes longer than ``seconds``; 0: none."""
        batch = 0
        while batch < self.most and self.latency(batch + 1) <= seconds + ROUNDING:
            batch += 1
        return batch


@dataclass(frozen=True)
class Turn:
    """A session on a device: its batch, the seconds of its pass, and the rate that it serves there."""

    session: Session
    batch: int
    rate: float

    @property
    def latency(self) -> float:
        return self.session.latency(self.batch)


@dataclass(frozen=True)
class Gpu:
    """A device and its cycle: every session of it runs once in ``duty_cycle`` s."""

    duty_cycle: float
    turns: tuple[Turn, ...]

    @property
    def busy(self) -> float:
        return math.fsum(turn.latency for turn in self.turns)

    @property
    def occupancy(self) -> float:
        return self.busy / self.duty_cycle

    def worst(self, turn: Turn) -> float:
        """Seconds of a request that just missed its batch: a whole cycle and the pass.

        On a device of its own the cycle is the pass before.
        """
        return self.duty_cycle + turn.latency

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "model": turn.session.model.name,
                "batch": turn.batch,
                "latency": turn.latency,
                "worst": self.worst(turn),
                "rate": turn.rate,
            }
            for turn in self.turns
        ]
        return {"duty_cycle": self.duty_cycle, "sessions": rows}


@dataclass(frozen=True)
class Packing:
    """Devices with their sessions, and the sessions that none can serve, each with the reason."""

    gpus: tuple[Gpu, ...]
    infeasible: Mapping[int, str]


def pack(sessions: Sequence[Session], memory: float, order: str = "occupancy") -> Packing:
    """Return as few devices as the greedy rule finds for all sessions.

    ``order``: residual loads by ``occupancy``, as in the paper, or by ``rate``, as in the authors' code.
    """
    gpus: list[Gpu] = []
    residuals: list[Gpu] = []
    infeasible: dict[int, str] = {}
    for session in sessions:
        batch = saturated_batch(session, memory)
        if not batch:
            infeasible[session.place] = "no pass is within its objective, or fits a device"
            continue
        capacity = batch / session.latency(batch)
        whole = int(session.rate / capacity + ROUNDING)
        gpus += [Gpu(session.latency(batch), (Turn(session, batch, capacity),))] * whole
        rest = session.rate - whole * capacity
        if rest > LEAST_RATE:
            residuals.append(residual(session, rest, batch))
    key = _by_rate if order == "rate" else _by_occupancy
    return Packing((*gpus, *merge(sorted(residuals, key=key), memory)), infeasible)


def saturated_batch(session: Session, memory: float) -> int:
    """Return the largest batch of which two passes are within the objective: one to wait for, one to run.

    One request, where only a single pass is; 0 where not even that, or where it fits no device.
    """
    batch = session.largest(session.budget / 2) or min(1, session.largest(session.budget))
    return _fitting(session, batch, memory)


def _by_occupancy(gpu: Gpu) -> tuple[float, int]:
    return -gpu.occupancy, gpu.turns[0].session.place


def _by_rate(gpu: Gpu) -> tuple[float, int]:
    return -gpu.turns[0].rate, gpu.turns[0].session.place


def _fitting(session: Session, batch: int, memory: float) -> int:
    """The largest batch up to ``batch`` whose pass fits a device next to the weights."""
    cost = session.model.cost
    while batch and session.model.bytes + cost.working_bytes(batch) > memory:
        batch -= 1
    return batch


def residual(session: Session, rate: float, most: int) -> Gpu:
    """Return the device that serves what is left of a session: the largest batch that its rate fills in time.

    The first of b requests waits (b - 1) / rate for the last. A cycle is never shorter than the pass.
    """
    batch = 1
    while batch < most and batch / rate + session.latency(batch + 1) <= session.budget + ROUNDING:
        batch += 1
    latency = session.latency(batch)
    duty = max(latency, min(session.budget - latency, batch / rate))
    return Gpu(duty, (Turn(session, batch, rate),))


def merge(residuals: Sequence[Gpu], memory: float) -> list[Gpu]:
    """Return devices shared by residual loads: each joins the one that is then fullest, or gets its own."""
    gpus: list[Gpu] = []
    for one in residuals:
        joined = [(place, together(gpu, one, memory)) for place, gpu in enumerate(gpus)]
        possible = [(made.occupancy, -place, made) for place, made in joined if made is not None]
        if possible:
            _, place, made = max(possible, key=lambda row: row[:2])
            gpus[-place] = made
        else:
            gpus.append(one)
    return gpus


def together(one: Gpu, other: Gpu, memory: float) -> Gpu | None:
    """Return both on a device in the shorter of their cycles, in which their batches shrink.

    ``None`` where a cycle does not hold all their passes, or the device not their weights.
    """
    duty = min(one.duty_cycle, other.duty_cycle)
    turns = []
    for turn in (*one.turns, *other.turns):
        batch = max(1, math.ceil(duty * turn.rate - BATCH_TOLERANCE))
        turns.append(Turn(turn.session, batch, turn.rate))
    made = Gpu(duty, tuple(turns))
    weights = math.fsum(turn.session.model.bytes for turn in turns)
    working = max(turn.session.model.cost.working_bytes(turn.batch) for turn in turns)
    late = any(made.worst(turn) > turn.session.budget + ROUNDING for turn in turns)
    return None if late or made.busy > duty + ROUNDING or weights + working > memory else made
