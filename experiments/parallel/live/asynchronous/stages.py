"""A stage of a pipeline without flushes: the plan's slots with exactly the weight versions that its trace
says.

The weights of all versions that are still needed are kept apart from the tensors that the graph reads; before
a pass those of its version are copied in. So a backward pass meets the version that the rule gives it, be it
that of the forward pass (stashed), the newest (in place) or an estimate (PipeMare's T2), with the activations
that its forward pass kept. That it is so is checked: a version that is not there, or another newest one than
the trace says, is an error.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx

from experiments.core.errors import LabError
from experiments.parallel.interface import BACKWARD, FORWARD, Slot
from experiments.parallel.interface.training import correction_share
from experiments.parallel.interface.versions import Use, version_trace
from experiments.parallel.live.asynchronous.learner import Learner
from experiments.parallel.live.asynchronous.problem import TrainingJob, TrainingProblem
from experiments.parallel.live.asynchronous.reports import RankReport
from experiments.parallel.live.messages import Messages
from experiments.parallel.live.micro_batch_graph import Crossing, trace_micro_batch
from experiments.parallel.live.places import new_groups


class StageRunner:
    """One rank: one replica of one stage."""

    def __init__(self, job: TrainingJob, rank: int) -> None:
        self.problem, self.plan = TrainingProblem(job), job.plan
        assert job.plan.training is not None
        assert job.plan.training.weights is not None
        self.rule, self.learning = job.plan.training.weights, job.plan.training.learning
        self.problem.refuse_tied()
        self.slots = job.plan.workers[rank].slots
        self.stage = self.slots[0].stage
        self.trace = version_trace(job.plan)
        self.graph = trace_micro_batch(self.problem.built, job.plan, job.layers)
        self.group = new_groups(stage.workers for stage in job.plan.stages).get(self.replicas)
        self.messages = Messages(job.plan, rank, None, torch.device("cpu"))
        self.named = self.graph.parameters(self.stage)
        self.kept = {0: [weight.detach().clone() for weight in self.named.values()]}
        self.newest, self.gathered = 0, 0
        self.learner = Learner(self.learning)
        self.change = [torch.zeros_like(weight) for weight in self.kept[0]]
        self.held: dict[int, tuple[dict[int, Tensor], dict[int, Tensor], Tensor | None]] = {}
        self.report = RankReport(f"stage {self.stage}")
        self._last = self._last_places()

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.plan.stages[self.stage].workers

    def _use(self, slot: Slot) -> Use:
        return self.trace.uses[slot.stage, slot.micro_batch]

    def _last_places(self) -> dict[int, int]:
        """By version the place of the last slot that computes with it."""
        found: dict[int, int] = {}
        for place, slot in enumerate(self.slots):
            use = self._use(slot)
            found[use.forward if slot.kind == FORWARD else use.backward] = place
        return found

    def run(self) -> RankReport:
        dist.barrier()
        self.report.start()
        for place, slot in enumerate(self.slots):
            (self._forward if slot.kind == FORWARD else self._backward)(slot)
            self._drop(place)
            if self.gathered == self.rule.every:
                self._update(place)
        self.messages.flush()
        self.report.end()
        self.report.updates = self.newest
        return self.report

    def weights(self) -> dict[str, Tensor]:
        """The newest, by name."""
        return dict(zip(self.named, self.kept[self.newest], strict=True))

    # --- versions -------------------------------------------------------------------------------------------

    def _load(self, values: list[Tensor]) -> None:
        """Into the storage that the graph and what it saved point at; autograd must not notice."""
        for parameter, value in zip(self.named.values(), values, strict=True):
            parameter.data.copy_(value)

    def _version(self, version: int) -> list[Tensor]:
        if version not in self.kept:
            raise LabError(f"stage {self.stage} has versions {sorted(self.kept)}, not {version}")
        return self.kept[version]

    def _drop(self, place: int) -> None:
        """Older versions go with the last slot that uses them."""
        needed = {v for v in self.kept if v == self.newest or self._last.get(v, -1) > place}
        self.kept = {version: values for version, values in self.kept.items() if version in needed}

    def _backward_weights(self, use: Use) -> list[Tensor]:
        """Of the version that the rule gives; in place with a correction, the estimate of the forward pass's
        weights.
        """
        values, delay = self._version(use.backward), self._delay()
        if not self.learning.decay or not delay:
            return values
        return [weight - delay * change for weight, change in zip(values, self.change, strict=True)]

    def _delay(self) -> float:
        """In updates; none while there are flushes."""
        if self.newest < self.rule.synchronous:
            return 0.0
        return self.trace.delay(self.stage, self.rule.every)

    # --- slots ----------------------------------------------------------------------------------------------

    def _crossings(self, source: int | None = None, target: int | None = None) -> list[Crossing]:
        return [c for c in self.graph.crossings if source in (None, c.source) and target in (None, c.target)]

    def _forward(self, slot: Slot) -> None:
        self._load(self._version(self._use(slot).forward))
        position = self.problem.position(slot.micro_batch)
        batch = self.problem.part(position)
        inputs = self.graph.module.graph.find_nodes(op="placeholder")
        values: dict[fx.Node, Any] = dict(zip(inputs, batch, strict=True))
        received: dict[int, Tensor] = {}
        for crossing in self._crossings(target=slot.stage):
            tensor = self._receive(crossing, slot, crossing.source)
            received[crossing.number] = tensor.requires_grad_(crossing.differentiable)
            values[crossing.node] = tensor
        self.graph.run(slot.stage, values)
        outgoing = {c.number: values[c.node] for c in self._crossings(source=slot.stage)}
        for crossing in self._crossings(source=slot.stage):
            self._send(crossing, slot, crossing.target, outgoing[crossing.number].detach())
        loss = values[self.graph.loss] if self.graph.stage_of[self.graph.loss] == slot.stage else None
        if loss is not None:
            self.report.loss(position, loss.item())
        self.held[slot.micro_batch] = received, outgoing, loss

    def _backward(self, slot: Slot) -> None:
        use = self._use(slot)
        received, outgoing, loss = self.held.pop(slot.micro_batch)
        roots: list[Tensor] = [] if loss is None else [loss]
        gradients: list[Tensor | None] = [None] * len(roots)
        for crossing in self._crossings(source=slot.stage):
            if crossing.differentiable:
                roots.append(outgoing[crossing.number])
                gradients.append(self._receive(crossing, slot, crossing.target))
        self._load(self._backward_weights(use))
        torch.autograd.backward(roots, gradients)
        for crossing in self._crossings(target=slot.stage):
            if crossing.differentiable:
                tensor = received[crossing.number]
                found = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                self._send(crossing, slot, crossing.source, found)
        self._apply(use)

    def _apply(self, use: Use) -> None:
        """The gradient waits in ``grad`` until there are enough for an update."""
        if use.newest != self.newest:
            raise LabError(f"stage {self.stage} is at version {self.newest}, its trace says {use.newest}")
        self.report.late.append(self.newest - use.forward)
        self.gathered += 1

    # --- messages -------------------------------------------------------------------------------------------

    def _tag(self, crossing: Crossing, slot: Slot) -> int:
        return (slot.micro_batch * len(self.graph.crossings) + crossing.number) * 2 + (slot.kind == BACKWARD)

    def _send(self, crossing: Crossing, slot: Slot, stage: int, tensor: Tensor) -> None:
        self.messages.send(tensor, slot._replace(stage=stage), self._tag(crossing, slot), False)

    def _receive(self, crossing: Crossing, slot: Slot, stage: int) -> Tensor:
        maker, tag = slot._replace(stage=stage), self._tag(crossing, slot)
        return self.messages.receive(crossing.shape(1), crossing.dtype, maker, tag, False)

    # --- updates --------------------------------------------------------------------------------------------

    def _update(self, place: int) -> None:
        """A new version from the newest, in place where nobody will use that; by the mean of micro-batches
        and replicas.
        """
        gradients = [self._mean(p) for p in self.named.values()]
        needed = self._last.get(self.newest, -1) > place
        now = self.kept[self.newest] if needed else self.kept.pop(self.newest)
        now = [weight.clone() for weight in now] if needed else now
        delay, flushed = self._delay(), self.rule.synchronous
        before = [weight.clone() for weight in now] if self.learning.decay else []
        self.learner.update(now, gradients, max(0, self.newest - flushed), delay)
        self._follow(before, now, delay)
        self.newest += 1
        self.gathered = 0
        self.kept[self.newest] = now
        self.report.versions = max(self.report.versions, len(self.kept))

    def _mean(self, parameter: torch.nn.Parameter) -> Tensor:
        total = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parameter.grad = None
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return total / (self.rule.every * len(self.replicas))

    def _follow(self, before: list[Tensor], now: list[Tensor], delay: float) -> None:
        """The moving average of changes; there is nothing to follow without a correction."""
        if not before:
            return
        kept = correction_share(self.learning.decay, delay)
        for change, old, new in zip(self.change, before, now, strict=True):
            change.mul_(kept).add_(new - old, alpha=1 - kept)
