"""A plan's own slots by torch, executed in their order, with sends and receives between ranks.

Whatever order a schedule gives is followed; torch's schedules are not used. Sends never wait (their buffers
live to the end of the step), so an order that the simulator can replay does not deadlock here. A tensor
between two stages of one rank is handed over without a message. Where weight gradients have slots of their
own, B stops at the stage's inputs and W walks the kept graph again to the weights: gradients are exact, but
the two together take longer than one whole backward.

A worker of several devices is as many ranks, which cut the layers that the plan shards (``tensor``). What is
whole on all of them goes to the next stage in as many pieces, gathered there (Narayanan et al., SC'21,
section 4.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx
from torch.autograd.graph import GradientEdge, get_gradient_edge

from experiments.parallel.interface import BACKWARD, BEHIND, FORWARD, WEIGHT, Slot
from experiments.parallel.live.job import Job
from experiments.parallel.live.messages import Messages
from experiments.parallel.live.micro_batch_graph import Crossing, opaque_path, trace_micro_batch
from experiments.parallel.live.model import Built
from experiments.parallel.live.places import Holders, Places, mesh_of, new_groups
from experiments.parallel.live.synchronize import Synchronizer
from experiments.parallel.live.tensor import Sharded, vocabulary_parallel


class SlotRunner:
    """The stages of one rank, run slot by slot.

    Gradients of parameters that several ranks hold are summed once all slots are done.
    """

    exchange, unit_tensors = BEHIND, 0

    def __init__(self, job: Job, rank: int, made: Built) -> None:
        self.plan, self.rank, self.made = job.plan, rank, made
        self.places = Places(job.plan)
        self.place = self.places.of_rank[rank]
        self.slots = job.plan.workers[self.place.worker].slots
        self.graph = trace_micro_batch(made, job.plan, job.layers)
        holders = {name: Holders.of(name, found) for name, found in self._hosting().items()}
        groups = new_groups(self._sets(set(holders.values())))
        sharers, ties = self._own_sets(holders)
        group = groups.get(self.places.together(self.place.worker))
        self._release(sharers)
        self.tensors = self._tensors(job, group)
        self.parameters = self._own_parameters(sharers)
        self.messages = Messages(job.plan, rank, group, made.batch[0].device)
        bucket = job.plan.synchronization.bucket_bytes
        self.synchronizer = Synchronizer(
            self.parameters, sharers, ties, groups, job.plan.zero, bucket, made.optimizer
        )
        self.held: dict[Slot, tuple[dict[int, Tensor], dict[int, GradientEdge], Tensor | None]] = {}
        self.splits = any(slot.kind == WEIGHT for slot in self.slots)
        self.ends: dict[Slot, tuple[list[GradientEdge], list[Tensor]]] = {}

    # --- parameters -----------------------------------------------------------------------------------------

    def _hosting(self) -> dict[str, list[tuple[int, ...]]]:
        """For each parameter the workers of every stage that reads it."""
        found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        for number, stage in enumerate(self.plan.stages):
            for name in self.graph.parameters(number):
                found[name].append(stage.workers)
        return found

    def _own_sets(
        self, holders: dict[str, Holders]
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """For each of this rank's parameters the ranks that hold replicas, and those that hold a
        tied copy.
        """
        own = {
            name: (held.replicas_of(self.place.worker), held.tied_with(self.place.worker))
            for name, held in holders.items()
            if held.replicas_of(self.place.worker)
        }
        device = self.place.device
        replicas = {name: self.places.across(pair[0], device) for name, pair in own.items()}
        return replicas, {name: self.places.across(pair[1], device) for name, pair in own.items()}

    def _sets(self, holders: set[Holders]) -> Iterator[tuple[int, ...]]:
        """Every group of the job: those of a worker, and those that hold the same parts of parameters."""
        for worker in range(len(self.plan.workers)):
            yield self.places.together(worker)
        for workers in {workers for held in holders for workers in (*held.replicas, *held.tied)}:
            for device in range(len(self.plan.workers[workers[0]].devices)):
                yield self.places.across(workers, device)

    def _release(self, own: dict[str, tuple[int, ...]]) -> None:
        """The weights of other stages are dropped."""
        for name, parameter in self._all_parameters():
            if name not in own:
                parameter.data = parameter.data.new_empty(0)

    def _tensors(self, job: Job, group: dist.ProcessGroup | None) -> Sharded | None:
        """The layers of this rank's stages, cut among the ranks of its worker."""
        if group is None:
            return None
        mesh = mesh_of(group, self.made.batch[0].device.type)
        nodes = [node for stage in self._own_stages() for node in self.graph.nodes(stage)]
        paths = [path for path in map(opaque_path, nodes) if path is not None]
        return Sharded(self.made.module, job.plan, job.layers, paths, mesh)

    def _own_stages(self) -> list[int]:
        return [n for n, stage in enumerate(self.plan.stages) if self.place.worker in stage.workers]

    def _own_parameters(self, own: dict[str, tuple[int, ...]]) -> dict[str, torch.nn.Parameter]:
        """By the graph's names."""
        return {name: parameter for name, parameter in self._all_parameters() if name in own}

    def _all_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [
            pair for stage in range(len(self.plan.stages)) for pair in self.graph.parameters(stage).items()
        ]

    # --- one step -------------------------------------------------------------------------------------------

    def gradients_of_step(self) -> None:
        with vocabulary_parallel(self.tensors):
            for slot in self.slots:
                {FORWARD: self._forward, BACKWARD: self._backward, WEIGHT: self._weight}[slot.kind](slot)
        self.messages.flush()
        self.synchronizer.reduce()

    def _forward(self, slot: Slot) -> None:
        batch = self.made.micro_batch(slot.micro_batch, self.plan.micro_batch_samples)
        graph = self.graph.module.graph
        values: dict[fx.Node, Any] = dict(zip(graph.find_nodes(op="placeholder"), batch, strict=True))
        received: dict[int, Tensor] = {}
        for crossing in self._crossings(target=slot.stage):
            tensor = self._receive(crossing, slot.micro_batch, FORWARD)
            received[crossing.number] = tensor.requires_grad_(crossing.differentiable)
            values[crossing.node] = received[crossing.number]
        self.graph.run(slot.stage, values, self.tensors)
        outgoing: dict[int, GradientEdge] = {}
        for crossing in self._crossings(source=slot.stage):
            made = values[crossing.node]
            if crossing.differentiable:
                outgoing[crossing.number] = get_gradient_edge(made)
            self._send(crossing, slot.micro_batch, FORWARD, made.detach())
        loss = values.get(self.graph.loss) if self.graph.stage_of[self.graph.loss] == slot.stage else None
        self.held[slot] = (received, outgoing, loss)

    def _backward(self, slot: Slot) -> None:
        received, outgoing, loss = self.held.pop(slot._replace(kind=FORWARD))
        roots: list[GradientEdge] = []
        gradients: list[Tensor] = []
        if loss is not None:
            share = loss / self.plan.micro_batches
            roots.append(get_gradient_edge(share))
            gradients.append(torch.ones_like(share))
        for crossing in self._crossings(source=slot.stage):
            if crossing.differentiable:
                roots.append(outgoing[crossing.number])
                gradients.append(self._receive(crossing, slot.micro_batch, BACKWARD))
        if self.splits:
            self._input_gradients(slot, roots, gradients, received)
        else:
            torch.autograd.backward(roots, gradients)
        for crossing in self._crossings(target=slot.stage):
            if crossing.differentiable:
                tensor = received[crossing.number]
                gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                self._send(crossing, slot.micro_batch, BACKWARD, gradient)

    def _input_gradients(
        self, slot: Slot, roots: list[GradientEdge], gradients: list[Tensor], received: dict[int, Tensor]
    ) -> None:
        """Back to what the stage received; the graph stays for the slot's W."""
        inputs = [tensor for tensor in received.values() if tensor.requires_grad]
        if inputs:
            torch.autograd.backward(roots, gradients, inputs=inputs, retain_graph=True)
        self.ends[slot] = roots, gradients

    def _weight(self, slot: Slot) -> None:
        roots, gradients = self.ends.pop(slot._replace(kind=BACKWARD))
        weights = [self.parameters[name] for name in sorted(self.graph.parameters(slot.stage))]
        if weights:
            torch.autograd.backward(roots, gradients, inputs=weights)

    def _crossings(self, source: int | None = None, target: int | None = None) -> list[Crossing]:
        return [c for c in self.graph.crossings if source in (None, c.source) and target in (None, c.target)]

    def _send(self, crossing: Crossing, micro_batch: int, kind: str, tensor: Tensor) -> None:
        reader = Slot(kind, micro_batch, crossing.target if kind == FORWARD else crossing.source)
        self.messages.send(tensor, reader, self._tag(crossing, micro_batch, kind), crossing.along is None)

    def _receive(self, crossing: Crossing, micro_batch: int, kind: str) -> Tensor:
        maker = Slot(kind, micro_batch, crossing.source if kind == FORWARD else crossing.target)
        shape, tag = crossing.shape(self.messages.pieces), self._tag(crossing, micro_batch, kind)
        return self.messages.receive(shape, crossing.dtype, maker, tag, crossing.along is None)

    def _tag(self, crossing: Crossing, micro_batch: int, kind: str) -> int:
        return (micro_batch * len(self.graph.crossings) + crossing.number) * 2 + (kind == BACKWARD)

    # --- the optimizer --------------------------------------------------------------------------------------

    def _whole(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.tensors is None:
            return values
        return {name: self.tensors.whole(name, value) for name, value in values.items()}

    def gradients(self) -> dict[str, Tensor]:
        return self._whole(self.synchronizer.gradients())

    def weights(self) -> dict[str, Tensor]:
        return self._whole({name: parameter.data for name, parameter in self.parameters.items()})

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        return self.synchronizer.optimizer

    def update(self) -> None:
        self.synchronizer.update()

    def step(self) -> None:
        self.gradients_of_step()
        self.update()
