"""Traffic of an n x n matrix product, in elements, by the level that is tiled (course notes)."""

from __future__ import annotations


def untiled_reads(n: int) -> int:
    """Each of the n^2 results reads a row and a column: 2 n^3."""
    return 2 * n**3


def cache_tiled_reads(n: int, b1: int) -> float:
    """DRAM to cache with row panels of b1: A once, B once per panel: n^2 + n^3/b1."""
    return n**2 + n**3 / b1


def cache_tile_elements(n: int, b1: int, b2: int) -> int:
    """What the two panels occupy: (b1 + b2) n elements must fit in the cache."""
    return (b1 + b2) * n


def register_tiled_reads(n: int, v1: int, v2: int) -> float:
    """Cache to registers with v1 x v2 results at once: n^3/v2 for A and n^3/v1 for B."""
    return n**3 / v2 + n**3 / v1


def register_tile_elements(v1: int, v2: int, v3: int) -> int:
    """Registers for the slices and the results: v1 v3 + v2 v3 + v1 v2."""
    return v1 * v3 + v2 * v3 + v1 * v2


def shared_memory_tiled_reads(n: int, block: int) -> float:
    """Global memory of a GPU with block x block results per thread block: 2 n^3 / block."""
    return 2 * n**3 / block
