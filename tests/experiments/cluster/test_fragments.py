"""Placement against fragments: FGD, best fit and random, by hand, as laws and on the published trace."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from experiments.cluster.experiment.clusters import cluster_of
from experiments.cluster.interface import Demand, Gang, Machine, Machines
from experiments.cluster.planning.fragments.nodes import FreeNodes
from experiments.cluster.planning.fragments.typical import TypicalDemands
from experiments.cluster.policies.fgd import Fgd, Gradient
from experiments.cluster.simulator.releases.fgd import _arrivals, simulate
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from tests.experiments.cluster.open_cases import open_cases
from tests.experiments.cluster.traces import faults, jobs
from tests.figures import tell
from tests.variants import variants

HALF, WHOLE = Demand(1, 0.5), Demand(1)
ROW = np.array([0])
FOLDER = "cluster/openb_fgd"


def two_devices() -> tuple[FreeNodes, TypicalDemands]:
    nodes = FreeNodes(Machines.of_sizes([2]))
    return nodes, TypicalDemands([HALF, WHOLE], nodes)


def test_the_card_two_devices_and_two_typical_jobs() -> None:
    """A half job leaves 250 of 1,500 idle as fragments; a second beside it none, on the other device 500."""
    nodes, typical = two_devices()
    gradient = Gradient(nodes, typical)
    assert typical.of_cluster(nodes) == 0
    nodes.take(nodes.gang(0, HALF, 0, (0,)))
    assert typical.of_cluster(nodes) == 250
    assert gradient._parts(HALF, ROW)[2].tolist() == [56, 43]
    assert gradient.places(HALF, 0) == (0,)
    nodes.take(nodes.gang(1, HALF, 0, (0,)))
    assert typical.of_cluster(nodes) == 0


def test_all_that_is_idle_is_a_fragment_to_jobs_without_gpus_of_other_types_or_short_of_processors() -> None:
    machines = Machines([Machine("a", 2, "T4", cpus=4.0)])
    for demand in (Demand(0, cpus=1), Demand(1, types=("G2",)), Demand(1, cpus=8), Demand(4)):
        nodes = FreeNodes(machines)
        assert TypicalDemands([demand], nodes).of_cluster(nodes) == 2000


def test_typical_demands_cover_most_of_all() -> None:
    nodes = FreeNodes(Machines.of_sizes([8]))
    demands = [WHOLE] * 90 + [HALF] * 6 + [Demand(2)] * 4
    assert TypicalDemands(demands, nodes).demands == (WHOLE, HALF)


def test_equals_go_to_the_smallest_name() -> None:
    nodes = FreeNodes(Machines([Machine("b", 1), Machine("a", 1), Machine("c", 1)]))
    row, places = Fgd().chooser(nodes, [WHOLE], np.random.default_rng(0)).choose(WHOLE) or (None, ())
    assert row is not None
    assert nodes.gang(0, WHOLE, row, places).devices == (1,)


def test_scores_kept_are_those_asked_anew() -> None:
    """After random placements and departures each choice is that of a chooser that remembers nothing."""
    rng = np.random.default_rng(7)
    machines = Machines([Machine(f"n{rng.integers(99)}-{row}", 1 + row % 4, cpus=16.0) for row in range(12)])
    demands = [
        Demand(1, 0.3, 2.0),
        Demand(1, 0.5, 1.0),
        Demand(1, 1.0, 4.0),
        Demand(2, 1.0, 3.0),
        Demand(0, 1.0, 2.0),
    ]
    for name in ("fgd", "best_fit"):
        policy, nodes, held = registry.create("cluster", name, {}), FreeNodes(machines), list[Gang]()
        kept = policy.chooser(nodes, demands, rng)
        for job in range(120):
            demand = demands[rng.integers(len(demands))]
            found = kept.choose(demand)
            assert found == policy.chooser(nodes, demands, rng).choose(demand)
            if found is not None:
                held.append(nodes.gang(job, demand, *found))
                nodes.take(held[-1])
            elif held:
                nodes.give_back(held.pop(int(rng.integers(len(held)))))


def test_best_fit_takes_what_is_left_least_of() -> None:
    nodes = FreeNodes(Machines([Machine("a", 8, cpus=64.0), Machine("b", 2, cpus=64.0)]))
    chooser = registry.create("cluster", "best_fit", {}).chooser(nodes, [], np.random.default_rng(0))
    assert chooser.choose(Demand(1, 0.5, 4.0)) == (1, (0,))


def test_filling_refuses_what_fits_nowhere_and_counts_copies() -> None:
    trace = jobs((0, 2, 10), (1, 2, 10), (2, 4, 10))
    machines = Machines.of_sizes([4, 4])
    plan = simulate(trace, machines, registry.create("cluster", "random", {"rules": "fgd"}), None, 3)
    assert faults(plan, trace, machines) == []
    assert len(plan.rejected) + len(plan.unfinished) == 3
    assert plan.facts["pods"] == 3 + plan.facts["copies"]
    assert 0 < plan.figures["gpu_allocation_ratio"] <= 1
    with pytest.raises(BadInput, match="no pod wants a GPU"):
        none = jobs((0, 1, 10))
        none.gpus[0] = 0
        simulate(none, machines, registry.create("cluster", "fgd", {"rules": "fgd"}))


def test_equals_go_to_a_node_that_the_seed_says_not_the_name() -> None:
    """The release writes a random number before each name, so that its smallest name is any node."""
    trace, machines = jobs((0, 1, 10)), Machines.of_sizes([1, 1, 1])
    made = registry.create("cluster", "fgd", {"rules": "fgd"})
    plans = [simulate(trace, machines, made, None, seed) for seed in range(30)]
    assert {next(iter(plan.executions)).gang.devices for plan in plans} == {(0,), (1,), (2,)}


def test_copies_come_after_the_pods_of_the_trace() -> None:
    demands = [HALF, WHOLE] * 10
    for seed in range(5):
        order = _arrivals(demands, 40 * 1000.0, np.random.default_rng(seed))
        assert sorted(order[:20]) == list(range(20)) != order[:20]
        wanted = [0.5 if pod % 2 == 0 else 1.0 for pod in order]
        assert 1.3 * 40 - 1 < sum(wanted) <= 1.3 * 40


def test_a_node_list_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("name,gpus,type,cpus\nx,2,t4,8\ny,0,,4\n")
    machines, told = cluster_of({"nodes": str(tmp_path / "nodes.csv")})
    assert [node.name for node in machines] == ["x", "y"]
    assert (machines.devices, machines[1].cpus, told["devices"]) == (2, 4, {"t4": 2})
    with pytest.raises(BadInput, match="device beside the node list"):
        cluster_of({"cluster": {"nodes": str(tmp_path / "nodes.csv"), "device": "t4-16g"}})


def published(shared: Path) -> dict[str, dict[str, float]]:
    """Percent of GPUs by policy and what is counted."""
    names = {"01-Random": "random", "05-BestFit": "best_fit", "06-FGD": "fgd"}
    found: dict[str, dict[str, float]] = {name: {} for name in names.values()}
    for row in open_cases(shared, "fgd-"):
        metric = "gpu_allocation_ratio" if "allocation" in row["metric"] else "fragmentation"
        found[names[row["policy"]]][metric] = float(row["value"])
    return found


def mean_figures(shared: Path, policy: str, seeds: range, pods: str = "default") -> dict[str, float]:
    folder = shared / FOLDER
    trace = open_file(folder / f"openb_pod_list_{pods}.csv.gz", "auto", WorkloadOptions()).reading.value
    machines, _ = cluster_of({"nodes": str(folder / "openb_node_list_gpu_node.csv.gz")})
    made = registry.create("cluster", policy, {"rules": "fgd"})
    plans = [simulate(trace, machines, made, None, seed).figures for seed in seeds]
    return {name: 100 * float(np.mean([plan[name] for plan in plans])) for name in plans[0]}


@pytest.mark.parametrize(("policy", "seeds"), [("random", 4), ("best_fit", 2), ("fgd", 2)])
def test_the_default_trace_over_seeds(shared_data: Path, policy: str, seeds: int) -> None:
    """The paper's are means of ten seeds, which take a minute; one seed is up to 0.4 points off."""
    seeds = int(os.environ.get("LAB_SCHEDULERS", seeds))
    found, expected = mean_figures(shared_data, policy, range(seeds)), published(shared_data)[policy]
    tell(policy=policy, seeds=seeds, found=found, published=expected)
    assert found == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(
    ("pods", "allocated", "fragments"),
    variants(
        ("cpu250", 93.20, 6.765),
        ("gpuspec33", 87.84, 7.471),
        ("gpushare40", 93.96, 5.978),
        ("gpushare100", 86.64, 13.251),
        ("multigpu50", 97.09, 2.769),
    ),
)
def test_other_traces_over_seeds(shared_data: Path, pods: str, allocated: float, fragments: float) -> None:
    """Means of the release's ten logs of each trace (``expected_results``), whose spread is up to a point."""
    seeds = int(os.environ.get("LAB_SCHEDULERS", 4))
    found = mean_figures(shared_data, "fgd", range(seeds), pods)
    tell(pods=pods, seeds=seeds, found=found, published=[allocated, fragments])
    assert found["gpu_allocation_ratio"] == pytest.approx(allocated, abs=0.5)
    assert found["fragmentation"] == pytest.approx(fragments, abs=0.5)
