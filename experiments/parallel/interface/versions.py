"""Which version of a stage's weights each pass of an asynchronous pipeline uses: a function of the plan
alone.

Version v of a stage's weights are those after v updates. A worker updates as soon as it has ``every``
gradients, so what is newest at a pass follows from the order of its slots, whatever the passes take.
(Replicas of a stage update together: a round of theirs counts once.) The simulator reports from here, closed
forms are tested on it, and the live runner keeps and uses exactly these versions and measures that it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from experiments.parallel.interface.plan import BACKWARD, FORWARD, WEIGHT, ParallelPlan, Slot
from experiments.parallel.interface.training import WEIGHT_RULES, WeightRule


class Use(NamedTuple):
    """The versions that one micro-batch meets at one stage in its two passes.

    ``newest`` is the newest version at the backward pass.

    Its gradient goes into the update of version ``newest``.
    """

    forward: int
    backward: int
    newest: int

    @property
    def staleness(self) -> int:
        """Staleness of a gradient: updates between the weights of its forward pass and its own update."""
        return self.newest - self.forward


@dataclass(frozen=True)
class VersionTrace:
    """The versions of weights of every pass.

    - ``uses``: by (stage, micro-batch).
    - ``kept``: the most versions alive at once in each stage, the newest included.
    """

    uses: Mapping[tuple[int, int], Use]
    kept: tuple[int, ...]

    def delay(self, stage: int, every: int) -> float:
        """Return the mean staleness in steady state.

        It is that of the last ``every`` micro-batches, which make an update.
        """
        last = self.of_stage(stage)[-every:]
        return sum(use.staleness for use in last) / len(last)

    def of_stage(self, stage: int) -> list[Use]:
        """Return the uses of a stage in the order of micro-batches."""
        return [use for (number, _), use in sorted(self.uses.items()) if number == stage]


def version_trace(plan: ParallelPlan) -> VersionTrace:
    """Return the versions of every pass of a plan with a weight rule; else ``ValueError``."""
    rule = weight_rule(plan)
    entered = _covered_at_entry(plan, rule) if rule.kind == "vertical" else {}
    uses: dict[tuple[int, int], Use] = {}
    kept = []
    for number, stage in enumerate(plan.stages):
        most = 1
        for worker in stage.workers:
            slots = _slots(plan, worker, number)
            found = _uses(slots, rule, len(stage.workers) * rule.every, entered)
            uses.update({(number, micro_batch): use for micro_batch, use in found.items()})
            most = max(most, _most_alive(slots, found, rule.every))
        kept.append(most)
    return VersionTrace(uses, tuple(kept))


def with_versions(plan: ParallelPlan, copies: int = 0) -> ParallelPlan:
    """Return ``plan`` with the versions that each of its stages keeps.

    A stage keeps so many more copies of the same size.
    """
    kept = version_trace(plan).kept
    stages = tuple(
        replace(stage, weight_versions=versions + copies)
        for stage, versions in zip(plan.stages, kept, strict=True)
    )
    return replace(plan, stages=stages)


def weight_rule(plan: ParallelPlan) -> WeightRule:
    if plan.training is None or plan.training.weights is None:
        raise ValueError("the plan has no weight rule: its passes all use the weights of their step")
    return plan.training.weights


def _slots(plan: ParallelPlan, worker: int, stage: int) -> list[Slot]:
    return [slot for slot in plan.workers[worker].slots if slot.stage == stage]


def _covered_at_entry(plan: ParallelPlan, rule: WeightRule) -> dict[int, int]:
    """By micro-batch the gradients that are in the first stage's weights when it enters the pipeline."""
    together = len(plan.stages[0].workers) * rule.every
    covered = {}
    for worker in plan.stages[0].workers:
        done = 0
        for slot in _slots(plan, worker, 0):
            if slot.kind == FORWARD:
                covered[slot.micro_batch] = done // rule.every * together
            done += slot.kind == BACKWARD
    return covered


def _uses(slots: list[Slot], rule: WeightRule, together: int, entered: Mapping[int, int]) -> dict[int, Use]:
    """By micro-batch. ``together`` gradients of all replicas make an update of this stage."""
    forward: dict[int, int] = {}
    found: dict[int, Use] = {}
    done = 0
    for slot in slots:
        newest, micro_batch = done // rule.every, slot.micro_batch
        if slot.kind == FORWARD:
            wanted = newest
            if rule.kind == "vertical":
                wanted = entered[micro_batch] // together
            if rule.kind == "delayed":
                wanted = max(len(forward) // rule.every - 1, 0)
            forward[micro_batch] = min(wanted, newest)
        if slot.kind == BACKWARD:
            backward = newest if rule.kind == "newest" else forward[micro_batch]
            found[micro_batch] = Use(forward[micro_batch], backward, newest)
            done += 1
    return found


def _most_alive(slots: list[Slot], uses: Mapping[int, Use], every: int) -> int:
    """Versions that exist at once: the newest, and older ones until the last pass that uses them."""
    last: dict[int, int] = {}
    born, done = [0], 0
    for place, slot in enumerate(slots):
        use = uses[slot.micro_batch]
        last[use.forward if slot.kind == FORWARD else use.backward] = place
        done += slot.kind == BACKWARD
        if done // every == len(born):
            born.append(place + 1)
    changes = [0] * (len(slots) + 2)
    for version, (begin, end) in enumerate(pairwise([*born, len(slots)])):
        changes[begin] += 1
        changes[max(end, last.get(version, 0) + 1)] -= 1
    return max(accumulate(changes[: len(slots)]), default=0)


def version_violations(plan: ParallelPlan) -> Iterator[str]:
    """Yield what is wrong with a weight rule: it does not exist, or the slots cannot keep it."""
    if plan.training is None or plan.training.weights is None:
        return
    rule = plan.training.weights
    if rule.kind not in WEIGHT_RULES:
        yield f"weight rule {rule.kind!r} does not exist"
    if rule.every < 1:
        yield f"{rule.every} gradients cannot make an update"
    if any(slot.kind == WEIGHT for worker in plan.workers for slot in worker.slots):
        yield "weight-gradient slots have no place in a pipeline without flushes"
    if len({worker for stage in plan.stages for worker in stage.workers}) < sum(
        len(s.workers) for s in plan.stages
    ):
        yield "a worker of a pipeline without flushes hosts one stage"
