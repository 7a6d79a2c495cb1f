"""Padding that does not leak: ops carried out by torch on padded tensors with junk behind the useful entries.

A model is written as ops at ``n`` entries. It is carried out on 3 useful entries, and on 5 of which the last
two are junk, with the masks that the walk asks for: the useful part of the result must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.compilation.interface import (
    INPUT,
    OP,
    OUTPUT,
    Graph,
    GraphNode,
    Ref,
    TensorType,
    contiguous,
    map_refs,
)
from experiments.compilation.live.padding.axes import (
    Axes,
    Leak,
    PaddedAxis,
    broadcast,
    new_axes,
    reshape_axes,
)
from experiments.compilation.live.padding.padding import Mask, Padding, padding
from experiments.compilation.live.padding.padding_rules import RULES
from experiments.core.errors import Infeasible

pytestmark = pytest.mark.torch
USEFUL, PADDED, JUNK = 3, 5, 77.0
X, Y = Ref("x"), Ref("y")
#: An argument of an op: plain, a tensor, or what follows from the number of entries.
Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Model:
    """Shapes of the inputs at ``n`` entries, and ops (name, target, arguments) of which the last is the
    result.
    """

    inputs: Mapping[str, Callable[[int], tuple[int, ...]]]
    ops: Sequence[tuple[str, str, Arguments]]

    def graph(self, n: int) -> Graph:
        nodes = [
            GraphNode(name, INPUT, name, outputs=(_type(torch.zeros(shape(n))),))
            for name, shape in self.inputs.items()
        ]
        values = {Ref(name): torch.ones(shape(n)) for name, shape in self.inputs.items()}
        for name, target, arguments in self.ops:
            given = tuple(argument(n) if callable(argument) else argument for argument in arguments)
            results = self._carried_out(target, given, values, name)
            nodes.append(
                GraphNode(name, OP, target, given, outputs=tuple(_type(result) for result in results))
            )
        output = GraphNode("output", OUTPUT, "output", ((Ref(self.ops[-1][0]),),))
        return Graph((*nodes, output))

    def run(self, n: int, inputs: Mapping[str, torch.Tensor], found: Padding | None = None) -> torch.Tensor:
        """The result; with ``found``, of ``n`` padded entries whose masks are applied before each op."""
        values = {Ref(name): tensor for name, tensor in inputs.items()}
        for name, target, arguments in self.ops:
            given = [argument(n) if callable(argument) else argument for argument in arguments]
            for mask in found.masks if found else ():
                if mask.node == name:
                    masked = covered(values[given[mask.argument]], mask, n)
                    key = Ref(f"{name}.{mask.argument}")
                    values[key], given[mask.argument] = masked, key
            results = self._carried_out(target, tuple(given), values, name)
            if found and name in found.means:
                values[Ref(name)] = results[0] * (PADDED / USEFUL) ** found.means[name]
        return values[Ref(self.ops[-1][0])]

    @staticmethod
    def _carried_out(
        target: str, given: Arguments, values: dict[Ref, torch.Tensor], name: str
    ) -> tuple[torch.Tensor, ...]:
        _, op, overload = target.split(".")
        function = getattr(getattr(torch.ops.aten, op), overload)
        result = function(*map_refs(given, lambda ref: values[ref]))
        results = result if isinstance(result, tuple | list) else (result,)
        values.update((Ref(name, number), tensor) for number, tensor in enumerate(results))
        return tuple(results)


def _type(tensor: torch.Tensor) -> TensorType:
    return TensorType(
        tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), contiguous(tuple(tensor.shape))
    )


def entries(size: int, axis: PaddedAxis, n: int) -> np.ndarray[Any, Any]:
    """Whose entry each place of a dimension belongs to."""
    return np.arange(size) // axis.inner % n


def useful(tensor: torch.Tensor, axes: Axes, n: int = PADDED) -> torch.Tensor:
    for place, axis in enumerate(axes):
        if axis is not None:
            kept = np.flatnonzero(entries(tensor.shape[place], axis, n) < USEFUL)
            tensor = tensor.index_select(place, torch.tensor(kept))
    return tensor


def covered(tensor: torch.Tensor, mask: Mask, n: int) -> torch.Tensor:
    tensor = tensor.clone()
    for place, axis in enumerate(mask.axes):
        if axis is not None:
            behind = np.flatnonzero(entries(tensor.shape[place], axis, n) >= USEFUL)
            tensor.index_fill_(place, torch.tensor(behind), mask.neutral)
    return tensor


def junk_behind(small: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """``small`` in the first places of a tensor of junk."""
    large = torch.full(shape, JUNK, dtype=small.dtype)
    large[tuple(slice(0, size) for size in small.shape)] = small
    return large


def walk_of(model: Model) -> Padding:
    return padding(model.graph(USEFUL), model.graph(PADDED), (USEFUL, PADDED), RULES)


def keeps(model: Model) -> Padding:
    """The useful result is that without padding, and what was needed for it."""
    found = walk_of(model)
    small = {
        name: torch.tensor(np.random.default_rng(number).integers(1, 9, shape(USEFUL)), dtype=torch.float64)
        for number, (name, shape) in enumerate(model.inputs.items())
    }
    large = {name: junk_behind(small[name], shape(PADDED)) for name, shape in model.inputs.items()}
    expected = model.run(USEFUL, small)
    ours = useful(model.run(PADDED, large, found), found.outputs[0])
    assert ours.shape == expected.shape
    assert torch.allclose(ours, expected, rtol=1e-9), (ours, expected)
    return found


def one(target: str, *arguments: Any, x: Callable[[int], tuple[int, ...]] = lambda n: (n, 4)) -> Model:
    return Model({"x": x}, [("op", target, (X, *arguments))])


# --- ops that mix entries ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "arguments", "neutral"),
    [
        ("aten.sum.dim_IntList", ((0,),), 0.0),
        ("aten.sum.dim_IntList", ((-2,), True), 0.0),
        ("aten.sum.default", (), 0.0),
        ("aten.mean.dim", ((0,), True), 0.0),
        ("aten.mean.default", (), 0.0),
        ("aten.amax.default", ((0,),), -math.inf),
        ("aten.amin.default", ((0, 1),), math.inf),
        ("aten.prod.dim_int", (0,), 1.0),
        ("aten.logsumexp.default", ((0,),), -math.inf),
        ("aten.softmax.int", (0,), -math.inf),
        ("aten._log_softmax.default", (-2, False), -math.inf),
    ],
)
def test_what_mixes_entries_has_a_neutral_element_in_their_place(
    target: str, arguments: Arguments, neutral: float
) -> None:
    found = keeps(one(target, *arguments))
    assert [(mask.argument, mask.neutral) for mask in found.masks] == [(0, neutral)]
    assert found.masks[0].axes == (PaddedAxis(), None)


def test_a_mean_over_the_padding_is_known_to_count_it() -> None:
    assert keeps(one("aten.mean.dim", (0,))).means == {"op": 1}
    assert keeps(one("aten.mean.dim", (1,))).means == {}
    both = Model({"x": lambda n: (n, 2, n)}, [("op", "aten.mean.dim", (X, (0, 2)))])
    assert keeps(both).means == {"op": 2}


def test_sums_along_other_dimensions_need_nothing() -> None:
    for target, arguments in (("aten.sum.dim_IntList", ((1,),)), ("aten.softmax.int", (-1,))):
        found = keeps(one(target, *arguments))
        assert found.masks == () and found.outputs[0][0] == PaddedAxis()


def test_a_product_over_the_padding_has_zeros_on_both_sides() -> None:
    """x' y over n entries: junk times junk would be added."""
    model = Model({"x": lambda n: (4, n), "y": lambda n: (n, 2)}, [("op", "aten.mm.default", (X, Y))])
    found = keeps(model)
    assert [(mask.argument, mask.axes) for mask in found.masks] == [
        (0, (None, PaddedAxis())),
        (1, (PaddedAxis(), None)),
    ]
    assert found.outputs == ((None, None),)


