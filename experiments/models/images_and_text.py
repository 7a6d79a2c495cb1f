"""Models that read images and text: a vision tower, a projector, and a language model over both
(``transformers``).

The images of a sample stand before its text, so that where their tokens lie is known without looking at data.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.models.logits import unpacked
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification
from experiments.models.qwen_vl import QwenImagesAndText, patches_of, tokens_of_image


class ImagesAndText(nn.Module):
    """Text ids [batch, text] and pixels [batch x images, 3, side, side] to logits [batch, tokens, words].

    ``tokens`` are those of a sample's images.
    """

    def __init__(self, inner: Any, tokens: int) -> None:
        super().__init__()
        self.inner = inner
        self._tokens = tokens
        self._placeholder = inner.config.image_token_id
        self._typed = inner.config.model_type == "gemma3"
        # Their own compares the number of placeholders with the features': a decision that data make.
        inner.model.get_placeholder_mask = self._placeholders

    def get_output_embeddings(self) -> nn.Module:
        """The vocabulary head."""
        head: nn.Module = self.inner.get_output_embeddings()
        return head

    def forward(self, text: Tensor, pixels: Tensor) -> Tensor:
        images = text.new_full((text.shape[0], self._tokens), self._placeholder)
        ids = torch.cat((images, text), 1)
        types = {"token_type_ids": (ids == self._placeholder).long()} if self._typed else {}
        with unpacked():
            logits: Tensor = self.inner(input_ids=ids, pixel_values=pixels, **types).logits
        return logits

    def _placeholders(self, input_ids: Tensor, **_: Any) -> Tensor:
        mask: Tensor = input_ids == self._placeholder
        return mask.unsqueeze(-1)


def images_and_text(inner: Any, geometry: Geometry) -> Model:
    """The model with a batch of ``geometry``; ``BadInput`` where its images or tokens do not fit."""
    config = inner.config
    gridded = config.model_type == "qwen2_5_vl"
    tokens = geometry.images * _tokens_of_image(config, geometry.image)
    if geometry.sequence < tokens:
        raise BadInput(
            f"sequence {geometry.sequence} is shorter than the {tokens} tokens of the images of a sample",
            "options.sequence",
            f"at least {tokens}",
        )
    batch, side, words = geometry.batch, geometry.image, config.get_text_config().vocab_size
    if not 0 < config.image_token_id < words:
        raise BadInput(f"image token {config.image_token_id}", "config", f"a word from 1 to {words - 1}")
    pixels = InputSpec("pixel_values", (batch * geometry.images, 3, side, side))
    body: nn.Module = (
        ImagesAndText(inner, tokens)
        if not gridded
        else QwenImagesAndText(inner, side, geometry.images, geometry.sequence)
    )
    inputs = (
        # Words below the placeholder: text must hold none.
        InputSpec("input_ids", (batch, geometry.sequence - tokens), config.image_token_id),
        patches_of(config.vision_config, side, batch * geometry.images) if gridded else pixels,
        InputSpec("target", (batch, geometry.sequence), words),
    )
    facts = {"hf": config.model_type, "images": geometry.images, "image_tokens": tokens}
    return Model(Objective(body, classification), inputs, facts=facts)


def _tokens_of_image(config: Any, side: int) -> int:
    """What the language model reads of an image of this size; ``BadInput`` where the tower cannot."""
    tower = config.vision_config
    if config.model_type == "qwen2_5_vl":
        return tokens_of_image(tower, side)
    # A table of positions is for images of one size.
    if side != tower.image_size:
        raise BadInput(f"image {side} is not what the tower reads", "options.image", f"{tower.image_size}")
    if config.model_type == "gemma3":
        return int(config.mm_tokens_per_image)
    patches = int(side // tower.patch_size) ** 2
    classed = tower.model_type == "clip_vision_model"
    dropped = config.vision_feature_select_strategy == "default"
    return patches + int(classed) - int(dropped)
