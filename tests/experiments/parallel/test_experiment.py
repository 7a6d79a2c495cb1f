"""A whole simulated run of the family: spec in, outcome out, by the command line's contract."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.parallel.experiment import placed
from experiments.parallel.interface import ParallelPlan
from experiments.run import run
from experiments.sources import Loaded
from tests.experiments.parallel.builders import chain


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Four layers with F=1, B=2 for each sample instead of a captured model, on four devices of a node."""
    model = chain(4, stash_bytes=2.0**20, output_bytes=2.0**10, parameter_bytes=2.0**20)
    loaded = Loaded(model, "layers", "test", "0" * 64)
    monkeypatch.setattr("experiments.run.load", lambda workload: loaded)
    monkeypatch.setattr(placed, "layers_of", lambda *given: (model, loaded))
    return {
        "family": "parallel",
        "policy": "one_f_one_b",
        "knobs": {"stages": 4, "micro_batches": 8, "recompute": False},
        "workload": {"source": "four-layers", "options": {"batch": 8, "steps": 10}},
        "hardware": {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "a100-80g"}},
    }


def test_an_outcome_has_the_figures_the_plan_and_a_timeline(spec: dict[str, Any]) -> None:
    outcome = run(load_spec(spec))
    metrics = {name: entry["value"] for name, entry in outcome.metrics.items()}
    assert outcome.status == "ok" and outcome.violations == []
    assert metrics["step_time"] == pytest.approx(33, rel=1e-3)
    assert metrics["bubble_fraction"] == pytest.approx(3 / 11, rel=1e-3)
    assert metrics["jct"] == 10 * metrics["step_time"]
    assert metrics["devices"] == 4
    assert outcome.plan["live_micro_batches"] == [4, 3, 2, 1]
    assert ParallelPlan.from_json(outcome.plan).micro_batches == 8
    lanes = outcome.plan["timeline"]["lanes"]
    assert [len(lane["events"]) for lane in lanes] == [17] * 4  # 8 forward, 8 backward, one update
    assert max(outcome.series["memory_device_0"]["y"]) == metrics["peak_memory_per_device"]


def test_a_cluster_by_its_node_says_nothing_and_one_by_its_devices_what_was_assumed(
    spec: dict[str, Any],
) -> None:
    """Four A100 of two nodes: as two of a DGX A100 each, with 2 adapters of 25 GB/s, or with one assumed."""
    machines = {"nodes": 2, "node": "dgx-a100", "devices_per_node": 2}
    parts = {"nodes": 2, "devices_per_node": 2, "device": "a100-80g", "network": "ib-200g"}
    named, told, silent = (
        run(load_spec({**spec, "policy": "horovod", "knobs": {}, "hardware": {"cluster": cluster}}))
        for cluster in (machines, {**parts, "rails": 2}, parts)
    )
    assert named.provenance["warnings"] == told.provenance["warnings"] == []
    assert named.metrics == told.metrics
    (warning,) = silent.provenance["warnings"]
    assert "one adapter, ib-200g (25 GB/s), for its 2 a100-80g" in warning
    times = [outcome.metrics["exposed_communication_time"]["value"] for outcome in (named, silent)]
    assert times[1] > times[0]


def test_groups_on_different_networks_run_and_wait_for_the_slower(spec: dict[str, Any]) -> None:
    """Weights are summed at the pace of the slow group: as if all four were there."""
    group = {"nodes": 2, "devices_per_node": 1, "device": "a100-80g"}
    rows = [{**group, "network": "ib-400g"}, {**group, "network": "eth-1g"}]
    mixed, slow = (
        run(load_spec({**spec, "policy": "horovod", "knobs": {}, "hardware": hardware}))
        for hardware in (rows, {**rows[1], "nodes": 4})
    )
    assert mixed.status == "ok" and mixed.provenance["warnings"] == []
    assert mixed.metrics["step_time"] == slow.metrics["step_time"]


def test_the_same_spec_gives_the_same_outcome_byte_for_byte(spec: dict[str, Any]) -> None:
    first, second = ({**run(load_spec(spec)).to_json(), "provenance": {}} for _ in range(2))
    assert jsonio.canonical(first) == jsonio.canonical(second)


def test_a_model_that_does_not_fit_is_an_infeasible_outcome(spec: dict[str, Any]) -> None:
    spec["hardware"]["cluster"]["overrides"] = {"memory_bytes": 6 * 2**20}
    outcome = run(load_spec(spec))
    assert outcome.status == "infeasible"
    assert outcome.reason == (
        "stage 0 on device 0 (a100-80g): needs 8 MiB of 6 MiB, 4 MiB of it for model states: "
        "2097152 bytes missing"
    )
    assert outcome.provenance["missing_bytes"] == 2 * 2**20


def test_a_layer_graph_cannot_be_measured(spec: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"is a layer profile \(expected a model\)"):
        run(load_spec({**spec, "hardware": "local", "mode": "measured", "knobs": {"stages": 2}}))
