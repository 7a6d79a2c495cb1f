"""From a plan to tasks: slots become computations, edges between stages and gradient exchange become
messages.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from experiments.parallel.interface import (
    BACKWARD,
    BEHIND,
    BETWEEN,
    FORWARD,
    OVERLAPPED,
    WEIGHT,
    ParallelPlan,
    PlanningEstimate,
    Slot,
    ties,
)
from experiments.parallel.interface.engines import PLAIN
from experiments.parallel.simulator.exchange import Exchange
from experiments.parallel.simulator.folding import representatives
from experiments.parallel.simulator.messages import StepMessages
from experiments.parallel.simulator.network import Message, Network
from experiments.parallel.simulator.passes import Passes
from experiments.parallel.simulator.stages import StageFigures
from experiments.parallel.simulator.tasks import TaskGraph
from experiments.parallel.simulator.tensor_lists import GATHER, REDUCE, TensorLists
from experiments.parallel.simulator.update_times import UpdateTimes


@dataclass(frozen=True)
class Holding:
    """Bytes on each device of a worker from the start of one task to the end of another."""

    worker: int
    bytes: float
    first: int
    last: int


class Builder:
    """Tasks of one step, of each worker or the one that ``stands_for`` it.

    ``first`` and ``last`` are a slot's outer tasks; ``holdings`` what ZeRO keeps for a while.
    """

    def __init__(self, plan: ParallelPlan, estimate: PlanningEstimate) -> None:
        self.plan, self.estimate = plan, estimate
        self.figures = StageFigures(plan, estimate)
        self.network = Network(estimate.cluster)
        self.passes = Passes(plan, estimate, self.figures, self.network)
        self.messages = StepMessages(plan, estimate, self.figures, self.network)
        self.updating = UpdateTimes(plan, estimate, self.figures)
        self.lists = TensorLists(plan, estimate)
        self.stands_for = representatives(plan, estimate, self.passes.slowdown, self.network)
        self.graph = TaskGraph()
        self.exchange = Exchange(plan, self.graph, self.network, lambda: self.messages.longest_send)
        self.first: dict[Slot, int] = {}
        self.last: dict[Slot, int] = {}
        self.worker_of: dict[Slot, int] = {}
        self.joint = self.figures.joint
        self.updates: dict[tuple[int, int], int] = {}
        self.holdings: list[Holding] = []
        # (stage, kind, how often before, bucket) -> (worker, task) of every replica: they meet in one
        # collective.
        self._meetings: dict[tuple[int, str, int, int], list[tuple[int, int]]] = defaultdict(list)
        self._reduced: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._before: dict[int, int] = {}
        self._reducing: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._throttled: dict[int, int] = {}
        self._pieces: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._fetched: dict[tuple[int, ...], int] = {}
        self._exchanging = self.passes.stages_that_exchange()

    @property
    def _reduces_always(self) -> bool:
        """After every pass, not after a worker's last one: no whole gradients are kept, or each pass is an
        update.
        """
        return self.plan.zero >= 2 or self.plan.steps > 1

    @property
    def _prefetches(self) -> bool:
        """Whether weights that were updated come together in front of the forward pass that needs them."""
        return self.plan.zero in (1, 2) and self.plan.synchronization.prefetch

    def _updates_after(self, occurrence: int) -> bool:
        """Whether an asynchronous pipeline's worker updates after its gradient number ``occurrence``."""
        rule = self.plan.training.weights if self.plan.training else None
        return self.plan.steps > 1 and (occurrence + 1) % (rule.every if rule else 1) == 0

    def build(self) -> Builder:
        for worker in sorted(set(self.stands_for)):
            self.estimate.show_life()
            self._lane(worker)
        self._cross_stages()
        for key, members in self._meetings.items():
            self._meet(key, members)
        self._tie()
        self._update()
        return self

    # --- computations ---------------------------------------------------------------------------------------

    def _lane(self, worker: int) -> None:
        slots = self.plan.workers[worker].slots
        final = {slot.stage: slot for slot in slots if slot.kind == self.figures.gradient_kind}
        counts: dict[tuple[int, str], int] = defaultdict(int)
        for slot in slots:
            if self.plan.joined and (shared := self.joint.first(slot)) != slot:
                self.first[slot], self.last[slot] = self.first[shared], self.last[shared]
                self.worker_of[slot] = worker
                continue
            occurrence = counts[slot.stage, slot.kind]
            counts[slot.stage, slot.kind] += 1
            self._slot(worker, slot, occurrence, final[slot.stage] == slot)

    def _slot(self, worker: int, slot: Slot, occurrence: int, final: bool) -> None:
        buckets = self.figures.buckets[slot.stage]
        replicated = self.plan.is_replicated(self.plan.stages[slot.stage])
        gathers = replicated and self.plan.zero == 3 and slot.kind != WEIGHT
        fetches = replicated and self._prefetches and slot.kind == FORWARD and not occurrence
        is_gradient = slot.kind == self.figures.gradient_kind
        completes = is_gradient and (final or self._updates_after(occurrence))
        reduces = replicated and (completes or (is_gradient and self.plan.zero >= 2))
        whole = range(self.plan.stages[slot.stage].begin, self.plan.stages[slot.stage].end)
        exchanges = completes and slot.stage in self._exchanging
        by_bucket = gathers or fetches or reduces or exchanges
        numbers = list(range(len(buckets))) if by_bucket else [-1]
        for number in reversed(numbers) if slot.kind == FORWARD else numbers:
            layers = buckets[number] if number >= 0 else whole
            first, last = self._piece(worker, slot, layers)
            self.first.setdefault(slot, first)
            self.last[slot] = last
            if gathers:
                self._before_gather(worker, slot, occurrence, number, (first, last))
            if fetches:
                self._meetings[slot.stage, "fetch", 0, number].append((worker, first))
            if reduces:
                key = (slot.stage, "reduce", occurrence if self._reduces_always else 0, number)
                self._meetings[key].append((worker, last))
                self._throttle(worker, slot.stage, first, last)
            if exchanges:
                self._once_a_step(worker, slot, layers, last)
        if completes and not final:
            parameters = float(self.figures.parameters[slot.stage].sum())
            self.graph.compute(f"U.{slot.stage}", self.updating.seconds(worker, parameters), worker)
        self.worker_of[slot] = worker

    def _piece(self, worker: int, slot: Slot, layers: range) -> tuple[int, int]:
        """Compute over ``layers`` with the collectives that their shardings ask for: the first and the last
        task.
        """
        graph, overhead = self.graph, 0.0 if slot in self.first else self.plan.slot_overhead
        first = last = -1
        for run in self.passes.runs(worker, slot, layers):
            before = graph.lane_end(worker)
            last = graph.compute(slot, run.seconds + overhead, worker)
            first, overhead = last if first < 0 else first, 0.0
            if run.overlapped:
                started = [graph.send(slot, m, () if before is None else (before,)) for m in run.overlapped]
                last = graph.compute(slot, 0.0, worker)
                for task in started:
                    graph.edge(task, last)
            for message in run.after:
                last = graph.blocking(slot, message, worker)
        return first, last

    def _once_a_step(self, worker: int, slot: Slot, layers: range, last: int) -> None:
        """The gradients of ``layers`` are complete: what their shardings exchange once a step; the update
        waits.
        """
        for message in self.passes.once_a_step(worker, slot, layers):
            self._reduced[slot.stage, worker].append(self.graph.send(slot, message, (last,)))

    def _throttle(self, worker: int, stage: int, first: int, last: int) -> None:
        """From stage 2 on the gradients of two buckets may exist whole: a third waits until the first is
        reduced.
        """
        pieces = self._reducing[worker, stage]
        pieces.append(last)
        if self.plan.zero >= 2 and len(pieces) > 2:
            self._throttled[pieces[-3]] = first

    # --- messages between stages ----------------------------------------------------------------------------

    def _cross_stages(self) -> None:
        sliced = bool(self.plan.slices)
        for (source, target), size in self.figures.crossings.items():
            self.estimate.show_life()
            for micro_batch in range(self.plan.micro_batches):
                part = size * self.figures.portion(micro_batch) if sliced else size
                self._cross(FORWARD, micro_batch, source, target, part)
                self._cross(BACKWARD, micro_batch, target, source, part)

    def _cross(self, kind: str, micro_batch: int, source: int, target: int, size: float) -> None:
        before = Slot(kind, micro_batch, source)
        sender = self.worker_of.get(before)
        if sender is None:  # another worker stands for its own
            return
        if self.plan.joined:
            if self.joint.first(before) != before:  # sent with the others of its pass
                return
            size *= self.joint.count(before)
        after = Slot(kind, micro_batch, target)
        receiver = self.worker_of[after]
        last, first = self.last[before], self.first[after]
        if size == 0 or sender == receiver:
            self.graph.edge(last, first)
            return
        message = self.messages.between_workers(sender, receiver, size)
        task = self.graph.send((before, target), message, (last,))
        self.graph.edge(task, first)
        if self.plan.blocking and last in self.graph.next:
            self.graph.edge(task, self.graph.next[last])
        if self.figures.whole_crossings:
            self._gather_pieces(task, after, receiver, min(source, target), max(source, target))

    def _gather_pieces(self, arrived: int, slot: Slot, worker: int, source: int, target: int) -> None:
        """What is whole on all devices of a worker has come in as many pieces (Narayanan et al., SC'21,
        section 4.1).
        """
        devices = self.plan.workers[worker].devices
        size = self.figures.whole_crossings.get((source, target), 0.0) * self.figures.portion(
            slot.micro_batch
        )
        size *= self.joint.count(slot)
        if len(devices) > 1 and size:
            message = self.network.groups("all_gather", (devices,), size)
            task = self.graph.send((slot, source), message, (arrived,))
            self.graph.edge(task, self.first[slot])

    # --- messages among the replicas of a stage -------------------------------------------------------------

    def _before_gather(
        self, worker: int, slot: Slot, occurrence: int, bucket: int, tasks: tuple[int, int]
    ) -> None:
        """Stage 3: the bucket's weights are gathered while the piece before computes, so after the one before
        that.
        """
        piece, last = tasks
        self._meetings[slot.stage, f"gather {slot.kind}", occurrence, bucket].append((worker, piece))
        pieces = self._pieces[worker, slot.stage]
        pieces.append(last)
        if len(pieces) > 2:
            self._before[piece] = pieces[-3]

    def _meet(self, key: tuple[int, str, int, int], members: list[tuple[int, int]]) -> None:
        """Experts that are divided among devices have replicas of their own."""
        for experts in (False, True):
            stage, layers = key[0], self.figures.buckets[key[0]][key[3]]
            parameters = self.figures.bucket_parameters(stage, layers, experts)
            if parameters and self.plan.degree(self.plan.stages[stage], experts) > 1:
                self._meet_over(key, members, parameters, experts)

    def _meet_over(
        self,
        key: tuple[int, str, int, int],
        members: list[tuple[int, int]],
        parameters: float,
        experts: bool,
    ) -> None:
        stage, what, _, bucket = key
        if what == "reduce":
            self._reduce(stage, bucket, parameters, members, experts)
            return
        size = parameters * self.estimate.states.weight
        if what == "fetch":
            gather = self.messages.among(stage, "all_gather", size, experts)
            self._fetch((stage, bucket), gather, [piece for _, piece in members])
            return
        times = 2 if what == f"gather {BACKWARD}" and self.plan.synchronization.regather else 1
        tensors = self.lists.tensors(self.figures.buckets[stage][bucket])
        message = self.messages.one_by_one(stage, "all_gather", size, experts, tensors).times(times)
        before = self._before if self._overlaps else self.graph.previous
        after = [before[piece] for _, piece in members if piece in before]
        task = self.graph.send((stage, bucket), message, after)
        taken = times * self.lists.seconds(GATHER, stage, size, experts, tensors)
        for worker, piece in members:
            self.graph.edge(task, piece)
            self.graph.prolong(piece, taken or self.estimate.occupied * message.seconds)
            self._hold(worker, size / tensors, task, piece)

    def _hold(self, worker: int, size: float, first: int, last: int) -> None:
        """An engine with buffers of its own moves everything through these."""
        if self.plan.engine == PLAIN:
            self.holdings.append(Holding(worker, size, first, last))

    @property
    def _overlaps(self) -> bool:
        """Whether weights are gathered while what comes before them computes."""
        return self.estimate.exchange == OVERLAPPED and not self.lists.used

    def _fetch(self, label: tuple[int, int], gather: Message, pieces: list[int]) -> None:
        """Weights come before the ``pieces`` that need them, in the order of these.

        Gathers among the same workers do not take turns with each other.
        """
        workers = self.plan.stages[label[0]].workers
        before = [self._fetched[workers]] if self.messages.longest_send and workers in self._fetched else []
        tasks = self.exchange.send_in_turns(label, gather, before)
        self._fetched[workers] = tasks[-1]
        for piece in pieces:
            self.graph.edge(tasks[-1], piece)

    def _reduce(
        self, stage: int, bucket: int, parameters: float, members: list[tuple[int, int]], experts: bool
    ) -> None:
        size = parameters * self.estimate.states.gradient
        whole = self.plan.zero == 0 or self.plan.synchronization.by_slice
        kind = "all_reduce" if whole else "reduce_scatter"
        behind = self.estimate.exchange == BEHIND
        pieces = [self.graph.last(worker) if behind else piece for worker, piece in members]
        tensors = self.lists.tensors(self.figures.buckets[stage][bucket])
        tasks = self.exchange.tasks(
            (stage, bucket),
            size,
            pieces,
            lambda: self.messages.one_by_one(stage, kind, size, experts, tensors),
        )
        if not whole and (copied := self.messages.among_copies(stage, size, experts)):
            tasks += self.exchange.send_in_turns((stage, bucket), copied, tasks[-1:])
        for worker, piece in members:
            self._reduced[stage, worker] += tasks
            if piece in self._throttled:
                self.graph.edge(tasks[-1], self._throttled[piece])
            if self.plan.zero >= 2:
                taken = self.lists.seconds(REDUCE, stage, size, experts, tensors)
                occupied = self.estimate.occupied * sum(self.graph.seconds[task] for task in tasks)
                self.graph.prolong(piece, taken or occupied)
                self._hold(worker, size, piece, tasks[-1])
            waits = self.estimate.exchange == BETWEEN or self.lists.used
            if waits and piece in self.graph.next:
                self.graph.edge(tasks[-1], self.graph.next[piece])

    def _tie(self) -> None:
        """Copies of weights on several stages sum their gradients, pair by pair of replicas, once a step."""
        for tie in ties(self.plan, self.estimate.model):
            size = tie.bytes / self.estimate.states.weight * self.estimate.states.gradient
            numbers = [self._stage_of(tie.owner), self._stage_of(tie.reader)]
            size /= self.figures.parts_of_parameters(tie.reader)
            rows = zip(*(self.plan.stages[number].workers for number in numbers), strict=False)
            for number, pair in enumerate(rows):
                if any(self.stands_for[worker] != worker for worker in pair):
                    continue
                groups = list(zip(*(self.plan.workers[worker].devices for worker in pair), strict=False))
                message = self.network.groups("all_reduce", groups, size, self.plan.synchronization.algorithm)
                after = [self.graph.lane_end(worker) for worker in pair]
                task = self.graph.send((numbers[0], number), message, [a for a in after if a is not None])
                for stage, worker in zip(numbers, pair, strict=True):
                    self._reduced[stage, worker].append(task)

    def _stage_of(self, layer: int) -> int:
        return next(number for number, stage in enumerate(self.plan.stages) if layer < stage.end)

    # --- the optimizer --------------------------------------------------------------------------------------

    def _update(self) -> None:
        for number, stage in enumerate(self.plan.stages):
            parameters = float(self.figures.parameters[number].sum())
            if parameters == 0:
                continue
            owned = self.figures.owned_parameters(number)
            own = [worker for worker in stage.workers if self.stands_for[worker] == worker]
            tasks = [self._update_of(number, worker, owned) for worker in own]
            if self.plan.zero in (1, 2) and self.plan.is_replicated(stage) and not self._prefetches:
                self._gather_updated(number, tasks)

    def _gather_updated(self, stage: int, tasks: list[int]) -> None:
        """Updated weights come together, bucket by bucket where the plan has buckets of its own."""
        whole = range(self.plan.stages[stage].begin, self.plan.stages[stage].end)
        for layers in self.figures.buckets[stage] if self.plan.synchronization.buckets else [whole]:
            for experts in (False, True):
                self._gather_bucket(stage, layers, experts, tasks)

    def _gather_bucket(self, stage: int, layers: range, experts: bool, after: list[int]) -> None:
        parameters = self.figures.bucket_parameters(stage, layers, experts)
        if parameters and self.plan.degree(self.plan.stages[stage], experts) > 1:
            size = parameters * self.estimate.states.weight
            for task in after:
                self.graph.prolong(task, self.lists.slicing_seconds(stage, layers, size, experts))
            self.graph.send((stage,), self.messages.hand_out(stage, layers, size, experts), after)

    def _update_of(self, stage: int, worker: int, parameters: float) -> int:
        task = self.graph.compute(f"U.{stage}", self.updating.seconds(worker, parameters), worker)
        for message in self._reduced[stage, worker]:
            self.graph.edge(message, task)
        self.updates[stage, worker] = task
        return task
