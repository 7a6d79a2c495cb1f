"""Qwen2.5-VL (Bai et al. 2025, section 2.1): a vision tower whose layers but a few attend within windows, and
rotary positions of time, row and column.

All images are squares of one size, so that all that ``transformers`` computes of their grids by looking into
tensors is known beforehand. Windows are equal: the side is a multiple of theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.core.errors import BadInput
from experiments.models.documents import attend_within
from experiments.models.logits import unpacked
from experiments.models.model import InputSpec

#: The name of this attention among those of ``transformers``.
WINDOWS = "windows"


class QwenImagesAndText(nn.Module):
    """Text ids [batch, text] and patches [batch x images x patches, pixels] to logits of all tokens."""

    patch_positions: Tensor
    window_order: Tensor
    places: Tensor

    def __init__(self, inner: Any, side: int, images: int, sequence: int) -> None:
        super().__init__()
        self.inner = inner
        tower = inner.config.vision_config
        self._placeholder, self._images = inner.config.image_token_id, images
        self._patches = side // tower.patch_size  # on a side
        self._merged = self._patches // tower.spatial_merge_size
        window = tower.window_size // tower.patch_size // tower.spatial_merge_size
        rows = patch_positions(self._patches, tower.spatial_merge_size)
        self.register_buffer("patch_positions", torch.tensor(rows))
        self.register_buffer("window_order", torch.tensor(window_order(self._merged, window)))
        self.register_buffer("places", torch.tensor(places(self._merged, images, sequence)))
        inner.model.get_placeholder_mask = self._placeholders
        _attend_in_windows(inner.model.visual, self._patches, window * tower.spatial_merge_size)

    def get_output_embeddings(self) -> nn.Module:
        """The vocabulary head."""
        head: nn.Module = self.inner.get_output_embeddings()
        return head

    def forward(self, text: Tensor, patches: Tensor) -> Tensor:
        batch = text.shape[0]
        ids = torch.cat((text.new_full((batch, self._images * self._merged**2), self._placeholder), text), 1)
        seen = self._tower(patches, batch * self._images)
        with unpacked():
            logits: Tensor = self.inner(
                input_ids=ids,
                position_ids=self.places.unsqueeze(1).expand(-1, batch, -1),
                mm_encoder_outputs={"image": seen},
            ).logits
        return logits

    def _tower(self, patches: Tensor, images: int) -> Any:
        """What the tower and its merger make of the images; sizes are plain numbers, nothing to look into."""
        starts = torch.arange(images, device=patches.device) * self._merged**2
        ends = np.array([0, images * self._patches**2])
        return self.inner.model.get_image_features(
            patches,
            np.array([[1, self._patches, self._patches]] * images),
            position_ids=self.patch_positions.repeat(images, 1),
            window_index=(self.window_order + starts.unsqueeze(1)).flatten(),
            cu_seqlens=ends,
            cu_window_seqlens=ends,
            return_dict=True,
        )

    def _placeholders(self, input_ids: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        """Of images and of videos, of which there are none."""
        mask = (input_ids == self._placeholder).unsqueeze(-1)
        return mask, mask


def tokens_of_image(tower: Any, side: int) -> int:
    """Tokens that the language model reads of an image; ``BadInput`` where windows do not divide it."""
    if side % tower.window_size:
        what = f"image {side} is not made of windows"
        raise BadInput(what, "options.image", f"a multiple of {tower.window_size}")
    return int(side // tower.patch_size // tower.spatial_merge_size) ** 2


def patches_of(tower: Any, side: int, images: int) -> InputSpec:
    """The pixels of all images, patch by patch, as the processor hands them over: a still image twice."""
    patches = images * (side // tower.patch_size) ** 2
    pixels = tower.in_channels * tower.temporal_patch_size * tower.patch_size**2
    return InputSpec("pixel_values", (patches, pixels))


def patch_positions(side: int, merge: int) -> list[tuple[int, int]]:
    """Row and column of each patch, those that are merged to one token one after another."""
    return [
        (top + row, left + column)
        for top in range(0, side, merge)
        for left in range(0, side, merge)
        for row in range(merge)
        for column in range(merge)
    ]


def window_order(side: int, window: int) -> list[int]:
    """The tokens of an image, window by window."""
    return [row * side + column for row, column in patch_positions(side, window)]


def places(side: int, images: int, sequence: int) -> list[list[int]]:
    """Time, row and column of each token of a sample (section 2.1.2): images first, then text."""
    found = [
        (image * side, image * side + row, image * side + column)
        for image in range(images)
        for row in range(side)
        for column in range(side)
    ]
    text = range(images * side, images * side + sequence - len(found))
    return [[place[axis] for place in found] + list(text) for axis in range(3)]


def _attend_in_windows(tower: Any, side: int, window: int) -> None:
    """Let each layer attend within an image or, but for a few, within a window of it."""
    from transformers import AttentionInterface

    AttentionInterface.register(WINDOWS, _attend)
    tower.config._attn_implementation = WINDOWS
    for number, block in enumerate(tower.blocks):
        block.attn.tokens_seen = (side if number in tower.fullatt_block_indexes else window) ** 2


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    return attend_within(module.tokens_seen, module, query, key, value, options)
