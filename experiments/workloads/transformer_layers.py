"""A transformer as a LayerGraph, by operators or by blocks, without torch and without capturing anything."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.units import DTYPE_BYTES
from experiments.workloads.kernels import Row
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_rows import TRAFFIC, Rows, Ways

#: How a policy wants the layers of a model: of the captured step, or of the closed form by operators or by
#: blocks.
CAPTURED, OPERATORS, BLOCKS = "captured", "operators", "blocks"
#: The kind of a layer that is a whole block.
BLOCK = "transformer_block"
#: What fused attention kernels of other years reach of the rate of FlashAttention 2. 2022 (FlashAttention 1,
#: Triton's of its time): about 95 of 190 TFLOP/s on an A100, causal, heads of 128 (Dao, 2023, figure 4).
#: 2024 (FlashAttention 3, on Hopper): forward 648 for 370 TFLOP/s with heads of 128 and 16,384 tokens,
#: backward 1.5 to 1.75 times (Shah et al., 2024, section 4.1), weighed by FLOPs, of which that has 2.5 times
#: as many.
ATTENTION_RATES = {"flash1": 0.5, "flash3": 1.66}
#: Of a block, the operators that selective recomputation runs again (Korthikanti et al., MLSys'23, section
#: 5).
ATTENTION_CORE = "attention"


def transformer_layers(
    model: Transformer,
    *,
    batch: int,
    dtype: str,
    optimizer: str = "adam",
    granularity: str = BLOCKS,
    kernels: str = "fused",
    fused_attention: bool = False,
    attention_rate: float = 1.0,
    loss_chunks: int = 0,
    keeps_logits: bool = True,
    loss: str = "whole",
    copies_keys: bool = False,
) -> LayerGraph:
    """Columns for ``batch`` samples without times; a row is an operator, or a whole block of them.

    Fused attention reaches ``attention_rate`` of the device's, where it ``copies_keys`` behind a product that
    makes query, key and value at once. A loss of ``loss_chunks`` parts (0: whole) has
    float32 values of one part at a time, and unless it ``keeps_logits`` logits too; ``loss`` names another
    way of a whole one.
    """
    if kernels not in TRAFFIC:
        raise BadInput(f"unknown kernels {kernels!r}", model.name, "one of " + ", ".join(TRAFFIC))
    how = Ways(kernels, fused_attention, attention_rate, loss_chunks, keeps_logits, loss, copies_keys)
    rows = Rows(model, DTYPE_BYTES[dtype], how).all()
    groups = [[row] for row in rows] if granularity == OPERATORS else _by_block(rows)
    forward = np.array([sum(row.work.forward_flops for row in group) for group in groups]) * batch
    size = DTYPE_BYTES[dtype]
    return LayerGraph(
        name=model.name,
        layer=tuple(_name(group) for group in groups),
        kind=tuple(group[0].kind if len(group) == 1 else BLOCK for group in groups),
        forward_seconds=np.full(len(groups), np.nan),
        backward_seconds=np.full(len(groups), np.nan),
        forward_flops=forward,
        backward_flops=2 * forward,
        parameter_bytes=np.array([float(sum(row.parameters for row in group)) * size for group in groups]),
        output_bytes=np.array([group[-1].output for group in groups]) * batch,
        stash_bytes=np.array([sum(row.kept for row in group) for group in groups]) * batch,
        predecessors=_predecessors(groups),
        batch=batch,
        facts={
            **_facts(model, batch, dtype, optimizer),
            **how.facts,
            "tied": _tied_tables(model, groups, size),
        },
        work=tuple(tuple(row.work for row in group) for group in groups),
        transformer=model,
    )


def at_granularity(graph: LayerGraph, granularity: str) -> LayerGraph:
    """The same model by operators or by blocks; a graph that is no transformer of ours stays as it is."""
    if graph.transformer is None:
        return graph
    facts = graph.facts
    return transformer_layers(
        graph.transformer,
        batch=graph.batch,
        dtype=facts["dtype"],
        optimizer=facts["optimizer"],
        granularity=granularity,
        **asdict(Ways.of(facts)),
    )


def _by_block(rows: Sequence[Row]) -> list[list[Row]]:
    """``blocks.3.norm1`` and its neighbors are one layer; what is in no block is a layer of its own."""
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: _block_of(row.name))]


def _block_of(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _name(group: Sequence[Row]) -> str:
    return group[0].name if len(group) == 1 else _block_of(group[0].name)


def _predecessors(groups: Sequence[Sequence[Row]]) -> Ragged:
    place = {row.name: number for number, group in enumerate(groups) for row in group}
    return Ragged.of(
        sorted({place[name] for row in group for name in row.reads if name in place} - {number})
        for number, group in enumerate(groups)
    )


def _tied_tables(model: Transformer, groups: Sequence[Sequence[Row]], size: int) -> list[list[float]]:
    """The table that the logits read: owner, reader, bytes."""
    if not (model.tied and model.vocabulary):
        return []
    place = {row.name: number for number, group in enumerate(groups) for row in group}
    return [[place["embedding"], place["logits"], float(model.vocabulary * model.hidden * size)]]


def _facts(model: Transformer, batch: int, dtype: str, optimizer: str) -> dict[str, object]:
    return {
        "batch": batch,
        "dtype": dtype,
        "optimizer": optimizer,
        "sequence": model.sequence,
        "hidden": model.hidden,
        "feedforward": model.feedforward,
        "attention_heads": model.heads,
        "attention_size": model.head_size,
        "vocabulary": model.vocabulary,
        **({"document": model.document} if model.document else {}),
    }
