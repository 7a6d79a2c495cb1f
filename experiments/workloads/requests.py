"""RequestTrace: requests sent to a serving system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints, Ragged
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class Measured:
    """What a real server did with each request, in seconds on the trace's clock."""

    first_token: Floats
    last_token: Floats

    def first(self, count: int) -> Measured:
        return Measured(self.first_token[:count], self.last_token[:count])


@dataclass(frozen=True)
class RequestTrace:
    """Columns over requests, sorted by arrival (ties in file order).

    ``arrival`` seconds from the first request, ``prompt`` and ``output`` tokens (at least one each),
    ``model`` name ("" when the file has none). ``original`` keeps the file's own columns in the same order.
    ``hashes`` numbers the full blocks of ``block`` tokens of each prompt, where the file tells them: equal
    numbers mean equal prefixes up to and with that block. ``slo`` is the longest time to each answer (s; NaN:
    none), where the file tells any. ``measured`` is the truth that a recorded run has, ``profiles`` how fast
    the layers of its model are (``options.extra``).
    """

    name: str
    arrival: Floats
    prompt: Ints
    output: Ints
    model: tuple[str, ...]
    original: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    hashes: Ragged | None = None
    block: int = 0
    slo: Floats | None = None
    measured: Measured | None = None
    profiles: Any = None

    def __post_init__(self) -> None:
        if not len(self.arrival) == len(self.prompt) == len(self.output) == len(self.model):
            raise BadInput("columns differ in length", self.name)
        if self.hashes is not None and len(self.hashes) != len(self):
            raise BadInput("blocks of prompts and requests differ in number", self.name)
        if self.slo is not None and len(self.slo) != len(self):
            raise BadInput("objectives and requests differ in number", self.name)
        if self.measured is not None and len(self.measured.first_token) != len(self):
            raise BadInput("measured times and requests differ in number", self.name)
        if (np.diff(self.arrival) < 0).any():
            raise BadInput("requests are not sorted by arrival", self.name)
        if len(self) and min(self.prompt.min(), self.output.min()) < 1:
            raise BadInput("a request has no prompt or no output tokens", self.name, "at least one of each")

    def __len__(self) -> int:
        return len(self.arrival)
