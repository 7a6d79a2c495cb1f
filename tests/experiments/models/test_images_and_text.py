"""Models that read images and text: their sizes, their steps, and images that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.spec import WorkloadOptions  # noqa: E402
from experiments.models.build import build, chosen  # noqa: E402
from experiments.profiling.capture import capture, trace  # noqa: E402
from experiments.workloads.hf import check_config  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402

pytestmark = pytest.mark.torch

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
}
_TOWER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "patch_size": 4,
    "image_size": 16,
}
#: An image of 4 x 4 patches is 16 tokens, of which Gemma averages four to one.
SMALL: dict[str, dict[str, Any]] = {
    "llava": {
        "text_config": {"model_type": "llama", **_TEXT},
        "vision_config": {"model_type": "clip_vision_model", "attention_dropout": 0.1, **_TOWER},
        "image_token_index": 49,
    },
    "gemma3": {
        "text_config": {
            "model_type": "gemma3_text",
            "head_dim": 8,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
            **_TEXT,
        },
        "vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False, **_TOWER},
        "image_token_index": 49,
        "boi_token_index": 47,
        "eoi_token_index": 48,
        "mm_tokens_per_image": 4,
    },
}
TOKENS = {"llava": 16, "gemma3": 4}


def source(config: dict[str, Any], **options: Any) -> ModelSource:
    checked, _ = check_config(config, "config.json")
    return ModelSource(config["model_type"], config=checked, options=WorkloadOptions(**options))


def small(kind: str, **options: Any) -> ModelSource:
    return source({"model_type": kind, **SMALL[kind]}, **{"batch": 2, "sequence": 40, **options})


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_the_captured_step_of_images_and_text_is_its_eager_step(kind: str) -> None:
    traced = trace(small(kind, images=2))
    replayed, eager = traced.make_inputs(0), traced.make_inputs(0)
    for _ in range(2):
        with torch.no_grad():
            loss = traced.graph_module(*replayed)
        assert torch.equal(loss, traced.eager(*eager))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(replayed, eager, strict=True))
    assert not traced.step.ops.random.any()


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_the_step_is_that_of_the_library_on_the_same_images_and_words(kind: str) -> None:
    """Its own placeholders, mask and merge, on ids with the image's token in front; and in any batch."""
    model: Any = build(small(kind, images=2)).module
    text, pixels = torch.randint(1, 40, (2, 40 - 2 * TOKENS[kind])), torch.randn(4, 3, 16, 16)
    target = torch.randint(0, 50, (2, 40))
    ids = torch.cat((torch.full((2, 2 * TOKENS[kind]), 49), text), 1)
    ours = model(text, pixels, target)
    inner: Any = model.body.inner
    del inner.model.get_placeholder_mask  # theirs again
    types = {"token_type_ids": (ids == 49).long()} if kind == "gemma3" else {}
    logits = inner(input_ids=ids, pixel_values=pixels, **types).logits
    assert torch.equal(ours, torch.nn.functional.cross_entropy(logits.view(-1, 50), target.view(-1)))


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_more_images_are_more_of_the_tower_in_the_same_sequence(kind: str) -> None:
    """The tower's products double with the images; the language model's stay."""
    steps = [capture(small(kind, images=images)) for images in (1, 2)]

    def flops(step: Any, tower: bool) -> float:
        inside = [("vision_tower" in name or "projector" in name) == tower for name in step.ops.module]
        return float(step.ops.flops[inside].sum())

    assert flops(steps[1], True) == 2 * flops(steps[0], True) > 0
    assert flops(steps[1], False) == flops(steps[0], False)
    assert [step.facts["image_tokens"] for step in steps] == [TOKENS[kind], 2 * TOKENS[kind]]
    assert [step.facts["tokens"] for step in steps] == [80, 80]


def test_llava_7b_and_gemma_3_4b_have_their_published_sizes() -> None:
    """By the published config.json, and by transformers on no device."""
    tower = {"num_attention_heads": 16, "patch_size": 14}
    clip = {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_hidden_layers": 24}
    siglip = {
        "vision_use_head": False,
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
    }
    vicuna = {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}
    gemma = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    published = (
        (
            {
                "model_type": "llava",
                "image_token_index": 32000,
                "text_config": {**vicuna, "torch_dtype": "float16"},
                "vision_config": {"model_type": "clip_vision_model", **tower, **clip},
            },
            7_063_427_072,
            576,
        ),
        (
            {
                "model_type": "gemma3",
                "text_config": {"model_type": "gemma3_text", **gemma},
                "vision_config": {
                    "model_type": "siglip_vision_model",
                    "vision_use_head": False,
                    **tower,
                    **siglip,
                },
            },
            4_300_079_472,
            256,
        ),
    )
    for config, parameters, tokens in published:
        asked = source(config, batch=1, sequence=1024, images=1)
        with torch.device("meta"):
            theirs = transformers.AutoModelForImageTextToText.from_config(
                transformers.AutoConfig.for_model(**config)
            )
            ours = build(asked, weights=False)
        assert sum(value.numel() for value in theirs.parameters()) == parameters
        assert sum(value.numel() for value in ours.module.parameters()) == parameters
        assert ours.facts["image_tokens"] == tokens
        assert ours.inputs[0].shape == (1, 1024 - tokens)


@pytest.mark.parametrize(
    ("config", "options", "complaint"),
    [
        ({}, {"sequence": 31, "images": 2}, "sequence 31 is shorter than the 32 tokens.*at least 32"),
        ({}, {"image": 32}, "image 32 is not what the tower reads.*16"),
        ({"text_config": None}, {}, "text_config = None.*an object"),
        ({"text_config": {"model_type": "bert"}}, {}, "text_config.model_type 'bert'.*one of llama"),
        ({"vision_config": {"model_type": "pixtral"}}, {}, "vision_config.model_type 'pixtral'"),
        ({"vision_config": {"model_type": "clip_vision_model"}}, {}, "vision_config.image_size = None"),
        ({"text_config": {"model_type": "llama", "hidden_size": 10**6}}, {}, "hidden_size = 1000000"),
        ({"image_token_index": 50}, {}, "image_token_index = 50.*from 1 to 49"),
    ],
)
def test_images_that_do_not_fit_are_named(config: Any, options: Any, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        build(source({"model_type": "llava", **SMALL["llava"], **config}, **{"sequence": 40, **options}))


def test_models_without_images_beside_text_refuse_their_number() -> None:
    for asked in (ModelSource("gpt2", zoo="gpt2"), ModelSource("resnet18", zoo="resnet18")):
        with pytest.raises(BadInput, match=f"{asked.name} has no images beside text"):
            chosen(ModelSource(asked.name, zoo=asked.zoo, options=WorkloadOptions(images=2)))
        assert chosen(ModelSource(asked.name, zoo=asked.zoo, options=WorkloadOptions(images=1)))


def test_code_in_a_part_is_left_out_and_said() -> None:
    tower = {**SMALL["llava"]["vision_config"], "auto_map": {"AutoModel": "evil.Model"}}
    config, warnings = check_config({"model_type": "llava", **SMALL["llava"], "vision_config": tower}, "c")
    assert "auto_map" not in config["vision_config"] and "auto_map is ignored" in warnings[0]
