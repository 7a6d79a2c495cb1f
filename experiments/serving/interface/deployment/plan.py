"""What became of a deployment's requests, passes and copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.serving.interface.deployment.placement import Group


class Answer(NamedTuple):
    """The end of a request.

    ``answered`` is when (s), NaN where it is ``rejected`` for a reason; ``ready`` is NaN where it never came,
    since what would have asked it was not answered.
    """

    request: int
    ready: float
    due: float
    answered: float
    rejected: str


class Pass(NamedTuple):
    """A pass: its group, model and requests, and when it entered and left each stage (s)."""

    group: Group
    model: int
    requests: tuple[int, ...]
    enter: tuple[float, ...]
    leave: tuple[float, ...]


class Residence(NamedTuple):
    """Weights on a group: memory is taken at ``begin``, they can be used from ``ready``, and go at ``end``.

    ``copied``: over the host's link, in ``ready - begin`` s.
    """

    group: Group
    model: int
    begin: float
    ready: float
    end: float
    copied: bool


@dataclass(frozen=True)
class DeploymentPlan:
    """Everything that happened. ``end`` is when the last of it was over (s)."""

    answers: tuple[Answer, ...]
    passes: tuple[Pass, ...]
    residences: tuple[Residence, ...]
    end: float
    groupings: tuple[tuple[float, tuple[Group, ...]], ...] = field(default=())
