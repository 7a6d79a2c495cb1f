"""G10 and FlashNeuron carried out by torch on a device that holds less than the step: the same parameters,
fewer bytes.
"""

from __future__ import annotations

import pytest

from experiments.core.spec import Outcome, load_spec
from experiments.run import run

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WORKLOAD = {"source": "zoo:mlp", "options": {"batch": 4096, "optimizer": "sgd"}}


def measured(policy: str, hardware: object, **knobs: object) -> Outcome:
    row = {"family": "memory", "policy": policy, "knobs": knobs, "workload": WORKLOAD}
    return run(load_spec({**row, "hardware": hardware, "mode": "measured"}))


#: Kernels of a GPU take scratch of their own, which no plan knows of.
SCRATCH = 16e6 if torch.cuda.is_available() else 0.0


@pytest.fixture(scope="module")
def peak() -> float:
    return float(measured("baseline", "local").provenance["predicted"]["peak_memory"])


@pytest.mark.parametrize(("policy", "share"), [("g10", 0.7), ("g10-gds", 0.8), ("flashneuron", 0.9)])
def test_what_leaves_comes_back_bit_for_bit(policy, share, peak):
    found = measured(policy, {"device": "local", "overrides": {"memory_bytes": share * peak}})
    assert found.status == "ok", found.reason
    value = {name: entry["value"] for name, entry in found.metrics.items()}
    assert value["max_parameter_difference"] == 0
    assert value["offloaded_bytes"] == value["prefetched_bytes"] > 0
    assert value["peak_memory"] <= share * peak + SCRATCH
