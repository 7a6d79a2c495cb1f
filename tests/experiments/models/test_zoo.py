"""The zoo's models have their published sizes; configurations give the same models as transformers does."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build, chosen  # noqa: E402
from experiments.models.catalog import ZOO  # noqa: E402
from experiments.workloads.hf import dropouts  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402

pytestmark = pytest.mark.torch

#: torchvision's counts for vision models (OverFeat and GoogLeNet by hand from their tables), transformers'
#: for the rest.
PARAMETERS = {
    "alexnet": 61_100_840,
    "overfeat": 145_920_872,
    "vgg16": 138_357_544,
    "googlenet": 6_998_552,
    "inception-v3": 23_834_568,
    "densenet121": 7_978_856,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    # By hand: Rammer's release has paths of 64 in every stage, where the paper's grow.
    "resnext29": 7_908_288,
    "nasnet-cifar": 3_328_234,  # "3.3M" in table 1 of Zoph et al.
    "vit-base": 86_567_656,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
}
TINY = {
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 100, "n_positions": 32},
    "bert": {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
    "llama": {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
    "mistral": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 64,
    },
    "mixtral": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 64,
    },
    "t5": {"num_layers": 1, "d_model": 32, "num_heads": 2, "d_kv": 16, "d_ff": 64},
    "vit": {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "image_size": 32},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
}


def source(config: dict[str, object], **options: object) -> ModelSource:
    return ModelSource("config", config=config, options=WorkloadOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_model_of_the_zoo_has_its_published_size(name: str) -> None:
    with FakeTensorMode():
        model = build(ModelSource(name, zoo=name))
    assert sum(parameter.numel() for parameter in model.module.parameters()) == PARAMETERS[name]


def test_bert_large_without_its_heads_is_the_encoder_of_335_million() -> None:
    with FakeTensorMode():
        encoder = build(ModelSource("bert-large", zoo="bert-large")).module.encoder
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 335_141_888


@pytest.mark.parametrize("name", ["dlrm", "moe", "overfeat", "googlenet", "inception-v3"])
def test_the_rest_of_the_zoo_is_captured(name: str) -> None:
    step = capture(ModelSource(name, zoo=name, options=WorkloadOptions(batch=2)))
    assert step.flops > 0 and step.facts["optimizer"] == ZOO[name].optimizer


def test_a_model_without_a_sequence_refuses_one() -> None:
    with pytest.raises(BadInput, match="has no sequence"):
        chosen(ModelSource("mlp", zoo="mlp", options=WorkloadOptions(sequence=8)))


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"unknown model 'gpt5'.*gpt2-xl"):
        chosen(ModelSource("gpt5", zoo="gpt5"))


@pytest.mark.parametrize("name", sorted(TINY))
def test_a_configuration_is_built_and_captured(name: str) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": name, **TINY[name]}
    step = capture(source(config, batch=2))
    assert step.facts["hf"] == name and step.facts["parameters"] > 0
    assert step.facts["dtype"] == ("bfloat16" if name == "mixtral" else "float32")
    assert step.ops.random.any() == bool(dropouts(config))


def test_a_captured_configuration_replays_its_eager_step() -> None:
    pytest.importorskip("transformers")
    traced = trace(source({"model_type": "gpt2", **TINY["gpt2"]}, batch=2, sequence=8))
    replayed, eager = traced.make_inputs(0), traced.make_inputs(0)
    torch.manual_seed(0)
    with torch.no_grad():
        loss = traced.graph_module(*replayed)
    torch.manual_seed(0)
    assert torch.equal(loss, traced.eager(*eager))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(replayed, eager, strict=True))


def test_a_configuration_of_gpt2_is_the_zoos_gpt2() -> None:
    pytest.importorskip("transformers")
    step = capture(source({"model_type": "gpt2"}, batch=1, sequence=16, training=False))
    assert step.facts["parameters"] == PARAMETERS["gpt2"]


@pytest.mark.parametrize(
    ("config", "options", "complaint"),
    [
        ({"model_type": "gpt2", **TINY["gpt2"]}, {"sequence": 33}, "sequence 33 is too long.*at most 32"),
        ({"model_type": "gpt2", **TINY["gpt2"], "n_head": 3}, {}, "cannot be built"),
        ({"model_type": "bert", "hidden_act": "no such function"}, {}, "cannot be built"),
        ({"model_type": "no such type"}, {}, "cannot be built"),
    ],
)
def test_a_configuration_that_makes_no_model_is_bad_input(
    config: dict[str, object], options: dict[str, object], complaint: str
) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(BadInput, match=complaint):
        capture(source(config, **options))
