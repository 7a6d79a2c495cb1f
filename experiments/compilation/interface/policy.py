"""The first two questions that compilation policies answer, and what they answer with.

A library's mechanism is chosen by a ``Recipe``; a graph is rewritten on its records. The other questions
have files of their own: how kernels are launched (``launches``), at which level control flow is carried out
(``control``), which schedules are tried (``tuning``), with which tiles operators run (``tiles``), and which
blocks run where (``blocks``). No policy runs anything: ``live`` does, and checks every result against eager
in float64 before it is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

from experiments.compilation.interface.draft import Types
from experiments.compilation.interface.graph import CONSTANT, OUTPUT, Graph, GraphNode, Ref
from experiments.core.errors import ImpossiblePlan
from experiments.core.knobs import knob
from experiments.core.policy import MODEL, Policy
from experiments.core.progress import Progress
from experiments.workloads.substitutions import Substitutions

#: How a rewritten graph's results relate to the original's. ``exact``: the same numbers wherever arithmetic
#: is exact (integers), only memory layout or order of independent work differs. ``reassociated``: equal in
#: real arithmetic, rounded differently. ``approximate``: different on purpose, within ``Rewritten.bound``.
EXACTNESS = ("exact", "reassociated", "approximate")


def refuse(violations: Sequence[str]) -> None:
    """Raise ``ImpossiblePlan`` if there are ``violations``."""
    if violations:
        raise ImpossiblePlan(violations)


@dataclass(frozen=True)
class Recipe:
    """A backend of ``live.backends`` with its options; "eager" runs the module itself, not even exported.

    ``bound`` > 0: the mechanism computes something else on purpose, within that relative error in norm
    (``Rewritten``).
    """

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    bound: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Applied:
    """One rewrite that was done: the rule's name, the nodes it took and the nodes it made."""

    rule: str
    took: tuple[str, ...]
    made: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Approximation:
    """Claims of an approximate rewrite about itself, which it is then held to.

    - ``weights``: constants, by their path, for which the graph computes with other values on purpose, each
      with the quantization scheme and the axis of channels that give these values. The rewrite is compared
      with a model that has them, so that a wrong code, scale, zero point or axis shows however few the bits
      are.
    - ``calibration``: the rule and the batches (by seed) that ranges of activations were taken from; then
      only inputs like those are compared.
    - ``casts``: the type that ops were given by casts; with float32 in its place the graph must be the
      original.
    - ``training_steps``: how many steps the model and the original are trained for.
    """

    weights: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)
    casts: str = ""
    training_steps: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ObservedRanges:
    """Ranges (lowest, highest) of results over batches seen beforehand, which are named by their seeds."""

    batches: tuple[int, ...]
    ranges: Mapping[Ref, tuple[float, float]]


@dataclass(frozen=True)
class Rewritten:
    """A graph that computes the same, the rewrites done, and what was refused and why (by node or rule).

    - ``bound``: the relative error in norm, ||ours - exact|| / ||exact|| of every output, that an
      ``approximate`` rewrite promises.
    - ``search``: statistics of a search (expanded, duplicates ...).
    - ``ended_at``: the bound at which a search ended with the best so far; empty where it ended by itself.
    """

    graph: Graph
    applied: tuple[Applied, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    search: Mapping[str, float] = field(default_factory=dict)
    exactness: str = "exact"
    bound: float = 0.0
    approximation: Approximation = Approximation()
    ended_at: str = ""


class Workbench(Protocol):
    """What a rewriting policy may ask while it works.

    Costs are seconds on the run's device and stay as they are during a run: measured once for each op and
    types, or by roofline on named hardware.
    """

    @property
    def types(self) -> Types: ...

    @property
    def progress(self) -> Progress: ...

    @property
    def rules(self) -> Substitutions | None:
        """The substitution rules that the workload's side file holds (``options.extra``)."""
        ...

    def seconds(self, node: GraphNode, graph: Graph) -> float:
        """One call of ``node``; 0 for what is no op or is computed once."""
        ...

    def cost(self, graph: Graph) -> float:
        """Return the sum over the graph's live nodes, each once however often it is read."""
        ...

    def ranges(self, refs: Sequence[Ref], rule: str, batches: int, symmetric: bool) -> ObservedRanges:
        """Return the ranges of results of the original graph over ``batches`` batches.

        ``rule`` is one of ``planning.numerics.calibration``.
        """
        ...


@dataclass(frozen=True)
class CompilationPolicy(Policy):
    """Base of every question.

    ``training`` decides which pass is compiled and whether gradients are compared.
    """

    family: ClassVar[str] = "compilation"
    modes: ClassVar[tuple[str, ...]] = ("measured",)
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("model",), "measured": ("model",)}
    reads: ClassVar[str] = MODEL

    training: bool = knob(False, "compile the training step's forward pass and compare gradients too")

    @property
    def updates(self) -> bool:
        """Whether a whole training step is compiled, the update of the parameters included."""
        return False

    @property
    def trains(self) -> bool:
        """Whether the model is in training."""
        return self.training or self.updates


