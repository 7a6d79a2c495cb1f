"""KV memory as one tensor of blocks, and real copies of blocks to host memory and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class KvMemory:
    """Keys and values of all layers: [layers, 2, blocks, size, heads, head dim]."""

    def __init__(
        self, layers: int, blocks: int, size: int, heads: int, head_dim: int, dtype: torch.dtype, device: str
    ) -> None:
        self.size = size
        shape = (layers, 2, blocks, size, heads, head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)
        self._slots = self.data.view(layers, 2, blocks * size, heads, head_dim)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Put ``keys`` and ``values`` [tokens, heads, head dim] into ``slots`` [tokens]."""
        self._slots[layer, 0].index_copy_(0, slots, keys)
        self._slots[layer, 1].index_copy_(0, slots, values)

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [tokens, heads, head dim] of ``slots`` in their order."""
        return self._slots[layer, 0].index_select(0, slots), self._slots[layer, 1].index_select(0, slots)

    def copy_out(self, blocks: Sequence[int]) -> Tensor:
        """Return a copy of whole blocks in host memory."""
        return self.data[:, :, list(blocks)].to("cpu", copy=True)

    def copy_in(self, blocks: Sequence[int], held: Tensor) -> None:
        """Put whole blocks back."""
        self.data[:, :, list(blocks)] = held.to(self.data.device)
