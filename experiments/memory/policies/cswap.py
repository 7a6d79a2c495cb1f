"""CSWAP (Chen et al., CLUSTER 2021): swapped tensors are compressed on the device where that saves exposed
time.

Swapping is vDNN's. A tensor is compressed when encoding, the exposed part of two smaller transfers and
decoding take less than the exposed part of the two plain ones; what the layers that overlap with the copies
hide is not counted. Encoding and decoding are kernels, so they stop the computation. Their cost is linear in
the bytes and in the bytes that are not zero, as the paper's regression; the coefficients are knobs, because
they belong to a device: the defaults give the 5 ms and 4 ms of a V100 for 500 MB at 40 % density. Left open
by the paper: a tensor is encoded when its layer has ended, so its copy overlaps with the next layer. The
paper decides anew each epoch; a plan is one such decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import (
    Compress,
    Decompress,
    DeviceView,
    MemoryMove,
    MemoryPlan,
    Offload,
    Prefetch,
    WaitForCopy,
)
from experiments.memory.interface.activations import saved_activations
from experiments.memory.planning.compressed_swapping import CompressedSwapping, summary
from experiments.memory.planning.density import densities, word_bytes, zero_value_ratio
from experiments.memory.planning.layer_offload import offload_plan
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Codec:
    """How much smaller a tensor becomes, and the seconds to encode and to decode it."""

    ratio: float
    encode: float
    decode: float


def zero_value(density: float, word: int) -> float:
    return zero_value_ratio(density, word)


def sparse_rows(density: float, word: int) -> float:
    """Compressed sparse rows: each word that is not zero and its column of 4 bytes."""
    return 1.0 / max(density * (word + 4) / word, 1e-9)


CODECS = {"zero-value": zero_value, "csr": sparse_rows}


def worthwhile(size: float, codec: Codec, bandwidth: float, hidden_out: float, hidden_in: float) -> bool:
    """Return whether encoding ``size`` bytes saves time.

    The two copies are hidden behind ``hidden_out`` and ``hidden_in`` seconds of compute.
    """
    plain = size / bandwidth
    packed = plain / codec.ratio
    saved = max(0.0, plain - hidden_out) + max(0.0, plain - hidden_in)
    spent = max(0.0, packed - hidden_out) + max(0.0, packed - hidden_in) + codec.encode + codec.decode
    return spent < saved


@dataclass(frozen=True)
class Cswap(CompressedSwapping):
    """vDNN's swaps, compressed on the device where that pays.

    It pays where the exposed transfer time that it saves exceeds its kernels.
    """

    name: ClassVar[str] = "cswap"
    mechanism: ClassVar[str] = "compress"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    encode_bandwidth: float = knob(
        140e9, "bytes a second read and written by the encoder", low=1e6, high=1e15, unit="bytes/s"
    )
    decode_bandwidth: float = knob(
        175e9, "bytes a second read and written by the decoder", low=1e6, high=1e15, unit="bytes/s"
    )
    hysteresis: float = knob(0.05, "share by which compression must win", low=0.0, high=1.0)

    def codec(self, size: int, density: float, word: int) -> Codec:
        """The codec with the smallest total of kernels and bytes: the one with the largest ratio."""
        ratio = max(1.0, *(shrink(density, word) for shrink in CODECS.values()))
        touched = size * (1 + 1 / ratio)
        return Codec(ratio, touched / self.encode_bandwidth, touched / self.decode_bandwidth)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if device.estimate(MemoryPlan()).fits:
            return MemoryPlan(notes={"offloads": "none"})
        plan = offload_plan(step, self.offloads)
        chosen = self.chosen(step, plan, device.machine.out.bandwidth)
        if not chosen:
            return plan
        moves = [move for move in plan.moves if getattr(move, "tensor", -1) not in chosen]
        fetched = {move.tensor: move.at for move in plan.moves if isinstance(move, Prefetch)}
        for saved in saved_activations(step):
            if saved.tensor in chosen:
                fetch = fetched[saved.tensor]
                moves += swap_compressed(
                    saved.tensor, saved.last_forward, fetch, saved.first_backward, chosen[saved.tensor]
                )
        found = {tensor: codec.ratio for tensor, codec in chosen.items()}
        notes = {**plan.notes, "compressed": len(chosen), **summary(step, found)}
        return MemoryPlan(tuple(moves), notes=notes)

    def chosen(self, step: Step, plan: MemoryPlan, bandwidth: float) -> dict[int, Codec]:
        """The swapped tensors that are worth compressing, each with what that does to it."""
        if bandwidth <= 0:
            return {}
        density, seconds = densities(step, self.density), step.ops.seconds
        fetched = {move.tensor: move.at for move in plan.moves if isinstance(move, Prefetch)}
        found = {}
        for move in plan.moves:
            if not isinstance(move, Offload):
                continue
            t, size = move.tensor, int(step.tensors.bytes[move.tensor])
            codec = self.codec(size, float(density[t]), word_bytes(step.tensors.dtype[t]))
            uses = step.uses[t]
            back = int(uses[uses > move.until][0])
            hidden_out = float(seconds[move.until + 1]) if move.until + 1 < len(seconds) else 0.0
            hidden_in = float(seconds[fetched[t] : back].sum())
            slower = replace(codec, encode=codec.encode * (1 + self.hysteresis))
            if codec.ratio > 1 and worthwhile(size, slower, bandwidth, hidden_out, hidden_in):
                found[t] = codec
        return found


def swap_compressed(tensor: int, last: int, fetch: int, back: int, codec: Codec) -> list[MemoryMove]:
    """Return the moves of one compressed swap.

    They encode ``tensor`` after op ``last``, send it overlapped with the next op, fetch it before ``fetch``
    and decode it before ``back``.
    """
    return [
        Compress(last + 1, tensor, codec.ratio, codec.encode),
        Offload(last + 1, tensor, last),
        WaitForCopy(last + 2, tensor),
        Prefetch(fetch, tensor),
        Decompress(back, tensor, codec.decode),
    ]
