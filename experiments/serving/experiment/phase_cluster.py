"""A model on a cluster of equal nodes, served by instances of any shape that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import Infeasible
from experiments.core.progress import Progress
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware
from experiments.models.served import ServedModel
from experiments.serving.experiment.batching import slots_on
from experiments.serving.experiment.prices import measured_shapes, price_of
from experiments.serving.interface.phases import Instance, InstanceShape, PhasePlan, PhasePolicy
from experiments.serving.simulator.phases import Fabric, InstanceEngine, simulate_phases
from experiments.workloads.requests import RequestTrace


@dataclass(frozen=True)
class PhaseCluster:
    """A model on a cluster of equal nodes, served by instances of any shape that holds it."""

    policy: PhasePolicy
    model: ServedModel
    hardware: Hardware
    dtype: str
    profile: Any = None
    _engines: dict[InstanceShape, InstanceEngine] = field(default_factory=dict, repr=False)

    @property
    def kv_bytes(self) -> int:
        return self.model.kv_bytes_per_token(DTYPE_BYTES[self.dtype])

    def shapes(self, longest: int) -> tuple[InstanceShape, ...]:
        """Powers of two that divide the model and hold its weights with the KV of ``longest`` tokens."""
        found = measured_shapes(self.profile, self.model, self.hardware)
        options = self._powers() if found is None else found
        return tuple(shape for shape in options if self._holds(shape, longest))

    def _powers(self) -> list[InstanceShape]:
        per_node, devices = self.hardware.node.device_count, self.hardware.device_count
        tensors = [1 << power for power in range(per_node.bit_length()) if 1 << power <= per_node]
        return [
            InstanceShape(1 << power, tensor)
            for tensor in tensors
            for power in range((devices // tensor).bit_length())
            if self.model.heads % tensor == 0 and 1 << power <= self.model.layers
        ]

    def _holds(self, shape: InstanceShape, longest: int) -> bool:
        try:
            return self.engine(shape).blocks * self.policy.block_size > longest
        except Infeasible:
            return False

    def engine(self, shape: InstanceShape) -> InstanceEngine:
        if shape not in self._engines:
            memory, element = self.hardware.device.memory_bytes, DTYPE_BYTES[self.dtype]
            blocks = slots_on(self.model, memory, shape.devices, element) // self.policy.block_size
            price, _ = price_of(self.profile, self.model, self.hardware, self.dtype, shape)
            self._engines[shape] = InstanceEngine(price, blocks)
        return self._engines[shape]

    def serve(
        self,
        instances: Sequence[Instance],
        trace: RequestTrace,
        *,
        answers_only: bool = False,
        progress: Progress,
    ) -> PhasePlan:
        """Simulate ``instances`` under the requests of ``trace``."""
        node = self.hardware.node
        fabric = Fabric(node.link, self.hardware.network, node.device_count, self.kv_bytes, self.model.layers)
        return simulate_phases(
            trace,
            instances,
            self.policy.begin(instances),
            [self.engine(one.shape) for one in instances],
            fabric,
            block_size=self.policy.block_size,
            max_batch=self.policy.max_batch,
            context=self.model.context,
            answers_only=answers_only,
            progress=progress,
        )

    def to_json(self) -> dict[str, Any]:
        shape = next(iter(self._engines))
        _, told = price_of(self.profile, self.model, self.hardware, self.dtype, shape)
        return {
            "model": self.model.to_json(),
            "dtype": self.dtype,
            "block_size": self.policy.block_size,
            "blocks": {f"{p} x {t}": engine.blocks for (p, t), engine in self._engines.items()},
            **told,
        }
