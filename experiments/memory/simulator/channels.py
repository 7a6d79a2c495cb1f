"""Channels between the device, the host and what lies beyond, each a queue of transfers."""

from __future__ import annotations

from experiments.memory.interface.machine import CopyRate, MemoryMachine
from experiments.memory.simulator.report import Spans, clip

#: The channels that a copy to a tier, and one from it, passes.
OUT = {"host": ("out",), "storage": ("out", "write"), "remote": ("out", "remote_write")}
BACK = {"host": ("back",), "storage": ("read", "back"), "remote": ("remote_read", "back")}


class TierChannels:
    """First come, first served on every channel.

    A transfer to or from storage or remote memory streams through the host link as well: it takes its share
    of both and ends when the slower one has passed it. Where the host link is not duplex, its two directions
    take turns. Beyond the link whole pages are moved. Of ``sharers`` devices that do the same at the same
    time, each has its part of the link's bandwidth.
    """

    def __init__(self, machine: MemoryMachine) -> None:
        part = machine.sharers
        self._rates = {
            "out": CopyRate(machine.out.bandwidth / part, machine.out.latency),
            "back": CopyRate(machine.back.bandwidth / part, machine.back.latency),
            "write": machine.write,
            "read": machine.read,
        }
        if machine.remote_bytes:
            self._rates |= {"remote_write": machine.remote_write, "remote_read": machine.remote_read}
        self._lane = {name: name for name in self._rates} | ({} if machine.duplex else {"back": "out"})
        self._free = dict.fromkeys(self._rates, 0.0)
        pages = {"write": machine.storage_page, "read": machine.storage_page}
        pages |= {"remote_write": machine.remote_page, "remote_read": machine.remote_page}
        self._pages = {name: pages.get(name, 1) for name in self._rates}
        self.spans: dict[str, Spans] = {name: [] for name in self._rates}
        self.moved = dict.fromkeys(self._rates, 0.0)

    def send_out(self, tensor: int, size: float, tier: str, now: float) -> float:
        """Queue the copy of ``tensor`` at ``now``; when it will be on ``tier``, as known so far."""
        return self._send(size, OUT[tier], now)

    def send_back(self, tensor: int, size: float, tier: str, now: float, copied: float) -> float:
        """Queue the copy back at ``now``, not before it is ``copied``; when it will be on the device."""
        return self._send(size, BACK[tier], copied if copied > now else now)

    def out(self, size: float, tier: str, ready: float) -> float:
        """Queue ``size`` bytes from the device to ``tier``, not before ``ready``; when they are there."""
        return self._send(size, OUT[tier], ready)

    def back(self, size: float, tier: str, ready: float) -> float:
        """Queue ``size`` bytes from ``tier`` to the device, not before ``ready``; when they are there."""
        return self._send(size, BACK[tier], ready)

    def beyond(self, size: float, tier: str, way: str, ready: float) -> float:
        """Queue only the part of a copy behind the host link (``way`` out or back); when it has ended."""
        legs = (OUT if way == "out" else BACK)[tier]
        return self._send(size, tuple(leg for leg in legs if leg not in ("out", "back")), ready)

    def spill(self, size: float, ready: float) -> float:
        """Queue ``size`` bytes from host memory to storage, not before ``ready``; when they are there."""
        return self._send(size, ("write",), ready)

    def restart(self, now: float) -> None:
        """Start the clock and the figures anew at ``now``; transfers in flight go on."""
        self._free = {lane: max(0.0, time - now) for lane, time in self._free.items()}
        self.spans = {
            name: [(max(0.0, start - now), end - now) for start, end in spans if end > now]
            for name, spans in self.spans.items()
        }
        self.moved = dict.fromkeys(self._rates, 0.0)

    def _send(self, size: float, names: tuple[str, ...], ready: float) -> float:
        end = ready
        for name in names:
            lane, rate, page = self._lane[name], self._rates[name], self._pages[name]
            amount = size if page == 1 else -(-size // page) * page
            free = self._free[lane]
            start = ready if ready > free else free
            done = start + _time(rate, amount)
            self._free[lane] = done
            self.spans[name].append((start, done))
            self.moved[name] += amount
            if done > end:
                end = done
        return end

    def spans_until(self, now: float) -> dict[str, Spans]:
        """When each channel was busy before ``now``."""
        return {name: clip(now, spans) for name, spans in self.spans.items()}

    @property
    def end(self) -> float:
        """When the last transfer queued so far has ended."""
        return max(self._free.values())


def _time(rate: CopyRate, size: float) -> float:
    return rate.latency + size / rate.bandwidth if rate.bandwidth > 0 else float("inf")
