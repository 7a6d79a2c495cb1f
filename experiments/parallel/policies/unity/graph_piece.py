"""A piece of Unity's graph between two cuts, in all forms that algebraic substitutions give it, searched best
first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from experiments.core.budget import Budget
from experiments.parallel.policies.unity.algebra import Rewriting
from experiments.parallel.policies.unity.piece_forms import OperatorShare, PieceForms, PieceState, Shares
from experiments.parallel.policies.unity.placement import OperatorBranch, PlacedBranches, place_branches
from experiments.parallel.policies.unity.search_space import (
    WHOLE_PIECE,
    Graph,
    JointSearchLimits,
    JointSearchResult,
    JointSearchSpace,
    PlacedGraph,
)


class GraphPiece:
    """The operators between two cuts, in one of their forms.

    ``inside`` are those that are computed; the model's own if nothing else is said. ``forms`` is what all
    forms share, ``known`` are those that there are.
    """

    def __init__(
        self,
        space: JointSearchSpace,
        begin: int,
        end: int,
        budget: Budget,
        inside: Sequence[int] = (),
        forms: PieceForms | None = None,
        known: dict[Graph, GraphPiece] | None = None,
    ) -> None:
        self.space, self.begin, self.end, self._budget = space, begin, end, budget
        self.inside = inside or range(begin + 1, end)
        self._live = {begin, *self.inside}
        self._forms = forms or PieceForms(space, begin, end)
        self._known = {} if known is None else known
        self._known[tuple(self.inside)] = self
        self._into = {j: self._sources_of(j) for j in (*self.inside, end)}
        self._readers = {number: self._readers_of(number) for number in self.inside}
        budget.report()
        self.branches = self._branches()
        self._branch_of = {n: number for number, branch in enumerate(self.branches) for n in branch}

    def _sources_of(self, number: int) -> tuple[int, ...]:
        return self._forms.same(i for i in self.space.into[number] if i in self._live)

    def _readers_of(self, number: int) -> tuple[int, ...]:
        """In order, the cut last."""
        found = [j for j in self.space.out[number] if j in self._live]
        return self._forms.same([*sorted(found), *([self.end] if self.end in self.space.out[number] else [])])

    def _branches(self) -> list[list[int]]:
        """Operators that are joined without the cuts."""
        above = {number: number for number in self.inside}

        def root(number: int) -> int:
            while above[number] != number:
                above[number] = number = above[above[number]]
            return number

        for number in self.inside:
            for source in self._into[number]:
                if source != self.begin:
                    above[root(source)] = root(number)
        found: dict[int, list[int]] = {}
        for number in sorted(self.inside):
            found.setdefault(root(number), []).append(number)
        return sorted(found.values())

    def search(
        self, before: int, after: int, limits: JointSearchLimits, result: JointSearchResult
    ) -> PlacedGraph:
        """Return the best form of the piece that was found, and its seconds without the cuts.

        A piece that no operator cuts is searched in runs of ``threshold`` operators, the others as they are
        by then; the budget is shared by the runs.
        """
        chosen = {number: self.space.start[number] for number in self.inside}
        chosen |= {self.begin: before, self.end: after}
        runs = [self.inside[i : i + limits.threshold] for i in range(0, len(self.inside), limits.threshold)]
        if len(self.inside) <= WHOLE_PIECE * limits.threshold:
            runs = [self.inside] if self.inside else []
        if len(runs) > 1:
            chosen |= self._seed(self.inside)
        piece, shares = self, self.shares(chosen)
        for run in runs:
            most = max(2, limits.budget // len(runs))
            form, best = piece._best_first(run, chosen, shares, limits, most, result)
            chosen |= best
            touched = piece.touched_by(run) | form.touched_by(list(best))
            piece, shares = form, form.shares(chosen, {n: shares[n] for n in shares.keys() - touched})
        return piece._result(chosen, shares)

    def _seed(self, run: Sequence[int]) -> dict[int, int]:
        """What the search begins with besides its start; only the model's operators have such choices."""
        return {number: self.space.seed[number] for number in run if number < len(self.space.seed)}

    def _form(self, inside: Graph) -> GraphPiece:
        """The form with these operators."""
        known = self._known.get(inside)
        return known or GraphPiece(
            self.space, self.begin, self.end, self._budget, inside, self._forms, self._known
        )

    def _result(self, chosen: Mapping[int, int], shares: Shares) -> PlacedGraph:
        """The piece with these choices, its branches placed."""
        placement = self._place(self._branches_of(chosen, shares))
        seconds = placement.seconds
        if self.begin in self._into[self.end]:
            seconds += self._forms.edge(self.begin, self.end)[chosen[self.begin]][chosen[self.end]]
        choices = [chosen[number] for number in self.inside]
        firsts = [placement.firsts[self._branch_of[number]] for number in self.inside]
        return PlacedGraph(seconds, list(self.inside), choices, firsts)

    def _best_first(
        self,
        run: Sequence[int],
        fixed: Mapping[int, int],
        shares: Shares,
        limits: JointSearchLimits,
        budget: int,
        result: JointSearchResult,
    ) -> tuple[GraphPiece, dict[int, int]]:
        """The best form and choices of ``run`` that were found; ``shares`` are those of ``fixed``."""
        graph, branches = tuple(fixed[number] for number in run), self._branches_of(fixed, shares)
        best = PieceState(self._place(branches).seconds, graph, tuple(run), tuple(self.inside), branches)
        queue, seen = [best], {(best.run, graph)}
        seed = {**fixed, **self._seed(run)}
        if seed != fixed:
            kept = {n: shares[n] for n in shares.keys() - self.touched_by(run)}
            branches, graph = self._branches_of(seed, self.shares(seed, kept)), tuple(seed[n] for n in run)
            queue.append(PieceState(self._place(branches).seconds, graph, best.run, best.inside, branches))
            seen.add((best.run, graph))
            heapq.heapify(queue)
            best = queue[0]
        for _ in range(budget):
            if not queue or queue[0].seconds > limits.alpha * best.seconds or not self._budget.take(0):
                break
            state = heapq.heappop(queue)
            result.popped += 1
            piece = self._form(state.inside)
            for following in piece.following(state, fixed, seen):
                self._budget.spend(1)
                if following.seconds < limits.alpha * best.seconds:
                    heapq.heappush(queue, following)
                if following.seconds < best.seconds:
                    best = following
        result.seen += len(seen)
        return self._form(best.inside), dict(zip(best.run, best.graph, strict=True))

    def following(
        self, state: PieceState, fixed: Mapping[int, int], seen: set[tuple[Graph, Graph]]
    ) -> Iterator[PieceState]:
        """Graphs that were not seen and that one substitution of either sort makes."""
        for graph, branches in self._substitutions(state.run, state.graph, state.branches, fixed, seen):
            yield PieceState(self._place(branches).seconds, graph, state.run, state.inside, branches)
        chosen = dict(zip(state.run, state.graph, strict=True))
        for rewriting in self._forms.algebraic:
            if rewriting.took <= chosen.keys():
                kept = self._inheriting(rewriting, chosen)
                run = tuple(sorted(kept))
                graph = tuple(kept[number] for number in run)
                if (run, graph) not in seen:
                    seen.add((run, graph))
                    yield self._rewritten(rewriting, state, run, graph, fixed)

    def _inheriting(self, rewriting: Rewriting, chosen: Mapping[int, int]) -> dict[int, int]:
        """The choices after an algebraic substitution; what it puts in inherits divisions."""
        kept = {number: choice for number, choice in chosen.items() if number not in rewriting.took}
        for made, heir in zip(rewriting.made, rewriting.heirs, strict=True):
            kept[made] = self.space.inherited[heir, made][chosen[heir]]
        return kept

    def _rewritten(
        self, rewriting: Rewriting, state: PieceState, run: Graph, graph: Graph, fixed: Mapping[int, int]
    ) -> PieceState:
        """The graph that an algebraic substitution makes, with the choices of its run.

        Where all operators are one branch, they stay one, and what changes is counted alone.
        """
        self._budget.report()
        inside = tuple(sorted({*self.inside} - rewriting.took | {*rewriting.made}))
        now = {**fixed, **dict(zip(run, graph, strict=True))}
        if len(self.branches) > 1:
            piece = self._form(inside)
            branches = piece._branches_of(now, piece.shares(now))
        else:
            chosen = {**fixed, **dict(zip(state.run, state.graph, strict=True))}
            near, extra = self._forms.seconds(rewriting.took, self._live, chosen)
            now_near, now_extra = self._forms.seconds(rewriting.made, {self.begin, *inside}, now)
            (branch,) = state.branches
            near = now_near - near
            far = branch.far + near + now_extra - extra
            branches = [replace(branch, near=branch.near + near, far=far)]
        return PieceState(self._place(branches).seconds, graph, run, inside, branches)

    def _substitutions(
        self,
        run: Graph,
        graph: Graph,
        branches: Sequence[OperatorBranch],
        fixed: Mapping[int, int],
        seen: set[tuple[Graph, Graph]],
    ) -> Iterator[tuple[Graph, list[OperatorBranch]]]:
        """Graphs that were not seen and that one parallel substitution makes, with their branches.

        Of these one changes.
        """
        chosen = {**fixed, **dict(zip(run, graph, strict=True))}
        for place, number in enumerate(run):
            self._budget.report()
            which = self._branch_of[number]
            branch = branches[which]
            near, extra = self._around(number, chosen[number], chosen)
            others = self._widest(number, chosen)
            for choice in self.space.rewrites[number][chosen[number]]:
                following = (*graph[:place], choice, *graph[place + 1 :])
                if (run, following) in seen:
                    continue
                seen.add((run, following))
                now, more = self._around(number, choice, chosen)
                moved = OperatorBranch(
                    branch.near + now - near,
                    branch.far + now + more - near - extra,
                    max(self._forms.parts(number)[choice], others),
                )
                yield following, [*branches[:which], moved, *branches[which + 1 :]]

    def _widest(self, number: int, chosen: Mapping[int, int]) -> int:
        """Devices that the other operators of a branch need; nobody asks where there is one branch."""
        if len(self.branches) == 1:
            return 1
        branch = self.branches[self._branch_of[number]]
        return max((self._forms.parts(n)[chosen[n]] for n in branch if n != number), default=1)

    def _place(self, branches: Sequence[OperatorBranch]) -> PlacedBranches:
        return place_branches(branches, self.space.devices)

    def _branches_of(self, chosen: Mapping[int, int], shares: Shares) -> list[OperatorBranch]:
        return [self._branch(branch, chosen, shares) for branch in self.branches]

    def _branch(self, branch: Sequence[int], chosen: Mapping[int, int], shares: Shares) -> OperatorBranch:
        """Operators, transfers among them and from and to the cuts; from afar these two cost more."""
        near = extra = 0.0
        for number in branch:
            alone, twice, more = shares[number]
            near, extra = near + alone - twice, extra + more
        parts = max(self._forms.parts(number)[chosen[number]] for number in branch)
        return OperatorBranch(near, near + extra, parts)

    def shares(
        self, chosen: Mapping[int, int], kept: Shares = MappingProxyType({})
    ) -> dict[int, OperatorShare]:
        """Return what every operator adds to its branch; ``kept`` are known from before."""
        return {
            number: kept[number] if number in kept else self.share(number, chosen) for number in self.inside
        }

    def share(self, number: int, chosen: Mapping[int, int]) -> OperatorShare:
        """Return what operator ``number`` adds to its branch."""
        alone, more = self._around(number, chosen[number], chosen)
        twice = sum(
            self._forms.edge(number, reader)[chosen[number]][chosen[reader]]
            for reader in self._readers[number]
            if reader != self.end
        )
        return OperatorShare(alone, twice, more)

    def touched_by(self, run: Sequence[int]) -> set[int]:
        """Return the operators whose shares a change of ``run`` changes: its own and their neighbors."""
        around = {other for number in run for other in (*self._into[number], *self._readers[number])}
        return {*run, *around} - {self.begin, self.end}

    def _around(self, number: int, choice: int, chosen: Mapping[int, int]) -> tuple[float, float]:
        """An operator with all transfers to and from it, and what those with the cuts cost more from afar."""
        near, extra = self._forms.node(number)[choice], 0.0
        for source in self._into[number]:
            moved = self._forms.edge(source, number)[chosen[source]][choice]
            near += moved
            if source == self.begin:
                extra += max(0.0, self._forms.far(source, number)[choice] - moved)
        for reader in self._readers[number]:
            moved = self._forms.edge(number, reader)[choice][chosen[reader]]
            near += moved
            if reader == self.end:
                extra += max(0.0, self._forms.far(number, reader)[chosen[reader]] - moved)
        return near, extra
