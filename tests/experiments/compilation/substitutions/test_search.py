"""The search on graphs by name: what alpha allows, what the budget counts, what is never expanded twice."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from experiments.compilation.planning.substitutions.search import SearchLimits, Statistics, Successor, search


@dataclass
class Named:
    """A space of named states with their costs and what each may become."""

    costs: Mapping[str, float]
    edges: Mapping[str, str]
    sizes: Mapping[str, int] = field(default_factory=dict)
    expanded: list[str] = field(default_factory=list)

    def cost(self, state: str) -> float:
        return self.costs[state]

    def identity(self, state: str) -> Hashable:
        return state

    def size(self, state: str) -> int:
        return self.sizes.get(state, 1)

    def successors(self, state: str, below: float) -> Iterator[Successor[str]]:
        self.expanded.append(state)
        for name in sorted(self.edges.get(state, "").split(), key=self.cost):
            yield Successor(self.costs[name], lambda name=name: name)  # type: ignore[misc]


TOY = {"G0": 10.0, "G1": 10.4, "G2": 6.0, "G3": 9.8}
STEPS = {"G0": "G1 G3", "G1": "G2 G0", "G3": "G0"}


@pytest.mark.parametrize(("alpha", "cost"), [(1.0, 9.8), (1.05, 6.0)])
def test_a_dearer_graph_on_the_way_needs_alpha(alpha: float, cost: float) -> None:
    best, statistics = search(Named(TOY, STEPS), "G0", SearchLimits(alpha))
    assert TOY[best] == cost and statistics.explored >= 2


def test_the_budget_counts_expansions_and_none_returns_the_start() -> None:
    space = Named(TOY, STEPS)
    assert search(space, "G0", SearchLimits(1.05, budget=0)) == ("G0", Statistics())
    best, statistics = search(space, "G0", SearchLimits(1.05, budget=2))
    assert (space.expanded, best, statistics.explored) == (["G0", "G3"], "G3", 2)


def test_what_waited_while_the_best_fell_is_dropped_only_on_request() -> None:
    """G1 (10.4) was good enough while the best cost 10; against 9.8 (times 1.05 is 10.29) it is not."""
    space = Named(TOY, STEPS)
    best, statistics = search(space, "G0", SearchLimits(1.05, recheck=True))
    assert (space.expanded, best, statistics.pruned) == (["G0", "G3"], "G3", 1)


def test_steps_that_change_nothing_are_stopped_by_the_set_of_seen_states() -> None:
    space = Named({"A": 1.0, "B": 1.0}, {"A": "B", "B": "A"})
    best, statistics = search(space, "A", SearchLimits(1.05))
    assert (best, statistics.explored, statistics.duplicate) == ("A", 2, 1)


def test_graphs_of_twice_the_nodes_are_not_expanded() -> None:
    space = Named({"A": 2.0, "B": 1.0, "C": 1.0}, {"A": "B C"}, {"A": 3, "B": 6, "C": 5})
    best, statistics = search(space, "A", SearchLimits())
    assert (best, statistics.pruned) == ("C", 1)
