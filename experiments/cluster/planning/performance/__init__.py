"""Performance models: how fast a job runs on a gang, by what is known of it.

fixed         seconds on the devices asked for; in proportion when resized
tasks         rounds of gradient tasks on devices of different speed: Hare
table         steps by number of GPUs: ElasticFlow's throughput tables
oracle        measured speeds by device type, on one node or several, alone or in pairs
sensitivity   speeds by processors and host memory: Synergy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.cluster.interface import Machines, Performance
from experiments.cluster.planning.performance.fixed import FixedSpeed
from experiments.cluster.planning.performance.oracle import DeviceTypeSpeed
from experiments.cluster.planning.performance.sensitivity import ResourceSpeed, sensitivity_of
from experiments.cluster.planning.performance.table import TableSpeed, table_of
from experiments.cluster.planning.performance.tasks import TaskSpeed
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds
from experiments.workloads.profiles.gradient_tasks import GradientTasks
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds
from experiments.workloads.profiles.throughput_table import ThroughputTables

__all__ = ["FixedSpeed", "TableSpeed", "TaskSpeed", "performance_of", "sensitivity_of", "table_of"]

#: The model of each kind of profile (``experiments.workloads.profiles``).
MODELS: Mapping[type, Callable[[JobTrace, Machines, Any], Performance]] = {
    GradientTasks: TaskSpeed,
    ThroughputTables: TableSpeed,
    DeviceSpeeds: DeviceTypeSpeed,
    ResourceSpeeds: ResourceSpeed,
}


def performance_of(trace: JobTrace, machines: Machines) -> Performance:
    """Return the model that answers from the trace's profiles; ``fixed`` where it has none.

    ``BadInput`` of measurements that no model answers from yet.
    """
    if trace.profiles is None:
        return FixedSpeed(trace)
    if type(trace.profiles) not in MODELS:
        what = f"{trace.profiles.name} has measurements that no performance model answers from yet"
        raise BadInput(
            what, "workload.options.extra", "throughput tables, speeds by device, or gradient tasks"
        )
    return MODELS[type(trace.profiles)](trace, machines, trace.profiles)
