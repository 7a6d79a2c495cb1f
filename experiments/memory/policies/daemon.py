"""DaeMon (Giannoula et al., SIGMETRICS 2023): blocks and single lines move side by side, blocks compressed.

A miss on remote memory asks for its block and, on a share of the link of their own, for the lines of that
block in order; the op goes on when the first line is there and finishes with whichever is complete first.
Blocks cross compressed, lines do not. For tensors a block is 2 MiB and a line 64 KiB (the paper: pages of 4
KiB and lines of 64 bytes, at the same 25 to 75 split). Left out: dropping requests when queues overflow, and
merging of dirty lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DemandPaging, DeviceView, LinePaging, MemoryPlan, MemoryPolicy
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Daemon(MemoryPolicy):
    """Remote memory by blocks and lines at once.

    The link is shared out between them, and blocks are compressed.
    """

    name: ClassVar[str] = "daemon"
    mechanism: ClassVar[str] = "page on demand"
    oversubscribes: ClassVar[bool] = True

    movement: str = knob(
        "both", "what a miss asks for; block: the page-only baseline", choices=("both", "block")
    )
    line_share: float = knob(0.25, "share of the link for lines", low=0.01, high=0.99)
    line_bytes: int = knob(1 << 16, "size of a line", low=64, high=1 << 24, unit="bytes")
    ratio: float = knob(
        2.0,
        "how much smaller blocks are on the link (an assumption: it depends on the data)",
        low=1.0,
        high=100.0,
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        backing = "remote" if device.machine.remote_bytes > 0 else "host"
        if self.movement == "block":
            return MemoryPlan(space=DemandPaging(backing=backing))
        paging = LinePaging(
            backing=backing, ratio=self.ratio, line_bytes=self.line_bytes, line_share=self.line_share
        )
        return MemoryPlan(space=paging)
