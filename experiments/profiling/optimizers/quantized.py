"""AdamW with moments of 8 or 4 bits.

Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022: blocks of 256 values have one
float32 scale, their largest magnitude, and each value the number of an entry in a dynamic table. Li et al.,
"Memory Efficient Optimizers with 4-bit States", NeurIPS 2023: blocks of 128 and tables of 16, that of the
squares linear and without zero; the paper's scales by row and column for squares are left out, as in torchao.
A tensor of fewer than 4,096 values, or not of whole blocks, keeps moments in its own type.

The arithmetic and the tables are torchao's (``torchao.optim``), bit for bit where its update runs without a
compiler. It compiles the update of a parameter to kernels that leave nothing in between, so here one
operation reads gradient and codes: as ``single`` it gives new codes and scales, which are then copied over
the old ones as torchao does; as ``fused`` it writes them where they lie, as bitsandbytes does.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from experiments.profiling.optimizers.elementwise import BETA1, BETA2, EPS
from experiments.profiling.optimizers.optimizer import Optimizer, State

RATE, DECAY = 1e-3, 1e-2
#: Tensors of fewer values are not quantized.
SMALLEST = 4096
#: Values of a block by bits.
BLOCKS = {8: 256, 4: 128}
#: State of a quantized parameter, for each of its two moments.
MOMENTS, PARTS = ("mean", "square"), ("codes", "scale", "table")
CODES = tuple(f"{moment}.{part}" for moment in MOMENTS for part in PARTS)
#: What an update writes of it.
WRITTEN = tuple(slot for slot in CODES if not slot.endswith("table"))


def adamw(name: str, bits: int, in_place: bool = False) -> Optimizer:
    """AdamW with moments of ``bits``; ``in_place``: it has no other form than the kernel without copies."""

    def initial(parameter: Tensor, hidden: bool) -> dict[str, Tensor]:
        if not is_quantized(parameter, bits):
            return {moment: torch.zeros_like(parameter) for moment in MOMENTS}
        return _codes(parameter, bits)

    def single(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        if "mean" in slots:
            _update_plain(parameter, gradient, slots, prepared["step"])
            return
        found = update_codes(parameter, gradient, *(slots[slot] for slot in CODES), prepared["step"], bits)
        for slot, new in zip(WRITTEN, found, strict=True):
            slots[slot].copy_(new)

    def update_in_place(parameter: Tensor, gradient: Tensor, slots: State, prepared: State) -> None:
        if "mean" in slots:
            _update_plain(parameter, gradient, slots, prepared["step"])
        else:
            update_codes_(parameter, gradient, *(slots[slot] for slot in CODES), prepared["step"], bits)

    def prepare(shared: State) -> State:
        return {"step": shared["step"].add_(1)}

    return Optimizer(
        name,
        initial,
        ("step",),
        prepare,
        update_in_place if in_place else single,
        in_place=None if in_place else update_in_place,
    )


def is_quantized(parameter: Tensor, bits: int) -> bool:
    """Return whether the parameter's moments are codes."""
    return parameter.numel() >= SMALLEST and parameter.numel() % BLOCKS[bits] == 0


