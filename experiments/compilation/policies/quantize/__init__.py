"""Post-training quantization of weights, and if asked of activations (Jacob et al., CVPR 2018; Dettmers et
al., NeurIPS 2022, section 2, for scales by row; Frantar et al., ICLR 2023, for groups; rounding is to
nearest, no weight is tuned).

Weights become integer codes with scales that are computed once and kept; every call turns them back (weights
only), or multiplies integers (activations too). ``engine`` torchao leaves the mechanism to that library's
``quantize_``: linear layers only, on GPUs 8-bit floats as well.

What the papers leave open: a constant that something else reads too stays as it is; a group size that does
not divide a row pads the last group with zeros; scales are rounded before the codes are made with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from experiments.compilation.interface import (
    CONSTANT,
    Applied,
    Approximation,
    Draft,
    Graph,
    GraphNode,
    ObservedRanges,
    Recipe,
    Ref,
    RewritePolicy,
    Rewritten,
    Workbench,
)
from experiments.compilation.planning.numerics.bounds import rounded_activations
from experiments.compilation.planning.numerics.calibration import RULES, ClippingRange
from experiments.compilation.planning.numerics.quantization import Scheme
from experiments.compilation.policies.quantize.activations import (
    Codes,
    back,
    dynamic,
    integer_linear,
    integer_product_fits,
    static,
)
from experiments.compilation.policies.quantize.stored import StoredWeight, looked_up, store, whole
from experiments.compilation.policies.quantize.torchao_methods import method
from experiments.core.errors import BadInput
from experiments.core.knobs import knob

EMBEDDING = "aten.embedding.default"
LINEAR = "aten.linear.default"
#: Where an op has its weight: the argument's number and the weight's axis of output channels.
PLACES: Mapping[str, tuple[int, int]] = {
    EMBEDDING: (0, 0),
    LINEAR: (1, 0),
    "aten.mm.default": (1, 1),
    "aten.matmul.default": (1, 1),
    "aten.addmm.default": (2, 1),
    **{f"aten.conv{n}d.{overload}": (1, 0) for n in (1, 2, 3) for overload in ("default", "padding")},
    **{f"aten.conv_transpose{n}d.{'default' if n == 1 else 'input'}": (1, 1) for n in (1, 2, 3)},
}
#: The argument that is multiplied by the weight.
ACTIVATION: Mapping[str, int] = {"aten.addmm.default": 1}


@dataclass(frozen=True)
class Quantize(RewritePolicy):
    """Stores weights as integers of 2 to 8 bits and, if asked, rounds activations to 8."""

    name: ClassVar[str] = "quantize"
    mechanism: ClassVar[str] = "fewer bits"

    engine: str = knob("own", "who quantizes", choices=("own", "torchao"))
    number: str = knob(
        "integer", "what a code is: a whole number, or a float (e4m3)", choices=("integer", "float")
    )
    bits: int = knob(8, "bits of a weight", low=2, high=8)
    granularity: str = knob("channel", "weights that share a scale", choices=("tensor", "channel", "group"))
    group: int = knob(128, "weights of a row that share a scale", low=1, high=65536)
    symmetric: bool = knob(True, "no zero point: codes around zero")
    scale: str = knob("float32", "type of a weight's scale", choices=("float32", "float16"))
    embeddings: bool = knob(True, "quantize embedding tables; a layer tied to one follows it")
    activations: str = knob("none", "8-bit activations", choices=("none", "dynamic", "static"))
    calibration: str = knob("min_max", "rule for the range of static activations", choices=RULES)
    batches: int = knob(32, "batches seen by calibration", low=32, high=4096)
    activations_symmetric: bool = knob(False, "static activations have no zero point")

    def __post_init__(self) -> None:
        if self.training:
            raise BadInput("quantizes after training only", "knobs.training", "false")
        if self.engine == "torchao":
            method(self.number, self.scheme, self.activations)
        elif self.number != "integer":
            raise BadInput("codes of the own engine are whole numbers", "knobs.number", "integer")

    @property
    def scheme(self) -> Scheme:
        return Scheme(self.bits, self.granularity, self.group, self.symmetric, self.scale)

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        chosen, refused = weights(graph, self.embeddings)
        seen = self._observe_ranges(graph, bench, chosen)
        work = _Work(self, Draft(graph, bench.types), seen.ranges)
        applied = tuple(work.quantize(graph, graph.by_name[name], axis) for name, axis in chosen.items())
        products = len(work.rounded)
        return Rewritten(
            work.draft.finish(),
            applied,
            refused,
            exactness="approximate",
            bound=rounded_activations(self.number, products) if products else 0.0,
            approximation=Approximation(
                {
                    graph.by_name[name].target: asdict(self.scheme) | {"axis": axis}
                    for name, axis in chosen.items()
                },
                self._calibration(seen),
            ),
        )

    def _calibration(self, seen: ObservedRanges) -> dict[str, Any]:
        if not seen.batches:
            return {}
        ranges = {f"{ref.node}:{ref.output}": list(pair) for ref, pair in seen.ranges.items()}
        return {"rule": self.calibration, "batches": list(seen.batches), "ranges": ranges}

    def _observe_ranges(self, graph: Graph, bench: Workbench, chosen: Mapping[str, int]) -> ObservedRanges:
        if self.activations != "static":
            return ObservedRanges((), {})
        read = [
            activation
            for name in chosen
            for user in graph.users[name]
            if user.target != EMBEDDING and (activation := _activation(user)) is not None
        ]
        return bench.ranges(
            tuple(dict.fromkeys(read)), self.calibration, self.batches, self.activations_symmetric
        )

    def instead(self, graph: Graph) -> Recipe | None:
        """torchao's method that means the same."""
        if self.engine == "own":
            return None
        linears = sum(node.target == LINEAR for node in graph.ops)
        options = {
            "method": method(self.number, self.scheme, self.activations),
            "number": self.number,
            "scheme": asdict(self.scheme),
        }
        bound = rounded_activations(self.number, linears) if self.activations != "none" else 0.0
        return Recipe("torchao", options, bound)


