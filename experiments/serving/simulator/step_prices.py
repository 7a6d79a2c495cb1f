"""Seconds of a step: from a measured layer profile, or from spec sheets.

A profile's rows count once for each layer, its layer norm twice (both share the row), embedding and final
norm once a step, head and sampling once for the sequences of the step and the drafts behind them that are
verified. Attention is one joint lookup of
prompt tokens with their summed context and of decodes with their mean context (its floor); unequal
contexts move it towards that of the longest. Drafts that are verified read their context once, as a decode
does: a prompt's lookup would have all of them read that of all requests. Of an engine that attends to prompts
one by one they are looked up one by one, drafts too. On several devices each layer adds two all-reduces of
tokens x hidden x 2 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from experiments.hardware.collectives import ring_all_reduce
from experiments.hardware.parts import Link
from experiments.models.served import ServedModel
from experiments.serving.interface import Load, LoadCost
from experiments.serving.interface.executor import AWAKE
from experiments.serving.interface.step_load import Entry, StepLoad, StepPrice
from experiments.workloads.profiles.layer_times import Curve, LayerTimes
from experiments.workloads.profiles.phase_times import PassTimes

Floats = npt.NDArray[np.float64]
ONCE_A_STEP = ("embedding", "final_layernorm")
TWICE_A_LAYER = ("layernorm",)
#: What a step takes for each sequence, however many of its tokens are verified; the head is for all of them.
EACH_SEQUENCE = ("bookkeeping",)
#: Bytes of an activation that devices exchange.
ACTIVATION = 2
#: The least that an engine's step takes, as a share of what its layers took as they were timed.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class ProfilePrice:
    """``overhead`` s a step for what the profile of kernels does not have."""

    times: LayerTimes
    model: ServedModel
    link: Link | None = None
    overhead: float = 0.0
    _dense: dict[int, float] = field(default_factory=dict, repr=False)
    _head: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)
    _exchange: dict[int, float] = field(default_factory=dict, repr=False)

    def seconds(self, load: StepLoad, steps: int = 1) -> Floats:
        fixed = self.overhead + self.dense(load.tokens) + self.head(load)
        fixed += self.communication(load.tokens)
        read = self._for_attention(load)
        if steps == 1 and self.times.unequal is None:  # without arrays, which cost more than the lookup
            mean = float(read.decode_context // read.decodes) if read.decodes else 0.0
            return np.array([fixed + self.model.layers * self._look_up(read, mean)])
        return fixed + self.model.layers * self._attention(read, steps)

    def _for_attention(self, load: StepLoad) -> StepLoad:
        """What attention is looked up by."""
        return load if self.times.attention.is_apart else load.for_attention()

    def dense(self, tokens: int) -> float:
        found = self._dense.get(tokens)
        if found is None:
            found = self._dense[tokens] = sum(
                self._count(layer) * float(curve.at(float(tokens)))
                for layer, curve in self.times.by_tokens.items()
            )
        return found

    def _count(self, layer: str) -> int:
        if layer in ONCE_A_STEP:
            return 1
        return self.model.layers * (2 if layer in TWICE_A_LAYER else 1)

    def head(self, load: StepLoad) -> float:
        key = (load.sequences, load.outputs)
        found = self._head.get(key)
        if found is None:
            found = self._head[key] = sum(
                float(curve.at(float(load.sequences if layer in EACH_SEQUENCE else load.outputs)))
                for layer, curve in self.times.by_sequences.items()
            )
        return found

    def communication(self, tokens: int) -> float:
        if self.link is None or self.times.ranks == 1:
            return 0.0
        found = self._exchange.get(tokens)
        if found is None:
            size = tokens * self.model.hidden * ACTIVATION
            found = 2 * self.model.layers * ring_all_reduce(self.link, self.times.ranks, size)
            self._exchange[tokens] = found
        return found

    def _attention(self, load: StepLoad, steps: int) -> Floats:
        """Seconds in one layer."""
        grown = np.arange(steps, dtype=np.float64)
        mean = np.floor(load.decode_context / load.decodes) + grown if load.decodes else np.zeros(1)
        found = self._at(load, mean)
        unequal = self.times.unequal
        if unequal is None or load.decodes < 2 or load.longest == load.shortest:
            return found
        # All contexts grow alike, so how unequal they are stays; the longest may change its bucket.
        rate = (mean[0] - load.shortest) / (load.longest - load.shortest)
        longest = load.longest + grown
        most = self._at(load, longest)
        shares = self._shares(load, rate, longest)
        return np.where(most > found, found + shares * (most - found), found)

    def _at(self, load: StepLoad, context: Floats) -> Floats:
        """Of one step without arrays, which cost more than the lookup."""
        if len(context) == 1:
            at: float | Floats = float(context[0])
        else:
            at = context
        return np.atleast_1d(np.asarray(self._look_up(load, at), np.float64))

    def _look_up(self, load: StepLoad, context: float | Floats) -> float | Floats:
        attention, (first, *others) = self.times.attention, self._prompts(load)
        found = attention.at(*first, load.decodes, context)
        for tokens, before in others:
            found = found + attention.at(tokens, before, 0, 0.0)
        return found

    def _prompts(self, load: StepLoad) -> tuple[tuple[int, int], ...]:
        """Tokens and contexts of prompts that are looked up one by one, the first next to the decodes."""
        if load.prompts and self.times.attention.is_apart:
            return load.prompts
        return ((load.prefill, load.prefill_context),)

    def _shares(self, load: StepLoad, rate: float, longest: Floats) -> Floats:
        unequal = self.times.unequal
        assert unequal is not None
        ends = (float(longest[0]), float(longest[-1]))
        first, last = (
            unequal.of(load.prefill, load.decodes, rate, end, load.prefill_context) for end in ends
        )
        if first == last:
            return np.full(len(longest), first)
        shares = [
            unequal.of(load.prefill, load.decodes, rate, one, load.prefill_context)
            for one in longest.tolist()
        ]
        return np.array(shares)

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        attention, read = self.times.attention, self._for_attention(load)
        chunk, (context, decodes) = attention.chunks[-1], attention.longest
        if (
            load.tokens > self._most_tokens
            or any(tokens > chunk or before > context for tokens, before in self._prompts(read))
            or read.decodes > (attention.most_beside if read.prefill else attention.counts[-1])
            or load.outputs > self._most_sequences
        ):
            return steps
        if not read.decodes:
            return 0
        # Of unequal contexts the longest is looked up too.
        asked = read.longest if self.times.unequal else read.decode_context // read.decodes
        return min(steps, max(0, int(asked + steps - 1 - decodes)))

    def wake_seconds(self, idle: float) -> float:
        wake = self.times.wake
        return float(wake.at(min(idle, wake.points[-1]))) if wake else 0.0

    @cached_property
    def _most_tokens(self) -> float:
        return min(curve.points[-1] for curve in self.times.by_tokens.values())

    @cached_property
    def _most_sequences(self) -> float:
        return min(curve.points[-1] for curve in self.times.by_sequences.values())


@dataclass(frozen=True)
class EnginePrice:
    """What an engine's steps take by ``layers``, which were timed in loops.

    ``besides``  seconds of a step besides its layers, by requests in it; below 0 where the host was slower as
    layers were timed. No more than ``1 - LEAST_SHARE`` of them is taken off.
    ``prompts``  how many times what they add to the layers of a step prompts take.
    ``waking``   seconds by which a step is longer that the engine waited for; ``None``: as layers have it.
    ``pace``     of the host as its steps were timed: how many times as long as here everything took.
    """

    layers: ProfilePrice
    besides: Curve
    prompts: float = 1.0
    waking: float | None = None
    pace: float = 1.0

    def seconds(self, load: StepLoad, steps: int = 1) -> Floats:
        layers = self.layers.seconds(load, steps)
        found = layers + self.besides.at(float(load.sequences))
        if load.has_prompts:
            found = found + (self.prompts - 1.0) * self.prompt_seconds(load, steps)
        return np.maximum(found, LEAST_SHARE * layers)

    def prompt_seconds(self, load: StepLoad, steps: int = 1) -> Floats:
        """What the prompts of a step add to its layers."""
        others = load.without_prompts()
        alone = self.layers.seconds(others, steps) if others.sequences else np.zeros(steps)
        return np.maximum(self.layers.seconds(load, steps) - alone, 0.0)

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return self.layers.steps_beyond(load, steps)

    def wake_seconds(self, idle: float) -> float:
        if self.waking is None:
            return self.layers.wake_seconds(idle)
        return max(0.0, self.waking) if idle > AWAKE else 0.0


@dataclass(frozen=True)
class SheetPrice:
    """A closed form of the device's sheet, which holds everywhere."""

    cost: LoadCost

    def seconds(self, load: StepLoad, steps: int = 1) -> Floats:
        pairs = load.prefill_pairs + load.decode_context + load.decodes
        kv = load.tokens + load.prefill_context + load.decode_context
        whole = Load(load.tokens, load.sequences, pairs, kv)
        if steps > 1:
            grown = np.arange(steps, dtype=np.float64) * load.decodes
            whole = Load(load.tokens, load.sequences, pairs + grown, kv + grown)
        return np.atleast_1d(np.asarray(self.cost.stage_time(whole), np.float64))

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return 0

    def wake_seconds(self, idle: float) -> float:
        return 0.0


