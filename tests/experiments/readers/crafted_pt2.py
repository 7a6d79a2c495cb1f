"""Archives of ``torch.export.save`` taken apart, changed and packed again."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

GRAPH = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


def members_of(file: Path) -> dict[str, bytes]:
    """The members of an archive, by path below its folder."""
    with zipfile.ZipFile(file) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for path, content in members.items():
            archive.writestr(f"model/{path}", content)
    return buffer.getvalue()


def edited(path: str, change: Callable[[Any], None]) -> Callable[[dict[str, bytes]], None]:
    def edit(members: dict[str, bytes]) -> None:
        content = json.loads(members[path])
        change(content)
        members[path] = json.dumps(content).encode()

    return edit
