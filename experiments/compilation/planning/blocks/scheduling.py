"""The question asked of a policy that binds blocks of kernels to the units of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import CompilationPolicy
from experiments.compilation.planning.blocks.blocks import Unit, Work
from experiments.compilation.planning.blocks.rtasks import Schedule
from experiments.core.knobs import knob


@dataclass(frozen=True)
class SchedulingPolicy(CompilationPolicy):
    """Asked what is launched, in which order, and where every block runs."""

    modes: ClassVar[tuple[str, ...]] = ("simulated",)

    occupancy: int = knob(4, "blocks side by side on a multiprocessor", low=1, high=32)
    latency: float = knob(1e-6, "what a block takes however little it does", low=0.0, high=1e-3, unit="s")

    def plan(self, works: Sequence[Work], unit: Unit, launch: float) -> Schedule:
        raise NotImplementedError
