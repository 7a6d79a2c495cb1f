"""Divisors and prime factors of the small integers that degrees, batches and loops are cut by."""

from __future__ import annotations

import functools
import math


@functools.cache
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a positive integer, ascending: 12 gives 1, 2, 3, 4, 6, 12."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*low, *(number // d for d in low)}))


@functools.cache
def prime_factors(number: int) -> tuple[int, ...]:
    """Return the prime factors of a positive integer, ascending, with repeats: 12 gives 2, 2, 3."""
    found, prime = [], 2
    while prime * prime <= number:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return (*found, number) if number > 1 else tuple(found)