def test_a_product_of_padded_rows_has_padded_rows() -> None:
    rows = Model({"x": lambda n: (n, 4), "y": lambda n: (4, 2)}, [("op", "aten.mm.default", (X, Y))])
    assert keeps(rows).outputs == ((PaddedAxis(), None),) and keeps(rows).masks == ()
    both = Model({"x": lambda n: (2, n, 4), "y": lambda n: (2, 4, n)}, [("op", "aten.bmm.default", (X, Y))])
    assert keeps(both).outputs == ((None, PaddedAxis(), PaddedAxis()),)


def test_attention_by_hand_masks_scores_once() -> None:
    """softmax(x x') x: the scores' padded columns are hidden, and the weighted sum has zeros in the padding
    too.
    """
    model = Model(
        {"x": lambda n: (n, 4)},
        [
            ("keys", "aten.t.default", (X,)),
            ("scores", "aten.mm.default", (X, Ref("keys"))),
            ("weights", "aten.softmax.int", (Ref("scores"), -1)),
            ("out", "aten.mm.default", (Ref("weights"), X)),
        ],
    )
    found = keeps(model)
    assert [(mask.node, mask.argument) for mask in found.masks] == [("weights", 0), ("out", 0), ("out", 1)]
    assert found.masks[0].axes == (None, PaddedAxis()), "rows of the padding are never read, columns are"


