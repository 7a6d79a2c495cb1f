"""A lossless zero-value codec: a bit for each word says whether it is zero, and the words that are not
follow.

Words are compared and copied as integers, so that negative zeros and NaNs keep their bits. The work is done
in chunks: its scratch is a few hundred kilobytes whatever the tensor's size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: Words that are coded at once; a multiple of eight.
CHUNK = 1 << 16


def pack(plain: Tensor, word: int) -> Tensor:
    """The bytes ``plain`` (uint8, whole words of ``word`` bytes) packed, on the same device."""
    words = plain.view(INTEGERS[word])
    start = _start(words.numel())
    present = int(torch.count_nonzero(words))
    packed = torch.zeros(start + present * word, dtype=torch.uint8, device=plain.device)
    values, done = packed[start:].view(words.dtype), 0
    for low, high in _chunks(words.numel()):
        chunk = words[low:high]
        mask = chunk != 0
        bits = _bits(mask)
        packed[low // 8 : low // 8 + len(bits)] = bits
        kept = chunk[mask]
        values[done : done + len(kept)] = kept
        done += len(kept)
    return packed


def unpack(packed: Tensor, word: int, into: Tensor) -> None:
    """Write the plain bytes of what ``pack`` made to ``into``."""
    words = into.view(INTEGERS[word])
    values, done = packed[_start(words.numel()) :].view(words.dtype), 0
    for low, high in _chunks(words.numel()):
        mask = _mask(packed[low // 8 : -(-high // 8)], high - low)
        count = int(torch.count_nonzero(mask))
        words[low:high] = 0
        words[low:high][mask] = values[done : done + count]
        done += count


def _start(words: int) -> int:
    """Where the values begin: after the bits, at a whole number of eight bytes."""
    return -(-words // 64) * 8


def _chunks(words: int) -> Iterator[tuple[int, int]]:
    for low in range(0, words, CHUNK):
        yield low, min(words, low + CHUNK)


def _weights(device: torch.device) -> Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)


def _bits(mask: Tensor) -> Tensor:
    """Eight flags in a byte, the first in the lowest bit."""
    padded = torch.nn.functional.pad(mask.view(torch.uint8), (0, -len(mask) % 8))
    return (padded.view(-1, 8) * _weights(mask.device)).sum(1, dtype=torch.uint8)


def _mask(bits: Tensor, count: int) -> Tensor:
    return (bits[:, None] & _weights(bits.device)).ne(0).view(-1)[:count]
