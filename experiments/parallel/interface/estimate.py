"""What a planner may ask about times, bytes and whole plans before it decides."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.precision import StateBytes, default_precision, dtype_for, state_bytes
from experiments.core.progress import Progress, silent
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Device, Hardware
from experiments.parallel.interface.plan import ParallelPlan, Sharding, Stage
from experiments.parallel.interface.rewritten import rewritten_model
from experiments.workloads.kernel_times import PassSeconds, layer_seconds
from experiments.workloads.kernels import WHOLE, Cut, largest_matrix
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats

#: Of a backward pass, what the weight gradient takes where only times are known: both products are equal in
#: FLOPs.
WEIGHT_SHARE = 0.5
#: Axes of a sharding that divide the columns of a weight.
COLUMN_AXES = ("column", "vocabulary")

#: When replicas exchange weights and gradients.
OVERLAPPED, BETWEEN, BEHIND = "beside", "between", "behind"


@dataclass(frozen=True)
class Evaluation:
    """A simulator's figures for a plan.

    - ``step_time``: seconds a step.
    - ``peak_memory``: bytes on the fullest device.
    - ``bubble_fraction``: the idle share of the devices' time.
    - ``exposed_communication_time``: seconds of communication that no computation hides.
    """

    step_time: float
    peak_memory: float
    bubble_fraction: float
    exposed_communication_time: float


@dataclass(frozen=True)
class PlanningEstimate:
    """What a planner may ask about a model on a cluster before it decides.

    FLOPs and bytes scale linearly with the samples, and so do times unless a layer's work is known by its
    shapes (``pass_seconds``); states follow ``precision`` and the optimizer.

    - ``evaluate``: carries out a whole plan in the simulator (``Infeasible`` where it does not fit), for
      planners that search.
    - ``seed``: the run's, for planners that draw.
    - ``progress``: takes how far a planner is.
    - ``exchange``: when replicas exchange weights and gradients: overlapped with computation; between
      computations, which wait; or behind the last of them. That is a runner's way, not a plan's.
    - ``updates``: the seconds of each worker's optimizer step where they were measured.
    - ``walks_again``: a weight-gradient pass computes the input gradients once more.
    """

    model: LayerGraph
    cluster: Hardware
    dtype: str
    precision: str
    states: StateBytes
    evaluate: Callable[[ParallelPlan], Evaluation]
    seed: int = 0
    progress: Progress = silent
    exchange: str = OVERLAPPED
    updates: tuple[float, ...] = ()
    walks_again: bool = False

    def show_life(self) -> None:
        """Report in the midst of long work that it goes on; the report may raise to cancel."""
        self.progress(0.0, "")

    def of_plan(self, plan: ParallelPlan) -> PlanningEstimate:
        """Return the estimate of what ``plan`` computes: its rewritten layers in the place of the model's."""
        return replace(self, model=rewritten_model(self.model, plan.rewritten)) if plan.rewritten else self

    @property
    def layer_seconds(self) -> Floats:
        """Forward plus backward seconds of each layer, for one sample. Shape: (layers,)."""
        return (self.model.forward_seconds + self.model.backward_seconds) / self.model.batch

    @property
    def layer_parameters(self) -> Floats:
        """Parameters (a count) of each layer. Shape: (layers,)."""
        return self.model.parameter_bytes / DTYPE_BYTES[self.dtype]

    @functools.cached_property
    def largest_tensors(self) -> Floats:
        """Parameters (a count) of each layer's largest tensor; all of them where products are not known.

        Shape: (layers,).
        """
        if not self.model.work:
            return self.layer_parameters
        rows = zip(self.model.work, self.layer_parameters, strict=True)
        return np.array([largest_matrix(work) or parameters for work, parameters in rows])

    def pass_seconds(self, layer: int, samples: float, sharding: Sharding | None = None) -> PassSeconds:
        """Return the seconds of ``layer`` for ``samples`` on one of the devices that share it.

        ``sharding`` divides the layer among them.
        """
        model = self.model
        if model.work:
            return layer_seconds(self.devices[0], model.work[layer], samples, cut_of(sharding), self.dtype)
        share = samples / model.batch / (sharding.compute if sharding else 1)
        backward = float(model.backward_seconds[layer]) * share
        forward = float(model.forward_seconds[layer]) * share
        return PassSeconds(forward, backward * (1 - WEIGHT_SHARE), backward * WEIGHT_SHARE)

    @property
    def reserved_bytes(self) -> float:
        """Bytes of a device that context, libraries and communicators hold.

        None where layers are known by times alone.
        """
        return float(self.devices[0].kernels.reserved_bytes) if self.model.work else 0.0

    @property
    def occupied(self) -> float:
        """The share of a device that a collective takes from concurrent computation.

        Nothing where that is not known.
        """
        return self.devices[0].kernels.occupied if self.model.work else 0.0

    @property
    def fragmentation(self) -> float:
        """The share of activations that allocators lose.

        Nothing where layers are known by times alone.
        """
        return self.devices[0].kernels.fragmentation if self.model.work else 0.0

    @functools.cached_property
    def devices(self) -> tuple[Device, ...]:
        """Every device of the cluster, node by node."""
        return tuple(node.device for node in self.cluster.nodes for _ in range(node.device_count))

    def slowdown(self, device: int) -> float:
        """Return how many times longer ``device`` computes than the cluster's first.

        The layers were timed for the first.
        """
        rates = [d.peak(self.dtype) * d.compute_efficiency for d in (self.devices[0], self.devices[device])]
        return rates[0] / rates[1]


