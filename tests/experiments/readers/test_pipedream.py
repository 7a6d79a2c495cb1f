"""PipeDream's layer profiles: layers in order, milliseconds as seconds, what is not in the file said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file, reader_for
from experiments.readers.pipedream import READER


def layer(id: str, kind: str, forward: str = "1.5", activation: str = "8.0", parameters: str = "4.0") -> str:
    times = f"forward_compute_time={forward}, backward_compute_time=2.500"
    return f"{id} -- {kind} -- {times}, activation_size={activation}, parameter_size={parameters}\n"


def read(text: str):  # type: ignore[no-untyped-def]
    return READER.read(text.encode(), "graph.txt", WorkloadOptions())


#: An image passes a convolution; a second branch skips it; both are added, then classified. Written out of
#: order.
SKIP = (
    layer("n5", "Linear(in_features=2, out_features=10, bias=True)", activation="1280.000")
    + layer("n1", "Input0", "0.0")
    + layer("n2", "Conv2d(3, 2)")
    + layer("n3", "ReLU(inplace)", parameters="0.0")
    + layer("n4", "Add", activation="[6.0; 2.0]")
    + "\tn1 -- n2\n\tn2 -- n3\n\tn2 -- n4\n\tn3 -- n4\n\tn4 -- n5\n"
)


def test_layers_stand_in_topological_order_without_the_input() -> None:
    graph = read(SKIP).value
    assert graph.layer == ("n2", "n3", "n4", "n5")
    assert graph.predecessors.lists() == [[], [0], [0, 1], [2]]
    assert graph.forward_seconds.tolist() == [0.0015] * 4
    assert graph.backward_seconds.tolist() == [0.0025] * 4
    assert graph.output_bytes.tolist() == [8, 8, 8, 1280]


def test_the_mini_batch_is_the_rows_of_an_image_models_classifier() -> None:
    """1,280 bytes are 32 rows of ten float32 values."""
    reading = read(SKIP)
    assert reading.value.batch == 32
    assert reading.assumed[2] == "32 samples a mini-batch: the rows of the last layer"
    words = read(SKIP.replace("Conv2d(3, 2)", "Embedding(9, 2)"))
    assert words.value.batch == 1
    assert words.assumed[2] == "the samples of a mini-batch are not known: one sample is one mini-batch"


def test_a_result_nobody_picks_up_is_no_layer() -> None:
    unused = layer("n2", "LSTM(2, 2)") + layer("n3", "__getitem__(1)") + "\tn2 -- n3\n"
    assert read(unused).value.layer == ("n2",)


def test_it_is_recognized_by_content() -> None:
    assert reader_for(SKIP.encode(), "anything").format == "pipedream"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (SKIP + "\tn5 -- n2\n", "layer 'n5' is on a cycle or behind one"),
        (SKIP + "\tn5 -- n9\n", "line 11: edge names 'n9', which is no layer"),
        (SKIP + layer("n5", "Add"), "line 11: layer 'n5' appears twice"),
        (SKIP.replace("=[6.0; 2.0]", "=[6.0; -2.0]"), r"line 5: activation_size: '\[6.0; -2.0\]'"),
        (SKIP.replace("=2.500", "=nan", 1), "line 1: backward_compute_time: 'nan'"),
        (SKIP.replace(", parameter_size=4.0", "", 1), "line 1"),
        (layer("n1", "Input0"), "no layers"),
    ],
)
def test_a_bad_profile_is_refused_at_its_line(text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        read(text)


@pytest.mark.parametrize(
    ("model", "layers", "batch"), [("vgg16", 40, 128), ("gnmt", 37, 1), ("nasnetalarge", 1250, 16)]
)
def test_published_profiles(shared_data: Path, model: str, layers: int, batch: int) -> None:
    file = shared_data / f"parallel/pipedream_profiles/{model}.txt"
    graph = open_file(file, "auto", WorkloadOptions()).reading.value
    assert (len(graph), graph.batch) == (layers, batch)
    if model == "vgg16":
        assert float((graph.forward_seconds + graph.backward_seconds).sum()) == pytest.approx(
            0.672535, abs=1e-6
        )
        assert np.flatnonzero(graph.parameter_bytes).tolist()[-1] == 39
