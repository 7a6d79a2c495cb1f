"""Step: one training (or inference) step at op level, in execution order.

A *tensor* here is an allocation: views share their base's tensor, so bytes are never counted twice. An op
reads ``inputs[i]`` and writes ``outputs[i]`` (both tensor ids); an in-place op lists its tensor in both.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints, Ragged

Floats = npt.NDArray[np.float64]

PHASES = ("forward", "backward", "optimizer")
KINDS = (
    *("parameter", "gradient", "optimizer_state", "activation", "input", "buffer", "temporary"),
    "gradient_buffer",
)
#: Kinds that outlive the step: present before the first op and after the last.
PERSISTENT_KINDS = ("parameter", "optimizer_state", "buffer", "input", "gradient_buffer")
#: Kinds of model states: what training keeps for each parameter.
STATE_KINDS = ("parameter", "gradient", "gradient_buffer", "optimizer_state")
#: Where an op's ``seconds`` come from.
TIMINGS = ("none", "measured", "roofline", "trace")


@dataclass(frozen=True)
class Ops:
    """Columns over the ops of a step, all of one length.

    ``seconds`` is the duration (NaN before the step is timed), ``flops`` what the op computes,
    ``bytes_moved`` what it reads plus writes, ``workspace`` scratch bytes while it runs. ``view`` ops move no
    data. ``random`` ops draw from a generator, so a recompute must restore its state.
    """

    name: tuple[str, ...]
    target: tuple[str, ...]
    module: tuple[str, ...]
    phase: npt.NDArray[np.int8]
    seconds: Floats
    flops: Floats
    bytes_moved: Floats
    workspace: Ints
    dtype: tuple[str, ...]
    view: npt.NDArray[np.bool_]
    random: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Tensors:
    """Columns over the allocations of a step.

    ``kind`` indexes ``KINDS``; ``sparsity`` is NaN when unknown.
    """

    name: tuple[str, ...]
    bytes: Ints
    dtype: tuple[str, ...]
    shape: tuple[tuple[int, ...], ...]
    kind: npt.NDArray[np.int8]
    sparsity: Floats

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Step:
    """Ops and tensors of one step, who reads and writes what, and where the times come from.

    ``timing`` is one of ``TIMINGS``; ``timed_on`` names the device the times belong to. ``facts`` carries
    what the source knows about the whole (parameters, batch, sequence, attention backend, ...), JSON only.
    ``release`` is, for each tensor, the op after which the program lets go of it, where the source tells;
    ``None``: each is let go of after its last use.
    """

    name: str
    ops: Ops
    tensors: Tensors
    inputs: Ragged
    outputs: Ragged
    timing: str = "none"
    timed_on: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    release: Ints | None = None

    def __post_init__(self) -> None:
        for table in (self.ops, self.tensors):
            if any(len(getattr(table, column.name)) != len(table) for column in fields(table)):
                raise BadInput("columns differ in length", self.name)
        if not len(self.ops) == len(self.inputs) == len(self.outputs):
            raise BadInput("ops, inputs and outputs differ in length", self.name)
        if self.release is not None and len(self.release) != len(self.tensors):
            raise BadInput("release and tensors differ in length", self.name)
        if self.release is not None and self.release.max(initial=-1) >= len(self.ops):
            raise BadInput(f"a tensor is released after op {self.release.max()}", self.name)
        ids = np.concatenate((self.inputs.values, self.outputs.values))
        if ids.size and not (0 <= ids.min() and ids.max() < len(self.tensors)):
            raise BadInput(f"an op names tensor {ids.max()} of {len(self.tensors)}", self.name)
        if self.timing not in TIMINGS:
            raise BadInput(f"{self.timing!r} is not a timing", self.name, "one of " + ", ".join(TIMINGS))

    @functools.cached_property
    def touched(self) -> Ragged:
        """For each op the distinct tensors that must be resident while it runs: inputs, then new outputs."""
        return Ragged.of(
            list(dict.fromkeys(i + o)) for i, o in zip(self.inputs.lists(), self.outputs.lists(), strict=True)
        )

    @functools.cached_property
    def uses(self) -> Ragged:
        """For each tensor the ops that touch it, ascending."""
        return self.touched.transposed(len(self.tensors))

    @functools.cached_property
    def persistent(self) -> npt.NDArray[np.bool_]:
        """Tensors that exist before the first op and after the last."""
        return np.isin(self.tensors.kind, [KINDS.index(kind) for kind in PERSISTENT_KINDS])

    @functools.cached_property
    def first_use(self) -> Ints:
        """Op index of each tensor's first use; ``len(ops)`` where it is never used."""
        return self._end_of_uses(0, len(self.ops))

    @functools.cached_property
    def last_use(self) -> Ints:
        """Op index of each tensor's last use; -1 where it is never used."""
        return self._end_of_uses(-1, -1)

    @functools.cached_property
    def death(self) -> Ints:
        """Op after which each tensor is gone when nothing is planned; -1 where it is never used.

        It is its last use, or its release if that is later.
        """
        if self.release is None:
            return self.last_use
        return np.where(self.last_use >= 0, np.maximum(self.last_use, self.release), -1)

    def _end_of_uses(self, position: int, absent: int) -> Ints:
        return np.array([row[position] if row else absent for row in self.uses.lists()], np.int64)

    @property
    def persistent_bytes(self) -> int:
        return int(self.tensors.bytes[self.persistent].sum())

    @property
    def state_bytes(self) -> int:
        """Bytes of model states: parameters, their gradients and what the optimizer keeps."""
        kinds = [KINDS.index(kind) for kind in STATE_KINDS]
        return int(self.tensors.bytes[np.isin(self.tensors.kind, kinds)].sum())

    @functools.cached_property
    def live_bytes(self) -> Ints:
        """Bytes live while each op runs.

        Persistent tensors, every other one from first use to death, workspace.
        """
        change = np.zeros(len(self.ops) + 1, np.int64)
        local = ~self.persistent & (self.death >= 0)
        np.add.at(change, self.first_use[local], self.tensors.bytes[local])
        np.add.at(change, self.death[local] + 1, -self.tensors.bytes[local])
        return self.persistent_bytes + np.cumsum(change[:-1]) + self.ops.workspace

    @property
    def live_peak(self) -> int:
        """The most bytes live at once when nothing is moved or recomputed."""
        return int(self.live_bytes.max(initial=self.persistent_bytes))

    @functools.cached_property
    def op_need(self) -> Ints:
        """Bytes of each op's own tensors and workspace: no plan can run it in less."""
        sizes = self.tensors.bytes[self.touched.values]
        totals = np.concatenate(([0], np.cumsum(sizes)))
        return totals[self.touched.offsets[1:]] - totals[self.touched.offsets[:-1]] + self.ops.workspace

    @property
    def seconds(self) -> float:
        """Sum of the op times; NaN when the step is not timed."""
        return float(self.ops.seconds.sum())

    @property
    def flops(self) -> float:
        return float(self.ops.flops.sum())

    def timed(self, seconds: Floats, timing: str, timed_on: str) -> Step:
        """The same step with other op times."""
        return replace(self, ops=replace(self.ops, seconds=seconds), timing=timing, timed_on=timed_on)

    def phase_of(self, op: int) -> str:
        return PHASES[self.ops.phase[op]]
