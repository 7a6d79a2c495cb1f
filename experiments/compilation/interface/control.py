"""Programs with loops, branches and recursion as policies see them, and the levels that a policy chooses
from.

A construct holds body graphs whose constants have become inputs or stay constants of the body; the graph
around it is not looked at. A *level* says how a kind of construct is carried out; a *variant* is one level
for each kind that a program has, applied to the whole program; a *trial* is what carrying a variant out gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from experiments.compilation.interface.graph import INPUT, OP, Graph
from experiments.compilation.interface.policy import CompilationPolicy
from experiments.core.knobs import knob

LOOP, BRANCH, RECURSION = "loop", "branch", "recursion"
#: Levels by kind. ``host``: Python decides and launches compiled bodies. Loop: ``unroll`` (``factor`` trips
#: in one graph), ``full`` (all trips), ``while_loop`` (one graph that loops). Branch: ``ahead`` (small ops
#: run before the host's decision), ``cond`` (one graph that branches), ``both`` (both sides run and one
#: result is kept). Recursion: ``stack`` (explicit, of ``factor`` frames), ``unroll`` (calls of ``factor``
#: levels in one graph).
LEVELS: Mapping[str, tuple[str, ...]] = {
    LOOP: ("host", "unroll", "full", "while_loop"),
    BRANCH: ("host", "ahead", "cond", "both"),
    RECURSION: ("host", "stack", "unroll"),
}


@dataclass(frozen=True)
class ControlLoop:
    """A loop of at most ``trips`` trips.

    ``conditional``: the data end it. ``body`` is ``None`` where the body's own control flow depends on data.
    """

    path: str
    body: Graph | None
    trips: int
    conditional: bool
    kind: str = LOOP

    @property
    def bodies(self) -> tuple[Graph | None, ...]:
        return (self.body,)


@dataclass(frozen=True)
class ControlBranch:
    """Two sides with the same operands and a result of the same type."""

    path: str
    taken: Graph | None
    otherwise: Graph | None
    kind: str = BRANCH

    @property
    def bodies(self) -> tuple[Graph | None, ...]:
        return (self.taken, self.otherwise)


@dataclass(frozen=True)
class ControlRecursion:
    """A function that calls itself ``width`` times, independently.

    ``depth`` is how many calls lie below the first, ``calls`` how many there are in all.
    """

    path: str
    combine: Graph | None
    depth: int
    calls: int
    width: int = 2
    kind: str = RECURSION

    @property
    def bodies(self) -> tuple[Graph | None, ...]:
        return (self.combine,)


Construct = ControlLoop | ControlBranch | ControlRecursion


@dataclass(frozen=True)
class ControlProgram:
    """The constructs of a model, outer ones before those in their bodies."""

    constructs: tuple[Construct, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.kind for entry in self.constructs))

    def of(self, kind: str) -> tuple[Construct, ...]:
        return tuple(entry for entry in self.constructs if entry.kind == kind)


@dataclass(frozen=True)
class ControlLevel:
    """One of ``LEVELS`` of its kind; ``factor`` is a number of trips, frames or depths."""

    kind: str
    form: str
    factor: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.form}" + (f" {self.factor}" if self.factor else "")


@dataclass(frozen=True)
class Variant:
    """One level for each kind of construct."""

    levels: tuple[ControlLevel, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.levels)) or "as it is"

    def of(self, kind: str) -> ControlLevel:
        return next(level for level in self.levels if level.kind == kind)


@dataclass(frozen=True)
class ControlTrial:
    """Outcome of one variant: measured, or skipped for an ``error``.

    - ``seconds``, ``lower``, ``upper``: median and quartiles of one call.
    - ``graphs``: compiled in the first call.
    - ``breaks``: between those graphs.
    - ``ops``: captured.
    - ``compile_seconds``: what compiling took.
    - ``bit_equal``: the results are eager's to the last bit.
    - ``error``: why the variant was skipped.
    """

    variant: Variant
    seconds: float | None = None
    lower: float | None = None
    upper: float | None = None
    graphs: int = 0
    breaks: int = 0
    ops: int = 0
    compile_seconds: float = 0.0
    bit_equal: bool = False
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "variant": str(self.variant)}


@dataclass(frozen=True)
class ControlPolicy(CompilationPolicy):
    """Asked which variants of a program to try, and, when they were measured, which one it is."""

    backend: str = knob("eager", "what runs captured graphs", choices=("eager", "inductor"))
    small: int = knob(128, "elements of an operand that may move ahead of a branch", low=0, high=2**20)
    limit: float = knob(60.0, "time limit of a variant", low=0.1, high=3600.0, unit="s")

    def variants(self, program: ControlProgram) -> LevelChoices:
        raise NotImplementedError

    def choose(self, trials: Sequence[ControlTrial]) -> ControlTrial | None:
        raise NotImplementedError


@dataclass(frozen=True)
class LevelChoices:
    """Variants to try, and the levels refused with their reasons."""

    variants: tuple[Variant, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


def violations(choices: LevelChoices, program: ControlProgram) -> list[str]:
    """Return the reasons why variants are none of the program, one line each.

    A variant has one known level for each kind of construct.
    """
    found = []
    for variant in choices.variants:
        if sorted(level.kind for level in variant.levels) != sorted(program.kinds):
            found.append(f"{variant}: the program has {', '.join(program.kinds) or 'no construct'}")
        unknown = [level for level in variant.levels if level.form not in LEVELS.get(level.kind, ())]
        found += [f"{level} is no level" for level in unknown]
    return found


def chunks(trips: int, factor: int) -> tuple[int, int]:
    """Return the whole groups of ``factor`` trips, and the trips that remain."""
    return divmod(trips, factor)


def frames(width: int, depth: int, stack: int) -> int:
    """Return the frames that a stack of ``stack`` calls needs.

    Each call is unrolled ``depth`` levels of ``width`` calls.
    """
    return int(stack * width**depth)


def returns_input(graph: Graph) -> bool:
    """Return whether a result is an argument itself or shares its memory.

    No branch of one graph may hand that out.
    """
    return any(_views_input(graph, ref.node) for ref in graph.output.refs)


def _views_input(graph: Graph, name: str) -> bool:
    node = graph.by_name[name]
    if node.kind == INPUT:
        return True
    return node.views and any(_views_input(graph, below) for below in node.inputs)


def has_effects(graph: Graph | None) -> bool:
    """Return whether running it changes or draws anything besides its results.

    A body that is not known counts as one.
    """
    if graph is None:
        return True
    return any(node.random or node.mutates or node.effect for node in graph.nodes)


def small_ops(graph: Graph, most: int) -> tuple[str, ...]:
    """Return ops that may run ahead of a branch.

    Pure, of operands of at most ``most`` elements, none of them computed after something that must stay
    behind. Views alone are not worth moving, and a result that is returned stays.
    """
    moved: list[str] = []
    known = {node.name for node in graph.nodes if node.kind != OP}
    for node in graph.ops:
        small = all(graph.type(ref).elements <= most for ref in node.refs)
        fits = all(out is not None and out.elements <= most for out in node.outputs)
        pure = not (node.random or node.mutates or node.effect)
        if small and fits and pure and node.refs and all(name in known for name in node.inputs):
            known.add(node.name)
            moved.append(node.name)
    worth = any(not graph.by_name[name].views for name in moved)
    return tuple(moved) if worth else ()
