"""Experiments in the trash are found without looking at the others, since every list of runs leaves theirs
out; made while runs go on.
"""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("runs", "0019_ended"),
    ]

    operations = [
        # What was cut off in the middle begins anew.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS experiment_trash", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="experiment",
            index=models.Index(
                fields=["project"],
                name="experiment_trash",
                condition=models.Q(trashed_at__isnull=False),
            ),
        ),
    ]
