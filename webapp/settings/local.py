"""``./lab up``: one machine, servers and secret made by the set-up."""

from webapp.settings.base import *  # noqa: F403
from webapp.settings.base import database, required

SECRET_KEY = required("SECRET_KEY")
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
DATABASES = {"default": database(required("DATABASE_URL"))}
CELERY_BROKER_URL = REDIS_URL = required("REDIS_URL")
STORAGES = {
    "default": {"BACKEND": "webapp.artifacts.storage.WholeFiles"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
