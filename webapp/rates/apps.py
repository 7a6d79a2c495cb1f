from django.apps import AppConfig


class RatesConfig(AppConfig):
    name = "webapp.rates"
    default_auto_field = "django.db.models.BigAutoField"
