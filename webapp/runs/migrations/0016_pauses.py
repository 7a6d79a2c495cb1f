"""Queued runs that wait for a while are found without looking at those that do not; made while runs go on."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("runs", "0015_indexes"),
    ]

    operations = [
        # What was cut off in the middle begins anew.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS run_pauses", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                fields=["not_before"],
                name="run_pauses",
                condition=models.Q(state="queued", not_before__isnull=False),
            ),
        ),
    ]
