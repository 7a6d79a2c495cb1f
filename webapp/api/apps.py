from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "webapp.api"
    default_auto_field = "django.db.models.BigAutoField"
