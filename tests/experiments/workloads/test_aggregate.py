"""Layers of a step: what each makes, keeps and reads, on a network small enough to count by hand.

Forward ``a = first(x)``, ``b = second(a)``, ``loss = f(b)``; backward reads ``b`` and ``a``; one update.
"""

from __future__ import annotations

import io

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.workloads import storage
from experiments.workloads.aggregate import layer_graph
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Ops, Step, Tensors

X, W, A, B, LOSS, GB, GW = range(7)
OPS = [
    # name, module, phase, seconds, flops, view, reads, writes
    ("view", "blocks.0.part", "forward", 0.0, 0, True, [W], []),
    ("first", "blocks.0.part", "forward", 1.0, 10, False, [X, W], [A]),
    ("glue", "blocks", "forward", 0.5, 0, False, [A], [A]),
    ("second", "blocks.1", "forward", 2.0, 20, False, [A], [B]),
    ("cost", "loss", "forward", 1.0, 0, False, [B], [LOSS]),
    ("dsecond", "blocks.1", "backward", 4.0, 40, False, [B, A], [GB]),
    ("dfirst", "blocks.0.part", "backward", 1.5, 15, False, [GB, X], [GW]),
    ("update", "blocks.0", "optimizer", 0.25, 0, False, [W, GW], [W]),
]
TENSORS = [("x", 8, "input"), ("w", 100, "parameter"), ("a", 40, "activation"), ("b", 20, "activation")]
TENSORS += [("loss", 4, "activation"), ("gb", 20, "temporary"), ("gw", 100, "gradient")]


def step(modules: dict[str, str] | None = None) -> Step:
    names, paths, phases, seconds, flops, views, reads, writes = zip(*OPS, strict=True)
    count, tensors = len(OPS), len(TENSORS)
    ops = Ops(
        name=names,
        target=tuple(f"aten.{name}.default" for name in names),
        module=tuple((modules or {}).get(path, path) for path in paths),
        phase=np.array([PHASES.index(phase) for phase in phases], np.int8),
        seconds=np.array(seconds),
        flops=np.array(flops, np.float64),
        bytes_moved=np.ones(count),
        workspace=np.zeros(count, np.int64),
        dtype=("float32",) * count,
        view=np.array(views),
        random=np.zeros(count, np.bool_),
    )
    table = Tensors(
        name=tuple(name for name, _, _ in TENSORS),
        bytes=np.array([size for _, size, _ in TENSORS], np.int64),
        dtype=("float32",) * tensors,
        shape=((1,),) * tensors,
        kind=np.array([KINDS.index(kind) for _, _, kind in TENSORS], np.int8),
        sparsity=np.full(tensors, np.nan),
    )
    return Step("hand", ops, table, Ragged.of(reads), Ragged.of(writes), "measured", "paper", {"batch": 2})


def test_ops_become_layers_in_the_order_of_the_forward_pass() -> None:
    graph = layer_graph(step())
    assert graph.layer == ("blocks.0", "blocks.1", "loss")
    assert graph.kind == ("first", "second", "cost")
    assert graph.forward_seconds.tolist() == [1.5, 2.0, 1.0]
    assert graph.backward_seconds.tolist() == [1.5, 4.0, 0.0]
    assert graph.forward_flops.tolist() == [10, 20, 0] and graph.flops == 85
    assert graph.batch == 2 and graph.facts["optimizer_seconds"] == 0.25


def test_layers_know_what_they_hold_and_hand_on() -> None:
    graph = layer_graph(step())
    assert graph.parameter_bytes.tolist() == [100, 0, 0]
    assert graph.output_bytes.tolist() == [40, 20, 0]
    assert graph.stash_bytes.tolist() == [40, 20, 0]
    assert graph.handed == (
        (0, 40.0, (1,)),
    )  # a is made by the first block and read by the second one's backward
    assert [row.tolist() for row in graph.predecessors] == [[], [0], [1]]


def test_a_module_that_runs_twice_is_two_layers() -> None:
    graph = layer_graph(step({"loss": "blocks.0.part"}))
    assert graph.layer == ("blocks.0", "blocks.1", "blocks.0@2")


def test_a_step_without_module_names_has_no_layers() -> None:
    nameless = {module: "" for _, module, *_ in OPS}
    with pytest.raises(BadInput, match="name no modules"):
        layer_graph(step(nameless))


def test_live_bytes_follow_first_and_last_use() -> None:
    """x and w stay (108); a lives in ops 1-5, b 3-5, loss 4, gb 5-6, gw 6-7."""
    hand = step()
    assert hand.persistent_bytes == 108
    assert (hand.live_bytes - 108).tolist() == [0, 40, 40, 60, 64, 80, 120, 100]
    assert hand.live_peak == 228
    assert hand.op_need.tolist() == [100, 148, 40, 60, 24, 80, 128, 200]


def test_a_stored_step_is_the_same_step() -> None:
    written = storage.dumps(step())
    assert written == storage.dumps(storage.load(io.BytesIO(written)))


def test_a_damaged_step_file_is_bad_input() -> None:
    with pytest.raises(BadInput, match="not a step file"):
        storage.load(io.BytesIO(storage.dumps(step())[:200]))
