"""DeepUM's tables: which kernel follows which, and which blocks a kernel touched the last time it ran."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

History = tuple[int, ...]


class Correlation:
    """Learns while it runs; the newest observation wins. A kernel's identity is its name and tensors.

    ``following`` maps the three kernels before and the current one to the next (the paper's execution table),
    and ``blocks`` a kernel to the blocks it touched (its block table, start to end). A guess chains on from
    guess to guess, ``degree`` kernels ahead, until a kernel has no known successor.
    """

    def __init__(self, degree: int) -> None:
        self.degree = degree
        self.following: dict[History, int] = {}
        self.blocks: dict[int, Sequence[int]] = {}
        self.past: deque[int] = deque(maxlen=4)

    def predict(self, kernel: int) -> list[int]:
        """Blocks of the next ``degree`` kernels if ``kernel`` is launched now, in the order of their use."""
        history = deque(self.past, maxlen=4)
        history.append(kernel)
        found: dict[int, None] = {}
        for _ in range(self.degree):
            guess = self.following.get(tuple(history))
            if guess is None:
                break
            found.update(dict.fromkeys(self.blocks.get(guess, ())))
            history.append(guess)
        return list(found)

    def learn(self, kernel: int, touched: Sequence[int]) -> None:
        """``kernel`` ran and touched these blocks."""
        if len(self.past) == 4:
            self.following[tuple(self.past)] = kernel
        self.past.append(kernel)
        self.blocks[kernel] = touched
