"""What every setting has in common. Nothing secret has a value here."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from csp.constants import SELF
from django.core.exceptions import ImproperlyConfigured
from kombu.common import Broadcast
from kombu.entity import Exchange, Queue

from webapp.settings.identity import forms_may_lead_to, identity_provider, provider_apps, scim_token

ROOT = Path(__file__).resolve().parent.parent.parent
VAR = Path(os.environ.get("LAB_VAR") or ROOT / "var")


def require(name: str) -> str:
    """An environment variable without which the server must not start."""
    value = os.environ.get(name, "")
    if not value:
        raise ImproperlyConfigured(f"set {name} in the environment: it has no default")
    return value


#: A connection whose other end is gone without a word is given up after some twenty seconds (libpq).
KEEPALIVES = {
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def database(url: str) -> dict[str, Any]:
    """Django's database entry of a ``postgresql://user:password@host:port/name`` address (host may be a
    folder). What follows a ``?`` is libpq's: ``sslmode=verify-full&sslrootcert=...``.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    elsewhere = ("host", "port")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", unquote(parts.hostname or "")),
        "PORT": str(parts.port or query.get("port", "")),
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 5, **KEEPALIVES}
        | {name: value for name, value in query.items() if name not in elsewhere},
    }


INSTALLED_APPS = [
    "webapp.accounts",
    "webapp.hosts",
    "webapp.artifacts",
    "webapp.runs",
    "webapp.rates",
    "webapp.compare",
    "webapp.history",
    "webapp.logged",
    "webapp.reports",
    "webapp.papers",
    "webapp.nightly",
    "webapp.advice",
    "webapp.api",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.socialaccount.providers.saml",
    "auditlog",
    "axes",
    "csp",
    "django_celery_beat",
    "django_filters",
    "django_htmx",
    "django_tables2",
    "ninja",
]

MIDDLEWARE = [
    "webapp.request_log.name_request",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "webapp.caching.NoStore",
    "webapp.outages.wait_for_database",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "webapp.readable.ReadableText",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "auditlog.middleware.AuditlogMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_ADAPTER = "webapp.accounts.adapter.InvitedOnly"
SOCIALACCOUNT_ADAPTER = "webapp.accounts.identity.FromProvider"
#: The identity provider of a company or university (OIDC_ISSUER or SAML_ENTITY_ID), empty without one.
IDENTITY_PROVIDER = identity_provider(os.environ)
SOCIALACCOUNT_PROVIDERS = provider_apps(IDENTITY_PROVIDER)
SOCIALACCOUNT_STORE_TOKENS = False
#: What that provider sends to say who left (empty: it cannot).
SCIM_TOKEN = scim_token(os.environ)
#: A Python that has apache-otava, which says what it thinks of nightly steps.
OTAVA_PYTHON = os.environ.get("OTAVA_PYTHON", "").strip()
# Wrong passwords are counted once, by django-axes in the database, for an account at an address: allauth's
# own counts would lock out everybody at an address, or an account from anywhere. Its others stay.
ACCOUNT_RATE_LIMITS = {"login": None}
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_USERNAME_CALLABLE = "webapp.accounts.sign_in_limit.account_name"
AXES_CLIENT_IP_CALLABLE = "webapp.accounts.sign_in_limit.client_address"
AXES_LOCKOUT_CALLABLE = "webapp.accounts.sign_in_limit.refuse_sign_in"
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
#: Addresses and networks of the proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
TRUSTED_PROXIES = [name.strip() for name in os.environ.get("TRUSTED_PROXIES", "").split(",") if name.strip()]

ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "webapp" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "webapp.navigation.context",
            ],
            "builtins": ["webapp.presentation"],
        },
    }
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = VAR / "static"
STATICFILES_DIRS = [ROOT / "webapp" / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "webapp.staticfinder.WheelFinder",
]
MEDIA_ROOT = VAR / "files"
#: The checkout whose stored revisions runs may be carried out by (the search for a commit).
CODE_ROOT = Path(os.environ.get("LAB_CODE") or ROOT)
#: Refused before anything is stored (bytes).
UPLOAD_MAX_BYTES = int(os.environ.get("UPLOAD_MAX_BYTES", 2 * 2**30))
#: So long a thing stays in the trash before it is deleted for good (days).
TRASH_DAYS = int(os.environ.get("TRASH_DAYS", 30))
#: Uploads and results: in the folder ``MEDIA_ROOT``, or in a bucket of an S3-compatible store.
FILES: dict[str, Any] = {"BACKEND": "webapp.artifacts.storage.WholeFiles"}
if os.environ.get("S3_BUCKET"):
    FILES = {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": os.environ["S3_BUCKET"],
            "endpoint_url": os.environ.get("S3_ENDPOINT") or None,
            "access_key": os.environ.get("S3_ACCESS_KEY") or None,
            "secret_key": os.environ.get("S3_SECRET_KEY") or None,
            "region_name": os.environ.get("S3_REGION") or None,
            "addressing_style": "path",
            "file_overwrite": True,
            "max_memory_size": 8 * 2**20,
        },
    }
FILE_UPLOAD_MAX_MEMORY_SIZE = 2**20
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 2**20
#: A form with the runs of a comparison has a field for each of 2,000.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2500
FILE_UPLOAD_TEMP_DIR = None
#: Uploads and results are read by the lab's own account alone.
FILE_UPLOAD_PERMISSIONS = 0o600
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o700

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SESSION_COOKIE_HTTPONLY = True
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

#: No inline script anywhere. Plotly writes its styles into a style element.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:", "blob:"],
        "style-src": [SELF, "'unsafe-inline'"],
        "script-src": [SELF],
        "frame-ancestors": ["'none'"],
        "base-uri": [SELF],
        "form-action": [SELF, *forms_may_lead_to(os.environ)],
        "object-src": ["'none'"],
    }
}

