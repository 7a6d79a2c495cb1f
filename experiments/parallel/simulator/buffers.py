"""What the library that carries a plan out holds on a worker's device on top of states and activations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.parallel.interface import FORWARD
from experiments.parallel.interface.engines import (
    DEEPSPEED,
    PYTORCH,
    deepspeed_bytes,
    fsdp2_bytes,
    pipelining_bytes,
)
from experiments.parallel.interface.losses import LOSS
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.stages import StageFigures

#: How names of what a block has begin.
BLOCK = "blocks."


@dataclass(frozen=True)
class Units:
    """Parameters of a device that FSDP2 gathers together: the largest block, all that is in none of them.

    ``largest`` are those of the largest tensor outside blocks.
    """

    block: float
    others: float
    largest: float


def buffer_bytes(built: Builder, worker: int, live: Mapping[int, int]) -> float:
    """Return those of all stages that the worker hosts, which have ``live`` micro-batches at most."""
    if built.plan.engine == DEEPSPEED:
        return _of_deepspeed(built, worker)
    if built.plan.engine == PYTORCH:
        return _of_fsdp2(built, worker) + _of_pipelining(built, worker, live)
    return 0.0


def _list_hosted(built: Builder, worker: int) -> list[int]:
    return [number for number, stage in enumerate(built.plan.stages) if worker in stage.workers]


def _parameters(built: Builder, worker: int) -> tuple[float, int]:
    """Parameters of the worker's device before ZeRO, and the devices that share their states."""
    plan, stages = built.plan, _list_hosted(built, worker)
    parameters = sum(float(built.figures.parameters[number].sum()) for number in stages)
    return parameters, plan.sharing(plan.stages[stages[0]]) if plan.zero else 1


def _of_deepspeed(built: Builder, worker: int) -> float:
    parameters, sharers = _parameters(built, worker)
    largest = max(built.figures.largest_tensor(number) for number in _list_hosted(built, worker))
    return float(deepspeed_bytes(built.estimate.states, built.plan.zero, parameters, largest, sharers))


def _of_fsdp2(built: Builder, worker: int) -> float:
    parameters, sharers = _parameters(built, worker)
    units = [_units(built.figures, number) for number in _list_hosted(built, worker)]
    block, largest = max(unit.block for unit in units), max(unit.largest for unit in units)
    others = sum(unit.others for unit in units)
    states, zero = built.estimate.states, built.plan.zero
    return float(fsdp2_bytes(states, zero, parameters, block, others, largest, sharers))


def absent_sums(built: Builder, worker: int) -> float:
    """Return the bytes of sums of gradients that are not there when most are.

    PyTorch's stage has its sum from its first backward pass to its last, behind which it is divided.
    """
    if built.plan.engine != PYTORCH or built.plan.zero != 1:
        return 0.0
    slots = [slot for slot in built.plan.workers[worker].slots if slot.kind == built.figures.gradient_kind]
    left = Counter(slot.stage for slot in slots)
    sizes = {stage: float(built.figures.parameters[stage].sum()) for stage in left}
    begun: set[int] = set()
    most = 0.0
    for slot in slots:
        begun.add(slot.stage)
        most = max(most, sum(sizes[stage] for stage in begun))
        left[slot.stage] -= 1
        begun -= {slot.stage} if not left[slot.stage] else set()
    return (sum(sizes.values()) - most) * built.estimate.states.gradients


def _units(figures: StageFigures, number: int) -> Units:
    """Return those of a stage; of a model that is no transformer of ours each layer is a block."""
    stage, blocks = figures.plan.stages[number], defaultdict[str, float](float)
    others, largest = 0.0, 0.0
    names = figures.estimate.model.layer[stage.begin : stage.end]
    named = any(name.startswith(BLOCK) for name in figures.estimate.model.layer)
    for layer, name in enumerate(names, stage.begin):
        held = float(figures.parameters[number][layer - stage.begin])
        if named and not name.startswith(BLOCK):
            others += held
            largest = max(largest, min(held, figures.largest_tensor_of(layer)))
        else:
            blocks[".".join(name.split(".")[:2]) if named else name] += held
    return Units(max(blocks.values(), default=0.0), others, largest)


def _of_pipelining(built: Builder, worker: int, live: Mapping[int, int]) -> float:
    """A pipeline's last stage has its outputs twice, the others what they send and receive."""
    plan, figures = built.plan, built.figures
    if len(plan.stages) == 1:
        return 0.0
    last, found = len(plan.stages) - 1, 0.0
    for number in _list_hosted(built, worker):
        count = sum(slot.stage == number and slot.kind == FORWARD for slot in plan.workers[worker].slots)
        received = figures.input_bytes(range(plan.stages[number].begin, plan.stages[number].end))
        sent = figures.divided_output_bytes(plan.stages[number].end - 1) if number < last else 0.0
        found += float(pipelining_bytes(count, live.get(number, 0), received if number else 0.0, sent))
        found += 2 * count * _result_bytes(figures) if number == last else 0.0
    return found


def _result_bytes(figures: StageFigures) -> float:
    """Of a micro-batch on a device: what the loss reads, divided as it is, or the last block's output."""
    model = figures.estimate.model
    last = len(model) - 1
    if model.kind[last] != LOSS:
        return figures.divided_output_bytes(last)
    return figures.input_bytes(range(last, last + 1))