@dataclass(frozen=True)
class TablePrice:
    """Measured whole passes: prompts by their tokens, answers by their number.

    A pass with both costs what a prompt of all its tokens does: the weights are read once.
    """

    times: PassTimes

    def seconds(self, load: StepLoad, steps: int = 1) -> Floats:
        answers = float(self.times.answer.at(float(load.decodes))) if load.decodes else 0.0
        prompts = float(self.times.prompt.at(float(load.tokens))) if load.prefill else 0.0
        return np.full(steps, max(answers, prompts))

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        most = self.times.prompt.points[-1] if load.prefill else self.times.answer.points[-1]
        return steps if load.tokens > most else 0

    def wake_seconds(self, idle: float) -> float:
        return 0.0


@dataclass(frozen=True)
class StepCost:
    """What prices steps over blocks prices batches too.

    ``per_request_layer`` s more for each request in each of ``layers``.
    """

    is_measured: ClassVar[bool] = True

    price: StepPrice
    per_request_layer: float = 0.0
    layers: int = 0

    def steps_beyond(self, tokens: Sequence[int], contexts: Sequence[int], steps: int) -> int:
        return self.price.steps_beyond(load_of(tokens, contexts), steps)

    def wake_seconds(self, idle: float) -> float:
        return self.price.wake_seconds(idle)

    def pass_seconds(self, tokens: Sequence[int], contexts: Sequence[int], steps: int = 1) -> float | Floats:
        load = load_of(tokens, contexts)
        found = self.price.seconds(load, steps) + self.per_request_layer * self.layers * load.sequences
        return float(found[0]) if steps == 1 else found


def load_of(tokens: Sequence[int], contexts: Sequence[int]) -> StepLoad:
    """The load of a batch; requests are numbered as they stand in it."""
    return StepLoad.of(list(map(Entry, range(len(tokens)), tokens, contexts)))