def weights(graph: Graph, embeddings: bool) -> tuple[dict[str, int], dict[str, str]]:
    """Return constants to quantize with their axis of channels.

    And those that are products' weights but stay, with why.
    """
    chosen: dict[str, int] = {}
    refused: dict[str, str] = {}
    for constant in (node for node in graph.nodes if node.kind == CONSTANT):
        users = graph.users[constant.name]
        places = {_place(user, constant.name) for user in users}
        if not places - {None}:
            continue
        reason = _obstacle(constant, users, places, embeddings)
        if reason:
            refused[constant.name] = reason
        else:
            chosen[constant.name] = next(axis for axis in places if axis is not None)
    return chosen, refused


def _place(user: GraphNode, constant: str) -> int | None:
    """Return the axis of channels if ``user`` reads the constant as its weight and as nothing else."""
    if user.target not in PLACES:
        return None
    position, axis = PLACES[user.target]
    alone = [ref.node for ref in user.refs].count(constant) == 1
    weight = user.arguments[position] if len(user.arguments) > position else None
    return axis if alone and isinstance(weight, Ref) and weight.node == constant else None


def _obstacle(
    constant: GraphNode, users: tuple[GraphNode, ...], places: set[int | None], embeddings: bool
) -> str:
    if len(constant.shape) < 2 or constant.dtype not in ("float64", "float32", "bfloat16", "float16"):
        return f"is {constant.dtype} of shape {constant.shape}, not a matrix of floating point numbers"
    if None in places:
        other = next(user for user in users if _place(user, constant.name) is None)
        return f"is read by {other.target} too"
    if len(places) > 1:
        return "its readers differ in the axis of channels"
    if not embeddings and any(user.target == EMBEDDING for user in users):
        return "is an embedding table"
    return ""


def _activation(user: GraphNode) -> Ref | None:
    found = user.arguments[ACTIVATION.get(user.target, 0)]
    return found if isinstance(found, Ref) else None


@dataclass
class _Work:
    """The graph being rewritten; ``rounded`` are the products whose activations are rounded."""

    policy: Quantize
    draft: Draft
    ranges: Mapping[Ref, tuple[float, float]]

    def __post_init__(self) -> None:
        self.rounded: list[str] = []
        self._codes: dict[Ref, Codes] = {}

    def quantize(self, graph: Graph, constant: GraphNode, axis: int) -> Applied:
        """Let everything that reads the constant work with its codes."""
        before = len(self.draft.made)
        stored = store(self.draft, Ref(constant.name), self.policy.scheme, axis)
        padding = stored.blocking.padding
        full: Ref | None = None
        users = graph.users[constant.name]
        for user in users:
            made = self._special(user, stored)
            if made is None:
                full = full or whole(self.draft, stored)
                made = self._plain(user, full)
            self.draft.replace(Ref(user.name), made)
        title = f"{self.policy.bits} bits by {self.policy.granularity}"
        title += f", {padding} zeros pad each row" if padding else ""
        took = (constant.name, *(user.name for user in users))
        return Applied(title, took, self.draft.made[before:])

    def _special(self, user: GraphNode, stored: StoredWeight) -> Ref | None:
        """Return an op that works on codes themselves, where there is one."""
        if user.target == EMBEDDING:
            indices = user.arguments[1]
            assert isinstance(indices, Ref)
            return looked_up(self.draft, stored, indices)
        x = _activation(user)
        if self.policy.activations == "none" or user.target != LINEAR or x is None:
            return None
        x = self._now(user, x)
        if not integer_product_fits(self.draft, x, stored):
            return None
        self.rounded.append(user.name)
        bias = self._argument(user, 2)
        return integer_linear(self.draft, self._rounded(user, x), stored, bias)

    def _plain(self, user: GraphNode, weight: Ref) -> Ref:
        """Return the op itself on the weight turned back, and on rounded activations where asked."""
        node = self.draft.node(user.name)
        arguments = list(node.arguments)
        arguments[PLACES[user.target][0]] = weight
        x = _activation(node)
        if self.policy.activations != "none" and x is not None:
            arguments[ACTIVATION.get(user.target, 0)] = back(self.draft, self._rounded(user, x))
            self.rounded.append(user.name)
        return self.draft.op(node.target, *arguments, **dict(node.keywords))  # type: ignore[arg-type]

    def _argument(self, user: GraphNode, position: int) -> Any:
        arguments = self.draft.node(user.name).arguments
        return arguments[position] if len(arguments) > position else None

    def _now(self, user: GraphNode, x: Ref) -> Ref:
        """What ``user`` reads in the graph as it is now."""
        found = _activation(self.draft.node(user.name))
        return x if found is None else found

    def _rounded(self, user: GraphNode, x: Ref) -> Codes:
        """Return codes of an activation; readers of one share them."""
        if x not in self._codes:
            self._codes[x] = self._round(user, x)
        return self._codes[x]

    def _round(self, user: GraphNode, x: Ref) -> Codes:
        rank = len(self.draft.type(x).shape)
        if self.policy.activations == "static":
            seen = ClippingRange(*self.ranges[_activation(user)])  # type: ignore[index]
            return static(self.draft, x, seen, self.policy.activations_symmetric)
        per_token = "conv" not in user.target
        return dynamic(self.draft, x, (rank - 1,) if per_token else tuple(range(1, rank)))
