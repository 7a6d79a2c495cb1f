"""The G10 kernel traces: what is in them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.commands.inspect import inspection
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.readers.base import open_file
from experiments.workloads.step import KINDS


def small() -> dict:
    """A batch is looked up, a weight is used and updated: five ops, seven tensors."""
    return {
        "model": "Small",
        "batch": 2,
        "ops_cols": ["name", "us", "inputs", "outputs"],
        "ops": [
            ["GatherV2_Forward", 1.0, [0, 1], [2]],
            ["Linear_Forward", 2.5, [2, 3], [4]],
            ["makeLoss", 1, [4], [5]],
            ["Linear_Backward_Weight", 2.0, [5, 2], [6]],
            ["Linear_Apply_Grad_Weight", 0.5, [6, 3], [3]],
        ],
        "tensors_cols": ["bytes", "is_global"],
        "tensors": {
            "0": [8, 0],
            "1": [80, 1],
            "2": [16, 0],
            "3": [40, 1],
            "4": [16, 0],
            "5": [16, 0],
            "6": [40, 0],
        },
    }


def read(tmp_path: Path, content: object, **options):
    path = tmp_path / "trace.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return open_file(path, "auto", WorkloadOptions(**options)).reading.value


def test_kinds_and_phases_follow_from_names_and_uses(tmp_path):
    step = read(tmp_path, small())
    kinds = [KINDS[kind] for kind in step.tensors.kind]
    # 0: token ids, read only; 2: read in the backward pass; 5: the loss, made at the end of the forward pass
    expected = ["temporary", "parameter", "activation", "parameter", "temporary", "activation", "gradient"]
    assert kinds == expected
    assert [step.phase_of(op) for op in range(5)] == ["forward"] * 3 + ["backward", "optimizer"]
    assert step.persistent_bytes == 120
    # op 3 holds the loss, the activation, the gradient and both parameters
    assert step.live_peak == 120 + 16 + 16 + 40 and step.op_need.tolist() == [104, 72, 32, 72, 80]
    assert step.ops.seconds.tolist() == [1e-6, 2.5e-6, 1e-6, 2e-6, 0.5e-6]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ops_cols": ["us", "name", "inputs", "outputs"]}, "ops_cols"),
        ({"tensors": {"1": [8, 0]}}, "tensor ids"),
        ({"tensors": {"0": [-8, 0]}}, "tensor 0: bytes: -8"),
        ({"ops": []}, "0 ops"),
        ({"ops": [["x", -1.0, [], []]]}, "op 0: us = -1.0"),
        ({"ops": [["x", True, [], [99]]]}, "op 0"),
        ({"ops": [["x", 1.0, [], [7]]]}, "op 0: outputs: 7"),
        ({"ops": [["x", 1.0, [0.5], []]]}, "op 0: inputs: 0.5"),
        ({"ops": [["x", 1.0]]}, "op 0"),
        ({"batch": 0}, "batch: 0"),
    ],
)
def test_a_bad_trace_is_refused_with_its_place(tmp_path, change, complaint):
    with pytest.raises(BadInput, match=complaint.replace("(", r"\(")):
        read(tmp_path, {**small(), **change})


def test_infinite_times_are_refused(tmp_path):
    with pytest.raises(BadInput, match="Infinity"):
        read(tmp_path, json.dumps(small()).replace("2.5", "Infinity"))


def test_exact_cycles_come_from_the_side_file(tmp_path):
    cycles = [1200, 3000, 1200, 2400, 601]
    extra = {
        "cycles": cycles,
        "input_fault_cycles": cycles,
        "fault_cycles": cycles,
        "touch_overrides": {"0": [2, 1, 0]},
    }
    side = tmp_path / "extra.json"
    side.write_text(json.dumps(extra))
    step = read(tmp_path, small(), extra=str(side))
    assert step.ops.seconds[4] == 601 / 1.2e9
    assert step.facts["g10"]["touch_overrides"] == {"0": [2, 1, 0]}
    side.write_text(json.dumps({**extra, "cycles": [1]}))
    with pytest.raises(BadInput, match="cycles has 1 rows"):
        read(tmp_path, small(), extra=str(side))


def test_bert_base_256_has_the_published_figures(shared_data):
    path = shared_data / "memory" / "g10" / "BERT_Base_256.json.gz"
    opened = open_file(path, "auto", WorkloadOptions())
    step = opened.reading.value
    assert opened.reader.format == "g10"
    assert (len(step.ops), len(step.tensors)) == (1369, 1463)
    assert step.seconds * 1e3 == pytest.approx(7285.47, abs=0.005)
    assert step.persistent_bytes == 17_823_494_144
    assert step.persistent_bytes / 2**30 == pytest.approx(16.599, abs=0.0005)
    assert step.live_peak / 2**30 == pytest.approx(47.76, abs=0.005)
    assert int(step.op_need.max()) == 2_415_919_104 == int(2.25 * 2**30)


def test_sizes_need_no_rounding_to_pages_in_any_published_trace(shared_data):
    paths = sorted((shared_data / "memory" / "g10").glob("*.json.gz"))
    assert len(paths) == 40
    for path in paths[::8]:
        step = open_file(path, "g10", WorkloadOptions()).reading.value
        assert not (step.tensors.bytes % 4096).any(), path.name
        assert np.isfinite(step.ops.seconds).all()


def test_the_exact_times_of_bert_agree_with_the_rounded_ones(shared_data):
    name = "BERT_Base_256.json.gz"
    path, side = shared_data / "memory" / "g10" / name, shared_data / "memory" / "g10_extra" / name
    exact = open_file(path, "g10", WorkloadOptions(extra=str(side))).reading.value
    rounded = open_file(path, "g10", WorkloadOptions()).reading.value
    assert exact.seconds == pytest.approx(rounded.seconds, rel=1e-6)


def family(folder: Path, **times: list[float]) -> None:
    """Traces ``Small_<batch>.json`` of the small model with these microseconds."""
    for batch, microseconds in times.items():
        content = small()
        content["batch"] = int(batch.removeprefix("b"))
        content["ops"] = [[op[0], us, *op[2:]] for op, us in zip(content["ops"], microseconds, strict=True)]
        (folder / f"Small_{content['batch']}.json").write_text(json.dumps(content))


def lines(path: Path) -> list[str]:
    return [warning for warning in inspection(Workload(str(path)))["warnings"] if "line" in warning]


def test_inspect_says_which_times_lie_on_a_line_between_two_batch_sizes(tmp_path):
    # batch 4 is a third of the way from 2 to 8, but for the load, which takes 5 whatever the batch
    family(tmp_path, b2=[5, 1, 2, 3, 4], b4=[5, 2, 4, 5, 6], b8=[5, 4, 8, 9, 10], b16=[5, 9, 15, 20, 18])
    found = {batch: lines(tmp_path / f"Small_{batch}.json") for batch in (2, 4, 8, 16)}
    assert found[4] == ["every op's time lies on the line between batch 2 and batch 8: interpolated"]
    assert found[2] == found[8] == found[16] == []


def test_another_model_or_a_broken_file_beside_a_trace_says_nothing(tmp_path):
    family(tmp_path, b2=[1, 1, 2, 3, 4], b4=[2, 2, 4, 5, 6], b8=[4, 4, 8, 9, 10])
    (tmp_path / "Small_2.json").write_text(
        (tmp_path / "Small_2.json").read_text().replace('"Small"', '"Other"')
    )
    (tmp_path / "Small_3.json").write_text("{")
    assert lines(tmp_path / "Small_4.json") == []


def test_a_step_that_uses_little_of_an_a100_is_doubted(tmp_path):
    # one linear layer of 1,000 x 1,000 x 1,000: 6e9 FLOPs in training; 19.5e12 a second need 0.31 ms, 2 % is
    # 15.4 ms
    content = small()
    content["tensors"] |= {"2": [4_000_000, 0], "3": [4_000_000, 1], "4": [4_000_000, 0]}
    found = []
    for microseconds in (15_000, 31_000):
        content["ops"][1] = ["Linear_Forward", microseconds, [2, 3], [4]]
        path = tmp_path / f"{microseconds}.json"
        path.write_text(json.dumps(content))
        found.append(inspection(Workload(str(path)))["warnings"])
    assert found == [[], ["MFU 0.99% of a100-40g (float32): under 2% is implausible"]]


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("ResNet152_768", "between batch 512 and batch 1024"),
        ("ResNet152_1280", "between batch 1024 and batch 1536"),
        ("VIT_1536", "between batch 1280 and batch 1792"),
        ("ResNet152_256", "MFU 0.85%"),
        ("SENet154_256", "MFU 1.26%"),
        ("BERT_Base_256", None),
    ],
)
def test_the_published_traces_are_doubted_where_they_deserve_it(shared_data, name, doubt):
    found = inspection(Workload(str(shared_data / "memory" / "g10" / f"{name}.json.gz")))["warnings"]
    assert found == [] if doubt is None else any(doubt in warning for warning in found)
