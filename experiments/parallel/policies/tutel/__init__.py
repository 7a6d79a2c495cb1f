"""Tutel (Hwang et al., MLSys'23): experts whose parallelism, pipelining and all-to-all follow the load.

Followed: weights of experts are always divided among all devices, so that every degree r starts from one
layout (r = 0: weights are gathered and tokens stay; r = 1: tokens go to one device of those that share an
expert, which gather it; r = all of them: tokens go to all, each with its part); all-to-all in chunks
overlapped with the experts; all-to-all on two levels. For the capacity of the run each combination is tried
once, as the paper measures unseen ones, here in the simulator; ``rule`` is the open implementation's rule
instead. With ``capacities`` the choice is made anew in each iteration (``iterations``): the plan is that of
the fullest, which has to fit, and its notes have them all, beside the first iteration's choice kept.

Mixtures known by their sizes come by blocks. Left open by the paper: the order in which combinations are
tried (all are). Not reproduced: the memory of gathered experts while they are used. Layers between are
data-parallel over all devices.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    Collective,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Sharding,
    whole_share,
)
from experiments.parallel.planning.operators.collective_costs import CollectiveCosts
from experiments.parallel.planning.operators.one_group import one_group_plan
from experiments.parallel.policies.tutel.experts import (
    Exchanges,
    ExpertChoice,
    MoeLayer,
    hidden_share,
    moe_layers,
    rule_of_thumb,
    sharing,
    split,
    valid_degrees,
)
from experiments.parallel.policies.tutel.iterations import adapt, parse_capacities
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats
from experiments.workloads.transformer_layers import BLOCKS

CHUNKS = (1, 2, 4, 8)
MODES = ("adaptive", "rule", "data", "expert", "expert_and_model")


@dataclass(frozen=True)
class Tutel(ParallelPolicy):
    """Parallelism inside experts, chunks and levels of the all-to-all, by what is fastest."""

    name: ClassVar[str] = "tutel"
    mechanism: ClassVar[str] = "experts and tables"
    layers: ClassVar[str] = BLOCKS
    keeps_whole: ClassVar[str] = "it divides experts; all else is whole on every device"

    parallelism: str = knob("adaptive", "how devices share an expert", choices=MODES)
    chunks: int | None = knob(None, "chunks of the all-to-all; empty: the fastest", low=1, high=64)
    two_level: bool | None = knob(None, "all-to-all inside nodes first; empty: the faster")
    capacity: float = knob(1.0, "tokens that experts take, times the model's own", low=0.01, high=64.0)
    capacities: str = knob(
        "", "capacities of iterations, in turn: each adapts; the plan is that of the largest", words=True
    )
    range_of_capacity: float = knob(
        1.0, "capacities that share a choice: those with the same whole number of these", low=0.01, high=64.0
    )
    imbalance: float = knob(1.0, "load of the fullest expert over the mean", low=1.0, high=1000.0)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        whole_share(batch, cluster.device_count, "samples", "options.batch")
        collectives = CollectiveCosts(cluster)
        if collectives.uneven:
            raise BadInput("nodes differ in their devices", "hardware", "equal nodes")
        layers = moe_layers(model)
        layout = _Layout(self, model, layers, batch, estimate, collectives)
        choices = tuple(self._choices(layers, layout, cluster))
        given = parse_capacities(self.capacities)
        capacity = max(given, default=self.capacity)
        times = layout.times(choices, capacity)
        best = min(choices, key=lambda choice: times[choice])
        notes = {
            "degree": best.degree,
            "chunks": best.chunks,
            "two_level": best.two_level,
            "sharing": layout.sharing,
            "combinations": [
                {"degree": c.degree, "chunks": c.chunks, "two_level": c.two_level, "step_time": times[c]}
                for c in choices
            ],
            **(self._iterations(layout, choices, given) if given else {}),
        }
        return replace(layout.plan(best, capacity, notes), synchronization=self.sync())

    def _iterations(
        self, layout: _Layout, choices: tuple[ExpertChoice, ...], capacities: tuple[float, ...]
    ) -> dict[str, Any]:
        def fastest(capacity: float) -> ExpertChoice:
            times = layout.times(choices, capacity)
            return min(choices, key=lambda choice: times[choice])

        found = list(adapt(capacities, self.range_of_capacity, fastest, layout.seconds))
        return {
            "iterations": [one.note for one in found],
            "mean_step_time": sum(one.step_time for one in found) / len(found),
            "mean_step_time_unadapted": sum(one.unadapted for one in found) / len(found),
        }

    def _choices(
        self, layers: tuple[MoeLayer, ...], layout: _Layout, cluster: Hardware
    ) -> Iterator[ExpertChoice]:
        for degree in self._degrees(layers, layout):
            moves = degree > 0 and cluster.device_count > 1
            chunks = (self.chunks,) if self.chunks else CHUNKS
            levels = (False, True) if self.two_level is None else (self.two_level,)
            for count in chunks if moves else chunks[:1]:
                for level in levels if moves and cluster.node_count > 1 else levels[:1]:
                    yield ExpertChoice(degree, count, level)

    def _degrees(self, layers: tuple[MoeLayer, ...], layout: _Layout) -> list[int]:
        shared = layout.sharing
        if self.parallelism == "rule":
            size = DTYPE_BYTES[layout.estimate.dtype]
            first = layers[0]
            capacity = max(parse_capacities(self.capacities), default=self.capacity)
            tokens = first.dispatched * capacity * layout.batch / layout.collectives.devices / size
            return [rule_of_thumb(tokens, first.parameter_bytes / first.experts / size, shared)]
        fixed = {"data": [0], "expert": [1], "expert_and_model": [shared]}
        return fixed.get(self.parallelism, valid_degrees(shared))


@dataclass(frozen=True, eq=False)
class _Layout:
    """Turns a choice, the same for every layer of experts, into a plan."""

    policy: Tutel
    model: LayerGraph
    layers: tuple[MoeLayer, ...]
    batch: int
    estimate: PlanningEstimate
    collectives: CollectiveCosts

    def times(self, choices: tuple[ExpertChoice, ...], capacity: float) -> dict[ExpertChoice, float]:
        """Return the seconds of a step by each choice; a single one need not be tried."""
        found = {}
        for index, choice in enumerate(choices):
            found[choice] = self.seconds(choice, capacity) if len(choices) > 1 else 0.0
            self.estimate.progress((index + 1) / len(choices), f"combination {index + 1} of {len(choices)}")
        return found

    @functools.cache  # noqa: B019 - a layout lives as long as one placement
    def seconds(self, choice: ExpertChoice, capacity: float) -> float:
        return self.estimate.evaluate(self.plan(choice, capacity, {})).step_time

    @property
    def sharing(self) -> int:
        """Devices that share an expert of the first MoE layer."""
        return sharing(self.layers[0].experts, self.collectives.devices, self.model.name)

    def plan(self, choice: ExpertChoice, capacity: float, notes: dict[str, Any]) -> ParallelPlan:
        moe = {layer.layer: layer for layer in self.layers}
        shardings = [
            self._experts(moe[layer], choice, capacity) if layer in moe else self._dense(layer)
            for layer in range(len(self.model))
        ]
        return one_group_plan(
            (("devices", self.collectives.devices),),
            len(self.model),
            self.batch,
            shardings,
            notes,
        )

    def _dense(self, layer: int) -> Sharding:
        gradient = float(self.estimate.layer_parameters[layer]) * self.estimate.states.gradient
        reduced = (Collective("all_reduce", gradient, per="step"),) if gradient else ()
        return Sharding(layer, "batch", self.collectives.devices, 1, self.collectives.devices, (), reduced)

    def _experts(self, layer: MoeLayer, choice: ExpertChoice, capacity: float) -> Sharding:
        """Parameters besides the experts' (attention, gate) are on every device."""
        devices = self.collectives.devices
        parameters = float(self.model.parameter_bytes[layer.layer])
        dense = max(0.0, parameters - layer.parameter_bytes)
        kept = dense + layer.parameter_bytes / devices
        load = self.policy.imbalance * capacity
        slower = 1 - layer.share + layer.share * load
        if slower > devices:
            what = f"experts at {load:g} times their load on {devices} devices"
            raise BadInput(what, "knobs.capacity", "capacity times imbalance of at most the devices")
        exchanges = Exchanges(devices, self.collectives.per_node)
        tokens = exchanges.tokens(layer, choice, capacity)
        weights = exchanges.weights(layer, choice)
        scale = self.estimate.states.gradient / self.estimate.states.weight
        reduced = [replace(c, kind="reduce_scatter", bytes=c.bytes * scale) for c in weights]
        dense_reduced = [Collective("all_reduce", dense * scale, per="step")] if dense and devices > 1 else []
        return Sharding(
            layer=layer.layer,
            axis=f"expert r={choice.degree}",
            compute=devices / slower,
            parameters=parameters / kept if kept else 1,
            activations=devices,
            experts=min(layer.experts, devices) if choice.degree else 1,
            forward=(*weights, *self._both_ways(layer, choice, tokens, self.model.forward_seconds, load)),
            backward=(
                *weights,
                *self._both_ways(layer, choice, tokens, self.model.backward_seconds, load),
                *reduced,
                *dense_reduced,
            ),
        )

    def _both_ways(
        self,
        layer: MoeLayer,
        choice: ExpertChoice,
        tokens: tuple[Collective, ...],
        seconds: Floats,
        load: float,
    ) -> tuple[Collective, ...]:
        """Dispatch and combination in one pass, as far as they hide behind the experts."""
        exchange = 2 * sum(self.collectives.seconds(replace(c, bytes=c.bytes * self.batch)) for c in tokens)
        mine = float(seconds[layer.layer]) / self.model.batch * self.batch / self.collectives.devices
        compute = mine * layer.share * load
        hidden = hidden_share(exchange, compute, choice.chunks)
        return split((*tokens, *tokens), hidden)
