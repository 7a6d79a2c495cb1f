"""The figures that the claims of SJF and SRTF give are what theory integrates to."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable

import pytest
from scipy.integrate import quad

from tests.conftest import ROOT

LOAD = 0.7
#: Times are in mean durations, which are exponential.
FIFO = 1 / (1 - LOAD)
POLICIES = ROOT / "experiments" / "cluster" / "policies"


def load_below(x: float) -> float:
    """Of jobs that are shorter than ``x``."""
    return LOAD * (1 - math.exp(-x) * (1 + x))


def mean_of(time: Callable[[float], float]) -> float:
    """Over durations, of a time that a job of each has."""
    found: float = quad(lambda x: math.exp(-x) * time(x), 0, math.inf)[0]
    return found


def sjf(x: float) -> float:
    """Residual work of the job that is served, and all shorter ones first."""
    return x + LOAD / (1 - load_below(x)) ** 2


def srtf(x: float) -> float:
    """Schrage and Miller (1966): the wait until the first service, and the time from then on."""
    squares = 2 - math.exp(-x) * (x * x + 2 * x + 2) + x * x * math.exp(-x)
    waits = LOAD * squares / (2 * (1 - load_below(x)) ** 2)
    stays: float = quad(lambda t: 1 / (1 - load_below(t)), 0, x)[0]
    return waits + stays


@pytest.mark.parametrize(("policy", "time"), [("sjf", sjf), ("srtf", srtf)])
def test_the_claimed_ratio_is_that_of_theory(policy: str, time: Callable[[float], float]) -> None:
    [claim] = tomllib.loads((POLICIES / f"{policy}.toml").read_text())["claim"]
    assert claim["value"] == pytest.approx(FIFO / mean_of(time), abs=5e-5)
    assert claim["runs"]["ours"]["workload"]["options"]["rate"] * 3600 == pytest.approx(LOAD, rel=1e-6)
