"""Bytes that a division of operators puts on each device: states of its parameters, and all that backward
passes need.

What the simulator counts (``simulator.memory``), summed operator by operator: all samples of a step are in
flight at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from experiments.core.units import DTYPE_BYTES
from experiments.parallel.planning.operators.divisions import Configuration
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.workloads.step import Floats


class Footprint:
    """The memory of the operators whose costs are given.

    ``capacity`` is what the smallest device has for them, in bytes.
    """

    def __init__(self, costs: OperatorCosts) -> None:
        self._costs, estimate = costs, costs.estimate
        self._states = estimate.states.total / DTYPE_BYTES[estimate.dtype]
        self._kept = 1 + estimate.fragmentation
        self.capacity = min(d.memory_bytes for d in estimate.devices) - estimate.reserved_bytes

    def bytes_of(self, number: int, choice: Configuration) -> float:
        """Bytes on each device that has a part of operator ``number``."""
        operator, axes = self._costs.operators[number], self._costs.axes[number]
        states = sum(o.bytes / axes.parts_of(choice, o.dims) for o in operator.parameters) * self._states
        return states + operator.stash_bytes / math.prod(choice) * self._kept

    def column(self, number: int) -> Floats:
        """Of every configuration of operator ``number``. Shape: (configurations,)."""
        return np.array([self.bytes_of(number, choice) for choice in self._costs.choices[number]])

    def by_device(
        self, placed: Iterable[tuple[Configuration, int]], numbers: Sequence[int] | None = None
    ) -> Floats:
        """Return bytes on every device, for a configuration and a first device of each operator.

        Of those with these ``numbers``; of all in order where nothing else is said.
        """
        found = np.zeros(self._costs.devices)
        rows = enumerate(placed) if numbers is None else zip(numbers, placed, strict=True)
        for number, (choice, first) in rows:
            found[first : first + math.prod(choice)] += self.bytes_of(number, choice)
        return found
