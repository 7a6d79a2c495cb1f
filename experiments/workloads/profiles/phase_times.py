"""Measured times of whole passes: of a prompt by its tokens, of one token of each answer by their number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from experiments.workloads.profiles.layer_times import Curve


class Measurand(NamedTuple):
    """What was measured: a model, the device as the table calls it, and devices that share a layer."""

    model: str
    device: str
    tensor: int


@dataclass(frozen=True)
class PassTimes:
    """Seconds of a pass over ``prompt`` tokens, and of one over ``answer`` requests with a token each."""

    prompt: Curve
    answer: Curve


@dataclass(frozen=True)
class PhaseTimes:
    """A table of models on devices."""

    speeds: ClassVar[str] = "phases"

    name: str
    passes: Mapping[Measurand, PassTimes]

    def degrees(self, model: str, device: str) -> dict[int, PassTimes]:
        """By tensor degree what was measured of ``model`` on ``device`` (``a100-80g``: its ``a100-80gb``)."""
        return {
            key.tensor: times
            for key, times in self.passes.items()
            if key.model == model and key.device in (device, f"{device}b")
        }
