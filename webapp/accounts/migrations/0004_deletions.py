"""What is being deleted for good, some runs at a time."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

KEY = {"auto_created": True, "primary_key": True, "serialize": False, "verbose_name": "ID"}


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0003_keep_runs_days"),
    ]

    operations = [
        migrations.CreateModel(
            name="Deletion",
            fields=[
                ("id", models.BigAutoField(**KEY)),
                ("kind", models.CharField(max_length=20)),
                ("key", models.CharField(max_length=40)),
                ("runs", models.PositiveIntegerField(help_text="how many it had when its deletion began")),
                ("began_at", models.DateTimeField(auto_now_add=True)),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="deletions", to="accounts.team"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "key"), name="one_deletion_of_a_thing")
                ],
            },
        ),
    ]
