import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

ROLES = [
    ("viewer", "viewer: sees everything of the team"),
    ("member", "member: also uploads and runs"),
    ("admin", "admin: also manages members, tokens and projects"),
]
CASCADE = django.db.models.deletion.CASCADE
KEY = {"auto_created": True, "primary_key": True, "serialize": False, "verbose_name": "ID"}


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(**KEY)),
                ("role", models.CharField(choices=ROLES, max_length=10)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("joined", models.PositiveIntegerField(default=0, help_text="how many joined by it")),
                ("by", models.ForeignKey(settings.AUTH_USER_MODEL, CASCADE, related_name="+")),
                ("team", models.ForeignKey("accounts.team", CASCADE, related_name="invitations")),
            ],
        ),
    ]
