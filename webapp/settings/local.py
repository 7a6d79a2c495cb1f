"""``./lab up``: one machine, servers and secret made by the set-up."""

import os

from webapp.settings.base import *  # noqa: F403
from webapp.settings.base import FILES, database, require

SECRET_KEY = require("SECRET_KEY")
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
if "LAB_ADDRESS" in os.environ:
    ALLOWED_HOSTS.append(os.environ["LAB_ADDRESS"])
DATABASES = {"default": database(require("DATABASE_URL"))}
CELERY_BROKER_URL = REDIS_URL = require("REDIS_URL")
STORAGES = {
    "default": FILES,
    "staticfiles": {"BACKEND": "webapp.staticstorage.HashedFiles"},
}
