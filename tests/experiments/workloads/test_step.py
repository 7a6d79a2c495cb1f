"""Steps: what is live when, told by simulating tensor by tensor; rows of unequal length; and the files they
are kept in.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.workloads import storage
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import Step
from tests.experiments.workloads.hand_steps import Op, step_of

rows_of_numbers = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=8)


@given(rows_of_numbers)
def test_ragged_rows_are_the_lists_they_were(rows: list[list[int]]) -> None:
    ragged = Ragged.of(rows)
    assert len(ragged) == len(rows) and ragged.lists() == rows
    assert [row.tolist() for row in ragged] == rows
    assert ragged.rows().tolist() == [number for number, row in enumerate(rows) for _ in row]


@given(rows_of_numbers, st.data())
def test_rows_can_be_taken_in_any_order_and_twice(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    assert Ragged.of(rows).take(chosen).lists() == [rows[i] for i in chosen]


@given(rows_of_numbers)
def test_transposing_says_which_rows_hold_a_value(rows: list[list[int]]) -> None:
    expected = [[number for number, row in enumerate(rows) for value in row if value == v] for v in range(10)]
    assert Ragged.of(rows).transposed(10).lists() == expected


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Up to six ops over up to five tensors, some of which nobody touches."""
    kinds = st.sampled_from(["parameter", "input", "activation", "temporary", "gradient"])
    tensors = {f"t{i}": (draw(kinds), (draw(st.integers(1, 9)),)) for i in range(draw(st.integers(1, 5)))}
    names = st.lists(st.sampled_from(sorted(tensors)), max_size=3, unique=True)
    ops: list[Op] = [("op", draw(names), draw(names)) for _ in range(draw(st.integers(1, 6)))]
    return step_of(ops, tensors)


@given(steps())
def test_what_is_live_is_what_a_walk_through_the_step_finds(step: Step) -> None:
    touched = [set(a) | set(b) for a, b in zip(step.inputs.lists(), step.outputs.lists(), strict=True)]
    forever = {t for t in range(len(step.tensors)) if step.persistent[t]}
    for op in range(len(step.ops)):
        before = set().union(*touched[: op + 1])
        after = set().union(*touched[op:])
        live = forever | (before & after)
        assert step.live_bytes[op] == sum(int(step.tensors.bytes[t]) for t in live)
        assert step.op_need[op] == sum(int(step.tensors.bytes[t]) for t in touched[op])
    assert step.live_peak == max(step.live_bytes.tolist())
    assert step.persistent_bytes == sum(int(step.tensors.bytes[t]) for t in forever)


@given(steps())
def test_uses_and_their_ends(step: Step) -> None:
    for tensor in range(len(step.tensors)):
        users = [op for op, row in enumerate(step.touched.lists()) if tensor in row]
        assert step.uses[tensor].tolist() == users
        assert step.first_use[tensor] == (users[0] if users else len(step.ops))
        assert step.last_use[tensor] == (users[-1] if users else -1)


def held(step: Step, *release: int) -> Step:
    return replace(step, release=np.array(release, np.int64))


def three_in_a_row() -> Step:
    ops: list[Op] = [("one", [], ["a"]), ("two", ["a"], ["b"]), ("three", ["b"], ["c"])]
    return step_of(ops, dict.fromkeys("abc", ("activation", (2,))))


def test_what_the_program_holds_longer_than_it_uses_it_is_live_until_its_release() -> None:
    step = three_in_a_row()
    assert step.death.tolist() == [1, 2, 2] and step.live_bytes.tolist() == [8, 16, 16]
    # a is held behind the last op, b is let go of before its last use, c never has a name.
    longer = held(step, 2, 0, -1)
    assert longer.death.tolist() == [2, 2, 2] and longer.live_bytes.tolist() == [8, 16, 24]
    assert longer.last_use.tolist() == step.last_use.tolist()
    kept = storage.load(io.BytesIO(storage.dumps(longer)))
    assert kept.release is not None and kept.release.tolist() == [2, 0, -1]


def test_releases_that_fit_no_tensor_or_no_op_are_bad_input() -> None:
    with pytest.raises(BadInput, match="release and tensors differ"):
        held(three_in_a_row(), 1, 1)
    with pytest.raises(BadInput, match="a tensor is released after op 3"):
        held(three_in_a_row(), 1, 1, 3)


def test_an_op_that_changes_a_tensor_in_place_needs_it_once() -> None:
    step = step_of(
        [("relu", ["a"], ["a"]), ("mul", ["a", "a"], ["b"])], dict.fromkeys("ab", ("activation", (2,)))
    )
    assert step.touched.lists() == [[0], [0, 1]]
    assert step.op_need.tolist() == [8, 16]


def test_a_step_that_names_tensors_it_does_not_have_is_bad_input() -> None:
    step = step_of([("relu", ["a"], ["a"])], {"a": ("activation", (2,))})
    for inputs, what in (([[1]], "names tensor 1 of 1"), ([[0], [0]], "differ in length")):
        with pytest.raises(BadInput, match=what):
            Step("bad", step.ops, step.tensors, Ragged.of(inputs), step.outputs)
    with pytest.raises(BadInput, match="'guessed' is not a timing"):
        Step("bad", step.ops, step.tensors, step.inputs, step.outputs, timing="guessed")


@settings(max_examples=20)
@given(steps())
def test_a_kept_step_is_the_same_step(step: Step) -> None:
    found = storage.load(io.BytesIO(storage.dumps(step)))
    assert storage.dumps(found) == storage.dumps(step)
    assert found.tensors.shape == step.tensors.shape and found.ops.name == step.ops.name
    assert found.live_bytes.tolist() == step.live_bytes.tolist()


def rewritten(step: Step, **changes: object) -> bytes:
    """The file of a step with entries of its header changed; of a name with a dot, an array."""
    with np.load(io.BytesIO(storage.dumps(step))) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes())
    header |= {name: value for name, value in changes.items() if "." not in name}
    arrays |= {name: np.array(value) for name, value in changes.items() if "." in name}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "mlsys-step-2"},
        {"ops": {"name": ["relu"]}},
        {"tensors": {"name": ["a", "b"], "dtype": ["float32"], "shape": [[2]]}},
        {"ops": [1, 2]},
        {"timing": "guessed"},
        {"inputs.values": [7]},
        {"outputs.offsets": [0, 1, 1]},
        {"tensors.bytes": "many"},
        {"tensors.bytes": [8, 8]},
        {"tensors.bytes": [[8]]},
        {"tensors.bytes": [8.5]},
        {"ops.seconds": [True]},
        {"ops.view": [0.0]},
        {"inputs.offsets": [1, 1]},
        {"inputs.offsets": [0, 0]},
        {"inputs.offsets": []},
        {"ops.unknown": [1]},
    ],
)
def test_a_file_with_a_lie_in_it_is_bad_input(changes: dict[str, object]) -> None:
    step = step_of([("relu", ["a"], ["a"])], {"a": ("activation", (2,))})
    assert storage.load(io.BytesIO(rewritten(step))).ops.name == ("relu",)
    with pytest.raises(BadInput):
        storage.load(io.BytesIO(rewritten(step, **changes)))


def test_a_file_of_pickles_is_not_opened() -> None:
    """numpy would run what an object array says."""
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([{"format": storage.FORMAT}], dtype=object))
    with pytest.raises(BadInput, match="not a step file"):
        storage.load(io.BytesIO(buffer.getvalue()))


def test_a_zip_of_something_else_is_bad_input() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(BadInput, match="not a step file"):
        storage.load(io.BytesIO(buffer.getvalue()))
