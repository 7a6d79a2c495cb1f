"""Who calls the API."""

from __future__ import annotations

import pytest

from tests.webapp import cast
from tests.webapp.api.calls import Caller
from tests.webapp.cast import Place


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


@pytest.fixture
def caller(ada: Place) -> Caller:
    return Caller(ada)


@pytest.fixture
def stranger() -> Caller:
    return Caller(cast.place("eve"))
