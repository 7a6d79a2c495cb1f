"""Serving runs from a spec: hardware, model and trace to an outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.spec import Outcome, load_spec
from experiments.hardware import resolve
from experiments.models.served import served_model
from experiments.run import run
from experiments.serving.interface import Load, RooflineCost


def outcome(source: Path, hardware: object = "a100-80g", policy: str = "orca", **options: object) -> Outcome:
    workload = {"source": str(source), "options": options}
    return run(load_spec({"family": "serving", "policy": policy, "workload": workload, "hardware": hardware}))


@pytest.fixture
def three(tmp_path: Path) -> Path:
    file = tmp_path / "requests.csv"
    file.write_text("arrival,prompt,output\n0,100,20\n0.1,50,10\n0.2,10,5\n")
    return file


def test_the_roofline_of_a_decode_step_is_reading_weights_and_keys() -> None:
    """One token after 999: all weights once (13.476 GB) and the KV of 1,000 tokens (0.524 GB) from memory."""
    model, device = served_model("llama2-7b"), resolve("a100-80g").device
    seconds = RooflineCost(model, device, "float16", 2).stage_time(Load.of((1,), (999,)))
    assert model.kv_bytes_per_token(2) == 524_288
    bytes_read = 2 * model.parameters + 1000 * 524_288
    assert seconds == pytest.approx(bytes_read / (device.memory_bandwidth * device.memory_efficiency))


def test_causal_attention_counts_each_pair_once() -> None:
    """A prompt of 4: 1 + 2 + 3 + 4 = 10 pairs; one token after 6: 7 pairs."""
    assert Load.of((4, 1), (0, 6)) == Load(5, 2, 17, 11)
    assert Load.of((1, 1), (3, 6)) == Load(2, 2, 11, 11)


def test_an_outcome_is_complete_and_the_same_each_time(three: Path) -> None:
    first, second = outcome(three), outcome(three)
    assert (first.status, first.violations) == ("ok", [])
    assert first.metrics["unfinished_requests"]["value"] == 0
    assert first.metrics == second.metrics and first.plan == second.plan and first.series == second.series
    assert first.provenance["served"]["model"]["name"] == "llama2-7b"


def test_more_devices_are_faster_and_hold_more_keys(three: Path) -> None:
    one = outcome(three)
    four = outcome(three, {"cluster": {"nodes": 2, "devices_per_node": 2, "device": "a100-80g"}})
    assert four.provenance["served"]["stages"] == 2
    assert "one adapter, ib-200g" in four.provenance["warnings"][0] and not one.provenance["warnings"]
    assert four.provenance["served"]["kv_slots"] > 4 * one.provenance["served"]["kv_slots"]


def test_a_model_too_large_says_how_much_is_missing(three: Path) -> None:
    found = outcome(three, "t4", model="gpt3-175b")
    assert found.status == "infeasible"
    assert found.reason is not None and "gpt3-175b" in found.reason and "are missing" in found.reason


@pytest.mark.parametrize("policy", ["orca", "static_batching", "dynamic_batching"])
def test_an_answer_that_no_memory_holds_is_refused_and_reserved_for_by_nobody(
    policy: str, tmp_path: Path
) -> None:
    """A T4 holds 3,787 tokens of Llama-2-7B; reserving all of its context of 4,096 would refuse everyone."""
    file = tmp_path / "huge.csv"
    file.write_text("arrival,prompt,output\n0,100,10\n0,100,1000000\n0,100,10\n")
    found = outcome(file, "t4", policy)
    assert found.provenance["served"]["kv_slots"] == 3787
    assert found.metrics["rejected_requests"]["value"] == 1
    assert found.provenance["served"]["max_output"] == 10
    assert found.metrics["latency_mean"]["value"] < 1


@pytest.mark.parametrize("policy", ["orca", "static_batching", "dynamic_batching"])
def test_a_reservation_that_answers_outgrow_is_bad_input(policy: str, tmp_path: Path) -> None:
    """A knob that reserves 9 tokens where an answer has 10; an answer that is refused counts for nothing."""
    file = tmp_path / "ten.csv"
    file.write_text("arrival,prompt,output\n0,100,10\n0,100,1000000\n1,100,2\n")
    spec = {"family": "serving", "policy": policy, "workload": {"source": str(file)}, "hardware": "t4"}
    with pytest.raises(BadInput, match=r"9 tokens are reserved .*at least the 10 of the longest answer"):
        run(load_spec({**spec, "knobs": {"max_output": 9}}))
    assert run(load_spec({**spec, "knobs": {"max_output": 10}})).status == "ok"


def test_zoo_models_and_unknown_names(three: Path) -> None:
    assert outcome(three, model="zoo:gpt2").provenance["served"]["model"]["layers"] == 12
    with pytest.raises(BadInput, match="'llama9' is not a model to serve"):
        outcome(three, model="llama9")


def test_a_model_from_its_hf_configuration() -> None:
    config = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "hidden_act": "silu",
    }
    model = served_model("mistral", json.loads(json.dumps(config)))
    assert model.kv_bytes_per_token(2) == 131_072
    assert model.parameters == pytest.approx(7.2e9, rel=0.08)
    with pytest.raises(BadInput, match="num_hidden_layers = None"):
        served_model("broken", {})


def test_on_the_azure_trace_orca_answers_far_sooner_at_equal_load(shared_data: Path) -> None:
    source = shared_data / "serving/azure_llm_2023/AzureLLMInferenceTrace_conv.csv"
    found = {policy: outcome(source, policy=policy, limit=3000) for policy in ("orca", "static-batching")}
    latency = {p: o.metrics["normalized_latency_p50"]["value"] for p, o in found.items()}
    assert all(o.violations == [] for o in found.values())
    assert all(o.metrics["unfinished_requests"]["value"] == 0 for o in found.values())
    assert latency["orca"] < latency["static-batching"] / 5


def test_sarathis_budget_follows_from_an_objective_and_is_told(three: Path) -> None:
    workload = {"source": str(three), "options": {"model": "llama2-7b"}}
    document = {"family": "serving", "policy": "sarathi_chunked", "workload": workload}
    document["hardware"] = "h100-80g"
    budgets = []
    for objective in (0.03, 0.06):
        found = run(load_spec({**document, "knobs": {"slo_tbt": objective}}))
        assert found.metrics["tpot_p99"]["value"] <= objective
        budgets.append(found.provenance["served"]["token_budget"])
    assert budgets[1] > budgets[0] > 128 and budgets[0] % 128 == 0
    refused = run(load_spec({**document, "knobs": {"slo_tbt": 0.001}}))
    assert refused.status == "infeasible" and "knobs.slo_tbt" in refused.reason
