"""On a model that no device holds every parallel policy finds a plan by itself, or says what it keeps whole.

LLaMA-2 7B has 16 bytes of states for each of 6.74e9 parameters, 108 GB, and a device 80 GiB. A policy that is
not for such models declares it (``keeps_whole``), and its refusal says so; any other refusal fails here.
"""

from __future__ import annotations

import functools

import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.knobs import LEFT_OPEN, describe
from experiments.core.spec import Outcome, load_spec
from experiments.parallel.interface import ParallelPolicy
from experiments.run import run

SPEC = {
    "family": "parallel",
    "workload": {"source": "zoo:llama2-7b", "options": {"batch": 8, "sequence": 512}},
    "hardware": {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "h100-80g"}},
}
POLICIES = [p for p in registry.family_policies("parallel").values() if issubclass(p, ParallelPolicy)]
#: Policies of the family that answered when this was written: a change that loses one is noticed.
LEAST = 22


@functools.cache
def outcome(name: str) -> Outcome | str:
    """What a spec without knobs leads to (searches are short), or the refusal in words."""
    policy = registry.policy_class("parallel", name)
    try:
        return run(load_spec({**SPEC, "policy": name, "knobs": dict(policy.quick)}))
    except BadInput as refusal:
        return str(refusal)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_it_answers_or_keeps_something_whole(policy: type[ParallelPolicy]) -> None:
    found = outcome(policy.name)
    if isinstance(found, Outcome) and found.status == "ok":
        assert found.metrics["peak_memory_per_device"]["value"] <= 80 * 2**30
        return
    assert policy.keeps_whole, found if isinstance(found, str) else found.reason
    if isinstance(found, Outcome):
        assert (found.reason or "").endswith(policy.keeps_whole)
    pytest.skip(policy.keeps_whole)


def test_most_of_the_family_answers() -> None:
    answers = [
        p.name for p in POLICIES if isinstance(found := outcome(p.name), Outcome) and found.status == "ok"
    ]
    assert len(answers) >= LEAST, answers


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_knob_that_is_left_open_says_so_and_is_settled(policy: type[ParallelPolicy]) -> None:
    found = outcome(policy.name)
    open_knobs = {knob.name for knob in describe(policy) if knob.is_open}
    for knob in describe(policy):
        assert knob.is_open == knob.help.endswith(LEFT_OPEN)
    if isinstance(found, Outcome) and found.status == "ok" and open_knobs:
        assert set(found.provenance["settled"]) <= open_knobs
        assert found.provenance["settled"], "an open knob gets a value"
