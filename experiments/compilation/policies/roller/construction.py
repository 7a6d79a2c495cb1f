"""Roller's recursive construction of aligned tiles (OSDI'22, section 3.2, algorithm 1); no measurement.

From the unit tile a thread's tile grows along the axis that gains most data reuse until registers compute
slower than shared memory delivers; the block's tile grows from it in the same way until the device computes
slower than DRAM delivers and the block's threads fill whole warps. Depth first, so that the first tile found
is the smallest saturated one on the path of best reuse. Tiles that may pad tensors by more are looked at only
while too few are found.

Where no tile can be bound by computation (little reuse: element-wise, short reductions) the border is taken:
the last aligned tile on each path before a tile that does not fit. What is open in the paper and chosen here:
a level also ends where growing gains no reuse; an operator whose whole intensity lies under the machine's
balance is given up as soon as enough such border tiles are found; whole rows of a row-wise operator are added
to what was found; sizes from which no larger block fills whole warps are left out; all padding
shares together look at no more tiles than ``budget``, each at no more than half of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression, Sizes
from experiments.compilation.planning.tiles.program import TileProgram, fits, is_aligned, registers
from experiments.compilation.policies.roller.alignment import reduction_steps, register_steps, shared_steps
from experiments.compilation.policies.roller.shrinking import shrunk, sizes_on_the_way

#: Shares by which a tile may pad an axis, tried in this order.
SLACKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
#: Tiles that are looked at for one operator, unless asked otherwise.
BUDGET = 400
GAIN = 1.0 + 1e-9


@dataclass(frozen=True)
class Constructed:
    """Programs in the order found, how many tiles were looked at, and whether they are border tiles only.

    ``ended_early``: the bound on tiles came before as many programs as were wanted.
    """

    programs: tuple[TileProgram, ...]
    examined: int
    slack: float
    border: bool
    ended_early: bool = False


def construct(
    expression: Expression,
    architecture: Architecture,
    wanted: int = 10,
    slack: float = 1.0,
    shrink: str = "one",
    budget: int = BUDGET,
) -> Constructed:
    """Return up to ``wanted`` programs for ``expression``.

    Padding up to the share ``slack``; small grids shrunk (section 3.3).

    ``budget`` bounds the tiles that are looked at.
    With ``shrink="priced"`` each program comes in every size on the way to one block for each scheduler.
    """
    saturated: dict[TileProgram, None] = {}
    border: dict[TileProgram, None] = {}
    examined, reached, cut = 0, 0.0, False
    for reached in (share for share in SLACKS if share <= slack + 1e-9):
        search = _Search(expression, architecture, wanted, reached, min(-(-budget // 2), budget - examined))
        search.run()
        examined += search.examined
        cut |= search.examined >= search.budget
        saturated.update(dict.fromkeys(search.saturated))
        border.update(dict.fromkeys(search.border))
        enough = max(len(saturated), len(border) * search.hopeless) >= wanted
        if enough or examined >= budget:
            break
    programs = [*saturated, *border][:wanted]
    if not programs or expression.rowwise:
        programs.append(smallest(expression, architecture))
    kept = dict.fromkeys(
        size for program in programs for size in _sizes(expression, program, architecture, shrink)
    )
    return Constructed(tuple(kept), examined, reached, not saturated, cut and not enough)


def _sizes(
    expression: Expression, program: TileProgram, architecture: Architecture, shrink: str
) -> tuple[TileProgram, ...]:
    if shrink == "priced":
        return sizes_on_the_way(expression, program, architecture)
    return (shrunk(expression, program, architecture, shrink),)


def smallest(expression: Expression, architecture: Architecture) -> TileProgram:
    """At most a warp's worth of points along the last axes, so many as fit.

    What is left where nothing aligned fits.

    Of a row-wise expression whole rows, where shared memory holds them.
    """
    place = -1 if expression.rowwise else 0
    steps = tuple(choice[place] for choice in reduction_steps(expression, architecture))
    points = architecture.units.warp
    while True:
        left, shared = points, list[int]()
        for extent in reversed(expression.domain):
            shared.append(min(extent, left))
            left = max(1, left // shared[-1])
        program = TileProgram((1,) * len(expression.domain), tuple(reversed(shared)), steps)
        if points == 1 or fits(expression, program, architecture):
            return program
        points //= 2


def compute_bound(expression: Expression, spatial: Sequence[int], flops: float, bandwidth: float) -> bool:
    """Return whether a tile computes longer than its data take to come.

    Intensity over the machine's balance.
    """
    clipped = [min(size, extent) for size, extent in zip(spatial, expression.domain, strict=True)]
    return expression.intensity(clipped) > flops / bandwidth


@dataclass
class _Search:
    """The depth-first search for one padding share."""

    expression: Expression
    architecture: Architecture
    wanted: int
    slack: float
    budget: int
    saturated: list[TileProgram] = field(default_factory=list)
    border: list[TileProgram] = field(default_factory=list)
    examined: int = 0
    seen: set[object] = field(default_factory=set)

    def __post_init__(self) -> None:
        expression, self.flops = self.expression, self.architecture.flops(self.expression.dtype)
        self.steps = register_steps(expression, self.slack)
        self.step_choices = reduction_steps(expression, self.architecture)
        units = self.architecture.units
        filled = units.warp * units.partitions
        self.threads = tuple(range(filled, units.threads_per_block + 1, filled))
        self.hopeless = not compute_bound(
            expression, expression.domain, self.flops, self.architecture.dram_bandwidth
        )

    def run(self) -> None:
        if all(self.steps):
            self._grow_register((0,) * len(self.steps), None)

    @property
    def done(self) -> bool:
        enough = self.border if self.hopeless else self.saturated
        return len(enough) >= self.wanted or self.examined >= self.budget

    def _gains(self, spatial: Sizes) -> tuple[list[int], bool]:
        """Spatial axes by reuse after growing them by one point, best first.

        And whether the best gains anything.
        """
        reuse = []
        for axis, size in enumerate(spatial):
            reuse.append(self.expression.intensity((*spatial[:axis], size + 1, *spatial[axis + 1 :])))
        order = sorted(range(len(spatial)), key=lambda axis: -reuse[axis])
        return order, bool(order) and reuse[order[0]] > self.expression.intensity(spatial) * GAIN

    def _grow_register(self, position: Sizes, previous: Sizes | None) -> None:
        if position in self.seen or self.done:
            return
        self.seen.add(position)
        self.examined += 1
        tile = _at(self.steps, position)
        if registers(self.expression, tile) > self.architecture.units.registers_per_thread:
            if previous is not None and not self.saturated:
                self._descend(previous)
            return
        order, gain = self._gains(tile)
        if not gain or compute_bound(self.expression, tile, self.flops, self.architecture.shared_bandwidth):
            self._descend(tile)
        grown = list(_next(self.steps, position, order)) if gain else []
        for following in grown:
            self._grow_register(following, tile)
        if not self.saturated and not (grown and self.border):
            self._descend(tile)

    def _descend(self, register: Sizes) -> None:
        steps = [
            *shared_steps(self.expression, register, self.architecture, self.slack),
            *self.step_choices,
        ]
        if all(steps):
            counts = _suffixes(register, steps, self.threads)
            self._grow_shared(register, steps, counts, (0,) * len(steps), None)

    def _grow_shared(
        self,
        register: Sizes,
        steps: list[list[int]],
        counts: list[list[frozenset[int]]],
        position: Sizes,
        last_aligned: TileProgram | None,
    ) -> None:
        if (register, position) in self.seen or self.done:
            return
        self.seen.add((register, position))
        if not alignable(counts, position, self.threads):
            self._add_border(last_aligned)
            return
        self.examined += 1
        sizes, spatial = _at(steps, position), len(register)
        program = TileProgram(register, sizes[:spatial], sizes[spatial:])
        if not fits(self.expression, program, self.architecture):
            self._add_border(last_aligned)
            return
        order, gain = self._gains(program.shared)
        if is_aligned(program, self.architecture.units):
            last_aligned = program
            bandwidth = self.architecture.dram_bandwidth
            if compute_bound(self.expression, program.shared, self.flops, bandwidth):
                self.saturated.append(program)
            elif not gain:
                self._add_border(program)
        grown = list(_next(steps, position, [*order, *range(spatial, len(steps))]))
        for following in grown:
            self._grow_shared(register, steps, counts, following, last_aligned)
        if not grown:
            self._add_border(last_aligned)

    def _add_border(self, program: TileProgram | None) -> None:
        if program is not None and program not in self.border:
            self.border.append(program)


def _at(steps: list[list[int]], position: Sizes) -> Sizes:
    return tuple(choices[index] for choices, index in zip(steps, position, strict=True))


def _next(steps: list[list[int]], position: Sizes, order: list[int]) -> Iterator[Sizes]:
    """Positions one step on along each axis of ``order`` that has a further step."""
    for axis in order:
        if position[axis] + 1 < len(steps[axis]):
            yield (*position[:axis], position[axis] + 1, *position[axis + 1 :])


def _suffixes(register: Sizes, steps: list[list[int]], threads: Sequence[int]) -> list[list[frozenset[int]]]:
    """For every spatial axis and position.

    The threads along it, there and beyond, that divide an aligned block's.
    """
    found = []
    for own, choices in zip(register, steps, strict=False):
        counts = [-(-size // own) for size in choices]
        useful = [any(total % count == 0 for total in threads) for count in counts]
        found.append(
            [
                frozenset(count for count, kept in zip(counts[i:], useful[i:], strict=True) if kept)
                for i in range(len(counts))
            ]
        )
    return found


def alignable(counts: list[list[frozenset[int]]], position: Sizes, threads: Sequence[int]) -> bool:
    """Return whether a block as large as that at ``position`` or larger has one of these thread counts."""
    left = set(threads)
    for axis, own in enumerate(counts):
        left = {total // count for total in left for count in own[position[axis]] if total % count == 0}
        if not left:
            return False
    return 1 in left
