"""From the degrees of tensor, pipeline, context and data parallelism to a plan that can be carried out."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    ParallelPlan,
    Slot,
    Stage,
    Synchronization,
    Worker,
    whole_share,
)
from experiments.parallel.interface.engines import PLAIN
from experiments.parallel.interface.plan import JOINED
from experiments.parallel.interface.rounds import alternating, devices_by_stage
from experiments.parallel.planning.transformers.blocks import blocks_by_chunk, refuse_too_few_blocks
from experiments.parallel.planning.transformers.shardings import BESIDE, WorkerMesh, megatron_shardings
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import ATTENTION_CORE

#: What is computed again: nothing, attention cores, every block from its input (Megatron-LM's "full"), or the
#: ends as well, logits included, so that all FLOPs of a forward pass are spent twice and HFU is 4/3 MFU.
RECOMPUTATION = ("none", "selective", "blocks", "full")
#: How ZeRO 1 and 2 hand out updated weights: before the forward passes that need them (where gradients are
#: reduced behind passes too), together behind the update, or behind it one owner after the other. ZeRO 1 by
#: slices of every tensor as well, having summed whole gradients: nanotron's, which is said in the simulator
#: alone (``simulator.tensor_lists``).
AHEAD, BEHIND, BY_OWNER, BY_SLICE = GATHERING = ("ahead", "behind", "by-owner", "by-slice")
#: One bucket for all gradients of a stage: Megatron-LM of 2021 reduces them behind the last micro-batch.
ONE_BUCKET = 1e18
#: Parameters of a bucket of Megatron-Core, at least, and for each replica.
BUCKET, BUCKET_PER_REPLICA = 40_000_000, 1_000_000


@dataclass(frozen=True)
class Degrees:
    """The degrees of parallelism of a transformer's plan: t, p, v, b and the rest.

    Data parallelism has the devices that remain. ``embedding_blocks`` and ``head_blocks`` are the blocks for
    which the ends count where stages are cut, ``first_extra`` those that the first stage has more for it.
    ``expert`` devices share the experts of a block, among those of a pipeline stage; ``skew`` is the fullest
    expert's load over the mean. Tokens travel once to each group of ``node`` devices (0: once to each of
    their experts). ``engine`` is the library that carries the plan out. With ``host_optimizer`` the host has
    the optimizer's state and updates the weights.
    """

    tensor: int = 1
    pipeline: int = 1
    interleaved: int = 1
    micro_batch: int = 1
    context: int = 1
    sequence: bool = False
    recompute: str = "none"
    zero: int = 0
    overlap: bool = True
    overlap_products: bool = False
    overlap_gradients: bool = False
    shard: int = 0
    gather: str = AHEAD
    overlap_messages: bool = True
    context_exchange: str = BESIDE
    context_balanced: bool = True
    embedding_blocks: int = 0
    head_blocks: int = 0
    first_extra: int = 0
    expert: int = 1
    skew: float = 1.0
    node: int = 0
    engine: str = PLAIN
    keep_gathered: bool = False
    capacity: float = 0.0
    host_optimizer: bool = False

    @property
    def mesh(self) -> WorkerMesh:
        return WorkerMesh(
            self.tensor,
            self.context,
            self.sequence,
            self.overlap,
            self.overlap_products,
            self.context_exchange,
            self.context_balanced,
            self.expert,
            self.skew,
            self.node,
            self.keep_gathered,
            self.capacity,
        )

    def replicas(self, devices: int) -> int:
        """Pipelines that ``devices`` make: data parallelism (d), but for replicas that share experts."""
        return whole_share(devices, self.mesh.devices * self.pipeline, "devices", "knobs")

    def micro_batches(self, devices: int, batch: int) -> int:
        """Of each pipeline (m)."""
        samples = self.mesh.joined * self.micro_batch
        return whole_share(batch, self.replicas(devices) * samples, "samples", "knobs.micro_batch")


def megatron_plan(model: LayerGraph, cluster: Hardware, batch: int, layout: Degrees) -> ParallelPlan:
    """The plan; ``BadInput`` where devices, samples, heads or blocks do not divide."""
    _refuse_misfits(model, layout)
    replicas = layout.replicas(cluster.device_count)
    synchronization = Synchronization(
        bucket_bytes=_bucket_bytes(model, layout, replicas),
        prefetch=layout.overlap_gradients and layout.gather == AHEAD,
        by_owner=layout.gather == BY_OWNER,
        by_slice=layout.gather == BY_SLICE and layout.zero == 1,
    )
    micro_batches = layout.micro_batches(cluster.device_count, batch)
    hosts = devices_by_stage(layout.pipeline, layout.interleaved)
    return ParallelPlan(
        batch=batch,
        micro_batches=replicas * micro_batches,
        mesh=(
            ("pipeline", layout.pipeline),
            ("data", replicas),
            *(((JOINED, layout.mesh.joined),) if layout.mesh.joined > 1 else ()),
            ("context", layout.context),
            ("tensor", layout.tensor),
        ),
        stages=tuple(
            Stage(begin, end, tuple(range(host[0] * replicas, (host[0] + 1) * replicas)))
            for (begin, end), host in zip(block_bounds(model, layout), hosts, strict=True)
        ),
        workers=_workers(layout, replicas, micro_batches),
        zero=layout.zero,
        zero_group=layout.shard,
        recompute=recomputed_layers(model, layout.recompute),
        checkpoints=checkpoints(model, layout.recompute),
        shardings=megatron_shardings(model, layout.mesh),
        synchronization=synchronization,
        blocking=not layout.overlap_messages,
        engine=layout.engine,
        host_optimizer=layout.host_optimizer,
        notes={"layout": asdict(layout)},
    )


def bucket_parameters(replicas: int) -> int:
    """Return the parameters whose gradients Megatron-Core reduces at a time, behind backward passes."""
    return max(BUCKET, BUCKET_PER_REPLICA * replicas)


def _bucket_bytes(model: LayerGraph, layout: Degrees, replicas: int) -> float:
    """What ZeRO 2 and 3 exchange at a time is a block.

    Else some parameters' gradients (of four bytes) go as they are made, or all of a stage at once.
    """
    if layout.zero < 2:
        holders = replicas * layout.mesh.joined
        return 4.0 * bucket_parameters(holders) if layout.overlap_gradients else ONE_BUCKET
    sizes = model.transformer
    assert sizes is not None
    size = DTYPE_BYTES[str(model.facts["dtype"])]
    experts = sizes.mixture.expert_parameters(sizes.hidden) if sizes.mixture else 0
    shared = (sizes.block_parameters - experts) / layout.tensor
    return 0.99 * size * (shared + experts / layout.expert)


def _refuse_misfits(model: LayerGraph, layout: Degrees) -> None:
    sizes = model.transformer
    assert sizes is not None
    if sizes.heads % layout.tensor:
        raise BadInput(
            f"{sizes.heads} heads do not divide by {layout.tensor}", "knobs.tensor", "a divisor of the heads"
        )
    if not sizes.vocabulary and (layout.embedding_blocks or layout.head_blocks):
        raise BadInput("has neither embedding nor head", model.name, "embedding_blocks = head_blocks = 0")
    refuse_too_few_blocks(
        sizes.layers,
        layout.pipeline,
        layout.interleaved,
        layout.embedding_blocks,
        layout.head_blocks,
        layout.first_extra,
    )
    _refuse_experts(sizes, layout)


def _refuse_experts(sizes: Transformer, layout: Degrees) -> None:
    mixture = sizes.mixture
    if mixture is None:
        if layout.expert > 1 or layout.skew > 1 or layout.capacity:
            raise BadInput(f"{sizes.name} has no experts", "knobs.expert", "a mixture of experts")
        return
    if mixture.experts % layout.expert:
        what = f"{mixture.experts} experts do not divide by {layout.expert}"
        raise BadInput(what, "knobs.expert", "a divisor of the experts")
    if layout.skew > mixture.experts / mixture.chosen:
        what = f"skew {layout.skew:g}: a token passes an expert once"
        limit = f"at most {mixture.experts / mixture.chosen:g}, experts over those of a token"
        raise BadInput(what, "knobs.skew", limit)
    if layout.capacity and layout.skew > 1:
        what = f"skew {layout.skew:g} with capacity {layout.capacity:g}: every expert takes as many tokens"
        raise BadInput(what, "knobs.skew", "1")
    if layout.capacity > layout.mesh.devices:
        what = f"capacity {layout.capacity:g} on {layout.mesh.devices} devices that share tokens"
        raise BadInput(what, "knobs.capacity", "at most as many: plans divide what a model computes")
    if layout.tensor > 1 and not layout.sequence:
        what = "tensor parallelism of a mixture of experts without sequence parallelism"
        raise BadInput(what, "knobs.sequence_parallel", "true: tokens travel to experts from every device")


def _workers(layout: Degrees, replicas: int, micro_batches: int) -> tuple[Worker, ...]:
    """Neighbors first among a worker's devices, then replicas, then stages of the pipeline."""
    per_worker, found = layout.mesh.devices, []
    for device in range(layout.pipeline):
        slots = slots_of(device, layout.pipeline, layout.interleaved, micro_batches)
        for replica in range(replicas):
            start = (device * replicas + replica) * per_worker
            offset = replica * micro_batches
            own = tuple(slot._replace(micro_batch=slot.micro_batch + offset) for slot in slots)
            found.append(Worker(tuple(range(start, start + per_worker)), own))
    return tuple(found)


