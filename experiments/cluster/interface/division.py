"""The other answer of a cluster policy: shares of time on each type of device, instead of gangs.

Whoever carries it out turns shares into gangs round by round (``planning.turns``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from experiments.core.policy import HiddenColumn
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: One job, or two that share devices, the lower number first.
Sharers = tuple[int, ...]
#: The share of the time that each has on each type of device, in the order of ``Contest.types``.
Division = Mapping[Sharers, Floats]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Contest:
    """The jobs among which time on devices is divided, as far as the policy may see them.

    Rows are jobs in ascending number, columns ``types`` of devices in alphabetical order, of which there are
    ``counts``. ``runs`` says where a job runs at all. ``left`` is work to be done, ``elapsed`` seconds since
    submission, ``deadline`` absolute seconds (NaN: none), ``prices`` dollars for a device's hour (0: not
    known).
    """

    now: float
    jobs: tuple[int, ...]
    types: tuple[str, ...]
    counts: Ints
    gpus: Ints
    runs: Bools
    elapsed: Floats
    prices: Floats
    speeds: Floats | None = None
    work: Floats | None = None
    weights: Floats | None = None
    deadline: Floats | None = None
    tenants: tuple[str, ...] | None = None
    pairs: Mapping[Sharers, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def speed(self) -> Floats:
        """Work per second of each job on as many devices of each type as it wants."""
        return _shown(self.speeds, "throughput")

    @property
    def left(self) -> Floats:
        """Work that each job has still to do."""
        return _shown(self.work, "throughput")

    @property
    def weight(self) -> Floats:
        """The part of each job in a fair division; 1 where the trace tells none."""
        return np.ones(len(self)) if self.weights is None else self.weights

    @cached_property
    def row(self) -> Mapping[int, int]:
        """The row of each job."""
        return {job: row for row, job in enumerate(self.jobs)}

    @property
    def equal_shares(self) -> Floats:
        """Each type's part of all devices: the share of time that all would have of it, were all alike."""
        return np.asarray(self.counts / self.counts.sum())


def _shown(column: Floats | None, name: str) -> Floats:
    if column is None:
        raise HiddenColumn(f"{name} is hidden: the policy does not declare it in sees")
    return column


class Divider:
    """What divides time during one run; it may remember what it decided before.

    - ``shuffles``: whether no type of device is better than another to it, so that types are gone through in
      a random order.
    - ``fills``: whether jobs without a share may have what is left over.
    - ``packs``: whether it wants to know of pairs.
    - ``reset_seconds``: how long a division holds at least.
    - ``facts``: what provenance should tell.
    """

    shuffles: ClassVar[bool] = True
    fills: ClassVar[bool] = True
    packs: bool = False
    reset_seconds: float = 1920.0
    facts: Mapping[str, Any] = MappingProxyType({})

    def divide(self, contest: Contest) -> Division:
        """Return the shares of all jobs of ``contest``, and of the pairs that have one."""
        raise NotImplementedError(type(self).__name__)