def _codes(parameter: Tensor, bits: int) -> dict[str, Tensor]:
    """Codes of the parameter's shape, in 4 bits two to a byte; all zero, as the scales."""
    count, device = parameter.numel(), parameter.device
    shape = parameter.shape if bits == 8 else torch.Size([count // 2])
    found: dict[str, Tensor] = {}
    for moment in MOMENTS:
        found[f"{moment}.codes"] = torch.zeros(shape, dtype=torch.uint8, device=device)
        found[f"{moment}.scale"] = torch.zeros(count // BLOCKS[bits], dtype=torch.float32, device=device)
        found[f"{moment}.table"] = torch.tensor(table(bits, signed=moment == "mean"), device=device)
    return found


@functools.cache
def table(bits: int, signed: bool) -> tuple[float, ...]:
    """Return the values of the codes, ascending."""
    if bits == 4 and not signed:
        return tuple((i + 1) / 16 for i in range(16))
    values = [0.0, 1.0]
    for exponent in range(bits - 1):
        middles = _middles(2 ** (exponent + (0 if signed else 1)), 10.0 ** (exponent + 2 - bits))
        values += [*middles, *(-value for value in middles if signed)]
    return tuple(sorted(values))


def _middles(steps: int, scale: float) -> list[float]:
    """The middles of equal steps from 0.1 to 1, scaled; the same while fake tensors are made."""
    with unset_fake_temporarily():
        edges = torch.linspace(0.1, 1, steps + 1, dtype=torch.float32, device="cpu")
        found: list[float] = (scale * ((edges[:-1] + edges[1:]) / 2.0)).tolist()
        return found


@dataclass(frozen=True)
class Moment:
    """A moment as codes: ``table[code] * scale`` of its block."""

    codes: Tensor
    scale: Tensor
    table: Tensor
    bits: int

    def values(self, shape: torch.Size) -> Tensor:
        """The moment in float32."""
        codes = self.codes.flatten()
        if self.bits == 4:
            codes = torch.stack([codes >> 4, codes & 15], dim=-1)
        wide = self.table[codes.int()].view(len(self.scale), -1) * self.scale.view(-1, 1)
        return wide.view(shape)

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The codes and scales of new ``values``."""
        blocks = values.reshape(len(self.scale), -1)
        scale = blocks.abs().amax(-1).clip(1e-12)
        codes = _nearest((blocks / scale.view(-1, 1)).flatten(), self.table)
        packed = codes if self.bits == 8 else (codes[::2] << 4) | codes[1::2]
        return packed.view(self.codes.shape), scale


def _nearest(values: Tensor, entries: Tensor) -> Tensor:
    """The numbers of the entries next to ``values``; the upper one of two as near."""
    below = torch.searchsorted(entries, values, right=True).sub_(1).clip_(min=0)
    above = (below + 1).clip(max=len(entries) - 1)
    low, high = entries[below], entries[above]
    return torch.where(values - low >= (high - low) * 0.5, above, below).to(torch.uint8)


def _step_of_adamw(
    parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The parameter and both moments after the update, in float32."""
    rate = torch.full((), RATE, dtype=torch.float32, device=parameter.device)
    wide, slope = parameter.float(), gradient.float()
    wide = wide - rate * DECAY * wide
    first, second = 1 - BETA1**step, 1 - BETA2**step
    mean = mean.float().lerp(slope, 1 - BETA1)
    square = square.float().lerp(slope.square(), 1 - BETA2)
    denominator = (square.sqrt() / second.sqrt()) + EPS
    return wide - rate * (mean / first) / denominator, mean, square


def _update_plain(parameter: Tensor, gradient: Tensor, slots: State, step: Tensor) -> None:
    """The same arithmetic for a tensor whose moments are not quantized."""
    found = _step_of_adamw(parameter, gradient, slots["mean"], slots["square"], step)
    for value, new in zip((parameter, slots["mean"], slots["square"]), found, strict=True):
        value.copy_(new)


_ARGUMENTS = (
    "Tensor(a!) parameter, Tensor gradient, Tensor{m} mean_codes, Tensor{n} mean_scale, Tensor mean_table, "
    "Tensor{o} square_codes, Tensor{p} square_scale, Tensor square_table, Tensor step, int bits"
)
_STATE = ("mean_codes", "mean_scale", "square_codes", "square_scale")


@torch.library.custom_op(
    "lab::adamw_codes",
    mutates_args=("parameter",),
    schema=f"({_ARGUMENTS.format(m='', n='', o='', p='')}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def update_codes(
    parameter: Tensor,
    gradient: Tensor,
    mean_codes: Tensor,
    mean_scale: Tensor,
    mean_table: Tensor,
    square_codes: Tensor,
    square_scale: Tensor,
    square_table: Tensor,
    step: Tensor,
    bits: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Update the parameter; return new codes and scales of both moments."""
    mean = Moment(mean_codes, mean_scale, mean_table, bits)
    square = Moment(square_codes, square_scale, square_table, bits)
    shape = parameter.shape
    found = _step_of_adamw(parameter, gradient, mean.values(shape), square.values(shape), step)
    parameter.copy_(found[0])
    return (*mean.encode(found[1]), *square.encode(found[2]))


@update_codes.register_fake
def _(
    parameter: Tensor,
    gradient: Tensor,
    mean_codes: Tensor,
    mean_scale: Tensor,
    mean_table: Tensor,
    square_codes: Tensor,
    square_scale: Tensor,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    empty = torch.empty_like
    return empty(mean_codes), empty(mean_scale), empty(square_codes), empty(square_scale)


@torch.library.custom_op(
    "lab::adamw_codes_",
    mutates_args=("parameter", *_STATE),
    schema=f"({_ARGUMENTS.format(m='(b!)', n='(c!)', o='(d!)', p='(e!)')}) -> ()",
)
def update_codes_(
    parameter: Tensor,
    gradient: Tensor,
    mean_codes: Tensor,
    mean_scale: Tensor,
    mean_table: Tensor,
    square_codes: Tensor,
    square_scale: Tensor,
    square_table: Tensor,
    step: Tensor,
    bits: int,
) -> None:
    """Update the parameter and both of its moments where they lie."""
    mean, square = (mean_codes, mean_scale, mean_table), (square_codes, square_scale, square_table)
    found = update_codes(parameter, gradient, *mean, *square, step, bits)
    for value, new in zip((*mean[:2], *square[:2]), found, strict=True):
        value.copy_(new)


@update_codes_.register_fake
def _(*arguments: object) -> None: ...
