"""The Celery application: ``celery -A workers.app worker`` carries out runs, ``... beat`` sends what is
periodic.
"""

from __future__ import annotations

import logging
import os

import django
from celery import Celery, bootsteps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings.local")
# Django's checks load every page; migrating, which comes before any of this starts, makes them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")
django.setup()

log = logging.getLogger(__name__)

TASKS = "workers.tasks"
app = Celery("workers")
app.config_from_object("django.conf:settings", namespace="CELERY")
# Tasks are short; threads, because trials are children of this process and die with it.
app.conf.update(worker_pool="threads", worker_send_task_events=False)


class Runs(bootsteps.StartStopStep):  # type: ignore[misc]  # celery is untyped
    """The slots start and stop with the worker; ``--concurrency`` says how many. It alone loads the tasks:
    beat, whose memory they would more than half fill, sends them by name.
    """

    def __init__(self, worker, **options):  # type: ignore[no-untyped-def]
        from workers.dispatcher import Dispatcher

        app.loader.import_task_module(TASKS)
        self.dispatcher = app.dispatcher = Dispatcher(worker.concurrency or os.cpu_count() or 1)

    def start(self, worker) -> None:  # type: ignore[no-untyped-def]
        from workers.sandbox import NoWalls

        try:
            self.dispatcher.start()
        except NoWalls as error:
            log.critical("%s; %s", error, error.remedy)
            raise SystemExit(1) from error

    def stop(self, worker) -> None:  # type: ignore[no-untyped-def]
        self.dispatcher.stop()

    terminate = stop


app.steps["worker"].add(Runs)
