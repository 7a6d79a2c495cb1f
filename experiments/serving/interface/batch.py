"""What a serving policy answers: the next batch, or how long to wait for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Admission(NamedTuple):
    """``request`` gets ``slots`` of KV memory (one token each), kept until its answer goes out."""

    request: int
    slots: int


@dataclass(frozen=True)
class Batch:
    """One pass through the model, or ``steps`` passes in a row without asking again.

    For each of ``requests`` the ``tokens`` that are computed and the ``contexts`` (tokens whose KV is there
    before); padding counts, so a finished request may still be charged. With ``steps`` > 1 every context
    grows by its tokens each step. ``repeat`` says that the choice stays the same until a request arrives or
    one of these ends: the simulator may then make the passes up to that moment without asking. The engine
    splits the batch into chunks of ``micro_batch`` requests (0: none) for its stages. ``admit`` comes before
    the pass; ``reject`` never runs; ``answer`` goes out now to finished requests that a policy which
    ``holds_answers`` kept.
    """

    requests: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()
    steps: int = 1
    micro_batch: int = 0
    repeat: bool = False
    admit: tuple[Admission, ...] = ()
    reject: tuple[int, ...] = ()
    answer: tuple[int, ...] = ()

    @property
    def micro_batches(self) -> list[slice]:
        """The places of the requests of each micro-batch; one of all where there are none."""
        size = self.micro_batch or len(self.requests)
        return [slice(start, start + size) for start in range(0, len(self.requests), size)]


@dataclass(frozen=True)
class Wait:
    """The decision to run nothing now.

    The policy is asked again at ``until`` (s), or at the next arrival or completion where that is
    ``None``.
    """

    until: float | None = None
    reject: tuple[int, ...] = ()
    answer: tuple[int, ...] = ()
