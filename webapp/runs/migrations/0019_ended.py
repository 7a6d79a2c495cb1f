"""The runs of a project in the order in which they ended; made while runs go on. A run has an entry once it
has ended, so that claims and renewals write none.
"""

import django.db.models.functions.comparison
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("runs", "0018_answers"),
    ]

    operations = [
        # What was cut off in the middle begins anew.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS run_ended", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                models.F("project"),
                django.db.models.functions.comparison.Coalesce("finished_at", "queued_at"),
                name="run_ended",
                condition=models.Q(state__in=["succeeded", "infeasible", "failed", "cancelled", "rejected"]),
            ),
        ),
    ]
