"""What a pass of a deployed model costs on a group of devices, from what its scenario tells of it."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from experiments.hardware import Hardware
from experiments.hardware.collectives import ring_all_reduce
from experiments.hardware.roofline import compute_rate, memory_rate
from experiments.serving.interface.deployment.stage_cut import cut_stages
from experiments.workloads.encoders import Encoder
from experiments.workloads.scenario import BatchProfile, LayerCosts

#: Bytes of a number of weights and activations of models that are known by their sizes.
ELEMENT, ELEMENT_TYPE = 2, "float16"


class PassCost(Protocol):
    """Seconds and bytes of a model's pass, divided into ``pipeline`` stages of ``tensor`` devices each."""

    @property
    def largest_batch(self) -> int | None:
        """The largest batch that was measured; ``None``: any is computed."""

    def divides(self, pipeline: int, tensor: int) -> bool:
        """Whether the model can be divided so."""

    def stage_times(self, batch: int, pipeline: int, tensor: int) -> tuple[float, ...]:
        """Seconds of each stage for one pass of ``batch`` requests."""

    def stage_bytes(self, pipeline: int, tensor: int) -> tuple[float, ...]:
        """Bytes of weights that each device of each stage holds."""

    def working_bytes(self, batch: int) -> float:
        """Bytes that a pass of ``batch`` takes next to the weights, on one device."""


@dataclass(frozen=True)
class WholeCost:
    """A model known by the time of its whole pass: in a pipeline its stages are equal, as AlpaServe's ideal.

    ``profile`` of one batch: a batch takes its requests one after another.
    """

    profile: BatchProfile
    bytes: float

    @property
    def largest_batch(self) -> int | None:
        return self.profile.largest if len(self.profile.batch) > 1 else None

    def divides(self, pipeline: int, tensor: int) -> bool:
        return tensor == 1

    def stage_times(self, batch: int, pipeline: int, tensor: int) -> tuple[float, ...]:
        return (self.profile.at(batch) / pipeline,) * pipeline

    def stage_bytes(self, pipeline: int, tensor: int) -> tuple[float, ...]:
        return (self.bytes / pipeline,) * pipeline

    def working_bytes(self, batch: int) -> float:
        """What was measured above the weights; between measured batches that of the next larger."""
        if not self.profile.memory:
            return 0.0
        place = min(bisect_left(self.profile.batch, batch), len(self.profile.batch) - 1)
        return max(0.0, self.profile.memory[place] - self.bytes)


class LayeredCost:
    """A model known by its layers: each stage has consecutive ones, the slowest stage is as fast as can be.

    ``seconds(batch, tensor)`` and ``bytes`` are by layer; ``hand_over(batch)`` are the seconds to pass the
    activations on to the next stage.
    """

    largest_batch: int | None = None

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.stage_times = functools.lru_cache(maxsize=4096)(self._stage_times)
        self.cut = functools.lru_cache(maxsize=256)(self._cut)

    def divides(self, pipeline: int, tensor: int) -> bool:
        return pipeline <= self.layers and self.divides_layer(tensor)

    def divides_layer(self, tensor: int) -> bool:
        raise NotImplementedError

    def seconds(self, batch: int, tensor: int) -> Sequence[float]:
        raise NotImplementedError

    def layer_bytes(self) -> Sequence[float]:
        raise NotImplementedError

    def hand_over(self, batch: int, pipeline: int, tensor: int) -> float:
        raise NotImplementedError

    def working_bytes(self, batch: int) -> float:
        return 0.0

    def _cut(self, pipeline: int, tensor: int) -> tuple[int, ...]:
        return cut_stages(self.seconds(1, tensor), pipeline)

    def _stage_times(self, batch: int, pipeline: int, tensor: int) -> tuple[float, ...]:
        layers, ends = self.seconds(batch, tensor), (0, *self.cut(pipeline, tensor))
        times = [math.fsum(layers[first:last]) for first, last in pairwise(ends)]
        passed_on = self.hand_over(batch, pipeline, tensor)
        return (*(seconds + passed_on for seconds in times[:-1]), times[-1])

    def stage_bytes(self, pipeline: int, tensor: int) -> tuple[float, ...]:
        sizes, ends = self.layer_bytes(), (0, *self.cut(pipeline, tensor))
        return tuple(math.fsum(sizes[first:last]) / tensor for first, last in pairwise(ends))


class ToldLayers(LayeredCost):
    """Layers with the times and bytes that the scenario tells; activations pass between stages at once."""

    def __init__(self, told: LayerCosts, total: float) -> None:
        super().__init__(len(told.seconds))
        self._told = told
        known = sum(told.bytes)
        self._bytes = tuple(size * total / known for size in told.bytes) if known else told.bytes

    def divides_layer(self, tensor: int) -> bool:
        return tensor == 1

    def seconds(self, batch: int, tensor: int) -> Sequence[float]:
        return self._told.seconds if batch == 1 else [batch * one for one in self._told.seconds]

    def layer_bytes(self) -> Sequence[float]:
        return self._bytes

    def hand_over(self, batch: int, pipeline: int, tensor: int) -> float:
        return 0.0


class EncoderCost(LayeredCost):
    """A transformer known by its sizes, at the roofline of a device.

    A layer takes the longer of its arithmetic and reading its weights; divided among ``tensor`` devices, two
    all-reduces of its activations more (Megatron). A stage passes the activations on over the link between
    the devices, or between nodes where the group has several.
    """

    def __init__(self, model: Encoder, sequence: int, hardware: Hardware) -> None:
        super().__init__(model.layers)
        self.model, self.sequence, self.hardware = model, sequence, hardware

    def divides_layer(self, tensor: int) -> bool:
        return self.model.heads % tensor == 0 and tensor <= self.hardware.node.device_count

    def seconds(self, batch: int, tensor: int) -> Sequence[float]:
        device = self.hardware.device
        flops = batch * self.model.layer_flops(self.sequence) / tensor
        arithmetic = flops / compute_rate(device, ELEMENT_TYPE)
        reading = self.model.layer_bytes / tensor / memory_rate(device)
        exchange = 0.0
        if tensor > 1:
            exchange = 2 * ring_all_reduce(self.hardware.node.link, tensor, self._activations(batch))
        return [max(arithmetic, reading) + exchange] * self.layers

    def layer_bytes(self) -> Sequence[float]:
        """The embedding stays with the first layer."""
        each = self.model.layer_bytes
        return (each + self.model.embedding_bytes, *(each,) * (self.layers - 1))

    def hand_over(self, batch: int, pipeline: int, tensor: int) -> float:
        if pipeline == 1:
            return 0.0
        crosses = pipeline * tensor > self.hardware.node.device_count and self.hardware.network is not None
        link = self.hardware.network if crosses else self.hardware.node.link
        return link.time(self._activations(batch)) if link else 0.0

    def _activations(self, batch: int) -> float:
        return float(batch * self.sequence * self.model.hidden * ELEMENT)
