"""The engine that carries out batches: its pipeline stages, its KV memory and what a pass costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from experiments.hardware.collectives import ring_all_reduce
from experiments.hardware.parts import Device, Link
from experiments.hardware.roofline import compute_rate, memory_rate
from experiments.models.served import ServedModel
from experiments.serving.interface.refusals import over_context, over_memory

Floats = npt.NDArray[np.float64]


class Load(NamedTuple):
    """What the cost of a pass depends on.

    ``tokens``     computed.
    ``sequences``  in the batch.
    ``pairs``      of a new token and one it attends to.
    ``kv``         tokens whose keys and values are read.

    Arrays hold one entry for each of several passes in a row.
    """

    tokens: float
    sequences: float
    pairs: float | Floats
    kv: float | Floats

    @classmethod
    def of(cls, tokens: Sequence[int], contexts: Sequence[int]) -> Load:
        """Causal attention: token i of n new ones after c attends to c + i (i from 1)."""
        total = sum(tokens)
        own = sum(map(mul, tokens, tokens)) + total
        return cls(
            total,
            len(tokens),
            sum(map(mul, tokens, contexts)) + own / 2,
            total + sum(contexts),
        )

    def repeated(self, steps: int) -> Load:
        """This decode pass (one token each) and the ``steps - 1`` after it, contexts growing by one each."""
        grown: Floats = np.arange(steps, dtype=np.float64) * self.sequences
        pairs, kv = np.add(self.pairs, grown), np.add(self.kv, grown)
        return Load(self.tokens, self.sequences, pairs.astype(np.float64), kv.astype(np.float64))


class CostModel(Protocol):
    """Seconds that a stage of the pipeline takes for a batch.

    ``is_measured``: by a grid of measured times, beyond which it is a guess.
    """

    is_measured: ClassVar[bool]

    def steps_beyond(self, tokens: Sequence[int], contexts: Sequence[int], steps: int) -> int:
        """How many of the passes, the last ones, lie beyond what was measured."""
        ...

    def pass_seconds(self, tokens: Sequence[int], contexts: Sequence[int], steps: int = 1) -> float | Floats:
        """Of one pass, or of each of ``steps`` decode passes in a row, contexts growing by one each."""
        ...

    def wake_seconds(self, idle: float) -> float:
        """How much longer a pass takes after ``idle`` seconds without any."""
        ...


class LoadCost:
    """A closed form of the sums of a batch, which holds everywhere."""

    is_measured: ClassVar[bool] = False

    def steps_beyond(self, tokens: Sequence[int], contexts: Sequence[int], steps: int) -> int:
        return 0

    def wake_seconds(self, idle: float) -> float:
        return 0.0

    def stage_time(self, load: Load) -> float | Floats:
        """Seconds of one pass through one stage; elementwise over a repeated load."""
        raise NotImplementedError(type(self).__name__)

    def pass_seconds(self, tokens: Sequence[int], contexts: Sequence[int], steps: int = 1) -> float | Floats:
        load = Load.of(tokens, contexts)
        return self.stage_time(load if steps == 1 else load.repeated(steps))


@dataclass(frozen=True)
class RooflineCost(LoadCost):
    """A transformer on ``ranks`` devices per stage, ``stages`` stages, from spec sheets alone.

    Dense operators: max(2 P T / FLOP rate, weight bytes / byte rate). Attention: max(4 h pairs / FLOP rate,
    KV bytes / byte rate). Two ring all-reduces per layer among the ranks, one transfer to the next stage, and
    ``per_request_layer`` s for each request in each layer (attention runs apart for each, Orca section 3.2).
    """

    model: ServedModel
    device: Device
    dtype: str
    dtype_bytes: int
    ranks: int = 1
    stages: int = 1
    rank_link: Link | None = None
    stage_link: Link | None = None
    per_request_layer: float = 0.0

    def stage_time(self, load: Load) -> float | Floats:
        model, share = self.model, 1 / (self.ranks * self.stages)
        flops, bandwidth = compute_rate(self.device, self.dtype), memory_rate(self.device)
        weights = model.parameters * share
        dense = max(2 * weights * load.tokens / flops, weights * self.dtype_bytes / bandwidth)
        width = model.heads * model.head_dim
        attention = np.maximum(
            4 * width * model.layers * share * load.pairs / flops,
            model.kv_bytes_per_token(self.dtype_bytes) * share * load.kv / bandwidth,
        )
        split = self.per_request_layer * model.layers / self.stages * load.sequences
        time: float | Floats = dense + attention + split + self._communication(load.tokens)
        return time

    def _communication(self, tokens: float) -> float:
        size = tokens * self.model.hidden * self.dtype_bytes
        time = 0.0
        if self.ranks > 1 and self.rank_link is not None:
            layers = self.model.layers / self.stages
            time += 2 * layers * ring_all_reduce(self.rank_link, self.ranks, size)
        if self.stages > 1 and self.stage_link is not None:
            time += self.stage_link.time(size)
        return time


@dataclass(frozen=True)
class Engine:
    """``stages`` of a pipeline, ``kv_slots`` tokens of KV memory in all, and the longest output it allows.

    Prompts over ``context`` tokens are refused when they arrive, and requests that all slots do not hold.
    """

    cost: CostModel
    kv_slots: int
    max_output: int
    stages: int = 1
    context: int | None = None

    def refusal(self, prompt: int, output: int) -> str:
        """Why a request of so many tokens is refused; empty where it is not."""
        if why := over_context(prompt, self.context):
            return why
        is_too_large = prompt + output > self.kv_slots
        return over_memory(prompt, output, self.kv_slots) if is_too_large else ""