@dataclass(frozen=True)
class RecipePolicy(CompilationPolicy):
    """Asked which backend compiles the model, with which options."""

    def recipe(self, graph: Graph) -> Recipe:
        raise NotImplementedError


@dataclass(frozen=True)
class RewritePolicy(CompilationPolicy):
    """Asked for another graph that computes the same."""

    modes: ClassVar[tuple[str, ...]] = ("measured", "simulated")
    #: Whether the workload's side file is read as its substitution rules.
    takes_rules: ClassVar[bool] = False

    def instead(self, graph: Graph) -> Recipe | None:
        """Return a library's recipe to follow instead of rewriting, where a knob asks for that."""
        return None

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        raise NotImplementedError


def violations(graph: Graph, original: Graph) -> list[str]:
    """Return what is wrong with a rewritten graph or its signature, one line each; empty when it is sound."""
    found: list[str] = []
    seen: dict[str, GraphNode] = {}
    constants = {node.target for node in original.nodes if node.kind == CONSTANT}
    for node in graph.nodes:
        found += [
            f"{node.name} reads {ref.node}, which does not come before it" for ref in _unknown(node, seen)
        ]
        found += [
            f"{node.name} reads result {ref.output} of {ref.node}, which has {len(seen[ref.node].outputs)}"
            for ref in node.refs
            if ref.node in seen and ref.output >= len(seen[ref.node].outputs)
        ]
        if node.kind == CONSTANT and node.target not in constants:
            found.append(f"{node.name} is the constant {node.target}, which the model does not have")
        if node.once and any(
            not seen[name].once and name not in graph.unwritten_constants
            for name in node.inputs
            if name in seen
        ):
            found.append(f"{node.name} is to be computed once but depends on what changes")
        if node.name in seen:
            found.append(f"two nodes are called {node.name}")
        seen[node.name] = node
    if not graph.nodes or graph.output.kind != OUTPUT:
        return [*found, "the last node is not the output"]
    if [n.name for n in graph.inputs] != [n.name for n in original.inputs]:
        found.append("the inputs are not the original's")
    before, after = _types(original), _types(graph)
    if before != after:
        found.append(f"the outputs are {after} instead of {before}")
    return found


def _unknown(node: GraphNode, seen: Mapping[str, GraphNode]) -> list[Ref]:
    return [ref for ref in node.refs if ref.node not in seen]


def _types(graph: Graph) -> list[tuple[tuple[int, ...], str] | None]:
    """Shape and type of every output; ``None`` of one that is no tensor or is not there."""
    kinds = [graph.by_name[ref.node].outputs[ref.output : ref.output + 1] for ref in _known_outputs(graph)]
    return [(kind[0].shape, kind[0].dtype) if kind and kind[0] else None for kind in kinds]


def _known_outputs(graph: Graph) -> list[Ref]:
    return [ref for ref in graph.output.refs if ref.node in graph.by_name]
