"""Calculon's model sheets: sizes become blocks whose counts are the textbook's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.readers.base import open_file
from experiments.readers.calculon_model import READER
from experiments.sources import layers_of

SHEET = {"hidden": 8, "feedforward": 32, "seq_size": 4, "attn_heads": 2, "attn_size": 4, "num_blocks": 3}


def read(options: WorkloadOptions = WorkloadOptions(), **changes: object):  # type: ignore[no-untyped-def]  # noqa: B008
    return READER.read(json.dumps({**SHEET, **changes}).encode(), "tiny.json", options)


def test_a_block_has_the_textbooks_counts() -> None:
    """h=8, s=4, a=2: 12h^2+13h parameters, s h (34 + 5 a s / h) bytes kept, 24 s h^2 (1 + s/6h) FLOPs
    forward.
    """
    graph = read().value
    assert len(graph) == 3 and graph.predecessors.lists() == [[], [0], [1]]
    assert graph.parameter_bytes.tolist() == [2 * (12 * 64 + 13 * 8)] * 3
    assert graph.stash_bytes.tolist() == [4 * (34 * 8 + 5 * 2 * 4)] * 3
    assert graph.forward_flops.tolist() == [24 * 4 * 64 + 4 * 16 * 8] * 3
    assert graph.backward_flops.tolist() == [2 * (24 * 4 * 64 + 4 * 16 * 8)] * 3
    assert graph.output_bytes.tolist() == [4 * 8 * 2] * 3


def test_batch_sequence_and_dtype_are_the_users() -> None:
    graph = read(WorkloadOptions(batch=5, sequence=16, dtype="float32")).value
    assert graph.batch == 5
    assert graph.output_bytes[0] == 5 * 16 * 8 * 4
    assert graph.facts["sequence"] == 16 and graph.facts["dtype"] == "float32"


def test_heads_that_do_not_add_up_to_the_hidden_size_are_read_and_said() -> None:
    reading = read(attn_size=8)
    assert reading.warnings == ("2 heads of 8 are 16 wide, not 8",)
    assert reading.value.parameter_bytes[0] == 2 * (4 * 8 * 16 + 3 * 16 + 8 + 2 * 8 * 32 + 32 + 8 + 32)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "8", None, 2**40])
def test_a_size_that_cannot_be_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match=r"tiny.json: hidden = "):
        read(hidden=value)


def test_times_come_from_the_devices_kernels(tmp_path: Path) -> None:
    """Large enough to be bound by arithmetic: above FLOPs over the device's peak, by less than half."""
    file = tmp_path / "model.json"
    file.write_text(json.dumps({**SHEET, "hidden": 8192, "feedforward": 32768, "seq_size": 2048}))
    device = resolve("a100-80g").device
    graph, loaded = layers_of(Workload(str(file)), device)
    bound = graph.forward_flops / device.peak("float16")
    assert loaded.format == "calculon-model"
    assert graph.timing == "kernels" and graph.timed_on == device.name
    assert (graph.forward_seconds > bound).all() and (graph.forward_seconds < 2 * bound).all()


def test_a_vocabulary_adds_embedding_logits_and_loss() -> None:
    """Word and position tables, the final norm; the output layer is tied to the table."""
    graph = read(WorkloadOptions(vocabulary=10)).value
    assert graph.layer == ("embedding", "blocks.0", "blocks.1", "blocks.2", "norm", "logits", "loss")
    assert graph.parameter_bytes[[0, 4, 5, 6]].tolist() == [2 * (10 + 4) * 8, 2 * 16, 0, 0]
    assert graph.forward_flops[5] == 2 * 4 * 8 * 10


def test_published_sheets(shared_data: Path) -> None:
    """GPT-3 has 175e9 parameters, of which the embedding (50,257 words of 12,288) is not in the sheet."""
    graph = open_file(
        shared_data / "parallel/calculon/models/gpt3-175B.json", "auto", WorkloadOptions()
    ).reading.value
    assert len(graph) == 96
    assert graph.parameter_bytes.sum() / 2 == pytest.approx(175e9 - 50257 * 12288, rel=0.003)
    for file in sorted((shared_data / "parallel/calculon/models").glob("*.json")):
        assert open_file(file, "auto", WorkloadOptions()).reader.format == "calculon-model"
