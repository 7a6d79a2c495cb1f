"""Sixty runs in segments."""

from __future__ import annotations

import random

import pytest

from tests.webapp import cast
from tests.webapp.cast import Place
from tests.webapp.history.segments.history import build, fill
from webapp.history.models import Segment
from webapp.history.segments import keeping


@pytest.fixture
def history(db: None, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Sixty runs in segments of five and more, and a few in a short one or in none."""
    monkeypatch.setattr(keeping, "SIZE", 5)
    monkeypatch.setattr(keeping, "SHORT", 2)
    ada = cast.place("ada")
    fill(ada.project, 60, random.Random(7))
    build(ada)
    assert Segment.objects.count() > 6
    return ada
