"""OC-DNN (Awan et al., HiPC 2018): unified memory with the output buffers of the next layer fetched ahead.

Layers are the ops that are not views, in both passes. While one runs, the buffers that the next one writes
are asked for; what it reads is taken to be on the device already, as in the paper. Parameters are advised to
stay. A fault moves one block of 2 MiB (the paper leaves it to the driver). An output that holds nothing yet
only takes space.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.memory.interface import DemandPaging, DeviceView, MemoryPlan, MemoryPolicy, Prefetch
from experiments.workloads.step import KINDS, Step


def destinations(step: Step) -> list[Prefetch]:
    """At each op that is not a view, prefetches of what the next such op writes."""
    ops = np.nonzero(~step.ops.view)[0].tolist()
    return [
        Prefetch(op, tensor)
        for op, after in pairwise(ops)
        for tensor in dict.fromkeys(step.outputs[after].tolist())
    ]


@dataclass(frozen=True)
class OcDnn(MemoryPolicy):
    """Managed memory for every buffer, with prefetch and advice.

    The next layer's output buffers are prefetched, parameters prefer the device.
    """

    name: ClassVar[str] = "oc_dnn"
    mechanism: ClassVar[str] = "page on demand"
    oversubscribes: ClassVar[bool] = True

    variant: str = knob(
        "optimized",
        "with prefetch and advice, or the paper's naive managed memory",
        choices=("optimized", "naive"),
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.variant == "naive":
            return MemoryPlan(space=DemandPaging())
        parameters = np.nonzero(step.tensors.kind == KINDS.index("parameter"))[0].tolist()
        return MemoryPlan(tuple(destinations(step)), space=DemandPaging(preferred=tuple(parameters)))
