"""Which Step a simulated run is given: times measured on the device that is simulated, else the captured
Step.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.cast import Cast, ready
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import trash
from webapp.runs import derivation

pytestmark = pytest.mark.django_db
BATCH = {"batch": 8}


def profiled(model: Artifact, key: str, timed_on: str, options: dict[str, Any]) -> Artifact:
    facts = {"timing": "measured", "timed_on": timed_on}
    summary = {"facts": facts, "options": options}
    return Artifact.objects.create(
        project=model.project, parent=model, source="derived", derive_key=key, state="ready", summary=summary
    )


@pytest.fixture
def model(cast: Cast) -> Artifact:
    return ready(cast.project)


def test_a_profile_is_used_for_its_own_device_from_then_on(model: Artifact) -> None:
    assert derivation.measured_step(model, BATCH, "h200-141g") is None
    profiled(model, "first", "NVIDIA H200", BATCH)
    newest = profiled(model, "second", "NVIDIA H200", BATCH)
    for hardware in ("h200-141g", "h200", {"device": "h200", "overrides": {"memory_bytes": 1e9}}):
        assert derivation.measured_step(model, BATCH, hardware) == newest


def test_times_of_one_device_say_nothing_about_another(model: Artifact) -> None:
    profiled(model, "gpu", "NVIDIA H200", BATCH)
    profiled(model, "cpu", "cpu:some processor", BATCH)
    assert derivation.measured_step(model, BATCH, "a100-40g") is None
    assert derivation.measured_step(model, {"batch": 16}, "h200-141g") is None
    assert derivation.measured_step(model, BATCH, [{"nodes": 1}]) is None


def test_a_processor_is_on_the_sheet_that_stands_for_any_cpu(model: Artifact) -> None:
    timed = profiled(model, "cpu", "cpu:some processor", BATCH)
    assert derivation.measured_step(model, BATCH, "cpu-generic") == timed
    assert derivation.measured_step(model, BATCH, {"device": "cpu", "overrides": {}}) == timed


def test_a_profile_in_the_trash_is_not_used(model: Artifact) -> None:
    trash(profiled(model, "gpu", "NVIDIA H200", BATCH))
    assert derivation.measured_step(model, BATCH, "h200-141g") is None