def model_estimate(
    model: LayerGraph,
    cluster: Hardware,
    evaluate: Callable[[ParallelPlan, PlanningEstimate], Evaluation],
    dtype: str | None = None,
    optimizer: str | None = None,
    seed: int = 0,
    progress: Progress = silent,
    precision: str | None = None,
) -> PlanningEstimate:
    """Return the estimate for a model.

    ``dtype`` and ``optimizer`` default to the model's own facts, then float32 and adam; ``precision`` to what
    training in that type usually keeps.
    """
    dtype = dtype_for(dtype, precision, str(model.facts.get("dtype", "float32")))
    optimizer = optimizer or str(model.facts.get("optimizer") or "adam")
    if dtype not in DTYPE_BYTES:
        raise BadInput(f"unknown dtype {dtype!r}", model.name, "one of " + ", ".join(DTYPE_BYTES))
    precision = precision or default_precision(dtype)
    states = state_bytes(dtype, optimizer, precision)

    def evaluate_alive(plan: ParallelPlan) -> Evaluation:
        estimate.show_life()
        return evaluate(plan, estimate)

    estimate = PlanningEstimate(model, cluster, dtype, precision, states, evaluate_alive, seed, progress)
    return estimate


def cut_of(sharding: Sharding | None) -> Cut:
    """Return how a sharding changes the shapes of a layer's products.

    By its axis a weight loses columns or rows, in as many parts as its parameters (but for a bias that stays
    whole).
    """
    if sharding is None:
        return WHOLE
    columns = round(sharding.parameters) if sharding.axis in COLUMN_AXES else 1
    rows = round(sharding.parameters) if sharding.axis == "row" else 1
    return Cut(sharding.compute, columns, rows, sharding.steps, sharding.experts)


def shardings_by_layer(plan: ParallelPlan) -> dict[int, Sharding]:
    return {sharding.layer: sharding for sharding in plan.shardings}


def stage_parameters(plan: ParallelPlan, stage: Stage, estimate: PlanningEstimate) -> Floats:
    """Return the parameters of each layer of ``stage`` on one device of a worker, before ZeRO.

    Shape: (layers of the stage,).

    Weights of another stage that a layer reads (a tied output layer) are a copy of its own.
    """
    sharded = shardings_by_layer(plan)
    parts = [sharded[layer].parameters if layer in sharded else 1 for layer in range(stage.begin, stage.end)]
    held = estimate.layer_parameters[stage.begin : stage.end].copy()
    for tie in ties(plan, estimate.model):
        if stage.begin <= tie.reader < stage.end:
            held[tie.reader - stage.begin] += tie.bytes / DTYPE_BYTES[estimate.dtype]
    return held / np.array(parts, np.float64)


class Tie(NamedTuple):
    """Weights of layer ``owner`` that ``reader`` reads on other workers, in bytes."""

    owner: int
    reader: int
    bytes: float


def ties(plan: ParallelPlan, model: LayerGraph) -> list[Tie]:
    """Return the weights that are held twice: their owner and a reader are on different workers.

    None in asynchronous plans, whose copies would drift apart.
    """
    if plan.steps > 1:
        return []
    workers = [set(stage.workers) for stage in plan.stages for _ in range(stage.begin, stage.end)]
    found = [Tie(*row) for row in model.facts.get("tied", ())]
    return [tie for tie in found if not workers[tie.owner] & workers[tie.reader]]
