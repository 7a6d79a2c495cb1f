"""A pipeline by torch: the plan's own slots, executed in their order, with sends and receives between ranks.

Whatever order a schedule gives is followed; torch's schedules are not used. Sends never wait (their buffers live to the
end of the step), so an order that the simulator can replay does not deadlock here. A tensor between two stages of one
rank is handed over without a message. Where weight gradients have slots of their own, B stops at the stage's inputs and W
walks the kept graph again to the weights: gradients are exact, but the two together take longer than one whole backward.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx

from experiments.parallel.interface import BACKWARD, FORWARD, WEIGHT, Slot
from experiments.parallel.live.cut import Crossing, cut, run_nodes
from experiments.parallel.live.job import Job
from experiments.parallel.live.model import OPTIMIZERS, Built


class PipelineRunner:
    """One rank's stages. Gradients of parameters that several ranks hold are summed once all slots are done."""

    def __init__(self, job: Job, rank: int, made: Built) -> None:
        self.plan, self.rank, self.made = job.plan, rank, made
        self.slots = job.plan.workers[rank].slots
        self.cut = cut(made, job.plan, job.layers)
        self.rank_of = {
            slot: number for number, worker in enumerate(job.plan.workers) for slot in worker.slots
        }
        self.parameters = self._own_parameters()
        self.groups = self._groups()
        kind, options = OPTIMIZERS[made.optimizer]
        self.optimizer = kind(list(self.parameters.values()), **options)
        self.held: dict[Slot, tuple[dict[int, Tensor], dict[int, Tensor], Tensor | None]] = {}
        self.splits = any(slot.kind == WEIGHT for slot in self.slots)
        self.ends: dict[Slot, tuple[list[Tensor], list[Tensor | None]]] = {}
        self.sent: list[tuple[Any, Tensor]] = []
        self.handed_over: dict[int, Tensor] = {}

    # --- parameters -----------------------------------------------------------------------------------------

    def _names_on(self, rank: int) -> set[str]:
        stages = {slot.stage for slot in self.plan.workers[rank].slots}
        return {name for stage in stages for name in self.cut.parameters(stage)}

    def _own_parameters(self) -> dict[str, torch.nn.Parameter]:
        """By the graph's names; the weights of other stages are released."""
        own = self._names_on(self.rank)
        parameters = dict(self.cut.module.named_parameters())
        for name, parameter in parameters.items():
            if name not in own:
                parameter.data = parameter.data.new_empty(0)
        return {name: parameter for name, parameter in parameters.items() if name in own}

    def _groups(self) -> list[tuple[dist.ProcessGroup, list[str]]]:
        """Groups of ranks that hold a parameter together (replicas of a stage, tied weights) and what they hold."""
        holders: dict[str, tuple[int, ...]] = {}
        names_on = [self._names_on(rank) for rank in range(len(self.plan.workers))]
        for name, _ in self.cut.module.named_parameters():
            holders[name] = tuple(rank for rank, names in enumerate(names_on) if name in names)
        together: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, ranks in holders.items():
            if len(ranks) > 1:
                together[ranks].append(name)
        made = [(ranks, dist.new_group(list(ranks)), names) for ranks, names in together.items()]
        return [(group, names) for ranks, group, names in made if self.rank in ranks]

    # --- slots ----------------------------------------------------------------------------------------------

    def gradients_of_step(self) -> None:
        passes = {FORWARD: self._forward, BACKWARD: self._backward, WEIGHT: self._weight}
        for slot in self.slots:
            passes[slot.kind](slot)
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
        for group, names in self.groups:
            for name in names:
                parameter = self.parameters[name]
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad, group=group)

    def _forward(self, slot: Slot) -> None:
        batch = self.made.micro_batch(slot.micro_batch, self.plan.micro_batch_samples)
        graph = self.cut.module.graph
        values: dict[fx.Node, Any] = dict(zip(graph.find_nodes(op="placeholder"), batch, strict=True))
        received: dict[int, Tensor] = {}
        for crossing in self._crossings(target=slot.stage):
            tensor = self._receive(crossing, slot.micro_batch, FORWARD)
            received[crossing.number] = tensor.requires_grad_(crossing.differentiable)
            values[crossing.node] = received[crossing.number]
        run_nodes(self.cut.module, self.cut.nodes(slot.stage), values)
        outgoing = {c.number: values[c.node] for c in self._crossings(source=slot.stage)}
        for crossing in self._crossings(source=slot.stage):
            self._send(crossing, slot.micro_batch, FORWARD, outgoing[crossing.number].detach())
        loss = values.get(self.cut.loss) if self.cut.stage_of[self.cut.loss] == slot.stage else None
        self.held[slot] = (received, outgoing, loss)

    def _backward(self, slot: Slot) -> None:
        received, outgoing, loss = self.held.pop(slot._replace(kind=FORWARD))
        roots: list[Tensor] = []
        gradients: list[Tensor | None] = []
        if loss is not None:
            roots.append(loss / self.plan.micro_batches)
            gradients.append(None)
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
        self, slot: Slot, roots: list[Tensor], gradients: list[Tensor | None], received: dict[int, Tensor]
    ) -> None:
        """Back to what the stage received; the graph stays for the slot's W."""
        inputs = [tensor for tensor in received.values() if tensor.requires_grad]
        if inputs:
            torch.autograd.backward(roots, gradients, inputs=inputs, retain_graph=True)
        self.ends[slot] = roots, gradients

    def _weight(self, slot: Slot) -> None:
        roots, gradients = self.ends.pop(slot._replace(kind=BACKWARD))
        weights = [self.parameters[name] for name in sorted(self.cut.parameters(slot.stage))]
        if weights:
            torch.autograd.backward(roots, gradients, inputs=weights)

    def _crossings(self, source: int | None = None, target: int | None = None) -> list[Crossing]:
        return [c for c in self.cut.crossings if source in (None, c.source) and target in (None, c.target)]

    # --- messages -------------------------------------------------------------------------------------------

    def _tag(self, crossing: Crossing, micro_batch: int, kind: str) -> int:
        return (micro_batch * len(self.cut.crossings) + crossing.number) * 2 + (kind == BACKWARD)

    def _send(self, crossing: Crossing, micro_batch: int, kind: str, tensor: Tensor) -> None:
        stage = crossing.target if kind == FORWARD else crossing.source
        peer = self.rank_of[Slot(kind, micro_batch, stage)]
        tensor, tag = tensor.contiguous(), self._tag(crossing, micro_batch, kind)
        if peer == self.rank:
            self.handed_over[tag] = tensor
            return
        work = dist.isend(tensor, peer, tag=tag)
        self.sent.append((work, tensor))

    def _receive(self, crossing: Crossing, micro_batch: int, kind: str) -> Tensor:
        stage = crossing.source if kind == FORWARD else crossing.target
        peer, tag = self.rank_of[Slot(kind, micro_batch, stage)], self._tag(crossing, micro_batch, kind)
        if peer == self.rank:
            return self.handed_over.pop(tag)
        like = crossing.node.meta["val"]
        tensor = torch.empty(like.shape, dtype=like.dtype, device=self.made.batch[0].device)
        dist.recv(tensor, peer, tag=tag)
        return tensor

    # --- the optimizer --------------------------------------------------------------------------------------

    def gradients(self) -> dict[str, Tensor]:
        return {name: p.grad for name, p in self.parameters.items() if p.grad is not None}

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.gradients_of_step()
        self.update()
