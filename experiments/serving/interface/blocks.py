"""KV memory in blocks: counted references, and blocks of known content that are found again.

A block that nobody holds keeps its content until it is taken for another: blocks are taken from the head of
the free list and given back to its tail (vLLM's allocator; Kwon et al., SOSP 2023, sections 4.2 to 4.4).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from experiments.workloads.requests import RequestTrace


class BlockPool:
    """``total`` blocks of ``size`` tokens. A key names what a full block holds and all that is before it."""

    def __init__(self, total: int, size: int) -> None:
        self.total, self.size = total, size
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(total))
        self._references = [0] * total
        self._block_of: dict[int, int] = {}
        self._key_of: dict[int, int] = {}
        #: Free blocks whose content is still known.
        self.cached = 0

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def references(self, block: int) -> int:
        return self._references[block]

    def take(self, count: int) -> list[int]:
        """``count`` blocks from the head of the free list; what they held is forgotten."""
        pop, references = self._free.popitem, self._references
        taken = [pop(last=False)[0] for _ in range(count)]
        for block in taken:
            references[block] = 1
        for block in taken if self._key_of else ():
            if block in self._key_of:
                self._forget(block)
        return taken

    def _forget(self, block: int) -> None:
        del self._block_of[self._key_of.pop(block)]
        self.cached -= 1

    def release(self, blocks: Sequence[int]) -> None:
        """The last block first, so that the beginnings of prompts, which others share, stay longest."""
        references, free, known = self._references, self._free, self._key_of
        for block in reversed(blocks):
            left = references[block] = references[block] - 1
            if not left:
                free[block] = None
                if block in known:
                    self.cached += 1

    def register(self, block: int, key: int) -> None:
        """The block holds what ``key`` names; of a key that another block has already, nothing is kept."""
        if key not in self._block_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def find(self, keys: Sequence[int], most: int) -> list[int]:
        """The blocks of the first ``most`` keys, up to the first that is not there."""
        found = []
        for key in keys[:most]:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def share(self, blocks: Sequence[int]) -> None:
        """Hold ``blocks``, which ``find`` found, once more each."""
        for block in blocks:
            if self._references[block] == 0:
                del self._free[block]
                self.cached -= 1
            self._references[block] += 1


def keys_of(trace: RequestTrace, block: int) -> Sequence[Sequence[int]]:
    """Even keys of the prompts' full blocks, where the trace tells them of blocks of that size."""
    if trace.hashes is None or trace.block != block:
        return [()] * len(trace)
    full = (trace.prompt // block).tolist()
    rows = zip(trace.hashes.lists(), full, strict=True)
    return [tuple(2 * key for key in row[:blocks]) for row, blocks in rows]
