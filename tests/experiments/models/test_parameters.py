"""Where a model's parameters are, before anything of it runs."""

import json
from pathlib import Path

import pytest

from experiments.commands.inspect import inspection
from experiments.core.spec import Workload
from experiments.models.parameters import count_parameters
from experiments.models.served import SERVED
from experiments.workloads.model import ModelSource
from experiments.workloads.transformer import from_config
from experiments.workloads.transformer_parameters import parameters_by_module

#: Qwen2-1.5B as its authors publish it: grouped queries, a gated MLP, biases of query, key and value alone.
QWEN = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "max_position_embeddings": 131072,
    "num_attention_heads": 12,
    "num_hidden_layers": 28,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 50,
    "max_position_embeddings": 10,
}


def test_a_transformer_by_its_sizes() -> None:
    """Query 1536 x 1536, key and value 1536 x 256, with biases, and an output of 1536 x 1536 without."""
    held = {one.module: one for one in count_parameters(ModelSource("qwen", config=QWEN))}
    each = 2 * 1536 * 1536 + 2 * 1536 * 256 + 1536 + 2 * 256
    assert (held["attention"].times, held["attention"].parameters) == (28, 28 * each)
    assert held["MLP"].parameters == 28 * 3 * 1536 * 8960
    assert sum(one.parameters for one in held.values()) == 1_543_714_304


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("gpt2", {"n_embd": 8, "n_head": 2, "n_layer": 3}),
        ("bloom", {"hidden_size": 8, "n_head": 2, "n_layer": 3}),
        ("qwen3", {**QWEN, "model_type": "qwen3", "tie_word_embeddings": False}),
        (
            "qwen2_moe",
            {
                **QWEN,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 24,
                "shared_expert_intermediate_size": 48,
                "mlp_only_layers": [0],
            },
        ),
    ],
)
def test_the_modules_add_up_to_the_model(kind: str, more: dict[str, object]) -> None:
    model = from_config(kind, {**more, "model_type": kind}, 8)
    assert sum(one.parameters for one in parameters_by_module(model)) == model.parameters


@pytest.mark.torch
def test_what_has_no_closed_form_is_built_without_values() -> None:
    """Two layers' attention: four products of 8 x 8 with biases, and a norm; the head is the token table."""
    pytest.importorskip("transformers")
    held = {one.module: one for one in count_parameters(ModelSource("bert", config=BERT))}
    attention = held["bert.encoder.layer.*.attention"]
    assert (attention.times, attention.parameters) == (2, 2 * (4 * (8 * 8 + 8) + 2 * 8))
    assert held["bert.embeddings.word_embeddings"].parameters == 50 * 8
    assert held["cls.predictions"].parameters == 50


@pytest.mark.torch
def test_a_file_tells_its_parameters_and_its_usual_step(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN))
    found = inspection(Workload(str(file)))["summary"]
    assert sum(one["parameters"] for one in found["parameters"]) == 1_543_714_304
    usual = {"batch": 8, "sequence": 1024, "image": None, "dtype": "bfloat16", "optimizer": "adamw"}
    assert found["usual_step"] == usual


@pytest.mark.torch
def test_a_configuration_that_cannot_be_built_says_so(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**BERT, "hidden_size": 9}))
    found = inspection(Workload(str(file)))
    assert "parameters" not in found["summary"]
    assert [line.split(":")[0] for line in found["warnings"]] == ["its parameters cannot be counted"]


@pytest.mark.parametrize(
    ("name", "vocabulary", "normalized", "published"),
    [
        ("llama2-7b", 32000, 0, 6_738_415_616),
        ("llama2-13b", 32000, 0, 13_015_864_320),
        ("llama2-70b", 32000, 0, 68_976_648_192),
        ("llama31-8b", 128256, 0, 8_030_261_248),
        ("llama31-70b", 128256, 0, 70_553_706_496),
        ("mistral-7b", 32000, 0, 7_241_732_096),
        ("yi-34b", 64000, 0, 34_388_917_248),
        ("qwen3-32b", 151936, 2, 32_762_123_264),
    ],
)
def test_sizes_of_a_served_model_make_the_parameters_of_its_card(
    name: str, vocabulary: int, normalized: int, published: int
) -> None:
    """Attention, three matrices of the feed-forward layer, norms (of queries and keys too, in some), words
    twice.
    """
    model = SERVED[name]
    attention = 2 * model.hidden * model.head_dim * (model.heads + model.kv_heads)
    norms = 2 * model.hidden + normalized * model.head_dim
    layer = attention + 3 * model.hidden * model.inner + norms
    outside = 2 * vocabulary * model.hidden + model.hidden
    assert model.layers * layer + outside == published
    assert model.parameters == pytest.approx(published, rel=1e-3)
