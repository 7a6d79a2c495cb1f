"""A run whose workload names a file of rules searches by these and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.run import run
from tests.experiments.readers.test_rules import RULE, message


def spec(extra: Path) -> object:
    workload = {"source": "zoo:mlp", "options": {"batch": 2, "extra": str(extra)}}
    return {"family": "compilation", "policy": "taso", "workload": workload, "hardware": "v100-16g"}


def test_the_rule_of_the_file_is_judged_and_not_followed_because_it_is_dearer(tmp_path: Path) -> None:
    file = tmp_path / "one.pb"
    file.write_bytes(message(1, RULE))  # relu(a) => relu(relu(a))
    outcome = run(load_spec(spec(file)))
    assert outcome.status == "ok" and outcome.metrics["speedup"]["value"] == 1.0
    assert outcome.plan["search"]["rules"] == 1 and outcome.plan["applied"] == []


def test_a_side_file_without_rules_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 9}')
    with pytest.raises(BadInput, match="is a model"):
        run(load_spec(spec(file)))
