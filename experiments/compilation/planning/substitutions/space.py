"""The space that the search walks.

Graphs of terms, and every rewrite of one with the cost that it would lead to.

A rewrite touches few terms, so the cost that it leads to is predicted from those alone: what is added, what
nobody reads any more, and whose readers change. The whole graph is built, and the rule tested for these
shapes, only when the search takes it out of its queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from experiments.compilation.interface import IllTyped
from experiments.compilation.planning.substitutions.application import Application
from experiments.compilation.planning.substitutions.canonical import ALGEBRA
from experiments.compilation.planning.substitutions.graphs import (
    INSIDE_OTHERS,
    OUTSIDE,
    GraphView,
    Prices,
    RewriteStep,
    TermGraph,
    again,
    rebuilt,
)
from experiments.compilation.planning.substitutions.matcher import Matcher
from experiments.compilation.planning.substitutions.pattern import Match
from experiments.compilation.planning.substitutions.search import Successor
from experiments.compilation.planning.substitutions.terms import LEAF, Terms
from experiments.core.errors import BadInput


@dataclass(frozen=True)
class Rewrite:
    """One change that can be made: the terms taken, and what each mapped one becomes."""

    rule: str
    took: tuple[int, ...]
    replaced: Mapping[int, int]


#: A hard-coded rule: all its rewrites of a graph.
Special = Callable[[Terms, GraphView], Iterator[Rewrite]]


@dataclass(frozen=True, slots=True)
class Option:
    """A match with the seconds that applying it adds, and the terms whose state that figure depends on."""

    match: Match
    added: float
    affected_terms: frozenset[int]


@dataclass(frozen=True, slots=True)
class Origin:
    """How a graph came from another.

    What became of its terms, those whose own state is another now, and all those whose readers are.
    """

    options: list[Option]
    moved: Mapping[int, int]
    removed: Set[int]
    changed: Set[int]
    rewired_terms: Set[int]


class RewriteSpace:
    """Rewrites by ``matcher``'s rules and by ``specials``, priced by ``prices``.

    A graph inherits the options of the graph that it came from: those far from the change keep their figures,
    those near it are priced again, and new ones are looked for only at terms that the change can be seen
    from. ``part`` restricts the search to rewrites inside a set of terms of the start (``within``).
    """

    def __init__(self, prices: Prices, matcher: Matcher, specials: Sequence[Special] = ()) -> None:
        self.prices, self.matcher, self.specials = prices, matcher, specials
        self._application = Application(matcher.terms)
        self.terms = prices.terms
        self.refused: dict[str, str] = {}
        self._targets: dict[tuple[str, tuple[int, ...]], Mapping[int, int]] = {}
        self._origins: MutableMapping[TermGraph, Origin] = WeakKeyDictionary()
        self._parts: dict[tuple[int, ...], frozenset[int]] | None = None

    def within(self, state: TermGraph, part: Set[int] | None) -> None:
        """From now on only rewrites of ``part``'s terms, and of what they become, are options."""
        self._parts = None if part is None else {state.roots: frozenset(part)}

    def cost(self, state: TermGraph) -> float:
        return state.cost

    def identity(self, state: TermGraph) -> Hashable:
        return state.roots

    def size(self, state: TermGraph) -> int:
        return len(state.order)

    def successors(self, state: TermGraph, below: float) -> Iterator[Successor[TermGraph]]:
        options = self.options(state)
        own = sorted((o for o in options if self._allows(state, o.match.took)), key=lambda o: o.added)
        matched = (Successor(state.cost + o.added, partial(self._matched, state, o, options)) for o in own)
        special = sorted(self._special(state, options), key=lambda successor: successor.cost)
        yield from heapq.merge(matched, special, key=lambda successor: successor.cost)

    def _special(self, state: TermGraph, options: list[Option]) -> Iterator[Successor[TermGraph]]:
        for rewrite in self.special_rewrites(state):
            change = self._change(state, rewrite.replaced)
            if change is not None and self._allows(state, rewrite.took):
                yield Successor(change.cost(), partial(self._perform, state, rewrite, options))

    def _allows(self, state: TermGraph, took: Sequence[int]) -> bool:
        """Return whether a rewrite is inside the part that is searched."""
        return self._parts is None or self._parts[state.roots].issuperset(took)

    def special_rewrites(self, state: TermGraph) -> Iterator[Rewrite]:
        for special in self.specials:
            yield from special(self.terms, state)

    def options(self, state: TermGraph) -> list[Option]:
        """Return all applicable matches in ``state``."""
        origin = self._origins.pop(state, None)
        if origin is None:
            return self._fresh(state, None, set())
        kept = list(self._inherited_options(state, origin))
        return kept + self._fresh(state, self._seen_from(state, origin), {option.match for option in kept})

    def _fresh(self, state: TermGraph, at: list[int] | None, known: Set[Match]) -> list[Option]:
        found = (self._price(state, match) for match in self.matcher.matches(state, at) if match not in known)
        return [option for option in found if option is not None]

    def _inherited_options(self, state: TermGraph, origin: Origin) -> Iterator[Option]:
        removed, changed, moved = origin.removed, origin.changed, origin.moved
        for option in origin.options:
            if not removed.isdisjoint(option.match.took):
                continue
            same = moved.keys().isdisjoint(option.affected_terms)
            match = option.match if same else option.match.moved(moved)
            if changed.isdisjoint(option.affected_terms):
                yield (
                    option if same else Option(match, option.added, self._moved(option.affected_terms, moved))
                )
            elif self.matcher.stays_inside(match, state):
                again = self._price(state, match)
                if again is not None:
                    yield again

    @staticmethod
    def _moved(numbers: Set[int], moved: Mapping[int, int]) -> frozenset[int]:
        return frozenset(moved.get(number, number) for number in numbers)

    def _seen_from(self, state: TermGraph, origin: Origin) -> list[int]:
        """Return terms from which a pattern reaches what changed, in the graph's order."""
        edge = {origin.moved.get(number, number) for number in origin.rewired_terms}
        found = set(edge)
        for _ in range(self.matcher.height):
            edge = {r for n in edge for r in state.readers.get(n, ()) if r != OUTSIDE} - found
            found |= edge
        return [number for number in state.order if number in found]

    def _price(self, state: TermGraph, match: Match) -> Option | None:
        replaced = self._target(match)
        change = self._change(state, replaced) if replaced else None
        if change is None:
            return None
        touched = change.affected_terms | {number for _, number in match.bound}
        return Option(match, change.cost() - state.cost, touched)

    def _change(self, state: TermGraph, replaced: Mapping[int, int]) -> _Change | None:
        """Return the change, or None where a reader does not accept it."""
        try:
            return _Change(self.prices, state, replaced)
        except IllTyped:
            return None

    def _target(self, match: Match) -> Mapping[int, int]:
        """Return what the match's mapped terms become.

        Empty where nothing changes or the target is ill-typed.
        """
        key = (match.pattern.rule.name, tuple(number for _, number in match.bound))
        if key not in self._targets:
            try:
                self._targets[key] = self._application.target(match)
            except (IllTyped, BadInput) as error:
                self._targets[key] = {}
                self.refused[match.pattern.rule.name] = str(error)
        return self._targets[key]

    def _matched(self, state: TermGraph, option: Option, options: list[Option]) -> TermGraph | None:
        match = option.match
        name = match.pattern.rule.name
        if not self._application.is_right(match):
            self.refused[name] = "its exact test or guard fails for the shapes matched"
            return None
        replaced = self._target(match)
        return self._perform(state, Rewrite(name, match.took, replaced), options) if replaced else None

    def _perform(self, state: TermGraph, rewrite: Rewrite, options: list[Option]) -> TermGraph | None:
        """Return the graph after ``rewrite``; None where a reader does not accept it."""
        try:
            change = _Change(self.prices, state, rewrite.replaced)
            moved = rebuilt(self.terms, state, rewrite.replaced)
        except IllTyped as error:
            self.refused[rewrite.rule] = str(error)
            return None
        roots = tuple(moved.get(number, number) for number in state.roots)
        made_of = tuple(rewrite.replaced.values())
        step = RewriteStep(rewrite.rule, rewrite.took, made_of, moved, state.step, change.inside)
        made = self.prices.graph(roots, step)
        self._origins[made] = Origin(
            options, moved, change.removed, change.affected_terms, change.rewired_terms
        )
        if self._parts is not None:
            part = self._parts[state.roots]
            self._parts[roots] = self._moved(part, moved) | change.inside
        return made


