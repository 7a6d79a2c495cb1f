"""Plans of other policies with every worker made of several devices that cut each transformer block."""

from __future__ import annotations

from dataclasses import replace

from experiments.parallel.interface import Collective, ParallelPlan, Sharding, Worker
from experiments.workloads.layers import LayerGraph


def in_tensor_groups(plan: ParallelPlan, model: LayerGraph, ranks: int, sequence: bool) -> ParallelPlan:
    """Each worker of ``plan`` as ``ranks`` devices; blocks are cut as Megatron does, their norms too with
    ``sequence``.

    With ``sequence`` the gradients of two norms' weights and biases are parts of sums, and the sequence is
    cut before the first block (gradients are gathered there) and gathered behind the last.
    """
    workers = tuple(
        Worker(tuple(range(number * ranks, (number + 1) * ranks)), worker.slots)
        for number, worker in enumerate(plan.workers)
    )
    blocks = [number for number, name in enumerate(model.layer) if "blocks" in name]
    shardings = [_block(model, number, ranks, sequence) for number in blocks]
    if sequence:
        size = float(model.output_bytes[blocks[0]]) / model.batch
        gathered = (Collective("all_gather", size),)
        shardings[0] = replace(shardings[0], backward=(*shardings[0].backward, *gathered))
        shardings.append(Sharding(blocks[-1] + 1, "whole", 1, 1, 1, forward=gathered))
    return replace(plan, workers=workers, shardings=tuple(shardings), mesh=(*plan.mesh, ("tensor", ranks)))


def _block(model: LayerGraph, layer: int, ranks: int, sequence: bool) -> Sharding:
    """Norms and the biases behind a sum are on every device; the rest of the parameters is divided."""
    size = float(model.output_bytes[layer]) / model.batch
    width = size / model.facts["sequence"]
    held = float(model.parameter_bytes[layer])
    parameters = held / ((held - 6 * width) / ranks + 6 * width)
    if not sequence:
        summed = (Collective("all_reduce", size),) * 2
        return Sharding(layer, "heads", ranks, parameters, ranks, summed, summed)
    exchanged = (Collective("all_gather", size), Collective("reduce_scatter", size)) * 2
    once = Collective("all_reduce", 4 * width, per="step")
    return Sharding(layer, "sequence", ranks, parameters, ranks, exchanged, (*exchanged, once))
