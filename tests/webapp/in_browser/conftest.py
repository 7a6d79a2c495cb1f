"""The cast of a lab that is served to a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.webapp.browser import serving
from tests.webapp.cast import Cast, make_cast


@pytest.fixture
def cast(settings, monkeypatch) -> Cast:  # type: ignore[no-untyped-def]
    """The cast, with static files served from where they stand and the ORM allowed next to
    Playwright's loop.
    """
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    return make_cast()


@pytest.fixture
def address(cast: Cast) -> Iterator[str]:
    with serving() as url:
        yield url
