"""The answer as a document, for one device or several: what a page shows and ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from experiments.advisor.settings import Settings

#: What the chosen plan and its alternatives are called.
LETTERS = "ABCD"


@dataclass(frozen=True)
class NamedPlan:
    """A plan that the answer names; ``price`` is its device-seconds over those of the chosen one.

    - ``peak``: bytes on the fullest device.
    - ``seconds``: of a step.
    - ``why``: one might take it.
    - ``spec``: the run behind its figures.
    """

    letter: str
    name: str
    policy: str
    peak: float
    seconds: float
    mfu: float | None
    price: float
    why: str
    spec: Mapping[str, Any]
    spec_id: str


@dataclass(frozen=True)
class Point:
    """A simulated plan in the figure; ``letter`` is empty for one that the answer does not name."""

    name: str
    peak: float
    seconds: float
    fits: bool
    letter: str = ""


@dataclass(frozen=True)
class Answer:
    """What to do, in parts.

    - ``finding``, ``price``: both halves of the first sentence.
    - ``explanation``: why this and not another, in sentences.
    - ``facts``: what was searched, and what was taken by default, by name.
    - ``reasons``: parts of the plan, each as what is done and what it costs and frees.
    - ``rejected``: ideas with the number of plans and the reason.
    - ``capacity``, ``allowed``: bytes of a device, and those that leave the margin free.
    """

    finding: str
    price: str
    explanation: tuple[str, ...]
    facts: Mapping[str, Any]
    device: str
    capacity: float
    allowed: float
    reasons: tuple[Mapping[str, str], ...] = ()
    plans: tuple[NamedPlan, ...] = ()
    points: tuple[Point, ...] = ()
    rejected: tuple[Mapping[str, Any], ...] = ()
    settings: tuple[Settings, ...] = field(default=())

    @property
    def fits(self) -> bool:
        return bool(self.plans)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
