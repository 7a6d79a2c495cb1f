"""A suite that is run at night, in the project of an admin."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.webapp.cast import Place, place
from tests.webapp.nightly.test_alerts import SLOT, SUITE
from webapp.accounts.models import Role
from webapp.nightly import services
from webapp.nightly.models import Schedule


@pytest.fixture
def ada(db: None) -> Place:
    return place("ada", Role.ADMIN)


@pytest.fixture
def nightly(ada: Place) -> Schedule:
    made = services.create_schedule(ada.project, ada.user, SUITE, 2, 0)
    Schedule.objects.update(created_at=SLOT - timedelta(days=1))
    made.refresh_from_db()
    return made
