"""The question asked of a policy that divides one model: which layout, for which phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from experiments.core.policy import SIZES, Policy
from experiments.models.served import DENSE_DECODER
from experiments.serving.interface.partitioning.cost import PhaseCost
from experiments.serving.interface.partitioning.layouts import Layout
from experiments.serving.interface.partitioning.site import DividedModel, Phase, Torus


class Partition(NamedTuple):
    """Where weights and attention are."""

    layout: Layout
    attention: str


@dataclass(frozen=True)
class PartitioningPolicy(Policy):
    """A policy that divides a model over a torus for one phase of inference."""

    family: ClassVar[str] = "serving"
    mechanism: ClassVar[str] = "divide a model"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("model",)}
    reads: ClassVar[str] = SIZES

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        return "" if told.get("generates", True) else f"needs {DENSE_DECODER}"

    def carried_out(self, batch: int, sequence: int) -> Phase:
        """Return what is carried out for ``batch`` sequences, whose prompts have ``sequence`` tokens."""
        raise NotImplementedError(type(self).__name__)

    def options(self) -> Sequence[tuple[str, str]]:
        """Return the layouts and ways of attention that are compared."""
        raise NotImplementedError(type(self).__name__)

    def partition(self, model: DividedModel, torus: Torus, phase: Phase) -> Partition:
        """Return the division."""
        raise NotImplementedError(type(self).__name__)

    def cost(self, model: DividedModel, partition: Partition, phase: Phase) -> PhaseCost:
        """Return what the phase costs in a division."""
        raise NotImplementedError(type(self).__name__)

    def max_context(self, model: DividedModel, partition: Partition, batch: int) -> float:
        """Return the longest context whose KV has room."""
        raise NotImplementedError(type(self).__name__)
