"""NVIDIA MPS as PipeSwitch has it as a baseline: processes share the device in space, without priority.

Training goes on while a request is computed: each has half of a device that both would fill. Managed pages
that are not there come on a fault, at ``fault_bandwidth`` (2 to 4 GB/s as a rule of thumb for such faults,
without a source; the default is between them); where everything fits nothing moves.

Only weights are paged. In PipeSwitch's log, where training's activations overfill the device under managed
memory, requests take 2 to 5 times as long as here (decision 0211)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.sharing import SharedDevice, SharedModel, Sharer, SharingPolicy
from experiments.serving.planning.streams import Streams


@dataclass(frozen=True)
class Mps(SharingPolicy):
    """Shares the device by what is demanded; pages that are not there come on a fault."""

    name: ClassVar[str] = "mps"

    fault_bandwidth: float = knob(3e9, "of pages on a fault", low=1e6, high=1e12, unit="bytes/s")

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        return Streams(device, models, self.fault_bandwidth)

    def starts_resident(self, model: SharedModel) -> bool:
        return not model.is_real_time
