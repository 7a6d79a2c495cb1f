"""``./lab up``: one machine, servers and secret made by the set-up."""

from webapp.settings.base import *  # noqa: F403
from webapp.settings.base import database, require

SECRET_KEY = require("SECRET_KEY")
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
DATABASES = {"default": database(require("DATABASE_URL"))}
CELERY_BROKER_URL = REDIS_URL = require("REDIS_URL")
STORAGES = {
    "default": {"BACKEND": "webapp.artifacts.storage.WholeFiles"},
    "staticfiles": {"BACKEND": "webapp.staticstorage.HashedFiles"},
}
