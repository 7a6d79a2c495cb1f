"""Figures of a stage for one micro-batch: pass times, buckets, what crosses to other stages, what is kept."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from experiments.parallel.interface import (
    BACKWARD,
    EXPERT,
    FORWARD,
    WEIGHT,
    Collective,
    ParallelPlan,
    PlanningEstimate,
    Slice,
    Slot,
    shardings_by_layer,
    stage_parameters,
)
from experiments.parallel.interface.joint_forwards import JointForwards
from experiments.parallel.interface.losses import loss_scratch
from experiments.parallel.interface.recomputation import recomputed_runs
from experiments.parallel.interface.shards import whole_output
from experiments.parallel.interface.slices import attention_shares, slice_shares
from experiments.workloads.layers import Handed
from experiments.workloads.step import Floats

#: What a backward pass computes once more, as a kind of its own.
AGAIN = "again"


class StageFigures:
    """Everything per layer of the whole model, scaled to one micro-batch; columns have shape (layers,).

    Where micro-batches are slices, columns are those of a whole sequence, and ``portion`` is what a slice has
    of one.
    """

    def __init__(self, plan: ParallelPlan, estimate: PlanningEstimate) -> None:
        model = estimate.model
        self.plan, self.estimate = plan, estimate
        self._scale = scale = (1 if plan.slices else plan.micro_batch_samples) / model.batch
        self._sharded = shardings_by_layer(plan)
        self._seconds: dict[tuple[str, range, Slice | None, int], float] = {}
        self._joint_seconds: dict[int, dict[str, Floats]] = {}
        self.again = np.zeros(len(model))
        self.again[list(plan.recompute)] = 1.0
        self._dropped = self.again > 0
        self.again[list(plan.saved)] = 0.0
        self.output_bytes = model.output_bytes * scale
        self.stash_bytes = (model.stash_bytes - self._handed_on) * scale / self._parts("activations")
        self.has_weight_slots = any(slot.kind == WEIGHT for worker in plan.workers for slot in worker.slots)

    def _parts(self, what: str) -> Floats:
        count = len(self.estimate.model)
        rows = (getattr(self._sharded[i], what) if i in self._sharded else 1 for i in range(count))
        return np.fromiter(rows, np.float64, count)

    @functools.cached_property
    def _stage_of(self) -> list[int]:
        """For each layer its stage."""
        return [number for number, s in enumerate(self.plan.stages) for _ in range(s.begin, s.end)]

    @functools.cached_property
    def _handed_on(self) -> Floats:
        """What a layer makes that only backward passes of other stages read: sent there, it is
        not kept here.
        """
        gone = np.zeros(len(self.estimate.model))
        for made in self.estimate.model.handed:
            if all(self._stage_of[layer] != self._stage_of[made.producer] for layer in made.keepers):
                gone[made.producer] += made.bytes
        return gone

    @functools.cached_property
    def joint(self) -> JointForwards:
        return JointForwards(self.plan)

    @functools.cached_property
    def pass_seconds(self) -> dict[str, Floats]:
        """Seconds of each layer by kind of slot.

        A backward pass includes recomputing what was dropped.
        """
        return self._pass_seconds(1 if self.plan.slices else self.plan.micro_batch_samples)

    def _pass_seconds(self, samples: int) -> dict[str, Floats]:
        passes = [
            self.estimate.pass_seconds(layer, samples, self._sharded.get(layer))
            for layer in range(len(self.estimate.model))
        ]
        forward, backward, weight = (np.array(column) for column in zip(*passes, strict=True))
        if not self.has_weight_slots:
            backward = backward + weight
        elif self.estimate.walks_again:
            weight = backward + weight
        again = forward * self.again
        return {FORWARD: forward, BACKWARD: backward + again, WEIGHT: weight, AGAIN: again}

    @property
    def gradient_kind(self) -> str:
        """The kind of slot that completes a layer's weight gradient."""
        return WEIGHT if self.has_weight_slots else BACKWARD

    def seconds(self, slot: Slot, layers: range) -> float:
        """Of one pass over ``layers``, on the device for which they were timed."""
        part = self.plan.slices[slot.micro_batch] if self.plan.slices else None
        count = self.joint.count(slot) if self.plan.joined else 1
        key = slot.kind, layers, part, count
        if key not in self._seconds:
            column = self._column(slot.kind, count)
            if part is not None:
                column = column * slice_shares(part, self.plan.sequence, self._attention)
            self._seconds[key] = float(column[layers.start : layers.stop].sum())
        return self._seconds[key]

    def recomputed_seconds(self, slot: Slot, layers: range) -> float:
        """Of ``seconds`` of a backward pass, what computing dropped activations again takes."""
        return self.seconds(slot._replace(kind=AGAIN), layers)

    def _column(self, kind: str, count: int) -> Floats:
        """Seconds of each layer for ``count`` micro-batches at once."""
        if count == 1:
            return self.pass_seconds[kind]
        if count not in self._joint_seconds:
            self._joint_seconds[count] = self._pass_seconds(self.plan.micro_batch_samples * count)
        return self._joint_seconds[count][kind]

    @functools.cached_property
    def _attention(self) -> Floats:
        return attention_shares(self.estimate)

    def portion(self, micro_batch: int) -> float:
        """Return the micro-batch's share of the bytes for which the columns stand.

        All of them unless it is a slice.
        """
        if not self.plan.slices:
            return 1.0
        part = self.plan.slices[micro_batch]
        return part.samples * part.tokens / self.plan.sequence

    def samples(self, micro_batch: int) -> float:
        """Samples of a micro-batch; a slice counts as its part of them."""
        return self.portion(micro_batch) if self.plan.slices else self.plan.micro_batch_samples

    def collectives(self, kind: str, layers: range) -> Iterable[Collective]:
        """Those among a worker's devices in a pass over ``layers``; a weight-gradient pass has none.

        What is computed again in the backward pass communicates again.
        """
        for layer in layers if self._sharded and kind != WEIGHT else ():
            sharding = self._sharded.get(layer)
            if sharding is not None and (kind == FORWARD or self.again[layer]):
                yield from sharding.forward
            if sharding is not None and kind == BACKWARD:
                yield from sharding.backward

    @functools.cached_property
    def parameters(self) -> list[Floats]:
        """For each stage the parameters of its layers on one device, before ZeRO."""
        return [stage_parameters(self.plan, stage, self.estimate) for stage in self.plan.stages]

    def largest_tensor(self, number: int) -> float:
        """Parameters of a stage's largest tensor on one device."""
        stage, held = self.plan.stages[number], self.parameters[number]
        own = [self.largest_tensor_of(layer) for layer in range(stage.begin, stage.end)]
        return float(np.minimum(own, held).max(initial=0.0))

    def largest_tensor_of(self, layer: int) -> float:
        """Parameters of a layer's largest tensor on one device."""
        return float(self.estimate.largest_tensors[layer]) / self.parts_of_parameters(layer)

    @functools.cached_property
    def loss_scratch(self) -> float:
        """Bytes that the loss takes on a device during its forward pass, its weights divided as they are."""
        logits = self.estimate.model.predecessors[len(self.estimate.model) - 1]
        whole = loss_scratch(self.estimate.model, self.estimate.states.weight)
        return whole / self.parts_of_parameters(int(logits[0])) if whole else 0.0

    @functools.cached_property
    def buckets(self) -> list[list[range]]:
        """For each stage its layers in buckets, last layers first.

        A bucket closes when it is large enough.
        """
        return [self._buckets(number) for number in range(len(self.plan.stages))]

    def _buckets(self, number: int) -> list[range]:
        stage = self.plan.stages[number]
        if self.plan.synchronization.buckets:
            own = self.plan.synchronization.buckets
            return [range(begin, end) for begin, end in own if stage.begin <= begin < stage.end]
        sizes = self.parameters[number] * self.estimate.states.gradient
        found, end, filled = [], stage.end, 0.0
        for layer in reversed(range(stage.begin, stage.end)):
            filled += sizes[layer - stage.begin]
            if filled >= self.plan.synchronization.bucket_bytes or layer == stage.begin:
                found.append(range(layer, end))
                end, filled = layer, 0.0
        return found

    def bucket_parameters(self, number: int, layers: range, experts: bool = False) -> float:
        """Of a device; those of experts that are divided among devices apart."""
        begin = self.plan.stages[number].begin
        own = slice(layers.start - begin, layers.stop - begin)
        columns = self.expert_parameters if experts else self._shared_parameters
        return float(columns[number][own].sum())

    @functools.cached_property
    def expert_parameters(self) -> list[Floats]:
        """Of ``parameters`` those of experts that are divided among devices."""
        divided = np.zeros(len(self.estimate.model), np.bool_)
        divided[[layer for layer, sharding in self._sharded.items() if sharding.axis == EXPERT]] = True
        stages = zip(self.plan.stages, self.parameters, strict=True)
        return [np.where(divided[stage.begin : stage.end], held, 0.0) for stage, held in stages]

    @functools.cached_property
    def _shared_parameters(self) -> list[Floats]:
        return [held - experts for held, experts in zip(self.parameters, self.expert_parameters, strict=True)]

    def stage_parameters(self, number: int, experts: bool = False) -> float:
        """Of a device; those of experts that are divided among devices apart."""
        stage = self.plan.stages[number]
        return self.bucket_parameters(number, range(stage.begin, stage.end), experts)

    def owned_parameters(self, number: int) -> float:
        """Parameters that a device updates: of a stage, or under ZeRO its part."""
        stage = self.plan.stages[number]
        degrees = [self.plan.sharing(stage, experts) if self.plan.zero else 1 for experts in (False, True)]
        shared, own = (self.stage_parameters(number, experts) for experts in (False, True))
        return shared / degrees[0] + own / degrees[1]

    @functools.cached_property
    def crossings(self) -> dict[tuple[int, int], float]:
        """Bytes from stage to later stage for one micro-batch; 0.0 where a dependency moves no bytes.

        An output goes straight to each stage that reads it, once, however many layers there read it.
        """
        stage_of = self._stage_of
        read: dict[tuple[int, int], set[int]] = defaultdict(set)
        for layer, inputs in enumerate(self.estimate.model.predecessors):
            for source in inputs:
                if stage_of[source] != stage_of[layer]:
                    read[stage_of[source], stage_of[layer]].add(int(source))
        return {pair: float(self.output_bytes[sorted(layers)].sum()) for pair, layers in sorted(read.items())}

    @functools.cached_property
    def whole_crossings(self) -> dict[tuple[int, int], float]:
        """Of ``crossings``, what every device of the sending worker has whole."""
        if all(len(worker.devices) == 1 for worker in self.plan.workers):
            return {}
        stage_of = self._stage_of
        found: dict[tuple[int, int], set[int]] = defaultdict(set)
        for layer, inputs in enumerate(self.estimate.model.predecessors):
            for source in inputs:
                if stage_of[source] != stage_of[layer] and whole_output(self._sharded.get(int(source))):
                    found[stage_of[source], stage_of[layer]].add(int(source))
        return {pair: float(self.output_bytes[sorted(layers)].sum()) for pair, layers in found.items()}

    def parts_of_parameters(self, layer: int) -> float:
        return self._sharded[layer].parameters if layer in self._sharded else 1

    @functools.cached_property
    def kept_bytes(self) -> list[float]:
        """For each stage the activation bytes kept from a micro-batch's forward to its backward.

        Those that it received from other stages among them.

        A run of layers that is computed again keeps its inputs only: what it reads of layers before it,
        divided among the worker's devices as the run's first layer divides what it keeps.
        """
        return [self._kept_bytes(number) for number in range(len(self.plan.stages))]

    def _kept_bytes(self, number: int) -> float:
        stage = self.plan.stages[number]
        stays = [layer for layer in range(stage.begin, stage.end) if not self._dropped[layer]]
        kept = float(self.stash_bytes[stays].sum())
        kept += sum(
            self.divided_output_bytes(layer) for layer in self.plan.saved if stage.begin <= layer < stage.end
        )
        kept += sum(self._received_bytes(made, number) for made in self.estimate.model.handed)
        return kept + sum(self.input_bytes(run) for run in self._runs(number))

    def _received_bytes(self, made: Handed, number: int) -> float:
        """Of what another stage makes and a layer of this one keeps; one that is computed again keeps its
        run's inputs.
        """
        own = [
            layer for layer in made.keepers if self._stage_of[layer] == number and not self._dropped[layer]
        ]
        if self._stage_of[made.producer] == number or not own:
            return 0.0
        first = self._sharded.get(own[0])
        return made.bytes * self._scale / (first.activations if first else 1)

    def divided_output_bytes(self, layer: int) -> float:
        """Bytes of a micro-batch's output on one device, divided as the layer's activations are."""
        sharding = self._sharded.get(layer)
        return float(self.output_bytes[layer]) / (sharding.activations if sharding else 1)

    def input_bytes(self, run: range) -> float:
        """Bytes on one device of what a micro-batch's ``run`` of layers reads of those before it."""
        read = {int(source) for layer in run for source in self.estimate.model.predecessors[layer]}
        outside = sorted(source for source in read if source < run.start)
        first = self._sharded.get(run.start)
        return float(self.output_bytes[outside].sum()) / (first.activations if first else 1)

    def _runs(self, number: int) -> list[range]:
        return recomputed_runs(self.plan, number)

    @functools.cached_property
    def recomputed_bytes(self) -> list[float]:
        """For each stage the activation bytes that exist only during a backward pass.

        Those of one run, while a micro-batch's backward pass runs.
        """
        return [
            max(
                (float(self.stash_bytes[run.start : run.stop].sum()) for run in self._runs(number)),
                default=0.0,
            )
            if self.plan.checkpoints
            else float((self.stash_bytes * self._dropped)[stage.begin : stage.end].sum())
            for number, stage in enumerate(self.plan.stages)
        ]
