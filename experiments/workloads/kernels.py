"""What a row of a layer graph runs on a device: matrix products by shape and element-wise traffic by bytes.

Shapes, not FLOPs, because a product cut eight ways is not eight times as fast. Sizes are for one sample of
the whole layer; how a sharding changes them is said once, in ``Cut``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FORWARD, BACKWARD, WEIGHT = "forward", "backward", "weight"


@dataclass(frozen=True)
class Cut:
    """How a row is divided.

    ``outputs`` (columns), ``inputs`` (rows of a weight), ``experts`` (weights of their own) and the whole row
    ``parts`` ways. What is not explained by these divides tokens or, for a product without a weight, the
    repetitions. A fused kernel runs in ``steps``, whose results are merged. A product with a single weight
    has no experts.
    """

    parts: float = 1
    outputs: float = 1
    inputs: float = 1
    steps: int = 1
    experts: float = 1

    def weights(self, count: int) -> float:
        """Parts of the ``count`` weights of a product."""
        return self.outputs * self.inputs * min(self.experts, count)


WHOLE = Cut()


@dataclass(frozen=True)
class Product:
    """A matrix product of (tokens x inputs) by (inputs x outputs), ``count`` times a sample.

    With a ``weight`` more samples are more tokens of one product; without (queries by keys) they are more
    products.
    """

    tokens: float
    inputs: int
    outputs: int
    count: int = 1
    weight: bool = True

    @property
    def flops(self) -> float:
        """Of one pass over one sample: a multiply and an add for each term."""
        return 2.0 * self.tokens * self.inputs * self.outputs * self.count


@dataclass(frozen=True)
class Shape:
    """``count`` products of (m x k) by (k x n); sizes may be fractions where a cut does not come out even."""

    m: float
    n: float
    k: float
    count: float

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def elements(self) -> float:
        """Elements of both operands and of the result."""
        return self.count * (self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True)
class Work:
    """One operator: its products, and what its element-wise kernels read and write (bytes a sample).

    ``fused`` means that products and element-wise work are one kernel (flash attention), which runs its
    forward products once more in the backward pass. ``launches`` are the kernels of a forward pass beside the
    products. ``causal`` products compute the lower triangle only. ``gradient_traffic`` are bytes moved for
    each micro-batch, whatever its size, to add weight gradients to those of earlier ones. ``dtype`` is that
    of the products where it is not the model's; ``rate`` is what a fused kernel reaches of the device's rate
    for them.
    """

    products: tuple[Product, ...] = ()
    forward_traffic: float = 0.0
    backward_traffic: float = 0.0
    gradient_traffic: float = 0.0
    launches: int = 0
    fused: bool = False
    causal: bool = False
    dtype: str = ""
    rate: float = 1.0

    @property
    def forward_flops(self) -> float:
        return sum(product.flops for product in self.products)

    @property
    def outputs(self) -> float:
        """Values that the last product makes of a sample."""
        last = self.products[-1]
        return float(last.tokens * last.outputs * last.count)


def largest_matrix(work: Sequence[Work]) -> float:
    """Return the elements of the largest weight of some operators' products; 0 without any."""
    sizes = (part.inputs * part.outputs for one in work for part in one.products if part.weight)
    return float(max(sizes, default=0))


@dataclass(frozen=True)
class Row:
    """One operator of a transformer.

    Sizes in bytes for one sample, ``parameters`` a count, ``reads`` the names of the rows before.
    """

    name: str
    kind: str
    work: Work
    parameters: int
    output: float
    kept: float
    reads: tuple[str, ...]


def shapes(product: Product, samples: float, cut: Cut, what: str) -> Shape:
    """The product that ``what`` pass runs.

    Forward, the inputs' gradient (backward) or the weights' (weight).
    """
    outputs, inputs = product.outputs / cut.outputs, product.inputs / cut.inputs
    experts = min(cut.experts, product.count)
    others = cut.parts / cut.weights(product.count)
    tokens, count = float(product.tokens), float(product.count)
    if product.weight:
        tokens, count = tokens * samples / others, count / experts
    else:
        outputs, inputs, count = float(product.outputs), float(product.inputs), count * samples / cut.parts
    if what == FORWARD:
        return Shape(tokens, outputs, inputs, count)
    if what == BACKWARD:
        return Shape(tokens, inputs, outputs, count)
    return Shape(inputs, outputs, tokens, count)
