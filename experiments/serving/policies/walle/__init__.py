"""Walle, OSDI'22 (Lv et al.): a task between a device and a cloud.

``algorithms`` has the semi-automatic search on the device (section 4.2): for each library the cheapest
algorithm of every operator by elementary operations, and the library with the lowest sum, without mixing.
``cut`` divides the graph so that both parts, what is sent and a round trip take least. It is planned anew
when a bandwidth differs by ``replan`` from that of the last plan.

The paper's deployment of tasks to devices (push then pull) has no schedule to simulate and is left out, as is
training on devices. Its abstract has no figure that a run could be held against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.splitting import DevicePlan, Split, SplittingPolicy, split_cost
from experiments.serving.policies.walle.algorithms import search_algorithms
from experiments.serving.policies.walle.cut import cheapest_cut
from experiments.workloads.split_task import LinkState, SplitTask


@dataclass(frozen=True)
class Walle(SplittingPolicy):
    """Operators on a device, in the cloud, or cut between them where that is fastest."""

    name: ClassVar[str] = "walle"

    where: str = knob("auto", "where operators run", choices=("auto", "device", "cloud"))
    replan: float = knob(0.2, "change of a bandwidth from which it is planned anew", low=0.0, high=100.0)

    def on_device(self, task: SplitTask) -> DevicePlan:
        return search_algorithms(task)

    def split(self, task: SplitTask, device: DevicePlan, link: LinkState) -> Split:
        if self.where == "device":
            return frozenset()
        if self.where == "cloud":
            return frozenset(place for place, one in enumerate(task.operators) if not one.stays)
        cut = cheapest_cut(task, device.seconds, link)
        # A round trip is paid once, whatever is cut: it decides only between a cut and none.
        options = (frozenset[int](), cut)
        return min(options, key=lambda split: split_cost(task, device.seconds, link, split).seconds)

    def replans(self, planned: LinkState, now: LinkState) -> bool:
        changes = (abs(now.up / planned.up - 1), abs(now.down / planned.down - 1))
        return max(changes) > self.replan
