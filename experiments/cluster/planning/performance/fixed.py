"""``fixed``: a trace that tells how long each job ran on the devices it asked for, and nothing else.

On more or fewer devices it is as much faster or slower: what no measurement says, so results tell it. Devices
are alike, whatever their type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.cluster.interface import Gang, Rate
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace


class FixedSpeed:
    """Work in seconds on the devices asked for.

    A job that uses only part of its devices (``utilization``) is not slowed by having no more than that part
    of them.
    """

    name = "fixed"
    unit = "s"

    def __init__(self, trace: JobTrace) -> None:
        count = len(trace)
        if unknown := int(np.isnan(trace.service).sum()):
            what = f"{unknown} of {count} jobs have no duration"
            raise BadInput(what, trace.name, "a side file (options.extra) with the speeds of their models")
        self._service: list[float] = trace.service.tolist()
        self._gpus: list[int] = trace.gpus.tolist()
        share, used = (trace.traits.get(name) for name in ("gpu_share", "utilization"))
        self._uses: list[float] = [1.0] * count
        if share is not None:
            self._uses = share.tolist()
        if used is not None:
            self._uses = [mine * part for mine, part in zip(self._uses, used.tolist(), strict=True)]
        self._types = len(set(trace.traits.get("gpu_type", ())))

    def work(self, job: int) -> float:
        return self._service[job]

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        wanted, uses, share = self._gpus[job], self._uses[job], gang.share
        size = 1.0 if wanted == gang.size else gang.size / wanted
        if uses == share:
            return Rate(size)
        return Rate(size * min(1.0, share / uses), busy=min(1.0, uses / share))

    def largest(self, job: int) -> int:
        return self._gpus[job]

    def describe(self) -> Mapping[str, Any]:
        return {
            "assumed": [
                "seconds on the devices asked for, the same on every type of device and wherever they are",
                "in proportion to their number where a policy resizes a job",
            ]
        }
