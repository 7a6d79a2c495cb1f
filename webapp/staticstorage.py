"""Static files under names with their hash, compressed."""

from __future__ import annotations

from typing import Any

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Scripts of wheels name source maps that the wheels leave out; those names stay as they are."""

    def hashed_name(self, name: str, content: Any = None, filename: str | None = None) -> str:
        if name.strip().endswith(".map"):
            return name
        return str(super().hashed_name(name, content, filename))
