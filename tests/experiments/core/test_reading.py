"""What a run reads is decided in one place, and refused in one wording wherever it is asked for."""

from __future__ import annotations

import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import MODEL, MODES, SIZES, STEP
from experiments.core.reading import KINDS, families_reading, refuse_unreadable, what_is_read


@pytest.mark.parametrize(
    ("family", "policy", "mode", "kind", "tells_sizes", "read"),
    [
        ("memory", "vdnn-all", "simulated", "model", True, "step"),
        ("memory", "vdnn-all", "measured", "model", False, "model"),
        ("memory", "vdnn-all", "simulated", "step", False, "step"),
        ("parallel", "megatron", "simulated", "model", True, "model"),
        ("parallel", "megatron", "simulated", "model", False, "step"),
        ("parallel", "gpipe", "simulated", "model", True, "step"),
        ("compilation", "taso", "simulated", "model", False, "model"),
        ("cluster", "fifo", "simulated", "jobs", False, "jobs"),
    ],
)
def test_a_model_is_captured_first_unless_it_is_asked_for(
    family: str, policy: str, mode: str, kind: str, tells_sizes: bool, read: str
) -> None:
    owner = registry.policy_class(family, policy)
    assert what_is_read(owner, mode, kind, tells_sizes=tells_sizes) == read


@pytest.mark.parametrize(
    ("family", "policy", "mode", "kind", "message"),
    [
        ("memory", "vdnn-all", "measured", "step", "w: is a training step (expected a model)"),
        ("compilation", "ansor", "simulated", "model", "w: is a model (expected a tuning log)"),
        ("compilation", "roller", "simulated", "jobs",
         "w: is a cluster job trace (expected a model or a list of operators)"),
        ("serving", "orca", "simulated", "jobs", "w: is a cluster job trace (expected a request trace)"),
    ],
)  # fmt: skip
def test_a_workload_of_another_kind_is_refused_in_one_wording(
    family: str, policy: str, mode: str, kind: str, message: str
) -> None:
    with pytest.raises(BadInput) as refused:
        refuse_unreadable(registry.policy_class(family, policy), mode, kind, "w")
    assert str(refused.value) == message


def test_every_policy_says_for_each_of_its_modes_which_workloads_it_reads() -> None:
    for policy in registry.all_policies():
        for mode in policy.modes:
            assert set(policy.workloads[mode]) <= set(KINDS) and policy.workloads[mode], (policy.name, mode)
        assert set(policy.workloads) <= set(MODES) and policy.reads in (STEP, MODEL, SIZES)


def test_families_are_known_by_what_their_policies_read() -> None:
    assert families_reading("model") == ["memory", "parallel", "compilation", "serving"]
    assert families_reading("split") == ["serving"]
    assert families_reading("tuning") == ["compilation"]
    assert families_reading("jobs") == ["cluster"]
    assert families_reading("rules") == []
