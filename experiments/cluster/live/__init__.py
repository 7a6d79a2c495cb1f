"""The live runner: jobs of a trace as torch training processes of this host, scheduled as they run.

A slot is a core of this host, or a GPU where it has some. The same decider that the simulator asks is asked
through the same view; what it answers is carried out on processes: a start is a process for each device of
the gang, a preemption a checkpoint and an exit, a suspension a process that waits. Nothing here loads torch:
the processes do.
"""

from __future__ import annotations

from experiments.cluster.live.batch_calibration import calibrate_batches
from experiments.cluster.live.calibration import Calibration, MeasuredBatches, calibrate
from experiments.cluster.live.cluster import LiveCluster
from experiments.cluster.live.goodput import goodput_of
from experiments.cluster.live.pair_calibration import calibrate_pairs
from experiments.cluster.live.slots import Slots, slots_here
from experiments.cluster.live.speeds import MeasuredSpeed
from experiments.cluster.live.training_jobs import TrainingJobs, models_of, training_jobs

__all__ = [
    "Calibration",
    "LiveCluster",
    "MeasuredBatches",
    "MeasuredSpeed",
    "Slots",
    "TrainingJobs",
    "calibrate",
    "calibrate_batches",
    "calibrate_pairs",
    "goodput_of",
    "models_of",
    "slots_here",
    "training_jobs",
]
