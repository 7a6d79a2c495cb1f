"""What kind of picture some bytes are, and how large: told by their first bytes, never decoded here."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from experiments.core.errors import BadInput

LARGEST_BYTES, LONGEST_SIDE = 2**19, 8192
KINDS = "PNG, JPEG or WebP"
#: Markers of JPEG that begin a frame.
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True)
class Picture:
    kind: str
    width: int
    height: int
    data: bytes


def read_picture(data: bytes, where: str) -> Picture:
    """``BadInput`` for what is no picture of these kinds, or too large."""
    if len(data) > LARGEST_BYTES:
        raise BadInput(f"a picture of {len(data):,} bytes", where, f"at most {LARGEST_BYTES:,}")
    try:
        found = _png(data) or _jpeg(data) or _webp(data)
    except (struct.error, IndexError):
        found = None
    if found is None:
        raise BadInput("no picture", where, KINDS)
    kind, width, height = found
    if not (0 < width <= LONGEST_SIDE and 0 < height <= LONGEST_SIDE):
        raise BadInput(f"{width} x {height} points", where, f"1 to {LONGEST_SIDE} a side")
    return Picture(kind, width, height, data)


def _png(data: bytes) -> tuple[str, int, int] | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or data[12:16] != b"IHDR":
        return None
    return ("png", *struct.unpack_from(">II", data, 16))


def _jpeg(data: bytes) -> tuple[str, int, int] | None:
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    place = 2
    while data[place] == 0xFF:
        marker, length = data[place + 1], struct.unpack_from(">H", data, place + 2)[0]
        if marker in FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return "jpeg", width, height
        place += 2 + max(2, length)
    return None


def _webp(data: bytes) -> tuple[str, int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    match data[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(data[place : place + 3], "little") + 1 for place in (24, 27))
            return "webp", width, height
        case b"VP8L":
            packed = int.from_bytes(data[21:25], "little")
            return "webp", (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return "webp", width & 0x3FFF, height & 0x3FFF
    return None
