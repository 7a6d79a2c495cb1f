"""What moving a tile costs in whole memory transactions (Welder, OSDI'23, section 4; Roller, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def contiguous(tile: Sequence[int], tensor: Sequence[int]) -> int:
    """Return elements of a tile that lie in one run.

    Its last dimension, times the one before where the last is whole.
    """
    run = 1
    for own, whole in zip(reversed(tile), reversed(tensor), strict=True):
        run *= own
        if own != whole:
            break
    return run


def coalesced_elements(tile: Sequence[int], tensor: Sequence[int], transaction: int) -> float:
    """Return elements that move for a tile, in transactions of ``transaction`` elements.

    Short runs waste the rest.
    """
    elements = math.prod(tile)
    return transaction * elements / min(transaction, max(1, contiguous(tile, tensor))) if elements else 0.0
