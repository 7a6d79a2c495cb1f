"""What the processes of a measured run share: the job in a folder, gradients and reports next to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.core.options import WorkloadOptions
from experiments.parallel.interface import ParallelPlan
from experiments.workloads.model import ModelSource

#: Steps after the first (whose gradients are compared), a second in which DDP arranges its buckets anew, and
#: the third (which is profiled).
TIMED_STEPS = 5
#: All steps of a measured run.
STEPS = 3 + TIMED_STEPS


@dataclass(frozen=True)
class Job:
    """``layers`` are the module paths that the plan's stages count; one rank carries out one device."""

    plan: ParallelPlan
    layers: tuple[str, ...]
    source: ModelSource
    seed: int
    folder: Path

    @property
    def ranks(self) -> int:
        return len(self.plan.devices)

    def save(self) -> None:
        source = asdict(self.source)
        row = {"plan": self.plan.to_json(), "layers": self.layers, "source": source, "seed": self.seed}
        (self.folder / "job.json").write_text(json.dumps(row))

    @classmethod
    def load(cls, folder: Path) -> Job:
        row = json.loads((folder / "job.json").read_text())
        source = {**row["source"], "options": WorkloadOptions(**row["source"]["options"])}
        return cls(
            ParallelPlan.from_json(row["plan"]),
            tuple(row["layers"]),
            ModelSource(**source),
            row["seed"],
            folder,
        )

    def save_tensors(self, what: str, rank: int, tensors: dict[str, Tensor]) -> None:
        kept = {name: value.detach().cpu() for name, value in tensors.items()}
        torch.save(kept, self.folder / f"{what}-{rank}.pt")

    def tensors(self, what: str, rank: int) -> dict[str, Tensor]:
        """``gradients`` or ``weights`` by parameter name: all of them, or those of the rank's stages."""
        found: dict[str, Tensor] = torch.load(self.folder / f"{what}-{rank}.pt", weights_only=True)
        return found

    def save_report(self, rank: int, report: dict[str, Any]) -> None:
        (self.folder / f"report-{rank}.json").write_text(json.dumps(report))

    def report(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"report-{rank}.json").read_text())
        return found
