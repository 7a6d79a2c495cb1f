"""``adapter_config.json`` beside a model: its rank and targets are read, the rest is named as ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.readers.adapter_config import with_adapter
from experiments.sources import layers_of, load

GPT = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 16, "vocab_size": 50}
PEFT = {
    "peft_type": "LORA",
    "r": 4,
    "target_modules": ["c_proj", "c_attn"],
    "lora_alpha": 16,
    "bias": "none",
    "layers_to_transform": None,
    "task_type": "CAUSAL_LM",
}


def written(folder: Path, **more: Any) -> str:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**PEFT, **more}))
    return str(file)


def test_a_configuration_and_a_zoo_model_take_the_adapter_of_their_side_file(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(GPT))
    extra = written(tmp_path)
    for source in (str(config), "zoo:gpt2", "zoo:llama2-7b"):
        loaded = load(Workload(source, options=WorkloadOptions(extra=extra)))
        asked = loaded.value.options
        assert (asked.adapter, asked.adapter_rank, asked.adapter_targets) == ("lora", 4, "c_attn,c_proj")
        said = "lora of rank 4 on c_attn,c_proj by adapter_config.json; ignored: bias, lora_alpha"
        assert said in loaded.assumed


def test_what_a_spec_says_itself_comes_before_the_file(tmp_path: Path) -> None:
    options, _ = with_adapter(WorkloadOptions(extra=written(tmp_path, use_dora=True), adapter_rank=2))
    assert (options.adapter, options.adapter_rank) == ("dora", 2)
    options, _ = with_adapter(WorkloadOptions(extra=written(tmp_path, target_modules="all-linear")))
    assert options.adapter_targets == "all-linear"


def test_other_side_files_are_for_others_to_read(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text('{"rules": []}')
    options = WorkloadOptions(extra=str(file))
    assert with_adapter(options) == (options, ())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"peft_type": "IA3"}, "no adapter that can be built"),
        ({"r": 0}, "r = 0"),
        ({"r": "8"}, "r = '8'"),
        ({"target_modules": "(q|v)_proj"}, "target_modules"),
        ({"target_modules": []}, "target_modules"),
    ],
)
def test_what_cannot_be_built_is_named_with_what_was_expected(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput) as caught:
        with_adapter(WorkloadOptions(extra=written(tmp_path, **more)))
    assert said in caught.value.what and caught.value.where == "adapter_config.json"
    assert caught.value.expected


def test_a_parallel_plan_refuses_the_adapter_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not for parallel plans"):
        layers_of(Workload("zoo:llama2-7b", options=WorkloadOptions(extra=written(tmp_path))), None)
