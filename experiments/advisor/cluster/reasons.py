"""The plan in words: each part with what it frees and costs, by closed form, against the plan without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.advisor.cluster.candidates import Candidate
from experiments.advisor.cluster.phrases import STATES
from experiments.advisor.cluster.space import Space
from experiments.core.units import human, significant
from experiments.parallel.planning.transformers.plan import Degrees

#: Differences below this share of a plan's own figure are not told.
NOTHING = 0.003


@dataclass(frozen=True)
class PlanReason:
    """A part of the plan: what is done, and what it costs and frees."""

    what: str
    why: str


def reasons(space: Space, candidate: Candidate, capacity: float) -> list[PlanReason]:
    """Return the parts of the plan, the largest divisions first."""
    found = [
        PlanReason(what, _compare(space, candidate, without, capacity)) for what, without in _parts(candidate)
    ]
    return [*found, _micro_batch(space, candidate, capacity), *_nothing_recomputed(space, candidate)]


def _parts(candidate: Candidate) -> Iterator[tuple[str, Degrees]]:
    """Each mechanism of the plan with the degrees of the plan without it."""
    layout = candidate.layout
    if layout.tensor > 1:
        what = f"Each layer is divided over {layout.tensor} GPUs of a node (TP {layout.tensor})"
        yield what, replace(layout, tensor=1, sequence=False)
    if layout.sequence:
        yield "Norms and dropout are divided by tokens among them", replace(layout, sequence=False)
    if layout.pipeline > 1:
        what = f"The layers are divided over {layout.pipeline} stages (PP {layout.pipeline})"
        yield what, replace(layout, pipeline=1, interleaved=1)
    if layout.interleaved > 1:
        what = f"Every stage has {layout.interleaved} chunks of layers in turn, so that pipelines fill sooner"
        yield what, replace(layout, interleaved=1)
    if layout.expert > 1:
        yield (
            f"The experts are divided over {layout.expert} GPUs (EP {layout.expert})",
            replace(layout, expert=1),
        )
    if layout.context > 1:
        yield f"Each sequence is divided over {layout.context} GPUs", replace(layout, context=1)
    if layout.zero:
        what = f"{STATES[layout.zero]} divided over {_holders(candidate):,} GPUs (ZeRO {layout.zero})"
        yield what, replace(layout, zero=0)
    if layout.host_optimizer:
        yield "The hosts hold the optimizer's state and update", replace(layout, host_optimizer=False)
    if layout.recompute != "none":
        what = "Attention cores are" if layout.recompute == "selective" else "Every block is"
        yield f"{what} computed again in the backward pass", replace(layout, recompute="none")


def _holders(candidate: Candidate) -> int:
    return candidate.replicas * candidate.layout.context


def _compare(space: Space, candidate: Candidate, without: Degrees, capacity: float) -> str:
    own = space.figures(candidate.layout)
    plainer = (without, replace(without, micro_batch=1), replace(without, micro_batch=1, interleaved=1))
    other = next((found for one in plainer if (found := space.figures(one))), None)
    if own is None or other is None:
        return "Without it devices and samples do not divide."
    parts = [*_memory(own[1], other[1]), *_seconds(own[0], other[0])]
    said = f"It {' and '.join(parts)}" if parts else "It changes little"
    if other[1] > capacity:
        need = f"{human(other[1], 'bytes')} of {human(capacity, 'bytes')} would be needed"
        return f"{said}; without it {need}."
    return f"{said}."


def _memory(own: float, other: float) -> Iterator[str]:
    freed = other - own
    if abs(freed) > NOTHING * own:
        yield f"{'frees' if freed > 0 else 'takes'} {human(abs(freed), 'bytes')} a GPU"


def _seconds(own: float, other: float) -> Iterator[str]:
    cost = own - other
    if abs(cost) > NOTHING * own:
        share = significant(100 * abs(cost) / other, 2)
        yield f"{'costs' if cost > 0 else 'saves'} {human(abs(cost), 's')} a step ({share} %)"


def _nothing_recomputed(space: Space, candidate: Candidate) -> Iterator[PlanReason]:
    """What checkpointing would free and cost where nothing is computed again."""
    layout = candidate.layout
    own, other = space.figures(layout), space.figures(replace(layout, recompute="blocks"))
    if layout.recompute != "none" or own is None or other is None:
        return
    freed, cost = human(own[1] - other[1], "bytes"), human(other[0] - own[0], "s")
    share = significant(100 * (other[0] / own[0] - 1), 2)
    why = f"To checkpoint every block would free {freed} a GPU and cost {cost} a step ({share} %)."
    yield PlanReason("Nothing is computed again", why)


def _micro_batch(space: Space, candidate: Candidate, capacity: float) -> PlanReason:
    layout, times = candidate.layout, candidate.micro_batches
    what = f"Micro-batches of {layout.micro_batch}, {times:,} of them in a step of {candidate.batch:,}"
    own, twice = space.figures(layout), space.figures(replace(layout, micro_batch=2 * layout.micro_batch))
    if own is None or twice is None:
        return PlanReason(what, "Twice as large they do not divide the batch.")
    if twice[1] > capacity:
        return PlanReason(what, f"Twice as large they need {human(twice[1], 'bytes')}, which is not there.")
    gain = 100 * (1 - twice[0] / own[0])
    if gain <= 0:
        return PlanReason(what, f"Twice as large they make a step {significant(-gain, 2)} % longer.")
    room = f"for {human(twice[1] - own[1], 'bytes')} more"
    return PlanReason(what, f"Twice as large they gain {significant(gain, 2)} % {room}.")
