"""The ASGI application: pages and server-sent events."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings.local")
application = get_asgi_application()
