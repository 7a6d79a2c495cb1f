"""The place where the walks are walked, and the table that `./lab walks` prints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.walks.laboratory import Laboratory, open_laboratory
from tests.webapp.walks.table import lines_of
from tests.webapp.walks.walker import Walker

#: The walks that were walked to their end, by what they are.
WALKED = pytest.StashKey[dict[str, Walker]]()


@pytest.fixture
def walked(request: pytest.FixtureRequest) -> dict[str, Walker]:
    return request.config.stash.setdefault(WALKED, {})


@pytest.fixture
def lab(settings: Any, tmp_path: Path, monkeypatch: Any) -> Iterator[Laboratory]:
    """One server and one worker for all walks."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    settings.MEDIA_ROOT = tmp_path / "var" / "files"
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    with open_laboratory(tmp_path) as made:
        yield made


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    walked: dict[str, Walker] = config.stash.get(WALKED, {})
    for line in lines_of(walked) if walked else ():
        terminalreporter.write_line(line)