def test_a_running_sum_passes_nothing_back() -> None:
    assert keeps(one("aten.cumsum.default", 0)).masks == ()


# --- ops that arrange entries -------------------------------------------------------------------------


def test_rows_of_samples_and_tokens_are_followed_through_views() -> None:
    """[2, n, 4] to [2 n, 4]: in the merged dimension entries come twice; summed over, all of their copies
    are.
    """
    model = Model(
        {"x": lambda n: (2, n, 4)},
        [
            ("flat", "aten.view.default", (X, lambda n: (2 * n, 4))),
            ("total", "aten.sum.dim_IntList", (Ref("flat"), (0,))),
        ],
    )
    found = keeps(model)
    assert found.masks[0].axes == (PaddedAxis(outer=2), None)


def test_entries_of_several_values_are_followed_through_views() -> None:
    model = Model(
        {"x": lambda n: (2, n, 4)},
        [
            ("flat", "aten.view.default", (X, lambda n: (2, 4 * n))),
            ("best", "aten.amax.default", (Ref("flat"), (1,))),
        ],
    )
    assert keeps(model).masks[0].axes == (None, PaddedAxis(inner=4))


@pytest.mark.parametrize(
    ("target", "arguments", "axes"),
    [
        ("aten.permute.default", ((2, 0, 1),), (None, None, PaddedAxis())),
        ("aten.transpose.int", (0, -2), (PaddedAxis(), None, None)),
        ("aten.unsqueeze.default", (-1,), (None, PaddedAxis(), None, None)),
        ("aten.unsqueeze.default", (0,), (None, None, PaddedAxis(), None)),
        ("aten.slice.Tensor", (0, 1, 2), (None, PaddedAxis(), None)),
        ("aten.select.int", (1, 0), (None, None)),
        ("aten.select.int", (0, 1), (PaddedAxis(), None)),
        ("aten.relu.default", (), (None, PaddedAxis(), None)),
        ("aten.layer_norm.default", ((4,),), (None, PaddedAxis(), None)),
    ],
)
def test_where_the_entries_are_afterwards(target: str, arguments: Arguments, axes: Axes) -> None:
    found = keeps(one(target, *arguments, x=lambda n: (2, n, 4)))
    assert found.outputs == (axes,) and found.masks == ()


def test_tensors_are_put_together_beside_the_entries() -> None:
    pair = {"x": lambda n: (n, 4), "y": lambda n: (n, 2)}
    assert keeps(Model(pair, [("op", "aten.cat.default", ((X, Y), 1))])).outputs == ((PaddedAxis(), None),)
    stacked = Model(
        {"x": lambda n: (n, 4), "y": lambda n: (n, 4)}, [("op", "aten.stack.default", ((X, Y), 1))]
    )
    assert keeps(stacked).outputs == ((PaddedAxis(), None, None),)


def test_a_row_for_all_entries_is_added_to_each() -> None:
    added = Model({"x": lambda n: (2, n, 4), "y": lambda n: (n, 1)}, [("op", "aten.add.Tensor", (X, Y))])
    assert keeps(added).outputs == ((None, PaddedAxis(), None),)


def test_a_table_has_a_row_for_each_entry() -> None:
    """Positions: the first n rows of a table of 9."""
    model = Model(
        {"x": lambda n: (n, 4), "y": lambda n: (9, 4)},
        [
            ("rows", "aten.slice.Tensor", (Y, 0, 0, lambda n: n)),
            ("op", "aten.add.Tensor", (X, Ref("rows"))),
        ],
    )
    rows = GraphNode("rows", OP, "aten.slice.Tensor", (Y, 0, 0, 3), outputs=())
    assert model.graph(3).by_name["rows"].arguments == rows.arguments
    assert walk_of(model).outputs == ((PaddedAxis(), None),)


