"""An update of weights from a gradient, by the rule that the plan states. The same arithmetic wherever it is
done.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.core.errors import BadInput
from experiments.parallel.interface import Learning


class Learner:
    """``update`` changes ``weights`` in place. Its state is as long as they are."""

    def __init__(self, learning: Learning) -> None:
        if learning.optimizer not in ("sgd", "adagrad"):
            raise BadInput(
                f"{learning.optimizer!r} is no rule of update", "plan.training.learning", "sgd or adagrad"
            )
        self.learning = learning
        self._state: list[Tensor] = []

    @torch.no_grad()
    def update(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor], number: int, delay: float = 0.0
    ) -> None:
        """Update ``number`` (from 0), of weights that are ``delay`` updates late."""
        rate = self.learning.rate_at(number, delay)
        if not self._state:
            self._state = [torch.zeros_like(weight) for weight in weights]
        rule = self._adagrad if self.learning.optimizer == "adagrad" else self._momentum
        for weight, gradient, state in zip(weights, gradients, self._state, strict=True):
            weight.sub_(rule(gradient, state, rate, number))

    def _momentum(self, gradient: Tensor, velocity: Tensor, rate: float, number: int) -> Tensor:
        """The rate is inside the velocity."""
        return velocity.mul_(self.learning.velocity_factor(number)).add_(gradient, alpha=rate)

    def _adagrad(self, gradient: Tensor, squares: Tensor, rate: float, number: int) -> Tensor:
        """Each parameter's rate falls with the root of its squared gradients so far (Duchi et al., 2011)."""
        squares.addcmul_(gradient, gradient)
        smallest = torch.finfo(squares.dtype).tiny
        return gradient * rate / squares.sqrt().clamp_min(smallest)
