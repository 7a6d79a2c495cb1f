"""What running jobs measure of themselves, for policies that see ``gradients``."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from experiments.cluster.interface.allocation import Gang


class Measurement(NamedTuple):
    """Steps of a job on its gang.

    ``nodes``          and ``gpus`` that it runs on.
    ``each``           samples that a device takes at once.
    ``accumulations``  more times it does so before gradients are exchanged.
    ``step``           seconds of one such time with the exchange, ``sync`` of them for it.
    ``square``         squared norm of the gradient.
    ``variance``       variance of the gradient, both at the initial batch.
    """

    nodes: int
    gpus: int
    each: int
    accumulations: int
    step: float
    sync: float
    square: float
    variance: float


@runtime_checkable
class Measurable(Protocol):
    """A performance model that also says what jobs measure; ``None`` where one has not yet."""

    def measure(self, job: int, gang: Gang, done: float) -> Measurement | None: ...

    def limits(self, job: int) -> Any:
        """Return between which batches the user of ``job`` lets it train."""
        ...

    def batch(self, job: int) -> float:
        """Return the samples of a step that ``job`` was submitted with."""
        ...
