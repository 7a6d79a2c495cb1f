"""Tutel: degrees, rule and hiding of the all-to-all with figures that a reader can work out."""

from __future__ import annotations

import dataclasses

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import Link, resolve
from experiments.parallel.interface import model_estimate, violations
from experiments.parallel.policies.tutel import Tutel
from experiments.parallel.policies.tutel.experts import (
    Exchanges,
    ExpertChoice,
    MoeLayer,
    hidden_share,
    moe_layers,
    rule_of_thumb,
    sharing,
    valid_degrees,
)
from experiments.parallel.simulator import evaluate, simulate
from experiments.sources import layers_of
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph
from tests.experiments.hardware.closed_forms import pairwise_all_to_all
from tests.experiments.parallel.builders import chain, cluster, estimate

#: 4 bytes a second, no latency.
SLOW = Link("slow", 4.0, 0.0, True, "test")


def mixture(
    experts: int = 2, expert_bytes: float = 0.0, token_bytes: float = 8.0, batch: int = 4
) -> LayerGraph:
    """Three layers of 1 and 2 seconds a sample, the second one all experts; each sample is one dispatched
    token.
    """
    model = chain(3, batch=batch, parameter_bytes=expert_bytes * experts)
    sizes = (("experts", experts), ("capacity", max(1, batch // experts)), ("hidden", 2), ("feedforward", 2))
    arriving = Operand(("experts", "capacity", "hidden"), token_bytes * batch, source=-1)
    weights = Operand(("experts", "hidden", "feedforward"), expert_bytes * experts, parameter=0)
    product = Operator(
        "product",
        "einsum",
        1,
        sizes,
        ("experts", "capacity", "feedforward"),
        (arriving, weights),
        token_bytes * batch,
    )
    return dataclasses.replace(model, einsums=(product,))


def test_degrees_and_the_rule() -> None:
    assert valid_degrees(12) == [0, 1, 2, 3, 4, 6, 12]
    assert sharing(2, 8, "m") == 4 and sharing(8, 2, "m") == 1
    assert rule_of_thumb(1000, 5000, 4) == 1
    assert rule_of_thumb(1000, 7000, 4) == 4
    with pytest.raises(BadInput, match="3 experts on 4 devices"):
        sharing(3, 4, "m")


def test_experts_are_found_by_their_weights() -> None:
    layer = moe_layers(mixture(expert_bytes=6.0))[0]
    assert layer == MoeLayer(1, 2, 12.0, 8.0, 1.0)
    with pytest.raises(BadInput, match="no layer of experts"):
        moe_layers(chain(2))


def test_a_degree_trades_tokens_for_weights() -> None:
    """8 devices, 2 experts of 60 bytes: 4 devices share each. 16 bytes a sample are dispatched."""
    layer, exchanges = MoeLayer(0, 2, 120.0, 16.0, 1.0), Exchanges(8, 8)
    sent = {
        r: sum(c.bytes for c in exchanges.tokens(layer, ExpertChoice(r, 1, False), 1.0))
        for r in valid_degrees(4)
    }
    gathered = {
        r: [(c.bytes, c.ranks) for c in exchanges.weights(layer, ExpertChoice(r, 1, False))] for r in sent
    }
    assert sent == {0: 0, 1: 2.0, 2: 4.0, 4: 8.0}
    assert gathered == {0: [(120.0, 0)], 1: [(60.0, 4)], 2: [(30.0, 2)], 4: []}


def test_two_levels_send_fewer_and_larger_messages_over_the_network() -> None:
    """8 nodes of 8: 7 messages of 128 kB a device instead of 56 of 16 kB."""
    layer = MoeLayer(0, 64, 0.0, 64 * 1.024e6, 1.0)
    inside, across = Exchanges(64, 8).tokens(layer, ExpertChoice(1, 1, True), 1.0)
    assert (inside.ranks, inside.stride, across.ranks, across.stride) == (8, 1, 8, 8)
    assert across.bytes / across.ranks == 128e3
    (plain,) = Exchanges(64, 8).tokens(layer, ExpertChoice(1, 1, False), 1.0)
    assert plain.bytes / 64 == 16e3


@pytest.mark.parametrize("token_bytes", [2.0, 6.0, 40.0])
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_the_simulated_layer_takes_what_the_formula_says(token_bytes: float, chunks: int) -> None:
    """2 devices, 4 samples: experts 2 s forward and 4 s backward on each; each exchange sends 4 b / 2 bytes
    at 4 bytes/s.
    """
    model, hardware = mixture(token_bytes=token_bytes), cluster(per_node=2, link=SLOW)
    asked = estimate(model, hardware)
    policy = Tutel(parallelism="expert", chunks=chunks)
    plan = policy.place(model, hardware, 4, asked)
    assert violations(plan, model, hardware) == []
    one_way = pairwise_all_to_all(SLOW, 2, token_bytes * 4 / 2)

    def layer(compute: float) -> float:
        return (2 * one_way + compute) / chunks + (chunks - 1) / chunks * max(2 * one_way, compute)

    assert simulate(plan, asked).step_time == pytest.approx(2 * 2.0 + 2 * 4.0 + layer(2.0) + layer(4.0))


def test_nothing_is_hidden_in_one_chunk_or_without_an_exchange() -> None:
    assert hidden_share(3.0, 5.0, 1) == hidden_share(0.0, 5.0, 4) == 0.0
    assert hidden_share(3.0, 5.0, 4) == 0.75
    assert hidden_share(10.0, 5.0, 2) == 0.25


@pytest.mark.parametrize(("expert_bytes", "token_bytes", "degree"), [(0.0, 64.0, 0), (1e4, 1.0, 4)])
def test_large_tokens_stay_and_large_experts_stay(
    expert_bytes: float, token_bytes: float, degree: int
) -> None:
    model, hardware = mixture(1, expert_bytes, token_bytes), cluster(per_node=4, link=SLOW)
    plan = Tutel().place(model, hardware, 4, estimate(model, hardware))
    assert plan.notes["degree"] == degree
    times = [row["step_time"] for row in plan.notes["combinations"]]
    assert simulate(plan, estimate(model, hardware)).step_time == min(times)


def test_the_fullest_expert_is_waited_for() -> None:
    model, hardware = mixture(token_bytes=0.0), cluster(per_node=2)
    asked = estimate(model, hardware)
    even = simulate(Tutel().place(model, hardware, 4, asked), asked).step_time
    uneven = simulate(Tutel(imbalance=1.5).place(model, hardware, 4, asked), asked).step_time
    assert uneven - even == pytest.approx(0.5 * 6.0)


def test_each_iteration_adapts_to_its_capacity() -> None:
    """One expert of 100 bytes on 4 devices: with few tokens they travel, with many the weights do.

    Capacities with the same whole number share what was tried for the first of them.
    """
    model, hardware = mixture(1, 100.0, 16.0), cluster(per_node=4, link=SLOW)
    asked = estimate(model, hardware)
    policy = Tutel(chunks=1, capacities="0.01, 3, 3.5, 0.02")
    plan = policy.place(model, hardware, 4, asked)
    rows = plan.notes["iterations"]
    assert [(row["capacity"], row["tried"]) for row in rows] == [
        *((0.01, True), (3.0, True)),
        *((3.5, False), (0.02, False)),
    ]
    assert [row["degree"] > 0 for row in rows] == [True, False, False, True]
    for row in rows:
        alone = Tutel(chunks=1, capacity=row["capacity"]).place(model, hardware, 4, asked)
        assert row["step_time"] == simulate(alone, asked).step_time
        assert row["step_time"] <= row["unadapted"]
    assert plan.notes["mean_step_time"] < plan.notes["mean_step_time_unadapted"]
    # The plan is that of the fullest iteration.
    assert simulate(plan, asked).step_time == rows[2]["step_time"]


def test_more_rows_than_all_devices_could_take_alone_are_refused() -> None:
    model, hardware = mixture(), cluster(per_node=2)
    with pytest.raises(BadInput, match="3 times their load on 2 devices"):
        Tutel(capacity=2.0, imbalance=1.5).place(model, hardware, 4, estimate(model, hardware))


@pytest.mark.parametrize("text", ["1,x", "0", "65", ",".join("1" * 257)])
def test_capacities_that_are_none_are_refused(text: str) -> None:
    model, hardware = mixture(), cluster(per_node=2)
    with pytest.raises(BadInput, match="capacit"):
        Tutel(capacities=text).place(model, hardware, 4, estimate(model, hardware))


def test_a_capacity_is_computed_and_sent() -> None:
    """Twice the rows: the experts' 2 s forward and 4 s backward are 6 s longer."""
    model, hardware = mixture(token_bytes=0.0), cluster(per_node=2)
    asked = estimate(model, hardware)
    times = [simulate(Tutel(capacity=c).place(model, hardware, 4, asked), asked).step_time for c in (1, 2)]
    assert times[1] - times[0] == pytest.approx(6.0)


def test_a_mixture_known_by_its_sizes_is_recognized() -> None:
    """Mixtral on 8 devices: of each block the experts' share of the FLOPs, and 2 copies of 4,096 tokens."""
    row = {"nodes": 1, "devices_per_node": 8, "device": "h100-80g", "overrides": {"memory_bytes": 1e12}}
    hardware = resolve({"cluster": row})
    workload = Workload("zoo:mixtral-8x7b", options=WorkloadOptions(batch=8))
    model, _ = layers_of(workload, hardware.device, lambda *_: None, Tutel.layers)
    found = moe_layers(model)
    assert len(found) == 32 and found[0].experts == 8
    assert found[0].parameter_bytes == 8 * 3 * 4096 * 14336 * 2
    assert found[0].dispatched == 2 * 4096 * 4096 * 2
    experts = 2 * 4096 * 2 * 3 * 4096 * 14336
    assert found[0].share == pytest.approx(experts * 8 / model.forward_flops[found[0].layer])
    asked = model_estimate(model, hardware, evaluate)
    plan = Tutel(chunks=1, two_level=False).place(model, hardware, 8, asked)
    assert violations(plan, model, hardware) == []
    assert plan.notes["degree"] == 1
