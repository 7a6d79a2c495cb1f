from django.apps import AppConfig


class NightlyConfig(AppConfig):
    name = "webapp.nightly"
    default_auto_field = "django.db.models.BigAutoField"
