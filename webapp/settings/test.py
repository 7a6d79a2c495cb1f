"""The tests: a real Postgres and Valkey, given by ``./lab test``."""

import os
import sys
from urllib.parse import urlsplit

from webapp.settings.base import *  # noqa: F403
from webapp.settings.base import INSTALLED_APPS, MIDDLEWARE, database

SECRET_KEY = "only for tests: nothing outside a test run is signed with it"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]
DATABASES = {
    "default": database(os.environ.get("DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres"))
}
# Each process of a test run in several has a Postgres database (pytest-django sees to it) and a Valkey
# database of its own.
PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
BROKER = urlsplit(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
CELERY_BROKER_URL = REDIS_URL = BROKER._replace(path=f"/{PROCESS}").geturl()
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "webapp.artifacts.storage.WholeFiles"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
AXES_ENABLED = False
# Seconds for each of many models; the tests that are about it switch it on, those with a worker by its
# environment.
CAPTURE_AT_ONCE = os.environ.get("CAPTURE_AT_ONCE") == "1"
IDLE_SECONDS = float(os.environ.get("IDLE_SECONDS", 0))
# A page that a test asks for fails where it makes an N+1 query (decision 0233). Workers and benchmarks,
# which have these settings without pytest, are not watched.
if "pytest" in sys.modules:
    INSTALLED_APPS = [*INSTALLED_APPS, "zeal"]
    MIDDLEWARE = ["tests.webapp.watching.watch_reading", *MIDDLEWARE]
# What is raised in a cell of a table is lost: zeal only tells, and tests/webapp/conftest.py lets a test fail.
ZEAL_RAISE = False
ZEAL_NPLUSONE_THRESHOLD = 3
# Signing in reads the sessions of before, of the way and of after, each of them once.
ZEAL_ALLOWLIST = [{"model": "sessions.Session", "field": "get()"}]
