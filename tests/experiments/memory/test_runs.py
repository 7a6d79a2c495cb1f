"""Whole memory runs: G10 traces and captured models through ``run``."""

from __future__ import annotations

import pytest

from experiments.core.spec import load_spec
from experiments.run import run

GIB = 2**30


def outcome(policy: str, source: str, hardware, **options):
    workload = {"source": source, "options": options}
    return run(load_spec({"family": "memory", "policy": policy, "workload": workload, "hardware": hardware}))


def value(result, name: str) -> float:
    return result.metrics[name]["value"]


def device(memory: int):
    return {"device": "a100-80g", "overrides": {"memory_bytes": memory}}


@pytest.fixture(scope="module")
def bert(shared_data) -> str:
    return str(shared_data / "memory" / "g10" / "BERT_Base_256.json.gz")


def test_bert_without_a_policy_takes_its_ideal_time_and_its_live_peak(bert):
    done = outcome("baseline", bert, "a100-80g")
    assert value(done, "step_time") == value(done, "ideal_step_time") == pytest.approx(7.28547, abs=5e-6)
    assert value(done, "peak_memory") / GIB == pytest.approx(47.76, abs=0.005)
    assert max(done.series["device_bytes"]["y"]) == value(done, "peak_memory")


def test_cutting_the_batch_does_not_change_what_is_ideal(bert):
    cut = outcome("gradient_accumulation", bert, "a100-40g")
    assert cut.status == "ok" and cut.plan["splits"] > 1
    assert value(cut, "ideal_step_time") == pytest.approx(7.28547, abs=5e-6)
    assert value(cut, "step_time") > value(cut, "ideal_step_time") and value(cut, "stall_time") == 0


def test_every_channel_has_a_lane_and_the_parts_of_the_step_add_up(bert):
    done = outcome("swap_all", bert, "a100-40g")
    parts = ("stall_time", "overlap_time", "execution_time")
    assert sum(value(done, part) for part in parts) == pytest.approx(value(done, "step_time"), rel=1e-12)
    assert {"channel.out", "channel.back", "channel.stall"} <= set(done.series)
    assert done.provenance["peak_by_tier"]["host"] == value(done, "host_peak_memory")


def test_vdnn_dyn_moves_nothing_where_the_live_peak_fits_and_something_a_byte_below(bert):
    peak = int(value(outcome("baseline", bert, "a100-80g"), "peak_memory"))
    assert outcome("vdnn-dyn", bert, device(peak)).plan["moves"] == []
    below = outcome("vdnn-dyn", bert, device(peak - 1))
    assert below.status == "ok" and below.plan["moves"] and value(below, "peak_memory") < peak


@pytest.mark.parametrize("policy", ["baseline", "swap_all", "vdnn-all", "vdnn-dyn", "checkpoint"])
def test_below_the_largest_op_every_policy_is_infeasible_at_that_op(bert, policy):
    done = outcome(policy, bert, device(2_415_919_104 - 1))
    assert done.status == "infeasible"
    assert (
        done.reason.startswith("op 1331 (Add_MultiGredient, backward)")
        and "1 bytes are missing" in done.reason
    )


def test_swap_all_trades_time_for_memory(bert):
    done = outcome("swap_all", bert, device(40 * GIB))
    assert done.status == "ok" and done.violations == []
    assert value(done, "peak_memory") <= 40 * GIB
    assert value(done, "step_time") > value(done, "ideal_step_time")
    assert (
        value(done, "offloaded_bytes") == value(done, "prefetched_bytes") == value(done, "host_peak_memory")
    )


def test_the_same_spec_gives_the_same_outcome(bert):
    first, second = (outcome("vdnn-all", bert, device(40 * GIB)).to_json() for _ in range(2))
    first.pop("provenance"), second.pop("provenance")
    assert first == second


def test_a_host_too_small_for_what_leaves_is_infeasible_not_a_wrong_plan(bert):
    hardware = {"device": "a100-80g", "overrides": {"host_memory_bytes": 20e9}}
    done = outcome("swap_all", bert, hardware)
    assert done.status == "infeasible" and "host do not fit" in done.reason
    moved = {str(move["tensor"]) for move in done.plan["moves"]}
    assert moved <= set(done.provenance["names"]["tensors"])


def test_a_plan_that_does_not_fit_tells_the_least_device_that_carries_it_out(bert):
    """The surprise: a plan that lacks host memory lacks it with any device, so nothing is told of it."""
    whole = outcome("baseline", bert, "a100-80g")
    told = outcome("baseline", bert, device(40 * GIB)).provenance["least_device"]
    assert told == {"memory": value(whole, "peak_memory"), "step_time": value(whole, "step_time")}
    hardware = {"device": "a100-80g", "overrides": {"host_memory_bytes": 20e9}}
    assert "least_device" not in outcome("swap_all", bert, hardware).provenance


def test_a_plan_that_can_wait_for_memory_needs_less_than_when_nothing_waits(bert):
    """On the least device the plan of a smaller one runs, a little below it does not."""
    lost = outcome("checkpoint", bert, device(8 * GIB))
    assert lost.status == "infeasible"
    told = lost.provenance["least_device"]
    assert 8 * GIB < told["memory"] < value(outcome("baseline", bert, "a100-80g"), "peak_memory")
    assert told["memory"] - 8 * GIB >= lost.provenance["missing_bytes"]


def test_a_plan_with_addresses_needs_what_its_holes_want_and_no_more(bert):
    told = outcome("gtbm", bert, device(5 * GIB))
    assert told.status == "infeasible"
    peak = value(outcome("baseline", bert, "a100-80g"), "peak_memory")
    assert 5 * GIB < told.provenance["least_device"]["memory"] <= 2 * peak


def test_a_machine_without_host_memory_is_one_that_nothing_can_leave_for(bert):
    hardware = {"device": "a100-40g", "overrides": {"host_memory_bytes": 0}}
    done = outcome("swap_all", bert, hardware)
    assert done.status == "infeasible" and "host do not fit" in done.reason
    assert outcome("checkpoint", bert, hardware).status == "ok"


@pytest.mark.torch
@pytest.mark.parametrize("policy", ["swap_all", "vdnn-all", "checkpoint"])
def test_a_forward_pass_alone_saves_nothing_and_moves_nothing(policy):
    done = outcome(policy, "zoo:gpt2-tiny", "a100-80g", training=False)
    assert done.status == "ok" and done.plan["moves"] == []


@pytest.mark.torch
def test_vgg16_at_batch_256_needs_vdnn_on_a_12_gb_titan_x():
    options = {"batch": 256, "optimizer": "sgd", "dtype": "float32"}
    assert outcome("baseline", "zoo:vgg16", "titan-x-12g", **options).status == "infeasible"
    done = outcome("vdnn-all", "zoo:vgg16", "titan-x-12g", **options)
    assert done.status == "ok"
    assert value(done, "peak_memory") < 12 * GIB
    assert value(done, "mfu") == value(done, "hfu") < 1
    assert value(done, "samples_per_second") == pytest.approx(256 / value(done, "step_time"))


@pytest.mark.torch
def test_checkpointing_raises_hfu_above_mfu_and_jct_is_steps_times_step_time():
    done = outcome("checkpoint", "zoo:gpt2-tiny", "a100-80g", steps=1000)
    assert value(done, "hfu") > value(done, "mfu")
    assert value(done, "jct") == 1000 * value(done, "step_time")
