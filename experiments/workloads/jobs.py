"""JobTrace: jobs submitted to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class JobTrace:
    """Columns over jobs, sorted by ``(submit, row in the file)``.

    ``submit`` seconds, ``gpus`` wanted, ``service`` seconds on those GPUs without waiting, ``deadline`` absolute
    seconds (NaN: none), ``model`` and ``tenant`` names ("" when the file has none). ``original`` keeps the file's
    own columns in the same order.
    """

    name: str
    job: tuple[str, ...]
    submit: Floats
    gpus: Ints
    service: Floats
    deadline: Floats
    model: tuple[str, ...]
    tenant: tuple[str, ...]
    original: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = (self.submit, self.gpus, self.service, self.deadline, self.model, self.tenant)
        if any(len(column) != len(self.job) for column in columns):
            raise BadInput("columns differ in length", self.name)
        if len(set(self.job)) != len(self.job):
            raise BadInput("a job id appears twice", self.name)
        if (np.diff(self.submit) < 0).any():
            raise BadInput("jobs are not sorted by submit time", self.name)

    def __len__(self) -> int:
        return len(self.job)
