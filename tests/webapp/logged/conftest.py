"""What tests of importers share: a member, and a server that takes what they bring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from experiments.client.server import Server
from tests.webapp import cast
from tests.webapp.browser import serving
from tests.webapp.cast import Place
from webapp.accounts.models import Role
from webapp.api.services import make_token


@pytest.fixture
def ada(db: None) -> Place:
    return cast.place("ada")


@pytest.fixture
def server(ada: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """With a member's token in the environment, as importers look for it."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    _, secret = make_token(ada.project.team, ada.user, "import", Role.MEMBER)
    monkeypatch.setenv("LAB_TOKEN", secret)
    with serving() as address:
        yield Server(address, secret)
