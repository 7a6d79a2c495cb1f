"""Small steps written by hand, for tests: a row for each op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from experiments.memory.interface import CopyRate, DeviceView, MemoryMachine, MemoryPlan, MemoryPolicy
from experiments.memory.simulator import Simulator
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Ops, Step, Tensors

MS = 1e-3
ENDLESS = 2**60

Row = tuple[str, str, float, Sequence[str], Sequence[str]]


def make_step(rows: Sequence[Row], sizes: Mapping[str, int], persistent: Sequence[str] = ()) -> Step:
    """Rows are (op name, phase, seconds, tensors read, tensors written); ``sizes`` bytes by tensor name."""
    names = list(sizes)
    ids = {name: index for index, name in enumerate(names)}
    count = len(rows)
    ops = Ops(
        name=tuple(row[0] for row in rows),
        target=tuple(row[0] for row in rows),
        module=("",) * count,
        phase=np.array([PHASES.index(row[1]) for row in rows], np.int8),
        seconds=np.array([row[2] for row in rows]),
        flops=np.ones(count),
        bytes_moved=np.zeros(count),
        workspace=np.zeros(count, np.int64),
        dtype=("float32",) * count,
        view=np.zeros(count, np.bool_),
        random=np.zeros(count, np.bool_),
    )
    kinds = [KINDS.index("parameter" if name in persistent else "activation") for name in names]
    tensors = Tensors(
        name=tuple(names),
        bytes=np.array([sizes[name] for name in names], np.int64),
        dtype=("float32",) * len(names),
        shape=((),) * len(names),
        kind=np.array(kinds, np.int8),
        sparsity=np.full(len(names), np.nan),
    )
    inputs = Ragged.of([ids[name] for name in row[3]] for row in rows)
    outputs = Ragged.of([ids[name] for name in row[4]] for row in rows)
    return Step("by hand", ops, tensors, inputs, outputs, "trace", "by hand")


def machine(capacity: int = ENDLESS, bandwidth: float = 1000.0, **changes: object) -> MemoryMachine:
    """A byte takes a millisecond on every channel, and there is no latency."""
    rate = CopyRate(bandwidth)
    plain = MemoryMachine(capacity, rate, rate, True, ENDLESS, rate, rate, ENDLESS)
    return replace(plain, **changes)  # type: ignore[arg-type]


def plan_of(policy: MemoryPolicy, step: Step, on: MemoryMachine) -> MemoryPlan:
    simulator = Simulator(step, on)
    view = DeviceView(on, simulator.estimate, np.random.default_rng(0), simulator.split)
    return policy.plan(step, view)


def five_layers() -> Step:
    """The example of the vDNN card: CONV0 ACT1 CONV2 POOL3 FC4 after the batch was loaded; 1 byte = 1 ms."""
    forward, backward = "forward", "backward"
    rows: list[Row] = [
        ("load", forward, 0.0, [], ["X0"]),
        ("conv_0", forward, 4 * MS, ["X0"], ["X1"]),
        ("relu_1", forward, 1 * MS, ["X1"], ["X2"]),
        ("conv_2", forward, 4 * MS, ["X2"], ["X3"]),
        ("pool_3", forward, 1 * MS, ["X3"], ["X4"]),
        ("linear_4", forward, 2 * MS, ["X4"], ["Y"]),
        ("linear_4_backward", backward, 10 * MS, ["Y", "X4"], ["G3"]),
        ("pool_3_backward", backward, 10 * MS, ["G3", "X3"], ["G2"]),
        ("conv_2_backward", backward, 10 * MS, ["G2", "X2"], ["G1"]),
        ("relu_1_backward", backward, 10 * MS, ["G1", "X2"], ["G0"]),
        ("conv_0_backward", backward, 10 * MS, ["G0", "X0"], ["W"]),
    ]
    sizes = {"X0": 3, "X1": 5, "X2": 6, "X3": 1, "X4": 2, "Y": 1, "G3": 1, "G2": 1, "G1": 1, "G0": 1, "W": 1}
    return make_step(rows, sizes)


def chain(layers: int) -> Step:
    """Layers of one byte and one second, a loss, and a backward pass that turns one gradient of a
    byte about.
    """
    rows: list[Row] = [("layer_0", "forward", 1.0, ["x"], ["a0"])]
    rows += [(f"layer_{i}", "forward", 1.0, [f"a{i - 1}"], [f"a{i}"]) for i in range(1, layers)]
    rows += [("loss", "forward", 1.0, [f"a{layers - 1}"], ["l"]), ("start", "backward", 1.0, ["l"], ["g"])]
    for i in reversed(range(layers)):
        rows.append((f"back_{i}", "backward", 1.0, ["g", f"a{i}", f"a{i - 1}" if i else "x"], ["g"]))
    return make_step(rows, {"x": 0, "l": 0, "g": 1, **{f"a{i}": 1 for i in range(layers)}}, persistent=["x"])
