"""A team's server. Refuses to start without its secrets; ``manage.py check --deploy`` is clean."""

from webapp.settings.base import *  # noqa: F403
from webapp.settings.base import FILES, database, require

SECRET_KEY = require("SECRET_KEY")
DEBUG = False
ALLOWED_HOSTS = [name.strip() for name in require("ALLOWED_HOSTS").split(",")]
CSRF_TRUSTED_ORIGINS = [f"https://{name}" for name in ALLOWED_HOSTS if name != "localhost"]
DATABASES = {"default": database(require("DATABASE_URL"))}
CELERY_BROKER_URL = REDIS_URL = require("REDIS_URL")
STORAGES = {
    "default": FILES,
    "staticfiles": {"BACKEND": "webapp.staticstorage.HashedFiles"},
}
SECURE_SSL_REDIRECT = True
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz)$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_HSTS_SECONDS = 31536000
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