def slots_of(device: int, pipeline: int, chunks: int, micro_batches: int) -> tuple[Slot, ...]:
    """1F1B, interleaved where a device has several chunks."""
    ahead = pipeline - device - 1
    warm_up = 2 * ahead + (chunks - 1) * pipeline if chunks > 1 else ahead
    return alternating(device, pipeline, micro_batches, chunks, warm_up)


def block_bounds(model: LayerGraph, layout: Degrees) -> list[tuple[int, int]]:
    """Return the operators of each stage; the ends go with the first and the last, whatever they count."""
    starts = block_starts(model)
    counts = blocks_by_chunk(
        len(starts),
        layout.pipeline,
        layout.interleaved,
        layout.embedding_blocks,
        layout.head_blocks,
        layout.first_extra,
    )
    begins = [*starts, end_of_blocks(model)]
    cuts = [begins[place] for place in np.cumsum(counts.T.ravel())[:-1]]
    return list(zip([0, *cuts], [*cuts, len(model)], strict=True))


def block_starts(model: LayerGraph) -> list[int]:
    """The first operator of each block."""
    return [layer for layer, name in enumerate(model.layer) if name.endswith(".norm1")]


def end_of_blocks(model: LayerGraph) -> int:
    """Return the first operator behind the last block."""
    return 1 + max(layer for layer, name in enumerate(model.layer) if _in_block(name))


def _in_block(name: str) -> bool:
    return name.startswith("blocks.")


def recomputed_layers(model: LayerGraph, recompute: str) -> tuple[int, ...]:
    """The operators of the runs that begin at the checkpoints."""
    if recompute == "full":
        return tuple(range(len(model)))
    if recompute == "blocks":
        return tuple(layer for layer, name in enumerate(model.layer) if _in_block(name))
    return checkpoints(model, recompute)


def checkpoints(model: LayerGraph, recompute: str) -> tuple[int, ...]:
    """Where a run that is computed again begins: a block, an end of the model, or an attention core."""
    if recompute == "selective":
        return tuple(layer for layer, name in enumerate(model.layer) if name.endswith(f".{ATTENTION_CORE}"))
    starts = block_starts(model)
    if recompute == "full":
        ends = {0, end_of_blocks(model)} - {len(model)}
        return tuple(sorted({*starts, *ends}))
    return tuple(starts) if recompute == "blocks" else ()
