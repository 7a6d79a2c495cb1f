"""Megatron-LM's arguments. Source: megatron/training/arguments.py and the configurations of megatron/core of
NVIDIA/Megatron-LM, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from experiments.advisor.settings.recipe import Recipe

#: What Megatron-FSDP divides at ZeRO's stages.
STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}


def text(recipe: Recipe) -> str:
    """Return the arguments, one a line, as a shell continues them."""
    return " \\\n".join(_arguments(recipe))


def _arguments(recipe: Recipe) -> Iterator[str]:
    layout, options = recipe.layout, recipe.options
    yield f"--tensor-model-parallel-size {layout.tensor}"
    if layout.sequence:
        yield "--sequence-parallel"
    yield f"--pipeline-model-parallel-size {layout.pipeline}"
    yield from _chunks(recipe)
    if layout.context > 1:
        yield f"--context-parallel-size {layout.context}"
    if layout.expert > 1:
        yield f"--expert-model-parallel-size {layout.expert}"
        yield "--expert-tensor-parallel-size 1"
        yield "--moe-token-dispatcher-type alltoall"
    yield f"--micro-batch-size {layout.micro_batch}"
    yield f"--global-batch-size {options.batch}"
    if options.sequence:
        yield f"--seq-length {options.sequence}"
    if recipe.is_mixed:
        yield "--bf16" if options.dtype == "bfloat16" else "--fp16"
    yield from _states(recipe)
    yield from _recomputation(recipe)


def _chunks(recipe: Recipe) -> Iterator[str]:
    """Equal chunks by their number, others by their layout."""
    layout = recipe.layout
    if layout.pipeline == 1:
        return
    if len(set(recipe.blocks_of_chunks)) > 1:
        yield f'--pipeline-model-parallel-layout "{layout_of(recipe.blocks_of_chunks)}"'
    elif layout.interleaved > 1:
        yield f"--num-virtual-stages-per-pipeline-rank {layout.interleaved}"


def layout_of(chunks: list[int]) -> str:
    """Return stages as the argument has them: ``[1, 2, 2, 1]`` is ``Et|(tt|)*2,tL``.

    E is the embedding, t a block, L the loss.
    """
    found = [f"E{'t' * chunks[0]}|"]
    for blocks, same in groupby(chunks[1:-1]):
        stage, times = f"{'t' * blocks}|", len(list(same))
        found.append(f"({stage})*{times}," if times > 1 else stage)
    return "".join([*found, f"{'t' * chunks[-1]}L"])


def _states(recipe: Recipe) -> Iterator[str]:
    layout = recipe.layout
    if layout.zero or layout.host_optimizer:
        yield "--use-distributed-optimizer"
    if layout.zero >= 2:
        yield "--use-megatron-fsdp"
        yield f"--data-parallel-sharding-strategy {STRATEGIES[layout.zero]}"
        yield "--ckpt-format fsdp_dtensor"
    if recipe.replicas > 1:
        yield "--overlap-grad-reduce"
    if layout.zero and recipe.replicas > 1:
        yield "--overlap-param-gather"
    if layout.host_optimizer:
        yield "--optimizer-cpu-offload"
        yield "--optimizer-offload-fraction 1.0"
        yield "--use-precision-aware-optimizer"


def _recomputation(recipe: Recipe) -> Iterator[str]:
    if recipe.checkpoints_blocks and not recipe.saves_operators:
        yield "--recompute-granularity full"
        yield "--recompute-method uniform"
        yield "--recompute-num-layers 1"
    elif recipe.layout.recompute == "selective":
        yield "--recompute-granularity selective"


def notes(recipe: Recipe) -> tuple[str, ...]:
    layout = recipe.layout
    found = ["The sizes of the model, data, learning rate and launcher are added to these."]
    if layout.zero >= 2:
        found.append("Megatron-FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset or above 1.")
    elif layout.tensor > 1 or layout.context > 1:
        found.append("Before Blackwell GPUs CUDA_DEVICE_MAX_CONNECTIONS=1 is asked for.")
    if recipe.saves_operators:
        found.append("Checkpointing that keeps attention and every second product has no argument.")
    return (*found, *recipe.others)
