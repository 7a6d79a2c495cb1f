"""A ``transformers`` model as a function from tensors to logits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from experiments.models.documents import positions


class Logits(nn.Module):
    """A ``transformers`` model as a function from tensors to logits; ``names`` are its argument names.

    Positions count from 0 in each of a sample's documents of ``document`` tokens; 0: the sample is one.
    """

    def __init__(self, inner: Any, names: tuple[str, ...], document: int = 0) -> None:
        super().__init__()
        self.inner = inner
        self._names = names
        self._document = document

    def get_output_embeddings(self) -> nn.Module | None:
        """The vocabulary head; none of a classifier of images."""
        head: nn.Module | None = self.inner.get_output_embeddings()
        return head

    def forward(self, *inputs: Tensor) -> Tensor:
        given = dict(zip(self._names, inputs, strict=True))
        if self._document:
            tokens, device = inputs[0].shape[1], inputs[0].device
            given["position_ids"] = positions(tokens, self._document, device).unsqueeze(0)
        with unpacked():
            logits: Tensor = self.inner(**given).logits
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
