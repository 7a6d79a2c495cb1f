import json
from typing import Any

import pytest

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.spec import load_outcome, load_spec, metrics_json

SPEC: dict[str, Any] = {
    "family": "memory",
    "policy": "baseline",
    "workload": {"source": "zoo:mlp"},
    "hardware": "a100-80g",
}


def test_the_identity_does_not_depend_on_spelling() -> None:
    spelled = {**SPEC, "seed": 0, "mode": "simulated", "knobs": {}}
    assert load_spec(dict(reversed(spelled.items()))).spec_id == load_spec(SPEC).spec_id
    assert load_spec({**SPEC, "seed": 1}).spec_id != load_spec(SPEC).spec_id


def test_the_id_is_the_sha256_of_the_canonical_spec() -> None:
    spec = load_spec(SPEC)
    assert spec.spec_id == jsonio.digest(json.loads(json.dumps(spec.to_json())))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"polcy": 1}, "spec: unknown field 'polcy' = 1"),
        ({"family": "cooking"}, "spec.family: 'cooking' is not a choice"),
        ({"policy": 3}, "spec.policy: 3 is not a name"),
        ({"policy": "a\0b"}, "spec.policy"),
        ({"mode": "guessed"}, "spec.mode: 'guessed' is not a choice"),
        ({"seed": -1}, "spec.seed: -1 is not a seed"),
        ({"seed": True}, "spec.seed"),
        ({"knobs": []}, "spec.knobs: [] is not an object"),
        ({"hardware": 7}, "spec.hardware: 7 is not hardware"),
        (
            {"workload": {"source": "x", "options": {"batch": 0}}},
            "spec.workload.options.batch: 0 is too small",
        ),
        ({"workload": {"source": "x", "options": {"bach": 1}}}, "unknown field 'bach' = 1"),
        ({"workload": {"format": "auto"}}, "field 'source' is missing"),
    ],
)
def test_a_bad_spec_names_field_and_value(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_spec({**SPEC, **change})
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1, NaN]", "NaN is not a JSON number"),
        ('{"a": 1, "a": 2}', "key 'a' appears twice"),
        ("1" * 5000, "integer of 5000 digits"),
        ("1e999", "out of range"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 70 + "]" * 70, "nested too deeply"),
        ('{"a"', "not valid JSON"),
    ],
)
def test_json_is_read_strictly(text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        jsonio.loads(text, "file.json")


def test_a_metric_without_a_unit_cannot_be_reported() -> None:
    assert metrics_json({"step_time": 2})["step_time"] == {"value": 2.0, "unit": "s", "lower_is_better": True}
    with pytest.raises(BadInput, match="unknown metric 'speed'"):
        metrics_json({"speed": 1})
    with pytest.raises(ValueError, match="Out of range"):
        metrics_json({"step_time": float("nan")})


def test_an_outcome_from_elsewhere_is_checked_before_it_is_believed() -> None:
    spec = json.loads(json.dumps(load_spec(SPEC).to_json()))
    good = {
        "spec": spec,
        "spec_id": jsonio.digest(spec),
        "status": "ok",
        "reason": None,
        "metrics": {"step_time": {"value": 1.5}},
        "series": {},
        "plan": {},
        "violations": [],
        "provenance": {},
    }
    assert load_outcome(good).metrics["step_time"]["unit"] == "s"
    with pytest.raises(BadInput, match="not the hash of the spec"):
        load_outcome({**good, "spec_id": "0" * 64})
    with pytest.raises(BadInput, match="no numeric value"):
        load_outcome({**good, "metrics": {"step_time": {"value": "fast"}}})
    with pytest.raises(BadInput, match="unknown field 'extra'"):
        load_outcome({**good, "extra": 1})
