"""Files that a reader sees whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write ``path`` in one move; what is there and no file, a device or a pipe, is written into.

    A file put in a device's place would break it for everybody. ``private``: for this account alone.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o666)
    with os.fdopen(opened, "wb") as file:
        file.write(content)
    part.replace(path)
