"""The folder of uploads and results: a file is there whole or not at all."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any

from django.core.files.storage import FileSystemStorage

ASIDE = ".part"
#: What was not written to for so long belongs to a program that died while it wrote (seconds).
ABANDONED_SECONDS = 24 * 3600.0


class WholeFiles(FileSystemStorage):
    """Writes aside in the same folder and renames; a name holds the last whole content that was saved under
    it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_overwrite": True, **options})

    def _save(self, name: str, content: Any) -> str:
        aside = f"{name}.{secrets.token_hex(8)}{ASIDE}"
        try:
            super()._save(aside, content)  # type: ignore[misc]  # not in the stubs
            _settle(Path(self.path(aside)))
            Path(self.path(aside)).replace(self.path(name))
        except BaseException:
            self.delete(aside)
            raise
        _remove_abandoned(Path(self.path(name)).parent)
        return name


def _settle(path: Path) -> None:
    """On the disk before the name says that it is: a power cut may otherwise keep the name and lose the
    bytes.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _remove_abandoned(folder: Path) -> None:
    for part in folder.glob(f"*{ASIDE}"):
        if part.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            part.unlink(missing_ok=True)
