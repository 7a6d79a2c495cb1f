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
    _check_side(config, geometry.image)
    tokens = geometry.images * _tokens_of_image(config)
    if geometry.sequence < tokens:
        raise BadInput(
            f"sequence {geometry.sequence} is shorter than the {tokens} tokens of the images of a sample",
            "options.sequence",
            f"at least {tokens}",
        )
    batch, side, words = geometry.batch, geometry.image, config.get_text_config().vocab_size
    if not 0 < config.image_token_id < words:
        raise BadInput(
            f"image_token_index = {config.image_token_id}", "config", f"a word from 1 to {words - 1}"
        )
    inputs = (
        # Words below the placeholder: text must hold none.
        InputSpec("input_ids", (batch, geometry.sequence - tokens), config.image_token_id),
        InputSpec("pixel_values", (batch * geometry.images, 3, side, side)),
        InputSpec("target", (batch, geometry.sequence), words),
    )
    facts = {"hf": config.model_type, "images": geometry.images, "image_tokens": tokens}
    return Model(Objective(ImagesAndText(inner, tokens), classification), inputs, facts=facts)


def _check_side(config: Any, side: int) -> None:
    """A tower's table of positions is for images of one size."""
    known = config.vision_config.image_size
    if side != known:
        raise BadInput(f"image {side} is not what the tower reads", "options.image", f"{known}")


def _tokens_of_image(config: Any) -> int:
    """What the language model reads of an image."""
    if config.model_type == "gemma3":
        return int(config.mm_tokens_per_image)
    tower = config.vision_config
    patches = int(tower.image_size // tower.patch_size) ** 2
    classed = tower.model_type == "clip_vision_model"
    dropped = config.vision_feature_select_strategy == "default"
    return patches + int(classed) - int(dropped)
