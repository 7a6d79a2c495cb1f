"""What a request costs where some operators run in the cloud: both parts, what is sent, and a round trip.

One side waits for the other: a request has one owner at a time. An output that several operators of the other
side read is sent once; of several results each is an equal part of the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.workloads.split_task import LinkState, SplitTask

#: Places of the operators that run in the cloud.
Split = frozenset[int]


class SplitCost(NamedTuple):
    """Seconds of each part; ``sent`` and ``received`` are those of copies up and down."""

    device: float
    cloud: float
    sent: float
    received: float
    round_trip: float

    @property
    def seconds(self) -> float:
        return self.device + self.cloud + self.sent + self.received + self.round_trip


def split_cost(task: SplitTask, device: Sequence[float], link: LinkState, split: Split) -> SplitCost:
    """Return what a request takes; ``device`` has the seconds of each operator there."""
    up = sum(_bytes(task, place) for place in _crossing(task, split, to_cloud=True)) / link.up
    down = sum(_bytes(task, place) for place in _crossing(task, split, to_cloud=False)) / link.down
    sinks = task.sinks
    down += task.output * sum(place in split for place in sinks) / len(sinks) / link.down
    return SplitCost(
        sum(seconds for place, seconds in enumerate(device) if place not in split),
        sum(task.operators[place].cloud for place in split),
        up,
        down,
        task.round_trip if split else 0.0,
    )


def split_faults(task: SplitTask, split: Split) -> list[str]:
    """What is impossible about ``split``; empty when nothing is."""
    found = [f"operator {place} does not exist" for place in sorted(split) if not 0 <= place < len(task)]
    stays = [one.name for place, one in enumerate(task.operators) if place in split and one.stays]
    return found + [f"{name} runs in the cloud but stays on the device" for name in stays]


def _bytes(task: SplitTask, place: int) -> float:
    return task.input if place < 0 else task.operators[place].bytes


def _crossing(task: SplitTask, split: Split, *, to_cloud: bool) -> Iterator[int]:
    """Outputs (-1: the input) that the other side reads, each once."""
    seen = set[int]()
    for place, one in enumerate(task.operators):
        for source in one.inputs:
            if (place in split) == to_cloud and (source in split) != to_cloud and source not in seen:
                seen.add(source)
                yield source
