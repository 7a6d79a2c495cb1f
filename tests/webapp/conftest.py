"""Fixtures of the page tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache

from tests.webapp.cast import Cast, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


@pytest.fixture(autouse=True)
def files_of_its_own(request, settings, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Uploads of a test land in its own folder; those of a populated lab stay in that one's."""
    if "lab" not in request.fixturenames:
        settings.MEDIA_ROOT = tmp_path / "files"


@pytest.fixture(autouse=True)
def counts_of_its_own() -> None:
    """Sign-ups and second factors are counted by address in the cache: another test's are not this one's."""
    cache.clear()


@pytest.fixture(scope="module")
def lab(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A ``Populated``: two teams with one of everything, made once for a whole file of tests."""
    # It takes from files of tests, which pytest has to be the first to import.
    from tests.webapp.populated import populated

    with django_db_blocker.unblock(), populated(tmp_path_factory.mktemp("files")) as found:
        yield found
