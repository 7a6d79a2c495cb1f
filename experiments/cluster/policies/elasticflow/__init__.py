"""ElasticFlow, ASPLOS'23: deadlines guaranteed at submission by resizing jobs.

A user gives a model, a global batch, steps and a deadline, and no number of GPUs. Throughput by GPU count is
known (``table``); levels that are no faster than smaller ones are left out.

- *Minimum satisfactory share* (section 4.1): the fewest GPUs over time that meet a deadline, ``shares.py``.
- *Admission*: all jobs are planned in order of deadline with the new one among them; where any misses, the
  new one is refused. Best-effort jobs, those without a deadline, are never refused.
- *Allocation* (section 4.2): each job has its minimum share now. What is free goes to jobs without GPUs
  first, then level by level to the one whose GPU time grows least for each GPU added.
- *Placement* (section 4.3): buddies. Sizes are powers of two; where a job would be scattered, all are placed
  anew, larger ones first, and those in its way migrate.

Chosen here, where the paper leaves it open: a job's GPU time at a level is that of doing all the rest at it.
Plans are made anew at each event, and a plan that greedy order would break although it holds is kept. A job
that falls behind all the same (restarts that cost, nodes that fail) goes on as a best-effort job.

Under ``rules: elasticflow`` the release asks for planned shares instead (``in_slots.py``, ``reserving.py``):
jobs submitted in one slot are admitted together or not at all, none while an admitted job is behind, plans
are cut and free GPUs given away as there, and restarts cost what they do there. Of the published trace's 195
jobs as many meet their deadlines as in the release, run for comparison: 125 on 32 GPUs, 142 on 64 and on 128;
of Philly's 876 on 128 and 512 A100 799 and 794, in the release 800 and 792. Which job gets a free GPU first
still differs at times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.cluster.interface import ClusterPolicy, Decider
from experiments.cluster.interface.placement import PLACEMENTS
from experiments.cluster.interface.policy import OWN, rules_of
from experiments.cluster.policies.elasticflow.deciders import AtEvents
from experiments.cluster.policies.elasticflow.in_slots import InSlots
from experiments.core.knobs import knob


@dataclass(frozen=True)
class ElasticFlow(ClusterPolicy):
    """Admits only jobs whose deadlines it can meet, with the fewest GPUs, and spreads the rest over all."""

    name: ClassVar[str] = "elasticflow"
    mechanism: ClassVar[str] = "deadlines"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"deadline", "throughput"})
    needs: ClassVar[frozenset[str]] = frozenset({"deadline"})
    models: ClassVar[tuple[str, ...]] = ("table",)
    rigid: ClassVar[bool] = False
    rejects: ClassVar[bool] = True
    quick: ClassVar[Mapping[str, Any]] = {"slot": 5.0}

    rules: str = rules_of("elasticflow")
    slot: float = knob(60.0, "whole slots at which planned shares change", low=1e-3, high=86400.0, unit="s")
    placement: str = knob("buddy", "which free devices a job gets", choices=tuple(PLACEMENTS))

    def begin(self) -> Decider:
        return AtEvents(self.slot, self.placement) if self.rules == OWN else InSlots()
