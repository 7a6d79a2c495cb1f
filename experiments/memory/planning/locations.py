"""Where each tensor is resident while each op runs, and when it moves, as an integer program (AutoTM's
formulation).

Between two uses of a tensor lies a *stretch*. The tensor is on the device or away in its middle; a copy out
may stand after the use before it, a copy back before the use after it, either between ops, which adds its
time to the step, or overlapped with one of the next ops, which then lasts at least as long as the copies
overlapped with it. A device whose ops can use a tensor where it is resident (``in_place``) has one more
binary for every use; the op then lasts at least as long as the tier takes to read and write what is resident
there.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.memory.interface import Lineage, MemoryMachine
from experiments.memory.planning.milp import MixedIntegerProgram, MixedIntegerSolution, NodeBound, Term
from experiments.memory.planning.swaps import Gap
from experiments.workloads.step import Floats, Step

#: The place of a copy that stands between ops.
BETWEEN = -1


@dataclass(frozen=True)
class LocationRules:
    """The moves that are allowed.

    ``moving`` at all; overlapped with the ``places`` longest of the ``window`` ops next to a use.
    """

    tier: str = "host"
    in_place: bool = False
    moving: bool = True
    window: int = 0
    places: int = 3


@dataclass(frozen=True)
class Stretch:
    """Variables of a gap: ``here`` in the middle; a copy out or back for each place where it may stand."""

    gap: Gap
    here: int
    out: Mapping[int, int]
    back: Mapping[int, int]


class LocationProgram:
    """Minimizes the time by which the step is prolonged, such that no op exceeds its limit of bytes.

    ``tensors`` may be elsewhere than on the device, each from its first use to its last or, persistent ones,
    around.
    """

    def __init__(
        self, step: Step, machine: MemoryMachine, tensors: Sequence[int], limits: Floats, rules: LocationRules
    ) -> None:
        self.step, self.machine, self.rules = step, machine, rules
        self.program = MixedIntegerProgram()
        # Time and memory are counted in units that keep coefficients between about one and a thousand, as the
        # solver's tolerances expect.
        self.tick = float(step.ops.seconds.max(initial=0)) / 1000 or 1.0
        self.ticks: list[float] = (step.ops.seconds / self.tick).tolist()
        self.unit = max(1.0, float(step.tensors.bytes[list(tensors)].max(initial=0)) / 1000)
        self.excess: list[float] = (step.live_bytes - limits).tolist()
        self.overlapped: dict[int, list[Term]] = defaultdict(list)
        self.accessed: dict[int, list[Term]] = defaultdict(list)
        self.held: dict[int, list[Term]] = defaultdict(list)
        self.counted: dict[int, float] = defaultdict(float)
        self.always = self.program.binary(fixed=True)
        self.here: dict[int, dict[int, int]] = {}
        self.stretches: list[Stretch] = []
        self.writes = [set(row) for row in Lineage(step).writes]
        for tensor in tensors:
            self._tensor(tensor)
        self._longer_ops()
        self._room()

    def solve(self, bound: NodeBound, gap: float, most_binaries: int) -> MixedIntegerSolution | None:
        """Within ``gap`` of the optimum.

        A program of more binaries is relaxed first, and what is whole then stays.
        """
        if len(self.program) > most_binaries:
            relaxed = self.program.solve(bound, relaxed=True)
            if relaxed is None:
                return None
            self.program.fix(relaxed)
        solution = self.program.solve(bound, gap)
        return solution and replace(solution, objective=solution.objective * self.tick)

    def _tensor(self, tensor: int) -> None:
        uses = self.step.uses[tensor].tolist()
        size = int(self.step.tensors.bytes[tensor])
        self.here[tensor] = dict(zip(uses, self._uses(tensor, uses), strict=True))
        for op, here in self.here[tensor].items() if self.rules.in_place else ():
            self._hold(op, [(here, size / self.unit)], size)
            self._access(op, tensor, here, size)
        for after, before in itertools.pairwise(uses):
            self._stretch(Gap(tensor, size, after, before))
        if self.step.persistent[tensor]:
            self._stretch(Gap(tensor, size, uses[-1], uses[0], wraps=True))

    def _uses(self, tensor: int, uses: Sequence[int]) -> list[int]:
        """For each use the variable that says that the tensor is on the device then."""
        if not self.rules.in_place:
            return [self.always] * len(uses)
        if not self.rules.moving:
            return [self.program.binary()] * len(uses)
        return [self.program.binary() for _ in uses]

    def _access(self, op: int, tensor: int, here: int, size: int) -> None:
        """What the op takes to use the tensor where it is resident: nothing of ``ticks`` when
        it is here.
        """
        ticks = access_seconds(self.step, self.machine, op, size, tensor in self.writes[op]) / self.tick
        if ticks:
            self.accessed[op] += [(self.always, ticks), (here, -ticks)]

    def _stretch(self, gap: Gap) -> None:
        """Here at the use before is: stays here or leaves. Here at the use after is: stayed or came back."""
        inside = ops_inside(gap, len(self.step.ops))
        if not inside and not self.rules.in_place:
            return
        first, last = self.here[gap.tensor][gap.after], self.here[gap.tensor][gap.before]
        if not self.rules.moving:
            stretch = Stretch(gap, first, {}, {})
        else:
            stretch = self._movable(gap, inside, first, last)
        self.stretches.append(stretch)
        for op, terms in self._along(stretch, inside, first):
            self._hold(op, terms, gap.bytes)

    def _movable(self, gap: Gap, inside: Sequence[int], first: int, last: int) -> Stretch:
        add, tier = self.program.binary, self.rules.tier
        sends, fetches = self._places(gap, inside)
        away = self.machine.out_time(gap.bytes, tier) / self.tick
        home = self.machine.back_time(gap.bytes, tier) / self.tick
        here, out, back = add(), {BETWEEN: add(away)}, {BETWEEN: add(home)}
        for places, copies, ticks in ((sends, out, away), (fetches, back, home)):
            for op in places:
                copies[op] = add()
                self.overlapped[op].append((copies[op], ticks))
        for copies, end in ((out, first), (back, last)):
            self.program.row([(here, 1.0), (end, -1.0), *((c, 1.0) for c in copies.values())], 0.0, 0.0)
        return Stretch(gap, here, out, back)

    def _places(self, gap: Gap, inside: Sequence[int]) -> tuple[list[int], list[int]]:
        """Ops with which a copy out or back may overlap; one out in the step that ends, one back in the one
        that begins.
        """
        half = (len(inside) + 1) // 2
        sends = inside[: min(self.rules.window, half)]
        fetches = inside[max(half, len(inside) - self.rules.window) :]
        if gap.wraps:
            sends = [op for op in sends if op > gap.after]
            fetches = [op for op in fetches if op < gap.before]
        return self._longest(sends), self._longest(fetches)

    def _longest(self, ops: Sequence[int]) -> list[int]:
        """The longest of ``ops``, in the order given; those without duration hide nothing."""
        timed = sorted((op for op in ops if self.ticks[op] > 0), key=lambda op: -self.ticks[op])
        kept = set(timed[: self.rules.places])
        return [op for op in ops if op in kept]

    def _along(self, stretch: Stretch, inside: Sequence[int], first: int) -> Iterator[tuple[int, list[Term]]]:
        """Op by op the tensor's bytes on the device: until the copy out has passed, or once the copy back has
        begun.
        """
        units = stretch.gap.bytes / self.unit
        leaving: list[Term] = [(first, units)]
        if stretch.out:
            leaving.append((stretch.out[BETWEEN], -units))
        gone, coming = 1, [(stretch.here, units)]
        for op in inside:
            if op in stretch.back:
                coming = [*coming, (stretch.back[op], units)]
            yield op, leaving if gone < len(stretch.out) and len(coming) == 1 else coming
            if op in stretch.out:
                leaving, gone = [*leaving, (stretch.out[op], -units)], gone + 1

    def _hold(self, op: int, terms: Sequence[Term], size: int) -> None:
        """The op has ``terms`` (in units of bytes) of a tensor of ``size``, where it lacks room."""
        if self.excess[op] > 0:
            self.held[op] += terms
            self.counted[op] += size

    def _longer_ops(self) -> None:
        """An op lasts as long as the copies overlapped with it, and as what it uses elsewhere takes, if that
        is longer.
        """
        for op in sorted({*self.overlapped, *self.accessed}):
            extra = self.program.number(cost=1.0)
            for terms in (self.overlapped.get(op), self.accessed.get(op)):
                if terms:
                    self.program.row([*terms, (extra, -1.0)], at_most=self.ticks[op])

    def _room(self) -> None:
        """What of the tensors is here leaves the op's limit to all the others."""
        for op, excess in enumerate(self.excess):
            if excess > 0:
                self.program.row(self.held[op], at_most=(self.counted[op] - excess) / self.unit)


def access_seconds(step: Step, machine: MemoryMachine, op: int, size: int, written: bool) -> float:
    """Seconds in which remote memory gives an op a tensor of ``size`` bytes, or takes it.

    An op that moves fewer bytes than its tensors hold (a table lookup) touches the same share of each.
    """
    if step.ops.view[op]:
        return 0.0
    whole, moved = float(step.op_need[op] - step.ops.workspace[op]), float(step.ops.bytes_moved[op])
    share = min(1.0, moved / whole) if moved > 0 and whole > 0 else 1.0
    rate = machine.remote_write if written else machine.remote_read
    return size * share / rate.bandwidth


def ops_inside(gap: Gap, count: int) -> list[int]:
    """The ops of a gap in the order in which the tensor lives through them."""
    if gap.wraps:
        return [*range(gap.after + 1, count), *range(gap.before)]
    return list(range(gap.after + 1, gap.before))
