"""Every ONNX operator gives what the format's own test cases say: hundreds of them come with the onnx
package.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.models.onnx_ops import OPERATORS  # noqa: E402
from experiments.readers.onnx_graph import DTYPES  # noqa: E402
from experiments.workloads.operators import ONNX_OPERATORS  # noqa: E402
from tests.experiments.models.one_node import by_us  # noqa: E402

pytestmark = pytest.mark.torch

#: Cases in which we differ on purpose: dropout is built as 0, and which of equal values comes first is
#: torch's choice.
OTHERWISE = ("training_dropout", "top_k_same_values")


@functools.cache
def cases() -> dict[str, list[Any]]:
    """The package's cases of one node whose element types we have, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    by_operator: dict[str, list[Any]] = {}
    for case in found:
        graph = case.model.graph
        ours = len(graph.node) == 1 and not graph.node[0].domain and graph.node[0].op_type in OPERATORS
        if ours and _known(graph) and not any(part in case.name for part in OTHERWISE):
            by_operator.setdefault(graph.node[0].op_type, []).append(case)
    return by_operator


def _known(graph: Any) -> bool:
    return all(
        DTYPES.get(item.type.tensor_type.elem_type, "bfloat16") != "bfloat16"
        for item in (*graph.input, *graph.output)
    )


def _run(case: Any, position: int, feeds: dict[str, Any]) -> np.ndarray:
    """Our result for output ``position``."""
    output = case.model.graph.node[0].output[position]
    return by_us(case.model, feeds, output, training="training_mode" in case.name)


def _expected(case: Any) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    for inputs, outputs in case.data_sets:
        names = [item.name for item in case.model.graph.input]
        yield dict(zip(names, map(_array, inputs), strict=True)), [_array(value) for value in outputs]


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def test_the_table_is_what_readers_hold_a_file_to() -> None:
    assert set(OPERATORS) == ONNX_OPERATORS


@pytest.mark.parametrize(
    "operator", sorted(ONNX_OPERATORS - {"Constant", "ConstantOfShape", "Range", "Shape", "Size"})
)
def test_an_operator_gives_the_standards_results(operator: str) -> None:
    """A form that is not built is refused; what is built agrees, and something of every operator is."""
    tried = 0
    for case in cases().get(operator, ()):
        for feeds, wanted in _expected(case):
            for position, expected in enumerate(wanted):
                try:
                    ours = _run(case, position, feeds)
                except BadInput:
                    continue
                tried += 1
                rough = 5e-3 if ours.dtype == np.float16 else 1e-3
                np.testing.assert_allclose(
                    ours, expected, rtol=rough, atol=1e-5, err_msg=case.name, equal_nan=True
                )
    assert tried
