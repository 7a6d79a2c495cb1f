"""Encoders that are served as one pass over a whole input, by their published sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Encoder:
    """A transformer without a cache: ``layers`` of equal width, weights in two bytes.

    ``vocabulary`` rows of embedding are held, and looked up rather than multiplied.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    source: str

    @property
    def layer_parameters(self) -> int:
        """Attention 4 h^2 and an inner layer four times as wide, 8 h^2 (biases and norms: below 1 %)."""
        return 12 * self.hidden**2

    @property
    def layer_bytes(self) -> float:
        return 2.0 * self.layer_parameters

    @property
    def embedding_bytes(self) -> float:
        return 2.0 * self.vocabulary * self.hidden

    @property
    def weight_bytes(self) -> float:
        return self.embedding_bytes + self.layers * self.layer_bytes

    def layer_flops(self, tokens: int) -> float:
        """Two for each weight and token, and 4 h s^2 of attention among ``tokens`` (s) of one input."""
        return 2.0 * self.layer_parameters * tokens + 4.0 * self.hidden * tokens**2


_ALPASERVE = (
    "Li et al., AlpaServe, OSDI 2023, table 1; sizes of Alpa's GPT family (Zheng et al., 2022, table 5)"
)

ENCODERS: Mapping[str, Encoder] = {
    model.name: model
    for model in (
        Encoder("bert-1.3b", 24, 2048, 32, 51200, _ALPASERVE),
        Encoder("bert-2.6b", 32, 2560, 32, 51200, _ALPASERVE),
        Encoder("bert-6.7b", 32, 4096, 32, 51200, _ALPASERVE),
    )
}
