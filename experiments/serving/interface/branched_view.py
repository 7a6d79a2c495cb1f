"""Several sequences of one request over shared blocks: answers drawn side by side, or the beams of a search.

They share all blocks of what they have in common. A block that several hold is copied before one of them
writes into it, for all but the last of these (Kwon et al., SOSP 2023, section 4.4). In a beam search each
step's sequences descend from those before; which survive depends on the model, so that here each descends
from any of them with equal chance, by the run's seed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from experiments.serving.interface.branches import Branches
from experiments.serving.interface.paged import PagedView
from experiments.serving.interface.step_load import Entry

ONE = Branches(1, beams=False)
#: Blocks of the sequences of a request, each in the order of its tokens.
Tables = list[list[int]]


@dataclass
class BranchedView(PagedView):
    """``tables`` are those of requests whose prompt is computed, ``held`` being the first of them.

    A request that gives way without a place on the host begins anew: what was drawn is lost.
    """

    branches: Branches = ONE
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    tables: dict[int, Tables] = field(default_factory=dict)
    #: Tables of those on the host, in numbers of their distinct blocks.
    shapes: dict[int, Tables] = field(default_factory=dict)
    #: Until which token the beams of each have been chosen.
    chosen: dict[int, int] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        return self.branches.count

    @property
    def repeats(self) -> bool:
        return False

    @property
    def logical_blocks(self) -> int:
        """Blocks that all requests would hold if they shared none."""
        return sum(sum(map(len, self.tables.get(one, (blocks,)))) for one, blocks in self.held.items())

    def least_blocks(self, prompt: int, output: int) -> int:
        """Each sequence has its own blocks behind the prompt's full ones; beams at least their last one."""
        whole = super().least_blocks(prompt, output)
        shared = whole - 1 if self.branches.beams else min(whole, prompt // self.pool.size)
        return whole if output == 1 else shared + self.sequences * (whole - shared)

    def extend_all(self, *, only_decodes: bool = False) -> bool:
        return False

    def extend(self, request: int, tokens: int) -> bool:
        computed = self.computed[request]
        if tokens != 1 or computed < self.prompt[request]:
            return super().extend(request, tokens)
        if request not in self.tables:
            self._fork(request)
        elif self.branches.beams and self.chosen.get(request, -1) < computed:
            self._choose_beams(request)
        self.chosen[request] = computed
        if self._lacking_blocks(request, computed // self.pool.size) > self.pool.free:
            return False
        for table in self.tables[request]:
            self._write(table, computed // self.pool.size)
        self.entries += [Entry(request, 1, computed)] * self.sequences
        self.computed[request] = computed + 1
        return True

    def _fork(self, request: int) -> None:
        first = self.held[request]
        self.tables[request] = [first, *(list(first) for _ in range(self.sequences - 1))]
        for table in self.tables[request][1:]:
            self.pool.share(table)

    def _choose_beams(self, request: int) -> None:
        before = self.tables[request]
        parents = sorted(self.rng.integers(0, self.sequences, self.sequences).tolist())
        after = [list(before[parent]) for parent in parents]
        for table in after:
            self.pool.share(table)
        for table in before:
            self.pool.release(table)
        self._hold(request, after)

    def _hold(self, request: int, tables: Tables) -> None:
        self.tables[request], self.held[request] = tables, tables[0]

    def _lacking_blocks(self, request: int, place: int) -> int:
        """Free blocks that the next token of every sequence takes."""
        tables = self.tables[request]
        holders = Counter(table[place] for table in tables if place < len(table))
        copies = sum(min(count, self.pool.references(block) - 1) for block, count in holders.items())
        return copies + sum(place >= len(table) for table in tables)

    def _write(self, table: list[int], place: int) -> None:
        """A block of its own for the next token: a new one, or a copy of one that others hold too."""
        if place >= len(table):
            table += self.pool.take(1)
        elif self.pool.references(table[place]) > 1:
            shared, table[place] = table[place], self.pool.take(1)[0]
            self.pool.release([shared])

    def preempt(self, request: int) -> None:
        super().preempt(request)
        self.chosen.pop(request, None)
        self.known[request] = self.prompt[request]

    def swap_out(self, request: int) -> bool:
        tables = self.tables.get(request, [self.held[request]])
        places = {block: place for place, block in enumerate(dict.fromkeys(b for t in tables for b in t))}
        if len(places) > self.host_blocks:
            return False
        self.shapes[request] = [[places[block] for block in table] for table in tables]
        self._leave(request)
        self.host_blocks -= len(places)
        self.on_host[request] = len(places)
        self.swapped_blocks += len(places)
        self.swapped.append(request)
        return True

    def swap_in(self, request: int) -> bool:
        if not super().swap_in(request):
            return False
        blocks = self.held[request]
        tables = [[blocks[place] for place in table] for table in self.shapes.pop(request)]
        for table in tables:
            self.pool.share(table)
        self.pool.release(blocks)
        self._hold(request, tables)
        if len(tables) == 1:
            del self.tables[request]
        return True

    def _leave(self, request: int) -> None:
        super()._leave(request)
        self._release_others(request)

    def finish(self, request: int) -> None:
        super().finish(request)
        self._release_others(request)
        self.chosen.pop(request, None)

    def _release_others(self, request: int) -> None:
        """Blocks of all sequences but the first, which is what is ``held``."""
        for table in self.tables.pop(request, ())[1:]:
            self.pool.release(table)
