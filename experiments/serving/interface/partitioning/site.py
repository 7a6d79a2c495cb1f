"""A model to divide, chips to divide it over, and the phase that they carry out."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.hardware.parts import Device


@dataclass(frozen=True)
class DividedModel:
    """A decoder: ``hidden`` is the paper's E, ``inner`` its F.

    ``heads`` of ``head_dim`` share ``kv_heads`` of keys and values (1: multiquery attention).
    """

    name: str
    parameters: float
    layers: int
    hidden: int
    inner: int
    heads: int
    head_dim: int
    kv_heads: int

    @property
    def layer_weights(self) -> float:
        """Elements of a layer's matrices; embeddings are counted with them."""
        return self.parameters / self.layers

    @property
    def widths(self) -> float:
        """Columns of all matrices of a layer that read its hidden states, and rows of those that write them.

        Two F for a feed-forward layer of two matrices; gates and attention's projections add theirs.
        """
        return self.layer_weights / self.hidden


@dataclass(frozen=True)
class Torus:
    """``x`` times ``yz`` chips joined by ``device``'s peer links; z is y or twice as many."""

    x: int
    yz: int
    device: Device

    @property
    def chips(self) -> int:
        return self.x * self.yz

    @property
    def y(self) -> int:
        return 1 << ((self.yz.bit_length() - 1) // 2)

    @property
    def z(self) -> int:
        return self.yz // self.y

    @classmethod
    def of(cls, chips: int, hidden: int, inner: int, device: Device) -> Torus:
        """Return the torus with the least traffic of two-dimensional weights: x near sqrt(n E / F)."""
        divisors = [x for x in range(1, chips + 1) if chips % x == 0]
        x = min(divisors, key=lambda x: (hidden / x + inner * x / chips, x))
        return cls(x, chips // x, device)


@dataclass(frozen=True)
class Phase:
    """``tokens`` of each of ``batch`` sequences, after ``context`` of them.

    All at once where ``is_prefill``; else one pass for each.
    """

    is_prefill: bool
    batch: int
    tokens: int
    context: int

    @property
    def passes(self) -> int:
        return 1 if self.is_prefill else self.tokens

    @property
    def tokens_per_pass(self) -> int:
        return self.batch * (self.tokens if self.is_prefill else 1)

    @property
    def mean_context(self) -> float:
        """Tokens that a new token attends to, itself included, on average."""
        return self.context + (self.tokens + 1) / 2

    @property
    def longest(self) -> int:
        return self.context + self.tokens
