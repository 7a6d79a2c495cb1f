"""Performance models: how fast a job runs on a gang, by what is known of it.

fixed         seconds on the devices asked for; in proportion when resized
tasks         rounds of gradient tasks on devices of different speed: Hare
table         steps by number of GPUs: ElasticFlow's throughput tables
oracle        measured speeds by device type, on one node or several, alone or in pairs
goodput       steps by placement and batch, and what they are worth by epoch: Pollux' measurements
sensitivity   speeds by processors and host memory: Synergy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.cluster.interface import Machines, Performance
from experiments.cluster.planning.performance.fixed import FixedSpeed
from experiments.cluster.planning.performance.goodput import GoodputSpeed
from experiments.cluster.planning.performance.oracle import DeviceTypeSpeed
from experiments.cluster.planning.performance.sensitivity import ResourceSpeed, sensitivity_of
from experiments.cluster.planning.performance.table import TableSpeed, table_of
from experiments.cluster.planning.performance.tasks import TaskSpeed
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds
from experiments.workloads.profiles.gradient_tasks import GradientTasks
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds
from experiments.workloads.profiles.throughput_table import ThroughputTables
from experiments.workloads.profiles.training_runs import TrainingRuns

__all__ = [
    "FixedSpeed",
    "GoodputSpeed",
    "TableSpeed",
    "TaskSpeed",
    "performance_of",
    "sensitivity_of",
    "table_of",
    "timed_by",
]

#: The model of each kind of profile (``experiments.workloads.profiles``).
MODELS: Mapping[type, Callable[[JobTrace, Machines, Any], Performance]] = {
    GradientTasks: TaskSpeed,
    ThroughputTables: TableSpeed,
    DeviceSpeeds: DeviceTypeSpeed,
    TrainingRuns: GoodputSpeed,
    ResourceSpeeds: ResourceSpeed,
}


def performance_of(trace: JobTrace, machines: Machines) -> Performance:
    """Return the model that answers from the trace's profiles; ``fixed`` where it has none."""
    if trace.profiles is None:
        return FixedSpeed(trace)
    return MODELS[type(trace.profiles)](trace, machines, trace.profiles)


def timed_by(trace: JobTrace, performance: Performance) -> JobTrace:
    """Return the trace with durations from measurements, where it tells none itself."""
    untold = np.isnan(trace.service)
    if not isinstance(performance, GoodputSpeed) or not untold.any():
        return trace
    service = trace.service.copy()
    service[untold] = [performance.seconds(int(job)) for job in np.flatnonzero(untold)]
    return replace(trace, service=service)
