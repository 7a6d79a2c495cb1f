"""One wrong policy for each family: its run ends ``rejected`` in either mode, and its reason is the first
violation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from experiments.core.spec import load_spec
from experiments.run import run
from tests.planted import planted

HEAD = """
from __future__ import annotations
from dataclasses import dataclass, replace
from typing import ClassVar
"""
MEMORY = """
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy, Prefetch
from experiments.workloads.step import Step

@dataclass(frozen=True)
class Planted(MemoryPolicy):
    '''Fetches a tensor that never left.'''

    name: ClassVar[str] = "planted"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return MemoryPlan((Prefetch(3, 0),))
"""
PARALLEL = """
from experiments.hardware import Hardware
from experiments.parallel.interface import LivePolicy, PlanningEstimate, ParallelPlan, ParallelPolicy
from experiments.parallel.interface import Synchronization
from experiments.parallel.interface.policy import data_parallel_plan
from experiments.workloads.layers import LayerGraph

@dataclass(frozen=True)
class Planted(LivePolicy, ParallelPolicy):
    '''Leaves the last layer on no device.'''

    name: ClassVar[str] = "planted"

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        plan = data_parallel_plan(model, cluster, batch, 1, Synchronization())
        return replace(plan, stages=(replace(plan.stages[0], end=len(model) - 1),))
"""
COMPILATION = """
from experiments.compilation.interface import Graph, RewritePolicy, Rewritten, Workbench

@dataclass(frozen=True)
class Planted(RewritePolicy):
    '''Forgets an op that others read.'''

    name: ClassVar[str] = "planted"

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        return Rewritten(Graph(tuple(node for node in graph.nodes if node is not graph.ops[0])), (), {})
"""
CLUSTER = """
from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Gang

@dataclass(frozen=True)
class Planted(ClusterPolicy):
    '''Gives every job the same devices.'''

    name: ClassVar[str] = "planted"

    def begin(self) -> Decider:
        return self

    def allocate(self, view: ClusterView) -> Allocation:
        return Allocation(start=tuple(Gang(job, (0, 1)) for job in view.waiting))
"""
SERVING = """
from experiments.serving.interface import Batch, Engine, Scheduler, ServingPolicy, ServingView, Wait

@dataclass(frozen=True)
class Planted(ServingPolicy):
    '''Runs requests that have no memory.'''

    name: ClassVar[str] = "planted"

    def begin(self, engine: Engine) -> Scheduler:
        return self

    def next_batch(self, view: ServingView) -> Batch | Wait:
        return Batch((0,), (4,), (0,)) if view.waiting else Wait()
"""
PAGED = """
from experiments.serving.interface.paged import PagedPolicy, PagedView, StepFiller

@dataclass(frozen=True)
class Planted(PagedPolicy):
    '''Gives a request back what it does not hold.'''

    name: ClassVar[str] = "planted"

    def begin(self) -> StepFiller:
        return self

    def fill(self, view: PagedView) -> bool:
        view.preempt(view.waiting[0])
        return False
"""
MODEL = {"source": "zoo:mlp", "options": {"batch": 8}}
TWO_DEVICES = {"cluster": {"nodes": 1, "devices_per_node": 2, "device": "v100-16g"}}


@dataclass(frozen=True)
class Wrong:
    """A wrong policy, a spec for it to answer, and its first violation."""

    family: str
    policy: str
    hardware: Any
    first: str
    workload: Mapping[str, Any] = field(default_factory=lambda: MODEL)
    mode: str = "simulated"

    def __str__(self) -> str:
        return f"{self.family}, {self.mode}"


FETCHED = "prefetch before op 3: tensor 0 (body.0.weight) is device, not on a tier"
ENDS, READS = "the stages end at layer 5 of 6", "relu reads linear, which does not come before it"
TAKEN = "job 8 at t=3 s: is given device 0 of node 0, which is not free"
UNHELD = "request 0 at t=0 s: is preempted but does not run, or is in the step"
ABSENT = "request 0 at t=0 s: runs but is not admitted"
WRONG = (
    Wrong("memory", MEMORY, "v100-16g", FETCHED),
    Wrong("memory", MEMORY, "local", FETCHED, mode="measured"),
    Wrong("parallel", PARALLEL, TWO_DEVICES, ENDS),
    Wrong("parallel", PARALLEL, "local", ENDS, mode="measured"),
    Wrong("compilation", COMPILATION, "v100-16g", READS),
    Wrong("compilation", COMPILATION, "local", READS, mode="measured"),
    Wrong("cluster", CLUSTER, TWO_DEVICES, TAKEN, {"source": "jobs.csv"}),
    Wrong("serving", SERVING, TWO_DEVICES, ABSENT, {"source": "asked.csv"}),
    Wrong("serving", PAGED, TWO_DEVICES, UNHELD, {"source": "asked.csv"}),
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,duration\n7,2,3,10,vgg,5\n8,2,3,10,vgg,5\n"
    )
    (tmp_path / "asked.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,4,2\n"
    )


def needs_torch(wrong: Wrong) -> list[Any]:
    return [pytest.mark.torch] if wrong.family in ("memory", "parallel", "compilation") else []


@pytest.mark.parametrize(
    "wrong", [pytest.param(wrong, marks=needs_torch(wrong), id=str(wrong)) for wrong in WRONG]
)
def test_an_impossible_plan_is_rejected_with_its_first_violation(wrong: Wrong, tmp_path: Path) -> None:
    spec = {
        "family": wrong.family,
        "policy": "planted",
        "workload": dict(wrong.workload),
        "hardware": wrong.hardware,
        "mode": wrong.mode,
    }
    (tmp_path / "policies").mkdir()
    with planted(wrong.family, tmp_path / "policies", HEAD + wrong.policy):
        outcome = run(load_spec(spec))
        assert (outcome.status, outcome.metrics) == ("rejected", {}), outcome.reason
        assert outcome.reason == outcome.violations[0]
        assert outcome.reason is not None and wrong.first in outcome.reason
