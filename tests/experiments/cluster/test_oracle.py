"""Speeds by device type, on one node or several, alone or in pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.cluster.interface import Gang, Machine, Machines
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.planning.performance.oracle import DeviceTypeSpeed
from experiments.core.errors import BadInput
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType
from tests.experiments.cluster.traces import jobs

ONE, TWO = ("m", 1), ("m", 2)
SPEEDS = DeviceSpeeds(
    "table",
    {
        "k80": SpeedsOfType({ONE: 1.0, TWO: 0.0}, {}),
        "v100": SpeedsOfType({ONE: 4.0, TWO: 7.0}, {(ONE, ONE): (3.0, 2.0)}),
    },
    {"v100": SpeedsOfType({ONE: 4.0, TWO: 5.0}, {})},
)
#: Devices 0 and 1 on one node, 2 on another, 3 and 4 of the slow type, 5 of a type that the table lacks.
MACHINES = Machines(
    [
        *(Machine("a", 2, "v100-16g"), Machine("b", 1, "v100-16g")),
        *(Machine("c", 2, "k80-12g"), Machine("d", 1, "t4-16g")),
    ]
)


def model() -> DeviceTypeSpeed:
    trace = jobs((0, 1, 10), (0, 2, 10), (0, 1, 10))
    trace = replace(trace, model=("m", "m", "m"), profiles=SPEEDS, traits={"iterations": np.full(3, 40.0)})
    found = performance_of(trace, MACHINES)
    assert isinstance(found, DeviceTypeSpeed)
    return found


@pytest.mark.parametrize(
    ("job", "devices", "speed"),
    [(0, (0,), 4), (0, (3,), 1), (1, (0, 1), 7), (1, (1, 2), 5), (0, (0, 1), 7)],
)
def test_speeds_are_those_of_the_table(job: int, devices: tuple[int, ...], speed: float) -> None:
    assert model().rate(job, Gang(job, devices)).speed == speed
    assert model().work(job) == 40


def test_a_pair_shares_its_devices_at_the_speed_of_each() -> None:
    pair = (Gang(0, (2,), 0.5, 0.5), Gang(2, (2,), 0.5, 0.5))
    assert model().rate(0, pair[0], pair[1:]).speed == 3
    assert model().pair(0, 2, "v100-16g") == (3, 2)
    assert model().pair(0, 2, "k80-12g") is None


@pytest.mark.parametrize(
    ("gang", "neighbors", "complaint"),
    [
        (Gang(0, (5,)), (), "table has no speed of 'm' on devices t4-16g"),
        (Gang(1, (0, 1, 2)), (), "no speed of 'm' on 3 devices v100-16g"),
        (Gang(1, (3, 4)), (), "'m' does not run on 2 devices k80-12g"),
        (Gang(0, (3,), 0.5), (Gang(2, (3,), 0.5),), "on 1 devices k80-12g beside 'm'"),
        (Gang(0, (0,), 0.5), (Gang(1, (0, 1), 0.5),), "or one on some of its devices"),
    ],
)
def test_what_it_lacks_is_named(gang: Gang, neighbors: tuple[Gang, ...], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint) as found:
        model().rate(gang.job, gang, neighbors)
    assert f"job {gang.job}" in str(found.value)
