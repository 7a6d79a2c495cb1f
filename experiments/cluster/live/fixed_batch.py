"""Steps of the batch that a job was submitted with: each process of a gang computes its part."""

from __future__ import annotations

from typing import Any

from experiments.cluster.live.replica import Replica


class FixedBatch:
    """``done`` counts steps; ``loss`` is that of the last."""

    division: tuple[int, ...] = ()

    def __init__(self, replica: Replica) -> None:
        self.replica, self.done, self.loss = replica, 0, 0.0

    def train(self) -> None:
        """One step of the whole batch."""
        replica = self.replica
        drawn = replica.task.draw(replica.task.batch)
        inputs, targets = (value.tensor_split(replica.ranks)[replica.rank] for value in drawn)
        # The loss of its own part; the whole batch's in one process.
        self.loss = replica.differentiate(inputs, targets, replica.task.batch) * replica.ranks
        replica.update(replica.add_up(replica.gradients()) if replica.ranks > 1 else None)
        self.done += 1

    def facts(self) -> dict[str, Any]:
        """What is reported besides the steps."""
        return {}

    def state(self) -> dict[str, Any]:
        return {"done": self.done}

    def load(self, kept: dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        self.done = kept["done"]
