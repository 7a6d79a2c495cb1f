"""Who had which devices for how many rounds on end: what the release's rounds look like in the log."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.cluster.interface import Devices, Execution, ExecutionLog, Gang, Machines
from experiments.cluster.interface.division import Sharers
from experiments.cluster.interface.log import COMPLETED, CUT, PREEMPTED


@dataclass
class Stay:
    """Rounds on end on the same devices of a type.

    Since when and until when, work by job, seconds of computing.
    """

    kind: str
    devices: Devices
    start: float
    end: float
    work: list[float]
    computing: list[float]


class Stays:
    """The stays of a run. ``keep`` gives devices to those who run next, ``add`` counts their round."""

    def __init__(self, machines: Machines) -> None:
        self.log = ExecutionLog()
        self.open: dict[Sharers, Stay] = {}
        self.devices: dict[str, list[int]] = {kind: [] for kind in machines.types}
        for device in range(machines.devices):
            self.devices[machines.type_of(device)].append(device)

    def keep(self, chosen: list[tuple[Sharers, str, int]], now: float) -> int:
        """Give devices to those chosen, with type and number; the stays of all others are over.

        Who runs on the same type again keeps its devices; of the others larger ones choose first. Returns how
        many kept theirs.
        """
        before, self.open = self.open, {}
        rest = list[tuple[Sharers, str, int]]()
        for sharers, kind, size in chosen:
            stay = before.get(sharers)
            if stay is not None and stay.kind == kind:
                self.open[sharers] = before.pop(sharers)
            else:
                rest.append((sharers, kind, size))
        kept = len(self.open)
        for sharers, stay in before.items():
            self._write(sharers, stay, [PREEMPTED] * len(sharers))
        if rest:
            self._place(rest, now)
        return kept

    def _place(self, chosen: list[tuple[Sharers, str, int]], now: float) -> None:
        taken = {device for stay in self.open.values() for device in stay.devices}
        free = {
            kind: [device for device in self.devices[kind] if device not in taken]
            for kind in {each[1] for each in chosen}
        }
        for sharers, kind, size in sorted(chosen, key=lambda each: -each[2]):
            devices, free[kind] = tuple(free[kind][:size]), free[kind][size:]
            none = [0.0] * len(sharers)
            self.open[sharers] = Stay(kind, devices, now, now, none, none.copy())

    def add(self, sharers: Sharers, end: float, work: list[float], computing: list[float]) -> None:
        """Count a round that ended."""
        stay = self.open[sharers]
        stay.end = end
        for place in range(len(sharers)):
            stay.work[place] += work[place]
            stay.computing[place] += computing[place]

    def complete(self, sharers: Sharers, completed: set[int]) -> None:
        """End the stay of jobs of which some completed."""
        stay = self.open.pop(sharers)
        self._write(sharers, stay, [COMPLETED if job in completed else PREEMPTED for job in sharers])

    def cut(self) -> None:
        """End all stays with the run."""
        for sharers, stay in self.open.items():
            self._write(sharers, stay, [CUT] * len(sharers))
        self.open = {}

    def _write(self, sharers: Sharers, stay: Stay, endings: list[str]) -> None:
        part, held = 1 / len(sharers), stay.end - stay.start
        for job, work, computing, ended in zip(sharers, stay.work, stay.computing, endings, strict=True):
            busy = min(1.0, computing / held) if held > 0 else 1.0
            gang = Gang(job, stay.devices, part, part)
            self.log.append(Execution(gang, stay.start, stay.end, work, busy=busy, ended=ended))
