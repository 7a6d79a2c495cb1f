"""Models that read images and text: their sizes, their steps, and images that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build, chosen  # noqa: E402
from experiments.workloads.hf import check_config  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.replays import assert_replays_eager  # noqa: E402

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
#: An image of 8 x 8 patches is 4 x 4 tokens in four windows; its text lies open, as published.
QWEN: dict[str, Any] = {
    "model_type": "qwen2_5_vl",
    "vision_config": {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "out_hidden_size": 32,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    },
    "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
    "image_token_id": 48,
    "video_token_id": 49,
    "vision_start_token_id": 47,
    **_TEXT,
}


def source(config: dict[str, Any], **options: Any) -> ModelSource:
    checked, _ = check_config(config, "config.json")
    return ModelSource(config["model_type"], config=checked, options=WorkloadOptions(**options))


def small(kind: str, **options: Any) -> ModelSource:
    return source({"model_type": kind, **SMALL[kind]}, **{"batch": 2, "sequence": 40, **options})


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_the_captured_step_of_images_and_text_is_its_eager_step(kind: str) -> None:
    traced = trace(small(kind, images=2))
    assert_replays_eager(traced)
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


def qwen(**options: Any) -> ModelSource:
    return source(QWEN, **{"batch": 2, "sequence": 40, "image": 32, "images": 2, **options})


def test_the_captured_step_of_windowed_images_is_its_eager_step() -> None:
    traced = trace(qwen())
    assert_replays_eager(traced)


def test_windowed_images_are_those_of_the_library() -> None:
    """Its own grids, windows, positions and merge give the same loss; positions alike to the last place."""
    ours: Any = build(qwen()).module
    text, target = torch.randint(1, 47, (2, 8)), torch.randint(0, 50, (2, 40))
    pixels = torch.randn(2 * 2 * 64, 3 * 2 * 16)
    ids = torch.cat((torch.full((2, 32), 48), text), 1)
    grid = torch.tensor([[1, 8, 8]] * 4)
    torch.manual_seed(0)
    loss = ours(text, pixels, target)
    theirs: Any = transformers.AutoModelForImageTextToText.from_config(
        transformers.AutoConfig.for_model(**QWEN)
    )
    theirs.load_state_dict(ours.body.inner.state_dict())
    types = (ids == 48).int()
    # Two images without a word between them are one run of placeholders to the library: one by one, then.
    places, _ = theirs.model.get_rope_index(
        ids[:, :16], mm_token_type_ids=types[:, :16], image_grid_thw=grid[:2]
    )
    assert torch.equal(ours.body.places[:, :16], places[:, 0])
    assert ours.body.places[:, 16:].tolist() == [[*row] for row in _second_image_and_text()]
    logits = theirs(
        input_ids=ids,
        pixel_values=pixels,
        image_grid_thw=grid,
        position_ids=ours.body.places.unsqueeze(1).expand(-1, 2, -1),
    ).logits
    assert torch.allclose(loss, torch.nn.functional.cross_entropy(logits.view(-1, 50), target.view(-1)))


def _second_image_and_text() -> list[list[int]]:
    """By hand: the image begins at 4, its rows and columns with it; eight words follow from 8."""
    text = list(range(8, 16))
    return [
        [*[4] * 16, *text],
        [*(4 + row for row in range(4) for _ in range(4)), *text],
        [*(4 + column for _ in range(4) for column in range(4)), *text],
    ]


def test_a_window_has_a_quarter_of_the_attention_of_an_image() -> None:
    """Three layers, the second over whole images: 64 patches attend to 16, 64 and 16."""
    step = capture(qwen())
    attention = [op for op, target in enumerate(step.ops.target) if "_scaled_dot_product" in target]
    tower = [step.ops.flops[op] for op in attention if step.ops.module[op].startswith("model.visual")][:3]
    assert tower == [4 * 4 * 64 * 16 * 32, 4 * 4 * 64 * 64 * 32, 4 * 4 * 64 * 16 * 32]
    assert step.facts["image_tokens"] == 32


@pytest.mark.parametrize("kind", ["llava", "gemma3", "qwen2_5_vl"])
def test_the_loss_of_images_and_text_may_be_taken_by_chunks(kind: str) -> None:
    """Two chunks of tokens, each with its share of the vocabulary head: the loss of the whole."""
    losses = []
    for options in ({}, {"loss": "fused", "loss_chunks": 2}):
        traced = trace(qwen(**options) if kind == "qwen2_5_vl" else small(kind, **options))
        losses.append(traced.eager(*traced.make_inputs(0)))
    assert torch.allclose(*losses)


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


def test_qwen2_5_vl_7b_has_its_published_size() -> None:
    """As published: text open, the tower without a type; 448 pixels a side are 256 tokens."""
    published = {
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 128000,
        "image_token_id": 151655,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "torch_dtype": "bfloat16",
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
    }
    asked = source(published, batch=1)
    with torch.device("meta"):
        ours = build(asked, weights=False)
    assert sum(value.numel() for value in ours.module.parameters()) == 8_292_166_656
    assert (ours.facts["image_tokens"], chosen(asked).dtype) == (256, "bfloat16")
    with pytest.raises(BadInput, match=r"image 24 is not made of windows.*a multiple of 16"):
        build(qwen(image=24))


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
        ({"image_token_index": 50}, {}, "image token 50.*from 1 to 49"),
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
