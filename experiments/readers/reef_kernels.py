"""REEF's files of a model: kernels in order (``<model>.json``) and their times (``<model>.profile.json``).

Times are microseconds measured on an MI50. The sum over kernels, each measured by itself, exceeds the time of
the model as a whole; kernels are scaled to it (``model_latency``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.workloads.scenario import KernelFile

MICROSECOND, FLOAT32 = 1e-6, 4


@dataclass(frozen=True)
class ProfiledKernel:
    """``seconds`` on the whole device, weights in ``bytes``, by blocks on a unit the seconds of a wave."""

    name: str
    seconds: float
    bytes: float
    blocks: int
    waves: tuple[float, ...]


def read_kernels(file: KernelFile) -> tuple[ProfiledKernel, ...]:
    """Return the kernels of a pass; ``BadInput`` names what is missing in either file."""
    if file.profile is None:
        raise BadInput("has no profile", file.name, "a file <model>.profile.json beside the kernels'")
    document, profile = jsonio.loads(file.data, file.name), jsonio.loads(file.profile, f"{file.name} profile")
    try:
        return _scaled(document, profile, file.name)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as broken:
        expected = "REEF's kernels {storage, kernels} and profile {model_latency, kernel_latency}"
        raise BadInput(f"{type(broken).__name__}: {broken}", file.name, expected) from broken


def _scaled(document: Mapping[str, Any], profile: Mapping[str, Any], name: str) -> tuple[ProfiledKernel, ...]:
    times, rows = profile["kernel_latency"], document["kernels"]
    for row in rows:
        if row["name"] not in times:
            raise BadInput(
                f"kernel {row['name']:.80} has no time", f"{name} profile", "a time of every kernel"
            )
    total = sum(float(times[row["name"]]["total_latency"]) for row in rows)
    scale = float(profile["model_latency"]) / total * MICROSECOND
    if not (math.isfinite(scale) and scale > 0):
        raise BadInput(f"model_latency {profile['model_latency']!r:.40}", f"{name} profile", "a time above 0")
    sizes = _first_uses(document["storage"], rows)
    return tuple(_kernel(row, times[row["name"]], scale, size) for row, size in zip(rows, sizes, strict=True))


def _kernel(row: Mapping[str, Any], time: Mapping[str, Any], scale: float, size: float) -> ProfiledKernel:
    blocks = math.prod(map(int, row["launch_params"][:3]))
    seconds, waves = (
        float(time["total_latency"]) * scale,
        tuple(float(one) * scale for one in time["latency"]),
    )
    if blocks < 1 or not min((seconds, *waves)) > 0:
        raise ValueError(f"kernel {row['name']:.80} has {blocks} blocks or a time that is not above 0")
    return ProfiledKernel(row["name"], seconds, size, blocks, waves)


def _first_uses(storage: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Bytes of parameters (named p0, p1, ...) by the kernel that reads them first."""
    seen: set[int] = set()
    sizes = []
    for row in rows:
        new = {int(one) for one in row["args"]} - seen
        seen |= new
        parameters = [storage[one] for one in new if str(storage[one]["name"])[:1] == "p"]
        sizes.append(float(sum(int(one["size"]) for one in parameters) * FLOAT32))
    return sizes
