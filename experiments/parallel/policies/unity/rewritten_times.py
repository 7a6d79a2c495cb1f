"""Seconds of operators that a substitution makes: those of what they replace, by the ratio of what kernels
take.

Times of a model's operators are measured or costed elsewhere; here the same kernels are predicted before and
after (``hardware.products``), and the times of the operators that go are multiplied by the ratio. Products
are three (the result, the gradients of what is read and of the weight). What siblings read has its gradient
summed up once for every product but the first, and a split is a view whose gradient is copied together. A
relu moves five tensors of its size (two forward, three backward), of which those forward are saved in a
product's kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.units import DTYPE_BYTES
from experiments.hardware.products import product_seconds, stream_seconds
from experiments.parallel.interface import PlanningEstimate
from experiments.parallel.planning.operators.part_loss import product_shape
from experiments.workloads.einsum import Operator

#: Tensors that the sum of two gradients, and the copy of a part's gradient, read and write.
SUMMED, COPIED = 3, 2
#: What of an element-wise activation's time its backward pass takes.
BACKWARD_OF_ACTIVATION = 3 / 5


class RewrittenTimes:
    """The seconds of substitutions on the first device of ``estimate``, for the model's own batch."""

    def __init__(self, estimate: PlanningEstimate) -> None:
        self._device, self._dtype = estimate.devices[0], estimate.dtype
        self._layers = estimate.layer_seconds * estimate.model.batch

    def seconds(self, operator: Operator) -> float:
        """Return what an operator takes, as its share of its layer says."""
        return float(self._layers[operator.layer]) * operator.share

    def share(self, seconds: float, layer: int) -> float:
        """Return ``seconds`` as a share of a layer's time."""
        whole = float(self._layers[layer])
        return seconds / whole if whole > 0 else 0.0

    def join(self, members: Sequence[Operator], whole: Operator) -> tuple[float, list[float]]:
        """Return the seconds of ``members`` as one product ``whole``, and of the split, part by part."""
        read = next(operand.bytes for operand in whole.operands if operand.source >= 0)
        sums = (len(members) - 1) * stream_seconds(self._device, SUMMED * read)
        before = sum(map(self._product, members)) + sums
        ratio = sum(map(self.seconds, members)) / before
        launch = 1 / len(members)
        parts = [
            stream_seconds(self._device, COPIED * one.output_bytes)
            - (1 - launch) * self._device.kernels.launch
            for one in members
        ]
        return ratio * self._product(whole), [ratio * seconds for seconds in parts]

    def activate(self, product: Operator, activation: Operator) -> float:
        """Return the seconds of ``product`` with ``activation`` in its kernel."""
        return self.seconds(product) + BACKWARD_OF_ACTIVATION * self.seconds(activation)

    def _product(self, operator: Operator) -> float:
        """Return what the kernels of the three products take."""
        size = DTYPE_BYTES[self._dtype]
        found = product_shape(operator, size)
        assert found is not None, operator.name
        m, n, k, repeats = found[0]
        passes = ((m, n, k), (m, k, n), (k, n, m))
        return sum(product_seconds(self._device, *sides, repeats, self._dtype, size) for sides in passes)
