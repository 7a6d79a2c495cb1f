"""A plan or decision that nothing could carry out ends its run as rejected, with the first violation as the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from experiments.core.progress import silent
from experiments.core.spec import Result, load_spec
from experiments.memory.experiment import carry_out
from experiments.memory.interface import (
    DemandPaging,
    DeviceView,
    Eviction,
    MemoryPlan,
    MemoryPolicy,
    Prefetch,
    ReactiveMemoryPolicy,
    Resident,
)
from experiments.workloads import storage
from experiments.workloads.step import Step
from tests.experiments.memory.stored_runs import MIB, linear_chain


@dataclass(frozen=True)
class Planned(MemoryPolicy):
    """Answers with a plan that was handed to it."""

    name: ClassVar[str] = "test-planned"
    answer: MemoryPlan = field(default_factory=MemoryPlan)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return self.answer


@dataclass(frozen=True)
class Reactive(ReactiveMemoryPolicy):
    """Sends away what was handed to it, whatever is resident."""

    name: ClassVar[str] = "test-reactive"
    answer: tuple[Eviction, ...] = ()

    def evict(self, needed: int, resident: Sequence[Resident], now: float) -> Sequence[Eviction]:
        return self.answer


def simulated(policy: MemoryPolicy, folder: Path) -> Result:
    """The chain needs 24 MiB and has 20: op 3 reads x2 and makes x3."""
    storage.save(linear_chain(), folder / "chain.step")
    hardware = {"device": "v100-16g", "overrides": {"memory_bytes": 20 * MIB}}
    workload = {"source": str(folder / "chain.step")}
    spec = {"family": "memory", "policy": policy.name, "workload": workload, "hardware": hardware}
    return carry_out(load_spec(spec), policy, silent)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Planned(MemoryPlan((Prefetch(0, 0),))), "prefetch before op 0: tensor 0 (x0) is not yet produced"),
        (Planned(MemoryPlan(space=DemandPaging(backing="tape"))), "paging: backing 'tape' is none of host"),
        (Planned(MemoryPlan(reactive=True, space=DemandPaging())), "reactive: demand_paging decides itself"),
        (
            Reactive((Eviction(2),)),
            "op 3 (linear_3, forward): the policy evicts tensor 2, which cannot leave",
        ),
        (Reactive((Eviction(99),)), "op 3 (linear_3, forward): the policy evicts tensor 99, which cannot"),
        (Reactive((Eviction(0), Eviction(0))), "op 3 (linear_3, forward): the policy evicts tensor 0, which"),
        (Reactive((Eviction(0, "tape"),)), "op 3 (linear_3, forward): the policy evicts to 'tape', which is"),
    ],
)
def test_the_first_violation_is_the_reason(policy: MemoryPolicy, reason: str, tmp_path: Path) -> None:
    found = simulated(policy, tmp_path)
    assert found.status == "rejected" and not found.metrics
    assert found.reason == found.violations[0] and reason in found.reason
    assert found.plan["moves"] is not None


def test_a_legal_decision_that_is_not_enough_is_infeasible_and_not_the_policys_fault(tmp_path: Path) -> None:
    found = simulated(Reactive(), tmp_path)
    assert found.status == "infeasible" and "4194304 bytes are missing" in str(found.reason)
    assert simulated(Reactive((Eviction(0),)), tmp_path).status == "ok"
    absent = simulated(Reactive((Eviction(0, "remote"),)), tmp_path)
    assert absent.status == "infeasible" and "remote do not fit" in str(absent.reason)