# --- what would leak ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (one("aten.flip.default", (0,)), "not known here"),
        (one("aten.select.int", 0, 1), "entry 1 may be padding"),
        (one("aten.slice.Tensor", 0, 1, 99), "a part of the padded dimension"),
        (one("aten.mul.Scalar", lambda n: n), "depends on the size"),
        (one("aten.unbind.int", 0), "taken apart"),
        (one("aten.split.Tensor", 1, 0), "is split"),
        (
            Model({"x": lambda n: (n, n)}, [("op", "aten.view.default", (X, lambda n: (n * n,)))]),
            "are merged",
        ),
        (one("aten.max_pool2d.default", (2, 2), x=lambda n: (1, 1, n, 4)), "neighbors along"),
    ],
)
def test_what_lets_padding_leak_is_refused_by_name(model: Model, reason: str) -> None:
    with pytest.raises(Infeasible, match=reason):
        walk_of(model)


def test_something_behind_the_padding_is_refused() -> None:
    model = Model({"x": lambda n: (n, 4), "y": lambda n: (2, 4)}, [("op", "aten.cat.default", ((X, Y), 0))])
    with pytest.raises(Infeasible, match="put behind the padding"):
        walk_of(model)


def test_weights_along_the_entries_are_refused() -> None:
    layer = Model({"x": lambda n: (4, n), "y": lambda n: (2, n)}, [("op", "aten.linear.default", (X, Y))])
    with pytest.raises(Infeasible, match="along the padded dimension"):
        walk_of(layer)


def test_graphs_whose_ops_depend_on_the_size_are_refused() -> None:
    small, large = one("aten.relu.default").graph(3), one("aten.abs.default").graph(5)
    renamed = Graph(
        (
            *large.nodes[:1],
            *(GraphNode("other", OP, "aten.abs.default", (X,), outputs=large.nodes[1].outputs),),
        )
    )
    with pytest.raises(Infeasible, match="ops depend on the size"):
        padding(small, renamed, (3, 5), RULES)


# --- axes -----------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from([2, 3, 5]), st.data())
def test_a_view_takes_the_entries_along(a: int, b: int, c: int, n: int, data: st.DataObject) -> None:
    """Elements labeled with their entry, laid out otherwise: the axis says the entry of every place, or
    refuses.
    """
    shape = (a, n, b, c)
    labels = np.broadcast_to(np.arange(n)[None, :, None, None], shape)
    into = data.draw(
        st.sampled_from(
            [(a * n, b, c), (a, n * b, c), (a, n, b * c), (a * n * b * c,), (a, n * b * c), (a * n * b, c)]
        )
    )
    found = reshape_axes(shape, (None, PaddedAxis(), None, None), into, n)
    (place,) = [place for place, axis in enumerate(found) if axis is not None]
    axis = found[place]
    assert axis is not None
    expected = entries(into[place], axis, n).reshape([-1 if i == place else 1 for i in range(len(into))])
    assert (labels.reshape(into) == np.broadcast_to(expected, into)).all()
    back = reshape_axes(into, found, shape, n)
    assert back[1] == PaddedAxis() or n == 1 or shape.count(1)


def test_a_view_across_the_entries_is_refused() -> None:
    with pytest.raises(Leak, match="splits the padded dimension"):
        reshape_axes((6, 4), (PaddedAxis(), None), (2, 3, 4), 6)


def test_sizes_tell_where_entries_are() -> None:
    assert new_axes((5, 4), 5, (3, 4), 3) == (PaddedAxis(), None)
    with pytest.raises(Leak, match="a size of 10 for 5 entries and 6 for 3"):
        new_axes((10, 4), 5, (6, 4), 3)


def test_one_dimension_is_padded_in_one_way() -> None:
    assert broadcast([(PaddedAxis(), None), (None,), ()], 3) == (None, PaddedAxis(), None)
    with pytest.raises(Leak, match="different places of one dimension"):
        broadcast([(PaddedAxis(2),), (PaddedAxis(1, 2),)], 1)
