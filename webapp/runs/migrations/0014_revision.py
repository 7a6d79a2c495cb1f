"""Runs that a stored revision of the code carries out."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0013_trashed_runs"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="revision",
            field=models.CharField(blank=True, db_default="", default="", help_text="of the code that carries it out; empty: the host's own", max_length=40),
        ),
    ]
