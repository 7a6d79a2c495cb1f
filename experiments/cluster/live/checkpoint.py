"""What a job goes on from: model, optimizer, random state and place in its work; whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch

from experiments.cluster.live.replica import Replica


class Batch(Protocol):
    """A job's way through its work."""

    def state(self) -> dict[str, Any]: ...
    def load(self, kept: dict[str, Any]) -> None: ...


def save(path: Path, replica: Replica, batch: Batch) -> None:
    """Write a checkpoint; the last one is there until this one is whole."""
    half = path.with_suffix(".half")
    held = {"model": replica.model.state_dict(), "optimizer": replica.optimizer.state_dict()}
    torch.save({**held, "random": torch.get_rng_state(), "batch": batch.state()}, half)
    half.replace(path)


def load(path: Path, replica: Replica, batch: Batch) -> None:
    """Go on from a checkpoint, where there is one."""
    if not path.is_file():
        return
    kept = torch.load(path, map_location=replica.device, weights_only=True)
    replica.model.load_state_dict(kept["model"])
    replica.optimizer.load_state_dict(kept["optimizer"])
    torch.set_rng_state(kept["random"].cpu())
    batch.load(kept["batch"])