# Celery carries wake-ups only: short, lost or doubled without harm (runs live in Postgres).
CELERY_TIMEZONE = "UTC"
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": 2, "socket_connect_timeout": 2, "visibility_timeout": 60}
CELERY_TASK_IGNORE_RESULT = True
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_PUBLISH_RETRY = False

#: Requests that a token of the API may make in a minute (0: as many as it likes).
API_REQUESTS_PER_MINUTE = int(os.environ.get("API_REQUESTS_PER_MINUTE", 12_000))

#: How long what is sent waits for a database that does not answer, before it is refused (seconds).
OUTAGE_WAIT_SECONDS = float(os.environ.get("OUTAGE_WAIT_SECONDS", 5))

#: The lab's address as people reach it, for links in messages and feeds ("": they begin at its root).
PUBLIC_URL = os.environ.get("PUBLIC_URL", "").rstrip("/")
#: Whether webhooks and mail servers may be inside a private network.
NOTIFY_PRIVATE = os.environ.get("NOTIFY_PRIVATE", "") == "1"

#: What Prometheus sends to read /metrics (empty: administrators alone read it).
METRICS_TOKEN = os.environ.get("METRICS_TOKEN", "")

# A wake-up reaches every worker of every host; what is done once waits in a queue for the lab's own workers.
WAKE_UPS = Exchange("wake", type="fanout")  # type: ignore[no-untyped-call]
CELERY_TASK_ROUTES = {
    "runs.wake": {"exchange": "wake", "exchange_type": "fanout", "routing_key": "wake", "declare": [WAKE_UPS]}
}
HEARING = Broadcast("wake", routing_key="wake")  # type: ignore[no-untyped-call]
CELERY_TASK_QUEUES: tuple[Queue, ...] = (Queue("celery"), HEARING)  # type: ignore[no-untyped-call]

# Runs (webapp/runs/lifecycle.py, workers/). A lease outlives several heartbeats of its supervisor.
RUN_LEASE_SECONDS = float(os.environ.get("RUN_LEASE_SECONDS", 30))
RUN_CRASHES = 3
#: How often a supervisor renews, tells progress and asks whether to stop; an idle worker looks for runs
#: (seconds).
RUN_BEAT_SECONDS = float(os.environ.get("RUN_BEAT_SECONDS", 0.5))
RUN_IDLE_SECONDS = float(os.environ.get("RUN_IDLE_SECONDS", 3))
#: Limits of a trial: bytes of its whole tree (0: the host's memory shared among its slots) and seconds.
TRIAL_MEMORY_BYTES = int(os.environ.get("TRIAL_MEMORY_BYTES", 0))
#: Processes with their threads (0: as many as is usual for this host's cores) and bytes of files of a trial.
TRIAL_PROCESSES = int(os.environ.get("TRIAL_PROCESSES", 0))
TRIAL_DISK_BYTES = int(os.environ.get("TRIAL_DISK_BYTES", 16 * 2**30))
#: What must be free on the disk of trials' folders, else a worker claims nothing (bytes).
TRIAL_ROOM_BYTES = int(os.environ.get("TRIAL_ROOM_BYTES", 2**28))
#: Whether a worker that is root may start trials where nothing but limits can be put around them.
TRIAL_UNSAFE = os.environ.get("LAB_UNSAFE", "") == "1"
TRIAL_SECONDS = float(os.environ.get("TRIAL_SECONDS", 4 * 3600))
READING_SECONDS = 300.0
#: How long a policy may search, by the effort that it declares; the best so far is the answer then.
SEARCH_SECONDS = {"at once": 120.0, "seconds": 300.0, "minutes": 900.0}
#: Whether the step of a model is captured as soon as the model was read, so that its page says what it needs.
CAPTURE_AT_ONCE = os.environ.get("CAPTURE_AT_ONCE", "1") == "1"
#: How long what nobody waits for is left to lie: who has just brought a model soon asks for something else.
IDLE_SECONDS = float(os.environ.get("IDLE_SECONDS", 30))
#: The program of a trial (empty: this Python's ``-m experiments``) and files it reads beyond the domain
#: package.
TRIAL_COMMAND = os.environ.get("TRIAL_COMMAND", "")
TRIAL_READABLE = [path for path in os.environ.get("TRIAL_READABLE", "").split(os.pathsep) if path]
#: Where a worker keeps fetched files, verified by their hash, and how many bytes of them at most.
BLOB_CACHE = Path(os.environ.get("BLOB_CACHE", VAR / "cache" / "blobs"))
BLOB_CACHE_BYTES = int(os.environ.get("BLOB_CACHE_BYTES", 20 * 2**30))

#: Where hosts that join find the web app ("": where it was asked), database and broker (without a login; ""
#: where they cannot be reached), and the certificate that both show ("": one that every system trusts).
HOSTS_URL = os.environ.get("HOSTS_URL", "")
HOSTS_DATABASE_URL = os.environ.get("HOSTS_DATABASE_URL", "")
HOSTS_REDIS_URL = os.environ.get("HOSTS_REDIS_URL", "")
HOSTS_CERTIFICATE = os.environ.get("HOSTS_CERTIFICATE", "")
#: Whether the web app shows that certificate too, so that a host that joins must find it there.
HOSTS_PINNED = os.environ.get("HOSTS_PINNED", "") == "1"
#: What a host that joined was told (``webapp.settings.host``); the lab's own hosts have none.
JOINED: dict[str, str] | None = None

#: Everything to stderr, with tracebacks: what runs the programs keeps their logs.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request": {"()": "webapp.request_log.RequestFilter"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(request_id)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request"]}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {"django": {"handlers": ["stderr"], "level": "INFO", "propagate": False}},
}
