"""Starts a job's processes on the slots of its gang, with what they train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cluster.interface import ClusterPolicy, Gang
from experiments.cluster.interface.measurements import Measurable
from experiments.cluster.live.gang_process import GangProcess, start
from experiments.cluster.live.slots import Slots
from experiments.cluster.live.training_jobs import TrainingJobs
from experiments.cluster.planning.performance.goodput import Split, split

#: Seconds between checkpoints where the policy's knob leaves them out: what a killed process may lose.
CHECKPOINT_EVERY = 10.0


@dataclass(frozen=True)
class Launcher:
    """Jobs keep their state in a folder of their own below ``folder``.

    ``agents`` know between which batches each trains, where the policy chooses them.
    """

    jobs: TrainingJobs
    slots: Slots
    policy: ClusterPolicy
    folder: Path
    seed: int
    agents: Measurable | None = None

    def start(self, gang: Gang, number: int) -> GangProcess:
        """Start the ``number``-th execution of a gang's job, from the job's last checkpoint on."""
        cores = [self.slots.core(device) for device in gang.devices]
        gpus = [self.slots.gpu(device) for device in gang.devices]
        return start(self.folder / f"job-{gang.job}", number, self._training(gang), cores, gpus)

    def _training(self, gang: Gang) -> dict[str, Any]:
        training: dict[str, Any] = {
            "model": self.jobs.models[gang.job],
            "seed": self.seed + gang.job,
            "steps": self.jobs.steps[gang.job],
            "checkpoint_every": self.policy.checkpoint_every or CHECKPOINT_EVERY,
        }
        if self.policy.caps_shares:
            training["share"] = gang.share
        if self.agents is not None:
            training["division"] = self._division(gang, self.agents)
        return training

    def adapt(self, process: GangProcess, gang: Gang) -> None:
        """Tell running processes what their gang says besides devices."""
        if self.policy.caps_shares:
            process.give_share(gang.share)
        if self.agents is not None:
            each, accumulations = self._division(gang, self.agents)
            process.tell(f"batch {each} {accumulations}")

    def _division(self, gang: Gang, agents: Measurable) -> Split:
        """How a gang's batch is divided among its processes."""
        return split(gang.batch or agents.batch(gang.job), gang.size, agents.limits(gang.job))
