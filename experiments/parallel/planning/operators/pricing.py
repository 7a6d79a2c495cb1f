"""Cost tables in which gradients are hidden in part and memory has its price, and plans that the simulator
tells apart.

The sum of an additive cost knows neither that gradients overlap with the backward passes that are left, nor
what fits a device. So a search may be done with another share of t_S, and with a price on every byte (the
lambda of Unity's memory search), the lowest at which the result fits; which of the results is fastest the
simulator says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from experiments.parallel.planning.operators.divisions import Configuration
from experiments.parallel.planning.operators.footprint import Footprint
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts

Solution = TypeVar("Solution")

#: What of gradients is looked at as exposed: all, as papers add it up, or nothing.
EXPOSED = (1.0, 0.0)
#: What the plan is called that every search space contains.
DATA_PARALLEL = "data parallelism"
#: Times that a price is raised fourfold until a result fits, and halvings of what is left between two prices.
RAISES, HALVINGS = 12, 6
#: Searches that one model may take: with and without t_S, each at every price.
SEARCHES = len(EXPOSED) * (1 + RAISES + HALVINGS)


class Pricing:
    """The tables of one model's ``costs``; ``tables`` are the plain ones."""

    def __init__(self, costs: OperatorCosts) -> None:
        numbers = range(len(costs.operators))
        self.footprint, self.tables = Footprint(costs), costs.tables()
        self._gradients = [costs.synchronization(number) for number in costs.report_each(numbers)]
        self._held = [self.footprint.column(number) for number in costs.report_each(numbers)]
        self._first_price = costs.serial_seconds / costs.devices / self.footprint.capacity

    def cost_tables(self, exposed: float, price: float) -> CostTables:
        """``exposed`` is the share of t_S that counts; ``price`` the seconds of a byte on a device."""
        hidden = 1 - exposed
        columns = zip(self.tables.nodes, self._gradients, self._held, strict=True)
        nodes = tuple(own - hidden * gradients + price * held for own, gradients, held in columns)
        return replace(self.tables, nodes=nodes)

    def solve_within_memory(
        self,
        solve: Callable[[CostTables], Solution],
        needed: Callable[[Solution], float],
        exposed: float = 1.0,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> Solution:
        """The solution at the lowest price of memory at which it fits.

        At none where that fits, at the highest where none does. Where it may not go on, the last one that
        fits, or the last one.
        """
        found = solve(self.cost_tables(exposed, 0.0))
        if self._fits(needed(found)):
            return found
        low, high = 0.0, self._first_price
        for _ in range(RAISES):
            if not may_go_on():
                break
            found = solve(self.cost_tables(exposed, high))
            if self._fits(needed(found)):
                return self._cheaper(solve, needed, exposed, found, (low, high), may_go_on)
            low, high = high, 4 * high
        return found

    def _cheaper(
        self,
        solve: Callable[[CostTables], Solution],
        needed: Callable[[Solution], float],
        exposed: float,
        found: Solution,
        prices: tuple[float, float],
        may_go_on: Callable[[], bool],
    ) -> Solution:
        """At about the lowest price between two at which a solution fits."""
        low, high = prices
        for _ in range(HALVINGS):
            if not may_go_on():
                break
            middle = (low + high) / 2
            tried = solve(self.cost_tables(exposed, middle))
            if self._fits(needed(tried)):
                found, high = tried, middle
            else:
                low = middle
        return found

    def peak_bytes(
        self,
        chosen: Sequence[Configuration],
        firsts: Sequence[int] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> float:
        """Return bytes on the fullest device; parts begin at the first device if nothing else is said.

        ``numbers`` are the operators that compute, where they are not all.
        """
        placed = zip(chosen, firsts or [0] * len(chosen), strict=True)
        return float(self.footprint.by_device(placed, numbers).max())

    def _fits(self, needed: float) -> bool:
        return needed <= self.footprint.capacity
