"""A host that joined a lab: where the lab's servers are and who this host is stands in ``var/host.json``."""

import json
import os
import secrets

from webapp.settings.base import *  # noqa: F403
from webapp.settings.base import CELERY_BROKER_TRANSPORT_OPTIONS as TRANSPORT
from webapp.settings.base import CELERY_TASK_QUEUES as QUEUES
from webapp.settings.base import VAR, database

TOLD: dict[str, str] = json.loads((VAR / "host.json").read_text())
JOINED = TOLD
#: Nothing is signed here: this process serves no page.
SECRET_KEY = secrets.token_urlsafe(50)
DEBUG = False
DATABASES = {"default": database(TOLD["database_url"])}
CELERY_BROKER_URL = REDIS_URL = TOLD["redis_url"]
# Wake-ups alone, over a channel: nothing is acknowledged, so nothing is written; nobody controls this worker.
CELERY_BROKER_TRANSPORT_OPTIONS = {**TRANSPORT, "ack_emulation": False, "socket_timeout": 10}
CELERY_TASK_QUEUES = QUEUES[1:]
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
STORAGES = {
    "default": {
        "BACKEND": "webapp.artifacts.remote.RemoteFiles",
        "OPTIONS": {name: TOLD[name] for name in ("url", "token", "certificate")},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
os.environ.setdefault("LAB_HOST_NAME", TOLD["name"])
