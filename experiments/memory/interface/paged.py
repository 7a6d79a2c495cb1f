"""A step as whole pages: the sizes, touch order and lifetimes that page-granular planners and engines share.

A *local* tensor lives from its first touch to its last read. One that no op reads is *transient*: it lives
while its op runs. A *global* (persistent) tensor always lives. Workspace counts as a transient tensor of its
op, numbered after the step's own tensors.

Inside an op the tensors are touched in the reverse of inputs and outputs as listed, unless the source of the
step recorded another order (``facts["g10"]["touch_overrides"]``: op -> tensors).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats, Step

PAGE = 4096


class PagedStep:
    """``step`` in pages of 4 KiB. Lists are by tensor or by op; ``seconds`` must be known."""

    def __init__(self, step: Step) -> None:
        if np.isnan(step.ops.seconds).any():
            raise BadInput("the step has no op times", step.name, "a timed step")
        self.step = step
        scratch = np.nonzero(step.ops.workspace)[0]
        own = np.concatenate((step.tensors.bytes, step.ops.workspace[scratch]))
        self.pages: list[int] = (-(-own // PAGE)).tolist()
        self.bytes: list[int] = [pages * PAGE for pages in self.pages]
        self.seconds: list[float] = step.ops.seconds.tolist()
        self._scratch = {int(op): len(step.tensors) + i for i, op in enumerate(scratch)}
        self.is_global: list[bool] = step.persistent.tolist() + [False] * len(scratch)

    @property
    def ops(self) -> int:
        return len(self.seconds)

    @property
    def tensors(self) -> int:
        return len(self.pages)

    @functools.cached_property
    def listed(self) -> list[list[int]]:
        """For each op its distinct tensors as its source lists them: inputs, other outputs, its workspace."""
        rows: list[list[int]] = [row.tolist() for row in self.step.touched]
        for op, tensor in self._scratch.items():
            rows[op].append(tensor)
        return rows

    @functools.cached_property
    def touched(self) -> list[list[int]]:
        """For each op its distinct tensors in touch order, its workspace last."""
        rows: list[list[int]] = [row[::-1].tolist() for row in self.step.touched]
        for op, order in self._overrides().items():
            if not 0 <= op < len(rows) or sorted(order) != sorted(rows[op]):
                raise BadInput(f"touch order {order!r:.80}", f"op {op}", "the op's own tensors")
            rows[op] = order
        for op, tensor in self._scratch.items():
            rows[op].append(tensor)
        return rows

    def _overrides(self) -> dict[int, list[int]]:
        found: Mapping[str, Any] = self.step.facts.get("g10", {}).get("touch_overrides", {})
        return {int(op): list(order) for op, order in found.items()}

    @functools.cached_property
    def uses(self) -> list[list[int]]:
        """For each tensor the ops that touch it, ascending."""
        return [row.tolist() for row in self.step.uses] + [[op] for op in self._scratch]

    @functools.cached_property
    def birth(self) -> list[int]:
        """First op that touches each tensor; the number of ops for one that is never touched."""
        return [uses[0] if uses else self.ops for uses in self.uses]

    @functools.cached_property
    def _last_read(self) -> Ints:
        last = np.full(self.tensors, -1, np.int64)
        for op, row in enumerate(self.step.inputs):
            last[row] = op
        return last

    @functools.cached_property
    def transient(self) -> list[bool]:
        return [not kept and read < 0 for kept, read in zip(self.is_global, self._last_read, strict=True)]

    @functools.cached_property
    def death(self) -> list[int]:
        """The op before which each local tensor's memory is free again (after it: ``ops``)."""
        return [
            birth + 1 if transient else int(read) + 1
            for birth, transient, read in zip(self.birth, self.transient, self._last_read, strict=True)
        ]

    @functools.cached_property
    def dying(self) -> list[list[int]]:
        """For each op the local tensors whose memory is free once it has ended."""
        rows: list[list[int]] = [[] for _ in range(self.ops + 2)]
        for tensor, death in enumerate(self.death):
            if not self.is_global[tensor]:
                rows[death].append(tensor)
        return rows[1 : self.ops + 1]

    @functools.cached_property
    def clock(self) -> Floats:
        """Microseconds at which each op begins when nothing stalls, and the end of the last one.

        ``ops + 1`` values.
        """
        return np.concatenate(([0.0], np.cumsum(np.array(self.seconds) * 1e6)))

    @functools.cached_property
    def global_bytes(self) -> int:
        return sum(size for size, kept in zip(self.bytes, self.is_global, strict=True) if kept)

    @functools.cached_property
    def largest_op(self) -> int:
        """Bytes of all tensors of the op that touches most."""
        return max((sum([self.bytes[t] for t in row]) for row in self.touched), default=0)
