"""Memory and parallel runs keep the same for each parameter, on one device, for every precision."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from experiments.core.errors import BadInput
from experiments.core.precision import PRECISIONS, describe_states, state_bytes
from experiments.core.spec import load_spec
from experiments.run import run

pytestmark = pytest.mark.torch

ONE = {"nodes": 1, "devices_per_node": 1, "device": "h200", "node_link": "nvlink-v100", "network": "ib-100g"}
HARDWARE: dict[str, Any] = {"memory": "h200", "parallel": {"cluster": ONE}}
BASELINES = {"memory": "baseline", "parallel": "data_parallel"}


def outcome(family: str, model: str, policy: str = "", **options: Any) -> Any:
    return run(
        load_spec(
            {
                "family": family,
                "policy": policy or BASELINES[family],
                "workload": {"source": f"zoo:{model}", "options": {"batch": 2, **options}},
                "hardware": HARDWARE[family],
            }
        )
    )


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", ["mlp", "gpt2-tiny"])
def test_states_are_the_same_in_both_families(model: str, precision: str, optimizer: str) -> None:
    found = [outcome(family, model, precision=precision, optimizer=optimizer) for family in BASELINES]
    sizes = {done.metrics["persistent_bytes"]["value"] for done in found}
    assert len(sizes) == 1
    notes = [done.provenance["states"] for done in found]
    assert notes[0] == notes[1]
    dtype = "float32" if precision == "fp32" else "bfloat16"
    assert notes[0]["bytes_per_parameter"] == state_bytes(dtype, optimizer, precision).parts
    assert notes[0]["precision"] == precision


def test_seven_billion_parameters_take_16_and_18_bytes() -> None:
    """Weights 2, gradients 2 or 4, master weights 4, two moments of 4; divided by 8 replicas, 6 + 12/8."""
    assert state_bytes("bfloat16", "adamw", "bf16-mixed").total == 16
    held = state_bytes("bfloat16", "adamw", "bf16-mixed-fp32-grads")
    assert held.total == 18
    assert held.on_device(7e9, zero=1, degree=8) == 7e9 * (6 + 12 / 8)
    both = state_bytes("bfloat16", "adamw", "bf16-mixed-both-grads")
    assert both.total == 20 and both.gradient == 4
    assert both.on_device(7e9, zero=1, degree=8) == 7e9 * (8 + 12 / 8)


def test_megatron_keeps_gradients_of_bfloat16_in_float32() -> None:
    sixteen = outcome("parallel", "gpt2-tiny", policy="megatron", dtype="float16")
    brain = outcome("parallel", "gpt2-tiny", policy="megatron", dtype="bfloat16")
    assert sixteen.provenance["states"]["precision"] == "bf16-mixed"
    assert brain.provenance["states"]["precision"] == "bf16-mixed-fp32-grads"


def test_states_in_words() -> None:
    note = {"precision": "bf16-mixed", "bytes_per_parameter": {"weights": 2, "gradients": 2}}
    assert describe_states(note) == "2 weights + 2 gradients = 4 bytes a parameter (bf16-mixed)"


@pytest.mark.parametrize(
    ("dtype", "precision", "expected"),
    [("float32", "bf16-mixed", "bfloat16 or float16"), ("bfloat16", "fp32", "float32 or float64")],
)
def test_type_and_precision_may_not_contradict(dtype: str, precision: str, expected: str) -> None:
    for family in BASELINES:
        with pytest.raises(BadInput, match=expected):
            outcome(family, "gpt2-tiny", dtype=dtype, precision=precision)
