"""The index of what waits has the whole order in which it is claimed: the first entry is the next run, and
nothing is sorted; made while runs go on.
"""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("runs", "0016_pauses"),
    ]

    operations = [
        # What was cut off in the middle begins anew.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS run_turns", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                fields=["-priority", "turn", "queued_at", "id"],
                name="run_turns",
                condition=models.Q(state="queued"),
            ),
        ),
        RemoveIndexConcurrently(model_name="run", name="run_queue"),
    ]
