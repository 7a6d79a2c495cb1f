"""What parallel policies, the simulator and the live runner agree on: the plan, the questions, the checker."""

from experiments.parallel.interface.checker import violations
from experiments.parallel.interface.estimate import (
    Estimate,
    Evaluation,
    model_estimate,
    shardings_by_layer,
    stage_parameters,
)
from experiments.parallel.interface.pipelines import PipelineSchedule
from experiments.parallel.interface.plan import (
    BACKWARD,
    FORWARD,
    SLOT_KINDS,
    WEIGHT,
    Collective,
    ParallelPlan,
    Sharding,
    Slice,
    Slot,
    Stage,
    Synchronisation,
    Worker,
)
from experiments.parallel.interface.policy import (
    LivePolicy,
    ParallelPolicy,
    balanced_cut,
    data_parallel_plan,
    replicated_pipelines,
    replicated_stages,
    whole_share,
)
from experiments.parallel.interface.states import (
    ZERO_STAGES,
    StateBytes,
    ring_share,
    state_bytes,
    zero_volume,
)

__all__ = [
    "BACKWARD",
    "FORWARD",
    "SLOT_KINDS",
    "WEIGHT",
    "ZERO_STAGES",
    "Collective",
    "Estimate",
    "Evaluation",
    "LivePolicy",
    "ParallelPlan",
    "ParallelPolicy",
    "PipelineSchedule",
    "Sharding",
    "Slice",
    "Slot",
    "Stage",
    "StateBytes",
    "Synchronisation",
    "Worker",
    "balanced_cut",
    "data_parallel_plan",
    "model_estimate",
    "replicated_pipelines",
    "replicated_stages",
    "ring_share",
    "shardings_by_layer",
    "stage_parameters",
    "state_bytes",
    "violations",
    "whole_share",
    "zero_volume",
]
