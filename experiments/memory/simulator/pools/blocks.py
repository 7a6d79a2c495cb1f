"""The blocks of a step's address space, as demand paging sees them.

Persistent tensors lie at the bottom. Every other tensor, and each op's scratch, takes the smallest hole that
holds it when it is first used and gives it back after its last use, as a framework's allocator does: the
driver sees addresses that are used again, and cannot tell dead content from live. With ``reuse`` off each
tensor keeps a range of its own (files mapped one by one).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.memory.interface.space import Paging
from experiments.memory.simulator.pools.ranges import BestFitAllocator
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import TIMELINE

#: Addresses are multiples of this, bytes.
ALIGNMENT = 512
#: More addresses than any step asks for.
ENDLESS = 2**62
WORKSPACE = TIMELINE.index("workspace")


class AddressBlocks:
    """``addresses`` and ``bytes`` of the tensors and of each op's scratch, in the order of ops, behind them.

    ``size`` and ``kind`` (of the first tensor in it) by block; ``touched``, ``written``, ``dying`` blocks by
    op.

    ``dying`` are the blocks without a live byte once the op has ended. ``identity`` is equal for ops of one
    name on the same tensors.
    """

    def __init__(self, prepared: Prepared, paging: Paging) -> None:
        step, self.block_bytes = prepared.step, paging.block_bytes
        scratch = [op for op, size in enumerate(prepared.workspace) if size]
        sizes = prepared.sizes + [prepared.workspace[op] for op in scratch]
        first = step.first_use.tolist() + scratch
        last = step.death.tolist() + scratch
        kinds = prepared.kinds + [WORKSPACE] * len(scratch)
        addresses, extent = _addresses(prepared.persistent, sizes, first, last, paging.reuse)
        self.addresses, self.bytes = addresses, sizes
        self.size = [self.block_bytes] * (-(-extent // self.block_bytes))
        self.ranges = [self._range(address, size) for address, size in zip(addresses, sizes, strict=True)]
        self.kind = [-1] * len(self.size)
        for tensor in prepared.persistent + sorted(range(len(sizes)), key=lambda t: first[t]):
            for block in self.ranges[tensor]:
                self.kind[block] = kinds[tensor] if self.kind[block] < 0 else self.kind[block]
        used = [list(row) for row in prepared.touched]
        for tensor, op in enumerate(scratch, len(prepared.sizes)):
            used[op].append(tensor)
        self.touched = [self._blocks_of(row) for row in used]
        self.written = [self._blocks_of(row) for row in prepared.lineage.writes]
        self.dying = self._dying(prepared.persistent, first, last, len(used))
        names = list(zip(step.ops.target, map(tuple, prepared.touched), strict=True))
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.identity = [numbers[name] for name in names]

    @property
    def count(self) -> int:
        return len(self.size)

    def of(self, tensor: int) -> Sequence[int]:
        return self.ranges[tensor]

    def within(self, tensor: int, block: int) -> int:
        """Bytes of ``tensor`` that lie in ``block``."""
        start, end = self.addresses[tensor], self.addresses[tensor] + self.bytes[tensor]
        low = block * self.block_bytes
        return max(0, min(end, low + self.block_bytes) - max(start, low))

    def _range(self, address: int, size: int) -> range:
        if address < 0 or size == 0:
            return range(0)
        return range(address // self.block_bytes, (address + size - 1) // self.block_bytes + 1)

    def _blocks_of(self, tensors: Sequence[int]) -> list[int]:
        return list(dict.fromkeys(block for tensor in tensors for block in self.ranges[tensor]))

    def _dying(
        self, persistent: Iterable[int], first: list[int], last: list[int], ops: int
    ) -> list[list[int]]:
        """Blocks whose last live tensor ends with each op, until a later tensor begins in them."""
        live = [0] * self.count
        for tensor in persistent:
            for block in self.ranges[tensor]:
                live[block] += 1
        kept = set(persistent)
        born: list[list[int]] = [[] for _ in range(ops)]
        dead: list[list[int]] = [[] for _ in range(ops)]
        for tensor, op in enumerate(last):
            if op >= 0 and tensor not in kept:
                born[first[tensor]].append(tensor)
                dead[op].append(tensor)
        dying: list[list[int]] = []
        for op in range(ops):
            for tensor in born[op]:
                for block in self.ranges[tensor]:
                    live[block] += 1
            ended = [block for tensor in dead[op] for block in self.ranges[tensor]]
            for block in ended:
                live[block] -= 1
            dying.append([block for block in dict.fromkeys(ended) if not live[block]])
        return dying


def _addresses(
    persistent: Sequence[int], sizes: list[int], first: list[int], last: list[int], reuse: bool
) -> tuple[list[int], int]:
    """The address of each tensor (-1: never used) and the end of the address space."""
    addresses = [-1] * len(sizes)
    pool = BestFitAllocator(ENDLESS, ALIGNMENT)
    ending: dict[int, list[int]] = {}
    kept, freed = set(persistent), -1
    passing = sorted((t for t in range(len(sizes)) if t not in kept and last[t] >= 0), key=first.__getitem__)
    for tensor in (*persistent, *passing):
        for op in range(freed + 1, first[tensor]) if tensor not in kept and reuse else ():
            for dead in ending.pop(op, ()):
                pool.give(addresses[dead])
            freed = op
        address = pool.take(tensor, sizes[tensor])
        addresses[tensor] = -1 if address is None else address
        if tensor not in kept:
            ending.setdefault(last[tensor], []).append(tensor)
    return addresses, pool.end
