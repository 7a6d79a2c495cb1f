"""The highest load at which a system still does what is wanted, by doubling and then bisecting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

#: Simulations of a search, and by how much of itself the load is then known.
MOST_TRIALS, PRECISION = 12, 0.02
#: Seconds that half of the requests may wait for their first pass (Sarathi-Serve, OSDI'24, section 5.1).
USUAL_DELAY = 2.0
#: Halvings by which a bracket's width may be over a power of two.
ROUNDING = 1e-9


@dataclass(frozen=True)
class RateGoal:
    """What the figures of a run have to keep for its rate to count; ``None`` is not asked for.

    ``attainment``  share of requests within their objectives (DistServe's goodput).
    ``tbt_p99``     99th percentile of the time between tokens (Sarathi-Serve's capacity), which a queue that
                    grows does not change: ``delay_p50`` is how long half of the requests may wait.
    """

    attainment: float | None = None
    tbt_p99: float | None = None
    delay_p50: float = USUAL_DELAY

    @property
    def is_asked(self) -> bool:
        return self.attainment is not None or self.tbt_p99 is not None

    def is_met(self, figures: Mapping[str, float]) -> bool:
        """Return whether the ``figures`` of a run keep all that is asked."""
        if self.attainment is not None and figures.get("slo_attainment", 1.0) < self.attainment:
            return False
        if self.tbt_p99 is None:
            return True
        delay = figures.get("scheduling_delay_p50", math.inf)
        return figures.get("tbt_p99", 0.0) <= self.tbt_p99 and delay <= self.delay_p50


@dataclass
class RateSearch:
    """A search that is told what loads attained, in any order, and says which is to be tried next.

    From ``start`` the load is doubled or halved until two loads bracket the answer, then bisected. A load
    above one that did not attain is never the answer, whatever it attained itself.
    """

    start: float = 1.0
    precision: float = PRECISION
    most_trials: int = MOST_TRIALS
    attained: dict[float, bool] = field(default_factory=dict)

    def tell(self, load: float, attains: bool) -> None:
        self.attained[load] = attains

    @property
    def high(self) -> float:
        """The lowest load that did not attain; infinite where none is known."""
        return min((load for load, attains in self.attained.items() if not attains), default=math.inf)

    @property
    def low(self) -> float:
        """The highest load below it that attained; 0 for none."""
        high = self.high
        return max((load for load, attains in self.attained.items() if attains and load < high), default=0.0)

    @property
    def is_bounded(self) -> bool:
        """Return whether a load is known that does not attain."""
        return self.high < math.inf

    @property
    def is_narrow(self) -> bool:
        """Return whether the bracket is as narrow as was asked."""
        low, high = self.low, self.high
        return self.is_bounded and high - low <= self.precision * high

    @property
    def most_left(self) -> int:
        """How many more loads are tried at most."""
        left = max(0, self.most_trials - len(self.attained))
        if self.is_narrow or not left:
            return 0
        low, high = self.low, self.high
        if not low or high == math.inf:
            return left
        halvings = math.log2((high - low) / (self.precision * low))
        return min(left, max(1, math.ceil(halvings - ROUNDING)))

    @property
    def next_load(self) -> float | None:
        """The load to try next; ``None`` at the end."""
        if self.is_narrow or len(self.attained) >= self.most_trials:
            return None
        low, high = self.low, self.high
        if high == math.inf:
            return 2 * low or self.start
        return (low + high) / 2


def find_highest(attains: Callable[[float], bool], start: float = 1.0, precision: float = PRECISION) -> float:
    """Return the highest load that ``attains``; 0 for none."""
    search = RateSearch(start, precision)
    while (load := search.next_load) is not None:
        search.tell(load, attains(load))
    return search.low
