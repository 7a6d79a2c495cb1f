"""A stored step has the sizes that it was captured with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.sources import load
from experiments.summaries import summary
from experiments.workloads import storage
from experiments.workloads.step import Step
from tests.experiments.summaries.test_summaries import step

FACTS = {"batch": 8, "sequence": None, "dtype": "float32", "optimizer": "adamw", "precision": "fp32"}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    storage.save(replace(step([0.0]), facts=FACTS), tmp_path / "step.npz")
    return tmp_path / "step.npz"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"batch": 4}, "batch 4 of step.npz, a step that was captured with batch 8"),
        ({"sequence": 128}, "captured with no sequence"),
        ({"optimizer": "sgd"}, "captured with optimizer adamw"),
    ],
)
def test_another_size_is_refused_with_the_name_of_the_option(
    stored: Path, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        load(Workload(str(stored), options=WorkloadOptions(**asked)))
    assert caught.value.where == f"options.{next(iter(asked))}"


def test_what_it_was_captured_with_may_be_said(stored: Path) -> None:
    """As runs of its model do; what a reading tells of it is what forms hold options against."""
    found = load(Workload(str(stored), options=WorkloadOptions(batch=8, dtype="float32"))).value
    assert isinstance(found, Step)
    assert summary(found)["facts"] == FACTS
