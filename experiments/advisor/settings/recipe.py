"""What settings are written from: a plan's degrees, the machine, the step, and what else is trained how."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.options import WorkloadOptions
from experiments.core.precision import WITH_FP32_GRADS
from experiments.parallel.planning.transformers.blocks import blocks_by_chunk
from experiments.parallel.planning.transformers.plan import Degrees


@dataclass(frozen=True)
class Recipe:
    """A plan to be set up.

    ``layout`` and ``saves_operators`` are as a candidate has them, ``options`` those of the step;
    ``replicas`` take ``micro_batches`` each; ``blocks`` is the model's depth (0: not known).
    """

    layout: Degrees
    options: WorkloadOptions
    nodes: int
    per_node: int
    replicas: int
    micro_batches: int
    blocks: int
    experts: int = 0
    saves_operators: bool = False

    @property
    def devices(self) -> int:
        return self.nodes * self.per_node

    @property
    def checkpoints_blocks(self) -> bool:
        return self.layout.recompute in ("blocks", "full")

    @property
    def reduces_in_float32(self) -> bool:
        return self.options.precision in WITH_FP32_GRADS

    @property
    def is_mixed(self) -> bool:
        """Whether weights and activations have 16 bits."""
        return self.options.dtype in ("bfloat16", "float16")

    @property
    def others(self) -> tuple[str, ...]:
        """What no dialect has a setting for: changes of the model and of the optimizer's kind."""
        options = self.options
        found = []
        if options.adapter != "none":
            found.append(
                f"{options.adapter} adapters of rank {options.adapter_rank} are added by a library (PEFT)."
            )
        if options.base != "plain":
            found.append(f"Frozen weights are stored as {options.base} (bitsandbytes).")
        if "bit" in str(options.optimizer):
            found.append(f"The optimizer is {options.optimizer} (bitsandbytes or torchao).")
        if options.loss == "fused":
            found.append("Head and loss are one kernel over chunks of tokens (Liger, Cut Cross-Entropy).")
        return tuple(found)

    @property
    def blocks_of_chunks(self) -> list[int]:
        """Blocks of each stage in the order of the model."""
        layout = self.layout
        counts = blocks_by_chunk(self.blocks, layout.pipeline, layout.interleaved)
        return [int(count) for count in counts.T.ravel()]
