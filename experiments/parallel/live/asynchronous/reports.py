"""What one rank reports of its training."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class RankReport:
    """What a rank saw of an asynchronous run.

    - ``losses``: (seconds on the host's clock, position of the part, loss).
    - ``late``: of each gradient that this rank applied, how many updates the weights had got since it was
      computed with them.
    - ``curves``: (update, value) by name.
    """

    role: str
    losses: list[tuple[float, int, float]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    ahead: list[int] = field(default_factory=list)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    versions: int = 1
    started: float = 0.0
    ended: float = 0.0
    updates: int = 0

    def start(self) -> None:
        self.started = time.perf_counter()

    def end(self) -> None:
        self.ended = time.perf_counter()

    def loss(self, position: int, value: float) -> None:
        self.losses.append((time.perf_counter(), position, value))

    def curve(self, name: str, update: int, value: float) -> None:
        self.curves.setdefault(name, []).append((update, value))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
