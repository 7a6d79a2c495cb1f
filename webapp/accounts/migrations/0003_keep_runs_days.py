"""How long a project keeps runs that nobody marked."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0002_invitations"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="keep_runs_days",
            field=models.PositiveIntegerField(blank=True, help_text="runs that ended longer ago go into the trash; none: they stay", null=True),
        ),
    ]
