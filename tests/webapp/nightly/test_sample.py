"""The sample of sixty nights: its one true step is found, and it goes with a project's first night."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client

from tests.webapp import cast
from webapp.nightly import steps
from webapp.nightly.sample import CHANGE, NIGHTS, STEP_AFTER, sample_history
from webapp.nightly.services import create_schedule, run_now


def test_the_one_step_of_the_sample_is_found_where_it_is() -> None:
    found = sample_history(datetime(2026, 1, 1, 2, tzinfo=UTC))
    (alert,) = steps.alerts(found)
    assert found.slots.index(alert.first_after.slot) == STEP_AFTER
    assert alert.fraction == pytest.approx(CHANGE, abs=0.01)
    assert (alert.better, alert.lasted, len(found.slots)) == (False, NIGHTS - STEP_AFTER, NIGHTS)


@pytest.mark.django_db
def test_the_sample_is_marked_and_goes_with_the_first_night(client: Client) -> None:
    ada = cast.place("ada")
    client.force_login(ada.user)
    page = client.get(ada.url("nightly/")).content.decode()
    assert "sample-history" in page and "not measured by anybody" in page
    schedule = create_schedule(ada.project, ada.user, "memory-gpt2", 2, 0)
    assert "sample-history" in client.get(ada.url("nightly/")).content.decode()
    run_now(schedule)
    assert "sample-history" not in client.get(ada.url("nightly/")).content.decode()
