from django.apps import AppConfig


class PapersConfig(AppConfig):
    name = "webapp.papers"
    default_auto_field = "django.db.models.BigAutoField"
