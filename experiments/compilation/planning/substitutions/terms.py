"""A graph as shared terms: equal operators on equal inputs are one term, for all graphs of a search.

A graph is then the tuple of its outputs' terms, two graphs are equal when these are, and replacing one term
leaves all others what they were, with their types, prices and matches. Kinds are those of the rules' algebra
and four more: ``leaf`` (an input or constant), ``aten`` (any other op), ``result`` (one of several results)
and ``broadcast`` (a vector spread along an axis: biases). A term that depends on constants only is ``free``:
it is computed once, as TASO does at the end of its search, unless that would keep a huge result.

Simplified while made: transposes of transposes, a split of what was just concatenated and the other way
round, a concatenation of biases (it is the bias of concatenations), a transpose of concatenated weights.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.compilation.interface import IllTyped, Ref, Signature, TensorType, Types, map_refs

LEAF, ATEN, RESULT, BROADCAST, COLUMN = "leaf", "aten", "result", "broadcast", "column"
#: Biases of products are spread along the last axis, those of convolutions along the third from the last.
FEATURES, CHANNELS = -1, -3
#: Views that ask for a certain layout, and the op that gives the same of any layout.
VIEWS, RESHAPE = ("aten.view.default",), "aten.reshape.default"
#: An op on constants is computed once unless its result has more bytes than this, and than what it reads.
MOST_FOLDED = 2**26
ADDITION = {"ew_add": "aten.add.Tensor", "ew_mul": "aten.mul.Tensor"}


@dataclass(frozen=True, slots=True)
class TermCall:
    """One ATen call; a ``Ref`` holds a term's number as its node."""

    target: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Opaque:
    """The data of an ``aten`` term: its call with input positions in place of numbers.

    ``own`` makes it unlike any other (it draws random numbers or has an effect).
    """

    call: TermCall
    own: str = ""


@dataclass(slots=True)
class Term:
    """One operator of a graph over others.

    ``origin`` is the node of the input graph that computes it, ``covers`` the terms inside that node
    which are not computed apart, ``successor`` the node of which this is the same op on changed inputs.
    """

    number: int
    kind: str
    data: Any
    inputs: tuple[int, ...]
    types: tuple[TensorType | None, ...]
    free: bool
    depth: int
    origin: str = ""
    covers: tuple[int, ...] = ()
    successor: str = ""


