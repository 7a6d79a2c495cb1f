"""A test that commits leaves the database as migrating did."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from tests.emptying import empty_database
from tests.webapp.cast import make_cast, ready
from webapp.accounts.models import User
from webapp.artifacts.models import Artifact
from webapp.nightly.services import create_schedule
from webapp.runs.queue import PERIODIC


def what_migrating_made() -> list[object]:
    tasks = PeriodicTask.objects.order_by("name").values_list("name", "task", "interval__every", "enabled")
    types = ContentType.objects.order_by("pk").values_list("pk", "app_label", "model")
    return [list(tasks), list(types), Permission.objects.count(), IntervalSchedule.objects.count()]


@pytest.mark.django_db(transaction=True)
def test_what_was_committed_is_gone_and_what_migrating_made_is_there() -> None:
    """A nightly schedule has a task of its own, and another test may switch one of the lab's off."""
    before = what_migrating_made()
    assert len(before[0]) == len(PERIODIC)  # type: ignore[arg-type]
    cast = make_cast()
    ready(cast.project)
    create_schedule(cast.project, cast.ada, "memory-gpt2", 2, 0)
    PeriodicTask.objects.filter(name=PERIODIC[0][0]).update(enabled=False)
    empty_database()
    assert not any(model.objects.exists() for model in (User, Artifact, CrontabSchedule))
    assert what_migrating_made() == before
    assert ContentType.objects.get_for_model(Artifact).model == "artifact"
