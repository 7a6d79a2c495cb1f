"""Channels between the device, the host and storage: each a queue that serves one transfer after another."""

from __future__ import annotations

from experiments.memory.interface.machine import Machine, Rate
from experiments.memory.simulator.report import Spans


class Channels:
    """First come, first served on every channel.

    A transfer to or from storage streams through the host link as well: it takes its share of both and ends when the
    slower one has passed it. Where the host link is not duplex, its two directions take turns.
    """

    def __init__(self, machine: Machine) -> None:
        self._rates = {"out": machine.out, "back": machine.back, "write": machine.write, "read": machine.read}
        self._lane = {
            "out": "out",
            "back": "back" if machine.duplex else "out",
            "write": "write",
            "read": "read",
        }
        self._free = dict.fromkeys(("out", "back", "write", "read"), 0.0)
        self.spans: dict[str, Spans] = {name: [] for name in self._rates}
        self.moved = dict.fromkeys(self._rates, 0.0)

    def out(self, size: float, tier: str, ready: float) -> float:
        """Queue ``size`` bytes from the device to ``tier``, not before ``ready``; the time when they are there."""
        return self._send(size, ("out",) if tier == "host" else ("out", "write"), ready)

    def back(self, size: float, tier: str, ready: float) -> float:
        """Queue ``size`` bytes from ``tier`` to the device, not before ``ready``; the time when they are there."""
        return self._send(size, ("back",) if tier == "host" else ("read", "back"), ready)

    def spill(self, size: float, ready: float) -> float:
        """Queue ``size`` bytes from host memory to storage, not before ``ready``; the time when they are there."""
        return self._send(size, ("write",), ready)

    def restart(self, now: float) -> None:
        """Start the clock and the figures anew at ``now``; transfers under way go on."""
        self._free = {lane: max(0.0, time - now) for lane, time in self._free.items()}
        self.spans = {name: [] for name in self._rates}
        self.moved = dict.fromkeys(self._rates, 0.0)

    def _send(self, size: float, names: tuple[str, ...], ready: float) -> float:
        end = ready
        for name in names:
            lane, rate = self._lane[name], self._rates[name]
            start = max(ready, self._free[lane])
            done = start + _time(rate, size)
            self._free[lane] = done
            self.spans[name].append((start, done))
            self.moved[name] += size
            end = max(end, done)
        return end

    @property
    def end(self) -> float:
        """When the last transfer queued so far has ended."""
        return max(self._free.values())


def _time(rate: Rate, size: float) -> float:
    return rate.latency + size / rate.bandwidth if rate.bandwidth > 0 else float("inf")
