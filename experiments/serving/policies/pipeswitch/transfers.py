"""What bringing a group of layers to the device takes, by whose memory its weights are in (figure 8).

The authors' branches of October 2021 differ in this, and leave the groups alone:

``shared``     pinned host memory, one region of the device, tensors of each worker in known places.
``pageable``   the same from memory that is not pinned: through a pinned buffer, which is copied twice.
``allocated``  no memory management: each worker has its copy of the model, lets the framework allocate
               and points each layer at what was allocated.
``handles``    no pointers known: the daemon allocates and copies, and hands each group over as a handle
               between processes; the worker points its layers there.
``managed``    managed memory: training and the asked model are processes that stay resident. Training is
               told to pause, but has launched its iteration already, and the device gives time slices to
               both alike. Where both do not fit, pages move at the link's rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.serving.interface.sharing import Operator

SHARED, PAGEABLE, ALLOCATED, HANDLES, MANAGED = "shared", "pageable", "allocated", "handles", "managed"


@dataclass(frozen=True)
class Transfers:
    """Seconds of ``call`` and the two costs of memory, in s; ``bandwidth`` of pinned memory."""

    memory: str
    call: float
    bandwidth: float
    pageable_share: float
    allocation: float
    handle: float

    def copy_time(self, group: Sequence[Operator]) -> float:
        """Return what the link takes for a group of layers, with its call."""
        rate = self.bandwidth * (self.pageable_share if self.memory == PAGEABLE else 1.0)
        return self.call + sum(layer.bytes for layer in group) / rate

    def worker_time(self, layers: int, groups: int) -> float:
        """Return what the worker does for layers and groups that came, while it launches nothing."""
        seconds = self.allocation * layers if self.memory in (ALLOCATED, HANDLES) else 0.0
        return seconds + (self.handle * groups if self.memory == HANDLES else 0.0)
