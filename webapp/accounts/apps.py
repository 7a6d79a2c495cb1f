from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "webapp.accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from webapp.accounts import audit, identity, invitations

        audit.register()
        invitations.connect()
        identity.connect()
