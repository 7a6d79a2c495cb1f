"""Options with nothing left open: a run says what it was about, whatever was typed."""

from dataclasses import replace

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload, load_spec
from experiments.models.catalog import ZooModel
from experiments.models.step_options import spell_out
from experiments.run import run
from experiments.sources import complete_options, load

USUAL = ZooModel("some", "", "", batch=8, sequence=1024, optimizer="adamw", dtype="bfloat16")


def test_what_is_left_open_is_the_models_own() -> None:
    found = spell_out(WorkloadOptions(), USUAL)
    assert (found.batch, found.sequence, found.image) == (8, 1024, None)
    assert (found.dtype, found.precision, found.optimizer) == ("bfloat16", "bf16-mixed", "adamw")


def test_what_is_said_stays() -> None:
    given = WorkloadOptions(batch=2, sequence=64, dtype="float32", optimizer="sgd")
    assert spell_out(given, USUAL) == replace(given, precision="fp32")


def test_gradients_of_a_system_that_keeps_them_in_float32() -> None:
    assert spell_out(WorkloadOptions(), USUAL, fp32_gradients=True).precision == "bf16-mixed-fp32-grads"


def test_a_forward_pass_has_no_states() -> None:
    found = spell_out(WorkloadOptions(training=False), USUAL)
    assert (found.precision, found.optimizer) == (None, None)


def test_a_contradiction_is_refused() -> None:
    with pytest.raises(BadInput, match="precision"):
        spell_out(WorkloadOptions(dtype="float32", precision="bf16-mixed"), USUAL)


def test_a_published_model_brings_its_own_length_and_kernels() -> None:
    workload = Workload("zoo:megatron-175b", options=WorkloadOptions(batch=3))
    found = complete_options(workload, load(workload)).options
    assert (found.batch, found.sequence, found.kernels, found.attention) == (3, 2048, "fused", "math")


@pytest.mark.torch
def test_the_same_run_said_in_two_ways_is_one() -> None:
    """An outcome's spec leaves nothing open, so it is that of the spec that said it all."""
    spec = {"family": "memory", "policy": "baseline", "hardware": "a100-40g"}
    plain = run(load_spec({**spec, "workload": {"source": "zoo:mlp"}}))
    told = {"batch": 32, "dtype": "float32", "precision": "fp32", "optimizer": "momentum"}
    options = plain.spec["workload"]["options"]
    assert {name: options[name] for name in told} == told
    said = run(load_spec({**spec, "workload": {"source": "zoo:mlp", "options": options}}))
    assert (said.spec_id, said.metrics) == (plain.spec_id, plain.metrics)
