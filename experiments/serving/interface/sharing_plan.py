"""The record of a shared device: what was asked, what ran, what was copied, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """A launch as it happened; ``killed`` before its end."""

    model: int
    first: int
    start: float
    end: float
    units: int
    killed: bool


class CopySpan(NamedTuple):
    """A copy to the device as it happened, of ``bytes``."""

    model: int
    start: float
    end: float
    bytes: float


@dataclass
class SharedRequest:
    """A real-time request's times in s; ``None``: has not happened.

    ``prepared`` is when the device hears of it: later than ``arrival`` by what the processor does before.
    """

    model: int
    arrival: float
    is_switch: bool = False
    found_idle: bool = True
    started: float | None = None
    answered: float | None = None
    prepared: float | None = None


@dataclass(frozen=True)
class SharingPlan:
    """What happened on the device until ``end``; ``fault`` says what was impossible, empty: nothing."""

    requests: tuple[SharedRequest, ...]
    spans: tuple[Span, ...]
    copies: tuple[CopySpan, ...]
    passes: tuple[int, ...]
    end: float
    fault: str = ""
