"""The pool of blocks, next to one that keeps its free blocks in a list and looks for each."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from experiments.serving.interface.blocks import BlockPool

TOTAL = 6
#: Take so many; release the holder so numbered; find again what so many keys name.
ACTIONS = st.tuples(st.sampled_from(["take", "release", "find"]), st.integers(0, 4))


class Plain:
    """What the pool should do, block by block."""

    def __init__(self) -> None:
        self.free, self.held = list(range(TOTAL)), [0] * TOTAL
        self.key_of: dict[int, int] = {}

    def take(self, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            self.held[block] = 1
            self.key_of.pop(block, None)
        return taken

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.held[block] -= 1
            if not self.held[block]:
                self.free.append(block)

    def find(self, keys: list[int]) -> list[int]:
        found: list[int] = []
        for key in keys:
            named = [block for block, one in self.key_of.items() if one == key]
            if not named:
                break
            found += named
        for block in found:
            if not self.held[block]:
                self.free.remove(block)
            self.held[block] += 1
        return found


#: A block that is found and released so often that what is left over of it is cleared away.
FOUND_AGAIN = [("take", 4), ("release", 0), *[("find", 1), ("release", 0)] * (TOTAL + 2)]


@given(st.lists(ACTIONS, max_size=60), st.booleans())
@example(FOUND_AGAIN, True)
def test_blocks_are_taken_kept_and_found_as_from_a_list(actions: list[tuple[str, int]], keyed: bool) -> None:
    """``keyed``: the first block that is taken holds the first key, and so on."""
    pool, plain, holders = BlockPool(TOTAL, 4), Plain(), list[list[int]]()
    for action, number in actions:
        if action == "take" and number <= pool.free:
            taken = pool.take(number)
            assert taken == plain.take(number)
            holders.append(taken)
            for key, block in enumerate(taken if keyed else ()):
                if key not in plain.key_of.values():
                    plain.key_of[block] = key
                pool.register(block, key)
        elif action == "release" and number < len(holders):
            blocks = holders.pop(number)
            pool.release(blocks)
            plain.release(blocks)
        elif action == "find":
            keys = list(range(number))
            found = pool.find(keys, number)
            pool.share(found)
            assert found == plain.find(keys)
            holders.append(found)
        assert pool.free == len(plain.free) and pool.used == TOTAL - len(plain.free)
        assert [pool.references(block) for block in range(TOTAL)] == plain.held
        assert pool.cached == sum(block in plain.key_of for block in plain.free)
    for holder in holders:
        pool.release(holder)
        plain.release(holder)
    assert pool.take(TOTAL) == plain.take(TOTAL)
