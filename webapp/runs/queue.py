"""The one place that sends messages: wake-ups without arguments, by task name. Postgres alone says what is to
be done.
"""

from __future__ import annotations

import functools
import logging

from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

WAKE, REAP, NIGHT, RETAIN, PURGE = "runs.wake", "runs.reap", "nightly.tick", "trash.retain", "trash.purge"
ADMIT, WATCH, FOLLOW, KEEP = "hosts.admit", "nightly.watch", "rates.follow", "history.keep"
#: What beat sends by itself: task name and seconds between.
PERIODIC = (
    *((WAKE, 15), (REAP, 10), (RETAIN, 3600), (PURGE, 15)),
    *((ADMIT, 15), (WATCH, 15), (FOLLOW, 5), (KEEP, 60)),
)
#: A wake-up that nobody took for so long tells nothing any more (seconds).
EXPIRES = 60

log = logging.getLogger(__name__)


@functools.cache
def client() -> Celery:
    """A sender that gives up after one try: a submission never waits for Redis."""
    app = Celery("webapp", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.conf.broker_transport_options = {**settings.CELERY_BROKER_TRANSPORT_OPTIONS, "max_retries": 0}
    return app


def wake() -> None:
    """Wake a worker once what is being written is committed. Harmless when lost: workers also look by
    themselves.
    """
    transaction.on_commit(functools.partial(send, WAKE))


def send(name: str) -> None:
    try:
        client().send_task(name, retry=False, expires=EXPIRES, ignore_result=True)
    except (OperationalError, OSError) as error:
        log.warning("no message %s: %s", name, error)