class Terms:
    """All terms of a search; ``types`` infers what an ATen op gives."""

    def __init__(self, types: Types) -> None:
        self._infer = types
        self._terms: list[Term] = []
        self._known: dict[Hashable, int] = {}
        self._signatures: dict[Hashable, Signature | IllTyped] = {}

    def __getitem__(self, number: int) -> Term:
        return self._terms[number]

    def __len__(self) -> int:
        return len(self._terms)

    def __iter__(self) -> Iterator[Term]:
        return iter(self._terms)

    def type(self, number: int) -> TensorType:
        """Of a term with one result, or of one result."""
        term = self._terms[number]
        found = self._terms[term.inputs[0]].types[term.data] if term.kind == RESULT else term.types[0]
        assert found is not None, f"term {number} is no tensor"
        return found

    def shape(self, number: int) -> tuple[int, ...]:
        return self.type(number).shape

    def leaf(self, name: str, types: tuple[TensorType | None, ...], free: bool) -> int:
        return self._add(LEAF, name, (), types, free, name)

    def make(self, kind: str, data: Any, inputs: Sequence[int]) -> int:
        """Return the term, simplified, made if it is new.

        ``IllTyped`` where the op does not accept its inputs.
        """
        inputs = tuple(inputs)
        if kind in ADDITION:
            inputs = tuple(sorted(inputs))
        simpler = self._simplify(kind, data, inputs)
        if simpler is not None:
            return simpler
        known = self._known.get((kind, data, inputs))
        if known is not None:
            return known
        types = self._types(kind, data, inputs)
        free = all(self._terms[number].free for number in inputs) and not (
            kind == ATEN and (data.own or self._bytes(types) > max(MOST_FOLDED, self._read(inputs)))
        )
        return self._add(kind, data, inputs, types, free)

    @staticmethod
    def _bytes(types: Sequence[TensorType | None]) -> int:
        return sum(kind.bytes for kind in types if kind is not None)

    def _read(self, inputs: tuple[int, ...]) -> int:
        return sum(self._bytes(self._terms[number].types) for number in inputs)

    def make_or_copy(self, kind: str, data: Any, inputs: tuple[int, ...]) -> Term:
        """Return ``make``, where a view that its input's layout in memory does not allow copies instead."""
        try:
            return self._terms[self.make(kind, data, inputs)]
        except IllTyped:
            if kind != ATEN or data.call.target not in VIEWS:
                raise
        call = TermCall(RESHAPE, data.call.arguments, data.call.keywords)
        return self._terms[self.make(ATEN, Opaque(call, data.own), inputs)]

    def _add(
        self,
        kind: str,
        data: Any,
        inputs: tuple[int, ...],
        types: tuple[TensorType | None, ...],
        free: bool,
        origin: str = "",
    ) -> int:
        depth = 1 + max((self._terms[number].depth for number in inputs), default=0)
        term = Term(len(self._terms), kind, data, inputs, types, free, depth, origin)
        self._terms.append(term)
        self._known[kind, data, inputs] = term.number
        return term.number

    def _types(self, kind: str, data: Any, inputs: tuple[int, ...]) -> tuple[TensorType | None, ...]:
        if kind == RESULT:
            return (self._terms[inputs[0]].types[data],)
        self._check(kind, data, inputs)
        return self.signature(self.call(kind, data, inputs)).outputs

    def _check(self, kind: str, data: Any, inputs: tuple[int, ...]) -> None:
        """What ATen would accept by broadcasting or promotion is no operator of the algebra."""
        if kind in (ATEN, BROADCAST, COLUMN):
            return
        types = [self.type(number) for number in inputs]
        if len({t.dtype for t in types}) > 1:
            raise IllTyped(f"{kind} of {', '.join(t.dtype for t in types)}")
        ranks = [len(t.shape) for t in types]
        if kind in ADDITION and types[0].shape != types[1].shape:
            raise IllTyped(f"{kind} of {types[0].shape} and {types[1].shape}")
        batched = ranks[-1] > 2 and types[0].shape[:-2] == types[-1].shape[:-2]
        if kind == "matmul" and not (min(ranks) >= 2 and (ranks[1] == 2 or batched)):
            raise IllTyped(f"matmul of {types[0].shape} and {types[1].shape}")
        if kind in ("concat", "split") and min(ranks) < -self._axis(kind, data):
            raise IllTyped(f"{kind} of {types[0].shape} along axis {self._axis(kind, data)}")

    @staticmethod
    def _axis(kind: str, data: Any) -> int:
        return int(data[0] if kind == "split" else data)

    def signature(self, call: TermCall) -> Signature:
        """What ``call`` gives; asked for once."""
        arguments, keywords = map_refs((call.arguments, call.keywords), self.result_type)
        key = (call.target, arguments, keywords, repr((arguments, keywords)) if _ambiguous(arguments) else "")
        known = self._signatures.get(key)
        if known is None:
            try:
                known = self._infer(call.target, arguments, keywords)
            except IllTyped as error:
                known = error
            self._signatures[key] = known
        if isinstance(known, IllTyped):
            raise known
        return known

    def result_type(self, ref: Ref) -> TensorType | None:
        return self._terms[int(ref.node)].types[ref.output]

    def ref(self, number: int) -> Ref:
        """Return how a call reads a term."""
        term = self._terms[number]
        return Ref(str(term.inputs[0]), term.data) if term.kind == RESULT else Ref(str(number))

    def call(self, kind: str, data: Any, inputs: tuple[int, ...]) -> TermCall:
        """Return how the term is computed by itself."""
        if kind == ATEN:
            refs = [self.ref(number) for number in inputs]
            arguments, keywords = map_refs(
                (data.call.arguments, data.call.keywords), lambda place: refs[int(place.node)]
            )
            return TermCall(data.call.target, arguments, keywords)
        x = self.ref(inputs[0])
        if kind == "matmul":
            return self._product(inputs)
        if kind in ADDITION:
            return TermCall(ADDITION[kind], tuple(self.ref(self._narrow(number)) for number in inputs))
        if kind == "relu":
            return TermCall("aten.relu.default", (x,))
        if kind == "concat":
            dim = len(self.shape(inputs[0])) + data
            return TermCall("aten.cat.default", (tuple(self.ref(number) for number in inputs), dim))
        if kind == "split":
            axis, sizes = data
            return TermCall("aten.split_with_sizes.default", (x, sizes, len(self.shape(inputs[0])) + axis))
        if kind == "conv2d":
            return TermCall("aten.conv2d.default", (x, self.ref(inputs[1]), None, *data))
        if kind == "enlarge":
            return TermCall("aten.constant_pad_nd.default", (x, data))
        rank = len(self.shape(inputs[0]))
        if kind == "transpose":
            return TermCall("aten.transpose.int", (x, rank - 2, rank - 1))
        if kind == COLUMN:
            return TermCall("aten.view.default", (x, (self.shape(inputs[0])[0], *(1,) * data)))
        assert kind == BROADCAST, kind
        return TermCall("aten.expand.default", (x, data[1]))

    def _product(self, inputs: tuple[int, ...]) -> TermCall:
        x, y = (self.ref(number) for number in inputs)
        ranks = [len(self.shape(number)) for number in inputs]
        if self._terms[inputs[1]].free and ranks[1] == 2:
            return TermCall("aten.linear.default", (x, self.ref(self.make("transpose", None, inputs[1:]))))
        target = {(2, 2): "aten.mm.default", (3, 3): "aten.bmm.default"}.get((ranks[0], ranks[1]))
        return TermCall(target or "aten.matmul.default", (x, y))

    def _narrow(self, number: int) -> int:
        """Return a bias as the op reads it: not spread."""
        term = self._terms[number]
        return term.inputs[0] if term.kind == BROADCAST else number

    def broadcast(self, vector: int, axis: int, shape: tuple[int, ...]) -> int:
        """Return ``vector`` along ``axis`` (from the last) of a tensor of ``shape``."""
        if axis != FEATURES:
            vector = self.make(COLUMN, -axis - 1, (vector,))
        return self.make(BROADCAST, (axis, shape), (vector,))

    def bias(self, number: int) -> int:
        """Return the vector that a ``broadcast`` term spreads."""
        inside = self._terms[self._terms[number].inputs[0]]
        return inside.inputs[0] if inside.kind == COLUMN else inside.number

    def _simplify(self, kind: str, data: Any, inputs: tuple[int, ...]) -> int | None:
        terms = [self._terms[number] for number in inputs]
        if kind == "transpose":
            return self._simplify_transpose(terms[0])
        if kind == RESULT and terms[0].kind == "split":
            return self._part(terms[0], data)
        if kind == "concat":
            return self._simplify_concat(data, terms)
        return None

    def _simplify_transpose(self, inside: Term) -> int | None:
        if inside.kind == "transpose":
            return inside.inputs[0]
        if inside.free and inside.kind == "concat" and inside.data in (-1, -2) and not inside.origin:
            parts = [self.make("transpose", None, (number,)) for number in inside.inputs]
            return self.make("concat", -3 - inside.data, parts)
        return None

    def _part(self, split: Term, output: int) -> int | None:
        axis, sizes = split.data
        inside = self._terms[split.inputs[0]]
        if inside.kind != "concat" or inside.data != axis or len(sizes) != len(inside.inputs):
            return None
        held = tuple(self.shape(number)[axis] for number in inside.inputs)
        return inside.inputs[output] if held == tuple(sizes) else None

    def _simplify_concat(self, axis: int, parts: list[Term]) -> int | None:
        first = parts[0]
        if all(part.kind == RESULT for part in parts):
            split = self._terms[first.inputs[0]]
            whole = all(part.inputs == first.inputs and part.data == i for i, part in enumerate(parts))
            if whole and split.kind == "split" and split.data[0] == axis and len(split.data[1]) == len(parts):
                return split.inputs[0]
        if any(part.kind != BROADCAST or part.data[0] != first.data[0] for part in parts):
            return None
        along, shape = first.data
        total = sum(part.data[1][axis] for part in parts)
        whole_shape = tuple(total if i == len(shape) + axis else size for i, size in enumerate(shape))
        vectors = [self.bias(part.number) for part in parts]
        if along == axis:
            return self.broadcast(self.make("concat", -1, vectors), along, whole_shape)
        return self.broadcast(vectors[0], along, whole_shape) if len(set(vectors)) == 1 else None


def _ambiguous(value: Any) -> bool:
    """Return whether numbers in it (1, 1.0, True) could be equal as keys but not to an op."""
    if isinstance(value, tuple):
        return any(_ambiguous(entry) for entry in value)
    return isinstance(value, bool | float)
