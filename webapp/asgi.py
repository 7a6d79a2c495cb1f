"""The ASGI application: pages and server-sent events."""

import os

from django.core.asgi import get_asgi_application
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings.local")
pages = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402

#: Each request has a thread of its own, and takes over the connection of one that has ended. How many there
#: may be is Postgres' to say. Who waits ``timeout`` seconds for one is told that the database is away, and so
#: long after it is back the last of those who look for it have found it (``reconnect_timeout``).
CONNECTIONS = {"min_size": 0, "max_size": 1000, "max_idle": 60, "timeout": 5, "reconnect_timeout": 5}
connections.settings["default"]["OPTIONS"]["pool"] = CONNECTIONS

#: Who asks is what a trusted proxy says; uvicorn itself is told to believe nobody (``--no-proxy-headers``).
application = ProxyHeadersMiddleware(pages, trusted_hosts=settings.TRUSTED_PROXIES)  # type: ignore[arg-type]  # Django's is looser

from experiments.core import registry  # noqa: E402  (after Django's set-up)
from experiments.core.heap import freeze_for_good  # noqa: E402

# Every policy with its claims is read once, now, and not by the first reader of the catalog.
for policy in registry.all_policies():
    registry.describe(policy)

# An answer of thousands of rows sets a full collection off, which would walk through all of this.
freeze_for_good()
