"""What is free on each node: whole devices, parts of shared ones, processors and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.cluster.interface.allocation import Devices, Gang, OnHost
from experiments.cluster.interface.jobs import Demand
from experiments.cluster.interface.machines import Machines
from experiments.cluster.interface.placement import PLACEMENTS

#: Sums of shares are not exact.
SLACK = 1e-9
#: The places of the bits of every byte.
_BITS = tuple(tuple(bit for bit in range(8) if mask >> bit & 1) for mask in range(256))


class Pool:
    """What is free now. Copy it to plan a decision; nothing is taken until the simulator does.

    ``free`` counts whole devices by node, ``total`` over all; ``capacity`` counts what a node has in working
    order. ``cpus`` and ``memory`` (bytes) are what is left of hosts.
    """

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.capacity: list[int] = list(machines.sizes)
        self.free: list[int] = list(machines.sizes)
        self.total: int = machines.devices
        self.cpus: list[float] = [node.cpus for node in machines]
        self.memory: list[float] = [node.memory for node in machines]
        self._whole: list[int] = [(1 << size) - 1 for size in machines.sizes]
        self._parts: dict[int, tuple[float, float]] = {}

    def copy(self) -> Pool:
        made = Pool.__new__(Pool)
        made.machines, made.total = self.machines, self.total
        made.capacity, made.free = self.capacity.copy(), self.free.copy()
        made.cpus, made.memory = self.cpus.copy(), self.memory.copy()
        made._whole, made._parts = self._whole.copy(), self._parts.copy()
        return made

    def free_devices(self, node: int) -> list[int]:
        """The numbers of a node's devices of which nobody has a part."""
        return _places(self._whole[node], self.machines.first[node])

    def left_of(self, device: int) -> tuple[float, float]:
        """Shares of a device's computing and memory that are free."""
        if device in self._parts:
            return self._parts[device]
        node = self.machines.node_of[device]
        whole = self._whole[node] >> (device - self.machines.first[node]) & 1
        return (1.0, 1.0) if whole else (0.0, 0.0)

    @property
    def shared_devices(self) -> Sequence[int]:
        """The numbers of devices of which some part is taken and some may be free, ascending."""
        return sorted(self._parts)

    def take(self, gang: Gang) -> None:
        """Give ``gang`` its devices; ``ValueError`` names what is not free."""
        if lack := self.lack(gang):
            raise ValueError(f"job {gang.job} {lack}")
        if gang.is_alone:
            self._take_whole(gang.devices)
        else:
            self._take_parts(gang, -1)
        self._take_hosts(gang.hosts, -1)

    def give_back(self, gang: Gang) -> None:
        if gang.is_alone:
            self._give_whole(gang.devices)
        else:
            self._take_parts(gang, +1)
        self._take_hosts(gang.hosts, +1)

    def lack(self, gang: Gang) -> str:
        """Why ``gang`` cannot have its devices now, naming the first; empty when it can."""
        if gang.devices and not 0 <= gang.devices[0] <= gang.devices[-1] < self.machines.devices:
            last = self.machines.devices - 1
            return f"is given devices {gang.devices[0]} to {gang.devices[-1]}, and there are 0 to {last}"
        for device in gang.devices:
            if not self._has(device, gang):
                return self._explain(device, gang)
        for node, cpus, memory in gang.hosts:
            if cpus > self.cpus[node] + SLACK or memory > self.memory[node] * (1 + SLACK) + SLACK:
                name = self.machines[node].name
                left = f"{self.cpus[node]:g} and {self.memory[node]:g} are free"
                return f"is given {cpus:g} processors and {memory:g} bytes of {name}, where {left}"
        return ""

    def _has(self, device: int, gang: Gang) -> bool:
        node = self.machines.node_of[device]
        if self._whole[node] >> (device - self.machines.first[node]) & 1:
            return True
        compute, memory = self._parts.get(device, (0.0, 0.0))
        return not gang.is_alone and gang.share <= compute + SLACK and gang.memory <= memory + SLACK

    def _explain(self, device: int, gang: Gang) -> str:
        node = self.machines.node_of[device]
        where = f"device {device - self.machines.first[node]} of {self.machines[node].name}"
        if gang.is_alone:
            return f"is given {where}, which is not free"
        compute, memory = self.left_of(device)
        wants = f"{gang.share:g} of {where} and {gang.memory:g} of its memory"
        return f"is given {wants}, where {compute:g} and {memory:g} are free"

    def _take_whole(self, devices: Devices) -> None:
        first, node_of = self.machines.first, self.machines.node_of
        for device in devices:
            node = node_of[device]
            self._whole[node] ^= 1 << (device - first[node])
            self.free[node] -= 1
        self.total -= len(devices)

    def _give_whole(self, devices: Devices) -> None:
        first, node_of = self.machines.first, self.machines.node_of
        for device in devices:
            node = node_of[device]
            if self.capacity[node]:
                self._whole[node] |= 1 << (device - first[node])
                self.free[node] += 1
                self.total += 1

    def _take_parts(self, gang: Gang, sign: int) -> None:
        for device in gang.devices:
            if device not in self._parts and sign < 0:
                self._take_whole((device,))
            compute, memory = self._parts.pop(device, (1.0, 1.0))
            compute, memory = compute + sign * gang.share, memory + sign * gang.memory
            if compute > 1 - SLACK and memory > 1 - SLACK:
                self._give_whole((device,))
            else:
                self._parts[device] = (compute, memory)

    def _take_hosts(self, hosts: Sequence[OnHost], sign: int) -> None:
        for node, cpus, memory in hosts:
            self.cpus[node] += sign * cpus
            self.memory[node] += sign * memory

    def close(self, node: int) -> None:
        """Take a node out of use; nothing runs on it any more."""
        self.total -= self.free[node]
        self.capacity[node] = self.free[node] = self._whole[node] = 0

    def reopen(self, node: int) -> None:
        """Take a node into use again, all of it free."""
        size = self.machines.sizes[node]
        self.capacity[node] = self.free[node] = size
        self._whole[node] = (1 << size) - 1
        self.total += size

    def place(self, job: int, demand: Demand, rule: str) -> Gang | None:
        """Return a gang of what ``demand`` asks for by a rule of ``PLACEMENTS``, or ``None`` without one."""
        if demand.share < 1:
            return self._place_shared(job, demand)
        if demand.gpus == 0:
            return self._place_on_host(job, demand)
        if demand.gpus > self.total:
            return None
        room = self.free if demand.is_plain else [self.room(node, demand) for node in range(len(self.free))]
        order = PLACEMENTS[rule](self, demand, room)
        devices = None if order is None else self._fill(order, demand.gpus, room)
        return None if devices is None else Gang(job, devices, hosts=self.hosts_of(devices, demand))

    def hosts_of(self, devices: Devices, demand: Demand) -> tuple[OnHost, ...]:
        """Processors and memory that ``demand`` takes next to ``devices``, in proportion to them."""
        if not demand.cpus and not demand.memory:
            return ()
        each = 1 / len(devices)
        return tuple(
            OnHost(node, demand.cpus * count * each, demand.memory * count * each)
            for node, count in self.machines.by_node(devices)
        )

    def room(self, node: int, demand: Demand) -> int:
        """How many devices of ``node`` ``demand`` may take."""
        return self._room(node, demand, self.free[node], self.cpus[node], self.memory[node])

    def room_of_empty(self, node: int, demand: Demand) -> int:
        """How many devices of ``node`` ``demand`` could take if nobody else had any."""
        machine = self.machines[node]
        return self._room(node, demand, self.capacity[node], machine.cpus, machine.memory)

    def _room(self, node: int, demand: Demand, free: int, cpus: float, memory: float) -> int:
        if not free or (demand.types and self.machines[node].device not in demand.types):
            return 0
        if demand.cpus:
            free = min(free, _times(cpus, demand.cpus / demand.gpus))
        if demand.memory:
            free = min(free, _times(memory, demand.memory / demand.gpus))
        return free

    def _fill(self, order: Sequence[int], gpus: int, room: Sequence[int]) -> Devices | None:
        taken: list[int] = []
        for node in order:
            if free := room[node]:
                count = free if free < gpus else gpus
                taken += self.free_devices(node)[:count]
                gpus -= count
                if not gpus:
                    return tuple(sorted(taken))
        return None

    def _place_shared(self, job: int, demand: Demand) -> Gang | None:
        """Parts of devices: of those already shared, the ones that are left least; then of whole ones."""
        fits = [device for device in self._parts if min(self._parts[device]) + SLACK >= demand.share]
        fits.sort(key=lambda device: (self._parts[device], device))
        whole = (device for node in range(len(self.free)) for device in self.free_devices(node))
        taken: list[int] = []
        cpus, memory = self.cpus.copy(), self.memory.copy()
        for device in (*fits, *whole):
            node = self.machines.node_of[device]
            if demand.types and self.machines[node].device not in demand.types:
                continue
            if cpus[node] + SLACK < demand.cpus / demand.gpus or memory[node] < demand.memory / demand.gpus:
                continue
            cpus[node] -= demand.cpus / demand.gpus
            memory[node] -= demand.memory / demand.gpus
            taken.append(device)
            if len(taken) == demand.gpus:
                devices = tuple(sorted(taken))
                return Gang(job, devices, demand.share, demand.share, self.hosts_of(devices, demand))
        return None

    def _place_on_host(self, job: int, demand: Demand) -> Gang | None:
        """Processors and memory of the first node that has them, without a device."""
        for node, capacity in enumerate(self.capacity):
            works = capacity or not self.machines.sizes[node]
            enough = self.cpus[node] + SLACK >= demand.cpus and self.memory[node] >= demand.memory
            if works and enough:
                return Gang(job, (), hosts=(OnHost(node, demand.cpus, demand.memory),))
        return None


def _places(mask: int, first: int) -> list[int]:
    """The numbers of the set bits, the lowest called ``first``."""
    if mask < 256:
        return [first + bit for bit in _BITS[mask]]
    found = []
    while mask:
        low = mask & -mask
        found.append(first + low.bit_length() - 1)
        mask ^= low
    return found


def _times(left: float, each: float) -> int:
    """How often ``each`` is had of ``left``."""
    return 10**9 if math.isinf(left) else int(left / each + SLACK)
