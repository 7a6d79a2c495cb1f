"""A Hugging Face config.json is data: allow-listed types, sizes within limits, nothing run."""

from __future__ import annotations

import json

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import reader_for
from experiments.readers.hf_config import READER


def read(options: WorkloadOptions = WorkloadOptions(batch=2), /, **config: object):  # type: ignore[no-untyped-def]  # noqa: B008
    return READER.read(json.dumps(config).encode(), "config.json", options)


def test_a_config_becomes_a_model_source_with_its_options() -> None:
    reading = read(model_type="gpt2", n_layer=2)
    assert reading.value.config == {"model_type": "gpt2", "n_layer": 2}
    assert reading.value.options.batch == 2 and not reading.warnings


def test_it_is_recognized_by_content() -> None:
    assert reader_for(b'\n {"model_type": "llama"}', "anything").format == "hf-config"


def test_remote_code_is_dropped_and_said() -> None:
    reading = read(model_type="llama", auto_map={"AutoModel": "evil.Model"}, trust_remote_code=True)
    assert set(reading.value.config) == {"model_type"}
    assert [warning.split()[0] for warning in reading.warnings] == ["auto_map", "trust_remote_code"]


def test_dropout_is_said_to_be_left_out_where_it_is() -> None:
    given = {
        "model_type": "gpt2",
        "attn_pdrop": 0.1,
        "resid_pdrop": 0.0,
        "architectures": ["GPT2LMHeadModel"],
    }
    (kept,) = read(**given).assumed
    assert "architectures" in kept
    left_out = read(WorkloadOptions(dropout=False), **given).assumed
    assert left_out == ("attn_pdrop, embd_pdrop built as 0", kept)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"model_type": "poison"}, "model_type 'poison' cannot be built"),
        ({"n_layer": 2}, "model_type None"),
        ({"model_type": ["gpt2"]}, "cannot be built"),
        ({"model_type": "gpt2", "n_layer": 1_000_000}, "n_layer = 1000000.*from 1 to 256"),
        ({"model_type": "gpt2", "n_embd": -768}, "n_embd = -768"),
        ({"model_type": "gpt2", "n_embd": 768.5}, "n_embd = 768.5"),
        ({"model_type": "gpt2", "n_layer": True}, "n_layer = True"),
        ({"model_type": "gpt2", "n_layer": "12"}, "n_layer = '12'"),
        ({"model_type": "llama", "vocab_size": 2**40}, "vocab_size"),
        ({"model_type": "resnet", "depths": [10**9]}, "depths holds 1000000000"),
        ({"model_type": "resnet", "depths": [1] * 1000}, "depths has 1000 entries"),
        ({"model_type": "bert", "unknown_size": 10**30}, "unknown_size"),
    ],
)
def test_a_bad_config_names_the_field_and_its_value(config: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        read(**config)


@pytest.mark.parametrize("text", [b'{"model_type": "gpt2"', b'["model_type"]', b'{"model_type": NaN}'])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        READER.read(text, "config.json", WorkloadOptions())
