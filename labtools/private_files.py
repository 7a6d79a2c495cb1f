"""Files that only their owner may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write(path: Path, text: str) -> None:
    # Made with its final permissions, not changed afterwards: nobody can read it in between.
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def secret(path: Path) -> str:
    """The secret in `path`, generated the first time."""
    if not path.exists():
        write(path, secrets.token_urlsafe(50))
    return path.read_text().strip()
