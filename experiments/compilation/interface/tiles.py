"""What tile policies are asked, and their answer: one planned kernel for each group of operators."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Sizes
from experiments.compilation.interface.policy import CompilationPolicy
from experiments.compilation.interface.tile_graph import TileGraph
from experiments.core.progress import Progress
from experiments.hardware.parts import ComputeUnits


@dataclass(frozen=True)
class KernelLaunch:
    """Launch configuration of a kernel: ``grid`` blocks in ``waves``.

    Each block has so many threads, so much shared memory and so many registers of a thread.
    """

    grid: int
    waves: int
    threads: int
    shared_bytes: int
    registers: int


@dataclass(frozen=True)
class TileCost:
    """Seconds, and bytes between memory and all blocks."""

    seconds: float
    bytes: float


@dataclass(frozen=True)
class PlannedKernel:
    """A launched kernel: its operators, the sizes it tiles (``domain``) and by what (``tile``).

    - ``levels``: further tiles by name (thread, reduction step; tiles of operators inside).
    - ``cost``: modeled, waiting for ``bound``.
    - ``least``: what no tile passes (each element moved once, every unit busy).
    - ``apart``: the cost of the operators by themselves.
    """

    operators: tuple[str, ...]
    kinds: tuple[str, ...]
    domain: Sizes
    tile: Sizes
    levels: Mapping[str, Sizes]
    launch: KernelLaunch
    flops: float
    bound: str
    cost: TileCost
    least: TileCost
    apart: TileCost

    def to_json(self) -> dict[str, Any]:
        """Return the kernel as one flat row of JSON values."""
        row = asdict(self)
        row |= row.pop("launch") | row.pop("cost")
        for prefix in ("least", "apart"):
            row |= {f"{prefix}_{name}": value for name, value in row.pop(prefix).items()}
        return row


@dataclass(frozen=True)
class TilePlan:
    """Kernels in launch order; ``examined`` tiles were looked at.

    ``ended_at`` says at which bound searches of single kernels ended; empty where all ended by themselves.
    """

    kernels: tuple[PlannedKernel, ...]
    examined: int
    ended_at: str = ""

    @property
    def seconds(self) -> float:
        return sum(kernel.cost.seconds for kernel in self.kernels)

    @property
    def apart_seconds(self) -> float:
        return sum(kernel.apart.seconds for kernel in self.kernels)

    @property
    def bytes(self) -> float:
        return sum(kernel.cost.bytes for kernel in self.kernels)

    @property
    def apart_bytes(self) -> float:
        return sum(kernel.apart.bytes for kernel in self.kernels)


@dataclass(frozen=True)
class TilePolicy(CompilationPolicy):
    """Asked for the tiles of every operator on a device, and which operators share a kernel."""

    modes: ClassVar[tuple[str, ...]] = ("simulated",)
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("model", "operators"),
        "measured": ("model",),
    }
    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "tiles have a price of their own, worked by hand in its tests"
    }
    #: Whether operators may share a kernel: then kernels are compared with the operators by themselves.
    connects: ClassVar[bool] = False

    def tiles(self, graph: TileGraph, architecture: Architecture, progress: Progress) -> TilePlan:
        raise NotImplementedError


def violations(plan: TilePlan, graph: TileGraph, units: ComputeUnits) -> list[str]:
    """Return what no device could launch or what leaves an operator out, one line each."""
    planned = Counter(name for kernel in plan.kernels for name in kernel.operators)
    found = [f"{name} is in {planned[name]} kernels" for name in graph.by_name if planned[name] != 1]
    found += [f"{name} is no operator of the graph" for name in planned if name not in graph.by_name]
    place = {name: index for index, kernel in enumerate(plan.kernels) for name in kernel.operators}
    for node in graph.nodes:
        late = [name for name in node.reads if place.get(name, 0) > place.get(node.name, 0)]
        found += [f"{node.name} is launched before {name}, which it reads" for name in late]
    for number, kernel in enumerate(plan.kernels):
        name = kernel.operators[0] if kernel.operators else f"kernel {number}, which runs nothing"
        found += [f"{name}: {fault}" for fault in _impossible(kernel, units)]
    return found


def _impossible(kernel: PlannedKernel, units: ComputeUnits) -> Iterator[str]:
    launch = kernel.launch
    if not 1 <= launch.threads <= max(1024, units.threads_per_block):
        yield f"a block of {launch.threads} threads"
    if launch.shared_bytes > units.shared_bytes_per_block:
        yield f"a block takes {launch.shared_bytes} bytes of shared memory"
    if not 0 < kernel.cost.seconds < math.inf:
        yield f"a kernel of {kernel.cost.seconds:g} s"
    if len(kernel.tile) != len(kernel.domain) or min(kernel.tile, default=1) < 1:
        yield f"no tile of {kernel.domain} is {kernel.tile}"
        return
    blocks = math.prod(-(-whole // size) for whole, size in zip(kernel.domain, kernel.tile, strict=True))
    if launch.grid != blocks:
        yield f"{launch.grid} blocks do not cover it once; {blocks} would"
