from django.apps import AppConfig
from django.db.models.signals import post_migrate


class RunsConfig(AppConfig):
    name = "webapp.runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from webapp.runs.schedule import install

        post_migrate.connect(install, sender=self)
