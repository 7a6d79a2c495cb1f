"""Embedding tables on devices: figures of the planner's estimate and placements that a reader can
work out.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.budget import Budget
from experiments.core.errors import BadInput, Infeasible
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.parallel.interface import model_estimate, violations
from experiments.parallel.policies.neo_4d import Neo4D
from experiments.parallel.policies.neo_4d.embedding_tables import (
    LAYOUTS,
    EmbeddingTable,
    Machines,
    Shard,
    differencing,
    place,
    shards,
)
from experiments.parallel.policies.neo_4d.table_search import LayoutSearch
from experiments.parallel.simulator import evaluate, simulate
from experiments.sources import layers_of
from tests.experiments.parallel.builders import chain, cluster, estimate

#: Two nodes of two devices; 8 bytes/s of memory, 4 inside a node, 2 between.
MACHINES = Machines(2, 2, 8.0, 4.0, 2.0, 1e9, 1.0)
TABLE = EmbeddingTable("t", rows=10, width=4, lookups=3.0, value_bytes=4.0, index_bytes=8.0)


def single(costs: list[float], size: float = 0.0) -> list[Shard]:
    return [Shard(i, "device", cost, size, cost) for i, cost in enumerate(costs)]


def test_seconds_of_a_shard() -> None:
    """100 samples: 2,400 bytes of indices, 4,800 looked up, 1,600 pooled."""
    seconds = {name: shards(0, TABLE, name, 100, MACHINES)[0].seconds for name in LAYOUTS}
    assert seconds["table"] == 1200 + 600 + 800
    assert seconds["column"] == 1200 + (600 + 800) / 4
    assert seconds["row"] == (1200 + 600) / 4 + 800
    assert seconds["table_row"] == (1200 + 600) / 2 + 1600 * (1 / 4 + 2 / 4 / 2)
    assert seconds["data"] == 600 / 4 + 40 * 4 / 2
    assert len(shards(0, TABLE, "column", 100, MACHINES)) == 4


def test_least_load_against_differencing_on_five_tables() -> None:
    assert sorted(sum((8, 7, 6, 5, 4)[i] for i in part) for part in differencing([8, 7, 6, 5, 4], 2)) == [
        14,
        16,
    ]
    two = Machines(1, 2, 1.0, 1.0, 1.0, 1e9, 1.0)
    greedy = place(single([8, 7, 6, 5, 4]), two, 1e9, balanced=False)
    both = place(single([8, 7, 6, 5, 4]), two, 1e9)
    assert greedy is not None and sorted(greedy.seconds) == [13, 17]
    assert both is not None and sorted(both.seconds) == [14, 16]


def test_six_tables_on_three_devices() -> None:
    three = Machines(1, 3, 1.0, 1.0, 1.0, 1e9, 1.0)
    found = place(single([10, 20, 30, 40, 200, 300]), three, 1e9)
    assert found is not None and sorted(found.seconds) == [100, 200, 300]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 3))
@settings(max_examples=60)
def test_no_placement_beats_the_best_of_all_and_both_methods_stay_within_a_third(
    costs: list[int], devices: int
) -> None:
    machines = Machines(1, devices, 1.0, 1.0, 1.0, 1e9, 1.0)
    found = place(single([float(c) for c in costs]), machines, 1e9)
    assert found is not None and sum(found.seconds) == sum(costs)
    loads = (
        max(sum(c for c, d in zip(costs, homes, strict=True) if d == device) for device in range(devices))
        for homes in itertools.product(range(devices), repeat=len(costs))
    )
    best = min(loads)
    assert best <= found.slowest <= best * 4 / 3


def test_memory_decides_where_a_shard_goes_and_whether_it_goes_anywhere() -> None:
    two = Machines(1, 2, 1.0, 1.0, 1.0, 1e9, 1.0)
    assert place(single([5, 4, 3], size=10.0), two, 20.0) is not None
    assert place(single([5, 4, 3], size=10.0), two, 10.0) is None


def test_the_search_never_does_worse_than_one_layout_for_all() -> None:
    tables = [EmbeddingTable(f"t{i}", 10 ** (i % 4 + 1), 8, 1.0 + i, 4.0, 8.0) for i in range(8)]
    for allowed in (LAYOUTS, ("table",), ("row",)):
        found = LayoutSearch(tables, 1000, MACHINES, 1e9, allowed).run()
        assert found is not None
        if allowed == LAYOUTS:
            best = found.slowest
        else:
            assert best <= found.slowest


def test_a_search_that_meets_its_bound_keeps_the_best_so_far() -> None:
    tables = [EmbeddingTable(f"t{i}", 10 ** (i % 4 + 1), 8, 1.0 + i, 4.0, 8.0) for i in range(8)]
    whole = LayoutSearch(tables, 1000, MACHINES, 1e9, LAYOUTS)
    best = whole.run()
    reports: list[str] = []
    budget = Budget(3, lambda _, step: reports.append(step), "layouts")
    cut = LayoutSearch(tables, 1000, MACHINES, 1e9, LAYOUTS, budget)
    found = cut.run()
    assert best is not None and found is not None and best.slowest <= found.slowest
    assert cut.proposals == len(reports) == 3 < whole.proposals and budget.ended_early


def test_a_recommendation_model_on_two_nodes() -> None:
    hardware = resolve(
        {"cluster": {"nodes": 2, "devices_per_node": 4, "device": "a100-40g", "network": "ib-100g"}}
    )
    model, _ = layers_of(Workload("zoo:dlrm", options=WorkloadOptions(batch=2048)), hardware.device)
    asked = model_estimate(model, hardware, evaluate, "float32", "sgd")
    found = {}
    for layout in ("4d", "table", "row", "data"):
        plan = Neo4D(layout=layout).place(model, hardware, 2048, asked)
        assert violations(plan, model, hardware) == []
        found[layout] = simulate(plan, asked)
    assert found["table"].memory[0].persistent < found["data"].memory[0].persistent / 4
    assert found["4d"].step_time <= min(found[name].step_time for name in ("table", "row", "data")) * 1.05
    one = model_estimate(model, resolve("a100-40g"), evaluate, "float32", "sgd")
    alone = simulate(Neo4D(layout="table").place(model, resolve("a100-40g"), 2048, one), one)
    assert alone.exposed_communication_time == 0.0


def test_refusals_say_what_is_wrong() -> None:
    model, hardware = chain(2), cluster(per_node=2)
    with pytest.raises(BadInput, match="no embedding tables"):
        Neo4D().place(model, hardware, 2, estimate(model, hardware))
    small = resolve({"device": "a100-40g", "overrides": {"memory_bytes": 1e8}})
    dlrm, _ = layers_of(Workload("zoo:dlrm"), small.device)
    with pytest.raises(Infeasible, match="no layout puts"):
        Neo4D().place(dlrm, small, 2048, model_estimate(dlrm, small, evaluate))
