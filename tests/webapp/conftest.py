"""Fixtures of the page tests."""

from __future__ import annotations

import pytest

from tests.webapp.cast import Cast, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


@pytest.fixture(autouse=True)
def files_of_its_own(settings, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Uploads of a test land in its own folder."""
    settings.MEDIA_ROOT = tmp_path / "files"
