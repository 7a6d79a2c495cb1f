"""Plans of other policies with every worker made of several devices that cut each transformer block."""

from __future__ import annotations

from dataclasses import replace

from experiments.parallel.interface import Collective, ParallelPlan, Sharding, Worker
from experiments.workloads.layers import LayerGraph


def in_tensor_groups(plan: ParallelPlan, model: LayerGraph, ranks: int, sequence: bool) -> ParallelPlan:
    """Each worker of ``plan`` as ``ranks`` devices; blocks are cut as Megatron does, their norms too with ``sequence``.

    One block computes with 4 vectors of its width that are parts of sums when the sequence is cut: two norms' weights
    and biases.
    """
    workers = tuple(
        Worker(tuple(range(number * ranks, (number + 1) * ranks)), worker.slots)
        for number, worker in enumerate(plan.workers)
    )
    blocks = [number for number, name in enumerate(model.layer) if "blocks" in name]
    shardings = tuple(_block(model, number, ranks, sequence) for number in blocks)
    return replace(plan, workers=workers, shardings=shardings, mesh=(*plan.mesh, ("tensor", ranks)))


def _block(model: LayerGraph, layer: int, ranks: int, sequence: bool) -> Sharding:
    size = float(model.output_bytes[layer]) / model.batch
    if not sequence:
        exchanged = (Collective("all_reduce", size),) * 2
        return Sharding(layer, "heads", ranks, ranks, ranks, exchanged, exchanged)
    exchanged = (Collective("all_gather", size), Collective("reduce_scatter", size)) * 2
    once = Collective("all_reduce", 4 * size / model.facts["sequence"], per="step")
    return Sharding(layer, "sequence", ranks, ranks, ranks, exchanged, (*exchanged, once))
