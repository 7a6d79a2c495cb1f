"""Files of substitution rules: what is in the published ones, and what a broken one is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from experiments.commands import inspect
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.readers.base import open_file
from experiments.workloads.substitutions import Operand, Operator, Substitution, Substitutions

#: One rule: relu(t1) may become relu(relu(t1)); -1 is a varint of ten bytes.
MINUS_ONE = b"\xff" * 9 + b"\x01"
VARIABLE = b"\x08" + MINUS_ONE + b"\x10\x00"


def message(number: int, body: bytes) -> bytes:
    size = bytes([len(body)]) if len(body) < 128 else bytes([len(body) & 127 | 128, len(body) >> 7])
    return bytes([number << 3 | 2]) + size + body


RELU = b"\x08\x08" + message(2, VARIABLE)
AGAIN = b"\x08\x08" + message(2, b"\x08\x00\x10\x00")
MAPPED = b"\x08\x00\x10\x01\x18\x00\x20\x00"
RULE = message(1, RELU) + message(2, RELU) + message(2, AGAIN) + message(3, MAPPED)


def read(path: Path, data: bytes, format: str = "auto") -> Substitutions:
    path.write_bytes(data)
    value = open_file(path, format, WorkloadOptions()).reading.value
    assert isinstance(value, Substitutions)
    return value


def test_a_rule_is_decoded_byte_by_byte(tmp_path: Path) -> None:
    (rule,) = read(tmp_path / "one.pb", message(1, RULE)).rules
    relu = Operator("relu", (Operand(-1),))
    again = Operator("relu", (Operand(0),))
    assert rule == Substitution("taso-0", (relu,), (relu, again), ((Operand(0), Operand(1)),))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (message(1, RULE)[:-3], "not a RuleCollection"),
        (message(1, message(1, b"\x08\x7f" + message(2, VARIABLE)) + message(2, RELU)), "code 127"),
        (
            message(1, message(1, AGAIN) + message(2, RELU) + message(3, MAPPED)),
            "reads output 0 of operator 0",
        ),
        (message(1, message(1, RELU) + message(2, RELU) + message(3, MAPPED)), "maps output 0 of operator 1"),
        (message(1, message(1, RELU) * 17 + message(2, RELU)), "too many operators"),
    ],
)
def test_a_broken_collection_is_told_where(tmp_path: Path, data: bytes, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path / "bad.pb", data, "taso-rules")


def flexflow_rule(**changes: object) -> dict[str, object]:
    relu = {"type": "OP_RELU", "input": [{"opId": -1, "tsId": 0}], "para": []}
    mapped = {"srcOpId": 0, "srcTsId": 0, "dstOpId": 0, "dstTsId": 0}
    return {"name": "same", "srcOp": [relu], "dstOp": [relu], "mappedOutput": [mapped]} | changes


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "\x1b[31m"}, "name"),
        ({"srcOp": [{"type": "RELU"}]}, "'RELU'"),
        ({"dstOp": []}, "maps output 0 of operator 0"),
        ({"mappedOutput": [{"srcOpId": True}]}, "srcOpId = True"),
        ({"mappedOutput": []}, "no outputs mapped"),
    ],
)
def test_a_broken_json_rule_is_told_where(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    good = json.dumps({"_t": "RuleCollection", "rule": [flexflow_rule()]}).encode()
    assert len(read(tmp_path / "good.json", good).rules) == 1
    bad = json.dumps({"_t": "RuleCollection", "rule": [flexflow_rule(**changes)]}).encode()
    with pytest.raises(BadInput, match=complaint):
        read(tmp_path / "bad.json", bad)


def test_tasos_shipped_file_has_133_rules(shared_data: Path) -> None:
    opened = open_file(shared_data / "compilation/taso_graph_subst.pb", "auto", WorkloadOptions())
    assert opened.reader.format == "taso-rules"
    rules = opened.reading.value
    assert rules.census()["mapped outputs"] == {"1": 120, "2": 13} and len(rules.rules) == 133
    kinds = set().union(*(rule.kinds for rule in rules.rules))
    assert kinds == {"concat", "matmul", "ew_add", "ew_mul", "conv2d", "relu", "split"}


def test_flexflows_shipped_file_has_640_rules_112_of_them_unbindable(shared_data: Path) -> None:
    path = shared_data / "compilation/flexflow_graph_subst_3_v2.json.gz"
    rules = open_file(path, "auto", WorkloadOptions()).reading.value
    census = rules.census()
    assert (census["operators"]["3->3"], len(rules.rules)) == (519, 640)
    assert census["mapped outputs"] == {"1": 571, "2": 69}
    assert census["parallel operators"] == {"none": 136, "all": 189, "some": 315}
    assert census["bindable"] == {"yes": 528, "no": 112}
    assert json.loads(gzip.decompress(path.read_bytes()))["rule"][0]["name"] == rules.rules[0].name


def test_a_small_packed_file_of_endless_rules_is_refused_at_its_bound(tmp_path: Path) -> None:
    """A thousand rules of 32 operators with 16 inputs each have half a million inputs."""
    wide = b"\x08\x10" + message(2, VARIABLE) * 16
    rule = message(1, wide) * 16 + message(2, wide) * 16 + message(3, MAPPED)
    with pytest.raises(BadInput, match="more than 200000 inputs of operators, at rule 390"):
        read(tmp_path / "wide.pb", message(1, rule) * 1000, "taso-rules")


def test_of_many_rules_the_first_thousand_are_judged_with_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "MOST_JUDGED", 2)
    (tmp_path / "five.pb").write_bytes(message(1, RULE) * 5)
    steps: list[float] = []
    found = inspect.inspection(Workload(str(tmp_path / "five.pb")), lambda done, step: steps.append(done))
    assert (len(found["verdicts"]), steps) == (2, [0.0, 0.5])
    assert found["warnings"][0].endswith("by runs that use them: 3 rules")
