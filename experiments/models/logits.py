"""A ``transformers`` model as a function from tensors to logits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


class Logits(nn.Module):
    """A ``transformers`` model as a function from tensors to logits; ``names`` are its argument names."""

    def __init__(self, inner: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.inner = inner
        self._names = names

    def get_output_embeddings(self) -> nn.Module | None:
        """The vocabulary head; none of a classifier of images."""
        head: nn.Module | None = self.inner.get_output_embeddings()
        return head

    def forward(self, *inputs: Tensor) -> Tensor:
        with unpacked():
            logits: Tensor = self.inner(**dict(zip(self._names, inputs, strict=True))).logits
        return logits


@contextlib.contextmanager
def unpacked() -> Iterator[None]:
    """Tell ``transformers`` that no sample is packed: each one's positions count up from 0.

    It reads that from the positions of an eager step, and then runs causal attention without a mask; of fake
    tensors, which it cannot read, it would assume the worst and keep a mask for each layer.
    """
    from transformers import masking_utils

    found = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = found
