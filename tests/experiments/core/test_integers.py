import math

from hypothesis import given
from hypothesis import strategies as st

from experiments.core.integers import divisors, prime_factors


def test_twelve() -> None:
    assert divisors(12) == (1, 2, 3, 4, 6, 12)
    assert prime_factors(12) == (2, 2, 3)
    assert divisors(1) == (1,)
    assert prime_factors(1) == ()


@given(st.integers(1, 5000))
def test_divisors_are_all_that_divide(number: int) -> None:
    assert list(divisors(number)) == [d for d in range(1, number + 1) if number % d == 0]


@given(st.integers(1, 100_000))
def test_prime_factors_multiply_to_the_number_and_none_can_be_cut(number: int) -> None:
    factors = prime_factors(number)
    assert math.prod(factors) == number
    assert all(divisors(factor) == (1, factor) for factor in factors)
    assert list(factors) == sorted(factors)
