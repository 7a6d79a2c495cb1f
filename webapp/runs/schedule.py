"""What beat sends by itself stands in the database after every migration."""

from __future__ import annotations

from typing import Any

from webapp.runs.queue import EXPIRES, PERIODIC


def install(sender: Any, **kwargs: Any) -> None:
    """Handler of ``post_migrate``: the periodic tasks of ``queue.PERIODIC``, as they are written there."""
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    for name, seconds in PERIODIC:
        every, _ = IntervalSchedule.objects.get_or_create(every=seconds, period=IntervalSchedule.SECONDS)
        PeriodicTask.objects.update_or_create(
            name=name, defaults={"task": name, "interval": every, "expire_seconds": EXPIRES}
        )
