from django.apps import AppConfig


class LoggedConfig(AppConfig):
    name = "webapp.logged"
    default_auto_field = "django.db.models.BigAutoField"
