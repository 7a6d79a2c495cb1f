"""The ASGI application: pages and server-sent events."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings.local")
application = get_asgi_application()

from experiments.core import registry  # noqa: E402  (after Django's set-up)

# Every policy with its claims is read once, now, and not by the first reader of the catalog.
for policy in registry.all_policies():
    registry.describe(policy)
