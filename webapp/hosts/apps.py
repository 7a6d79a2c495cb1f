from django.apps import AppConfig
from django.db.models.signals import post_migrate


class HostsConfig(AppConfig):
    name = "webapp.hosts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from webapp.hosts.roles import refresh

        post_migrate.connect(refresh, sender=self)
