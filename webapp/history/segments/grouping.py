"""Groups of the runs that a search finds in blocks of columns, with their aggregates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webapp.compare.statistics import FRACTIONS, half_width
from webapp.history.search.tree import Aggregate, Query
from webapp.history.segments.columns import Block, Floats, Key, Mask, canonical
from webapp.history.segments.conditions import found_in, key_of

Places = NDArray[np.int64]
#: A group's values to one figure of it; to Postgres a value that is no number is the largest.
OF_VALUES: dict[str, Callable[[Floats], Any]] = {
    "min": lambda values: float(np.fmin.reduce(values)),
    "max": lambda values: float(values.max()),
    "mean": lambda values: float(values.mean()),
    "std": lambda values: _deviation(values),
    "interval": lambda values: _half_interval(values),
    "median": lambda values: _quantiles(values, (0.5,))[0],
    "box": lambda values: _quantiles(values, FRACTIONS),
}


def _deviation(values: Floats) -> float | None:
    with np.errstate(invalid="ignore"):  # of what is infinite there is none
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _quantiles(values: Floats, fractions: Sequence[float]) -> list[float]:
    """Between two values as far as the fraction says, as Postgres has it: between infinite ones is none."""
    ordered, places = np.sort(values), [fraction * (len(values) - 1) for fraction in fractions]
    pairs = [(ordered[int(place)], ordered[math.ceil(place)], place % 1) for place in places]
    with np.errstate(invalid="ignore"):
        return [float(low + (high - low) * part if part else low) for low, high, part in pairs]


def _half_interval(values: Floats) -> float | None:
    deviation = _deviation(values)
    return None if deviation is None else half_width(len(values), deviation)


@dataclass
class Groups:
    """What the blocks hold, one after the other: the group of each run that is found, and its figures."""

    query: Query
    _keys: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    _places: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _groups: list[Places] = field(default_factory=list)
    _figures: dict[str, list[tuple[Floats, Mask]]] = field(default_factory=dict)

    def add(self, block: Block, hidden: Mask) -> None:
        """The block's runs, less those that are not to be seen."""
        condition = self.query.condition
        found = np.ones(block.size, bool) if condition is None else found_in(block, condition)
        found &= ~hidden
        if not found.any():
            return
        self._groups.append(self._groups_of(block, found))
        for name in self.metrics:
            column = block.columns.get(("metric", name))
            values, there = column.numbers(block.size) if column else _nothing(block.size)
            self._figures.setdefault(name, []).append((values[found], there[found]))

    @property
    def count(self) -> int:
        return sum(map(len, self._groups))

    @property
    def metrics(self) -> list[str]:
        return list(dict.fromkeys(one.field.name for one in self.query.aggregates if one.field))

    def _groups_of(self, block: Block, found: Mask) -> Places:
        """The place of each found run's group."""
        groups, keys = np.zeros(int(found.sum()), np.int64), [()]
        for key in dict.fromkeys(map(key_of, self.query.group)):
            codes, words = _codes_of(block, key, found)
            # Numbered anew with each field, so that no number is too large.
            there, groups = _number_anew(groups * len(words) + codes, len(keys) * len(words))
            keys = [(*keys[one // len(words)], words[one % len(words)]) for one in there.tolist()]
        return np.array([self._place(values) for values in keys], np.int64)[groups]

    def _place(self, values: tuple[Any, ...]) -> int:
        same = tuple(value if value is MISSING else canonical(value) for value in values)
        self._keys.setdefault(same, tuple(None if value is MISSING else value for value in values))
        return self._places.setdefault(same, len(self._places))

    def rows(self, most: int) -> list[dict[str, Any]]:
        """As ``search/rows.py`` has them: the largest first, then by their fields."""
        if not self._groups:
            return []
        groups, keys = np.concatenate(self._groups), list(self._keys.values())
        sizes = np.bincount(groups, minlength=len(keys))
        largest = sorted(range(len(keys)), key=lambda place: (-sizes[place], _order(keys[place])))[:most]
        figures = {name: self._figures_by_group(name, groups, len(keys)) for name in self.metrics}
        names = list(dict.fromkeys(map(str, self.query.group)))
        return [
            {
                **dict(zip(names, keys[place], strict=True)),
                **{str(one): _aggregate(one, place, sizes, figures) for one in self.query.aggregates},
            }
            for place in largest
        ]

    def _figures_by_group(self, name: str, groups: Places, count: int) -> tuple[Floats, Places]:
        """The figures of all that have one, by group, and where each group's begin."""
        values = np.concatenate([values for values, _ in self._figures[name]])
        there = np.concatenate([there for _, there in self._figures[name]])
        groups = groups[there].astype(np.min_scalar_type(count))
        order = np.argsort(groups, kind="stable")  # numbers of one and two bytes in one pass over them
        return values[there][order], np.searchsorted(groups[order], np.arange(count + 1))


class _Missing:
    """What a run that has no value of a field is grouped by, which is not JSON's null."""


MISSING = _Missing()


def _number_anew(numbers: Places, bound: int) -> tuple[Places, Places]:
    """Which of the numbers below ``bound`` there are, ascending, and each one's place among them."""
    if bound > 4 * len(numbers):
        return np.unique(numbers, return_inverse=True)
    there = np.flatnonzero(np.bincount(numbers, minlength=bound))
    places = np.zeros(bound, np.int64)
    places[there] = np.arange(len(there))
    return there, places[numbers]


def _codes_of(block: Block, key: Key, found: Mask) -> tuple[Places, list[Any]]:
    column = block.columns.get(key)
    if column is None:
        return np.zeros(int(found.sum()), np.int64), [MISSING]
    codes, words = column.codes(block.size)
    return codes[found].astype(np.int64), [*words, MISSING]


def _nothing(size: int) -> tuple[Floats, Mask]:
    return np.zeros(size), np.zeros(size, bool)


def _order(key: Sequence[Any]) -> list[tuple[int, str]]:
    return [(1, "") if value is None else (0, str(value)) for value in key]


def _aggregate(one: Aggregate, place: int, sizes: Places, figures: dict[str, tuple[Floats, Places]]) -> Any:
    if one.field is None:
        return int(sizes[place])
    values, begins = figures[one.field.name]
    of_group = values[begins[place] : begins[place + 1]]
    if one.function == "values":
        return len(of_group)
    return OF_VALUES[one.function](of_group) if len(of_group) else None