class _Change:
    """The terms around one change, with their readers before and after."""

    def __init__(self, prices: Prices, state: TermGraph, replaced: Mapping[int, int]) -> None:
        self.prices, self.terms, self.state = prices, prices.terms, state
        self.readers: dict[int, list[int]] = {}
        self.added: set[int] = set()
        self.removed: set[int] = set()
        self.moved = moved = self._moved_readers(replaced)
        for old, new in [*replaced.items(), *moved.items()]:
            after = [moved.get(r, r) for r in self._before(old) if r not in replaced]
            self._add(new)
            held = self._after(new)
            held += [reader for reader in after if reader not in held]
        for old in [*moved, *replaced]:
            self._remove(old)

    def _moved_readers(self, replaced: Mapping[int, int]) -> dict[int, int]:
        """Return the readers of what is replaced, on their new inputs, and theirs where one may be inside the
        other.
        """
        found: set[int] = set()
        waiting = list(replaced)
        while waiting:
            for reader in self._before(waiting.pop()):
                if reader != OUTSIDE and reader not in replaced and reader not in found:
                    found.add(reader)
                    if self._may_be_inside(reader):
                        waiting.append(reader)
        new = dict(replaced)
        for reader in sorted(found):  # a term's inputs have lower numbers
            made = again(self.terms, reader, new)
            assert made is not None
            new[reader] = made
        return {reader: new[reader] for reader in found}

    def _before(self, number: int) -> Sequence[int]:
        return self.state.readers.get(number, ())

    def _after(self, number: int) -> list[int]:
        if number not in self.readers:
            self.readers[number] = list(self._before(number))
        return self.readers[number]

    def _live(self, number: int) -> bool:
        return number in self.state.readers and not self.terms[number].free

    def _add(self, number: int) -> None:
        term = self.terms[number]
        if term.free or number in self.added or self._live(number) or term.kind == LEAF:
            return
        self.added.add(number)
        for source in dict.fromkeys(term.inputs):
            held = self._after(source)
            if number not in held:
                held.append(number)
            self._add(source)

    def _remove(self, number: int) -> None:
        if number in self.removed or not self._live(number):
            return
        self.removed.add(number)
        for source in dict.fromkeys(self.terms[number].inputs):
            held = self._after(source)
            if number in held:
                held.remove(number)
            if not held:
                self._remove(source)

    @property
    def inside(self) -> Set[int]:
        """What is new of the change itself: its readers on new inputs left out."""
        return self.added - set(self.moved.values())

    @property
    def affected_terms(self) -> frozenset[int]:
        """All terms whose own state, or whose readers' state, the change's figure depends on."""
        matched = {n for n in self.readers if self.terms[n].kind in ALGEBRA and not self.terms[n].free}
        return frozenset(matched | self.removed | self.added | self._around())

    @property
    def rewired_terms(self) -> frozenset[int]:
        """All terms that are new, gone, or have other readers."""
        return frozenset(self.readers) | self.removed | self.added

    def _around(self) -> set[int]:
        """Return the terms whose charge depends on readers that are others now, and those that may absorb
        them.
        """
        live = {n for n in self.readers if self._may_be_inside(n) and self._live(n)}
        around = {r for n in live for r in self.readers[n] if r != OUTSIDE and self._may_be_inside(r)}
        return live | around

    def _may_be_inside(self, number: int) -> bool:
        return self.terms[number].kind in INSIDE_OTHERS

    def cost(self) -> float:
        kept = {number for number in self._around() if self._live(number)} - self.removed - self.added
        charge = self.prices.charge
        after = sum(charge(number, self._known) for number in sorted(kept | self.added))
        before = sum(charge(number, self._before) for number in sorted(kept | self.removed))
        return self.state.cost + after - before

    def _known(self, number: int) -> Sequence[int]:
        return self.readers[number] if number in self.readers else self._before(number)
