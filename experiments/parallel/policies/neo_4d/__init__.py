"""Neo (Mudigere et al., ISCA'22): 4D parallelism for recommendation models: tables, rows, columns and data.

Followed: dense layers are data-parallel; each embedding table is whole on a device, by column, by row on all
devices, by row inside a node, or replicated, as the estimated seconds of the slowest device say; shards are
placed by least load and by the differencing method; indices travel while the dense layers of the batch before
are computed, so they are not waited for.

Left open by the paper: the estimate of a shard (``embedding_tables``) and the search over layouts. Not
reproduced: skew of accesses and the software cache over host memory (tables live in device memory), quantized
exchange, and a dense all-reduce for replicated tables stands for the sparse one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.budget import Budget
from experiments.core.errors import BadInput, Infeasible
from experiments.core.knobs import knob
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware
from experiments.hardware.roofline import memory_rate
from experiments.parallel.interface import (
    Collective,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Sharding,
    whole_share,
)
from experiments.parallel.planning.operators.one_group import one_group_plan
from experiments.parallel.policies.neo_4d.embedding_tables import LAYOUTS, EmbeddingTable, Machines
from experiments.parallel.policies.neo_4d.table_search import LayoutProposal, LayoutSearch
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph

#: What may be asked for: every layout, or one of them for all tables.
CHOICES = ("4d", *LAYOUTS)


@dataclass(frozen=True)
class Neo4D(ParallelPolicy):
    """Each embedding table whole, by column, by row or replicated; the rest is data-parallel.

    Layouts are chosen so that the devices are balanced.
    """

    name: ClassVar[str] = "neo_4d"
    mechanism: ClassVar[str] = "experts and tables"
    keeps_whole: ClassVar[str] = "it divides embedding tables; dense layers are whole on every device"

    layout: str = knob("4d", "layouts that tables may have: every one, or this one", choices=CHOICES)
    lookups: float = knob(1.0, "rows that a sample reads of each table", low=0.01, high=10_000)
    fill: float = knob(0.8, "share of a device's memory that model states may take", low=0.01, high=1.0)
    evaluations: int = knob(
        1_000_000, "layouts of all tables that are placed before the best so far is taken", low=1, high=10**9
    )

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        devices = cluster.device_count
        whole_share(batch, devices, "samples", "options.batch")
        found = {operator.layer: operator for operator in model.einsums if _is_table(operator)}
        if not found:
            raise BadInput("has no embedding tables", model.name, "a recommendation model")
        tables = [self._table(operator, model, estimate) for operator in found.values()]
        machines = _machines(cluster, estimate)
        budget = Budget(self.evaluations, estimate.progress, "layouts")
        best = self._search(tables, batch, machines, model, estimate, budget)
        shardings = _shardings(
            model, dict(zip(found, range(len(tables)), strict=True)), tables, best, devices, estimate
        )
        found_notes = _notes(best, tables, machines) | budget.caveat("evaluations")
        plan = one_group_plan((("devices", devices),), len(model), batch, shardings, found_notes)
        return replace(plan, synchronization=self.sync())

    def _table(self, operator: Operator, model: LayerGraph, estimate: PlanningEstimate) -> EmbeddingTable:
        size = operator.size
        indices = sum(o.bytes for o in operator.operands if o.parameter < 0) / model.batch
        return EmbeddingTable(
            model.layer[operator.layer],
            size["vocabulary"],
            size[operator.output[1]],
            self.lookups,
            DTYPE_BYTES[estimate.dtype],
            min(indices, 8.0),
        )

    def _search(
        self,
        tables: list[EmbeddingTable],
        batch: int,
        machines: Machines,
        model: LayerGraph,
        estimate: PlanningEstimate,
        budget: Budget,
    ) -> LayoutProposal:
        dense = float(estimate.layer_parameters.sum()) - sum(table.values for table in tables)
        capacity = machines.capacity * self.fill - max(0.0, dense) * machines.state_bytes
        search = LayoutSearch(
            tables, batch, machines, capacity, LAYOUTS if self.layout == "4d" else (self.layout,), budget
        )
        found = search.run()
        if found is None:
            total = sum(table.values for table in tables) * machines.state_bytes
            what = f"no layout puts {total:.3g} bytes of tables into {max(capacity, 0.0):.3g} on each device"
            raise Infeasible(what, model.name)
        return found


def _is_table(operator: Operator) -> bool:
    """One row for each sample: an embedding of tokens has one for each token."""
    return operator.kind == "embedding" and len(operator.output) == 2


def _machines(cluster: Hardware, estimate: PlanningEstimate) -> Machines:
    node = cluster.node
    return Machines(
        nodes=cluster.node_count,
        per_node=node.device_count,
        memory_rate=memory_rate(node.device),
        node_rate=node.link.bandwidth,
        network_rate=cluster.network.bandwidth / node.device_count,
        capacity=float(min(device.memory_bytes for device in estimate.devices)),
        state_bytes=estimate.states.total,
    )


def _shardings(
    model: LayerGraph,
    table_of: dict[int, int],
    tables: list[EmbeddingTable],
    best: LayoutProposal,
    devices: int,
    estimate: PlanningEstimate,
) -> tuple[Sharding, ...]:
    """Every layer computes its part of the samples; a table's layer has its parameters where its layout puts
    them.

    The exchanges of all tables are one of each kind, at the last table's layer. Shares are those of the
    device that has most, since the others wait for it.
    """
    gradients = estimate.layer_parameters * estimate.states.gradient
    looked_up, stored = _evenness(best.loads.lookup_seconds), _evenness(best.loads.bytes)
    forward, backward = _exchanges(tables, best, devices, looked_up)
    found = []
    for layer in range(len(model)):
        last = layer == max(table_of)
        layout = best.layouts[table_of[layer]] if layer in table_of else "batch"
        alone = layout in ("batch", "data")
        reduced = Collective("all_reduce", float(gradients[layer]), per="step")
        found.append(
            Sharding(
                layer,
                layout,
                devices if alone else devices * looked_up,
                1 if alone else devices * stored,
                devices,
                forward if last else (),
                (*(backward if last else ()), *((reduced,) if alone and reduced.bytes else ())),
            )
        )
    return tuple(found)


def _evenness(values: Sequence[float]) -> float:
    """Mean over largest: 1 where all are equal."""
    return sum(values) / len(values) / max(values) if max(values) else 1.0


def _exchanges(
    tables: list[EmbeddingTable], best: LayoutProposal, devices: int, even: float
) -> tuple[tuple[Collective, ...], tuple[Collective, ...]]:
    """Forward and backward, in bytes a sample: pooled rows to the devices of their samples, or partial sums
    of them all.
    """
    moved = [(table, name) for table, name in zip(tables, best.layouts, strict=True) if name != "data"]
    summed = sum(t.width * t.value_bytes for t, name in moved if name in ("row", "table_row"))
    whole = sum(t.width * t.value_bytes for t, name in moved) - summed
    indices = sum(t.lookups * t.index_bytes for t, _ in moved) / devices
    exchange = [Collective("all_to_all", whole / (devices * even))] if whole else []
    reduce = [Collective("reduce_scatter", summed)] if summed else []
    gather = [Collective("all_gather", summed)] if summed else []
    ahead = [Collective("all_to_all", indices, overlap=True)] if indices else []
    return (*ahead, *exchange, *reduce), (*exchange, *gather)


def _notes(best: LayoutProposal, tables: list[EmbeddingTable], machines: Machines) -> dict[str, object]:
    """What the search predicts for the tables alone, in seconds of the slowest device, and what
    it looked at.
    """
    even = sum(best.loads.seconds) / machines.devices
    return {
        "layouts": {table.name: name for table, name in zip(tables, best.layouts, strict=True)},
        "predicted_table_time": best.slowest,
        "even_table_time": even,
        "table_bytes_by_device": list(best.loads.bytes),
    }
