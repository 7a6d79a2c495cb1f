"""The newest answers of a project in one family are found without looking at its other runs; made while runs
go on. A run has an entry once it has succeeded, so that claims and renewals write none.
"""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("runs", "0017_whole_order"),
    ]

    operations = [
        # What was cut off in the middle begins anew.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS run_answers", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                fields=["project", "family", "-queued_at"],
                name="run_answers",
                condition=models.Q(state="succeeded"),
            ),
        ),
    ]
