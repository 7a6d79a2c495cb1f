"""The newest runs of several projects together, and figures with the run that each is of, so that a search by
figures reads an index alone; made while runs go on, without a lock on them.
"""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("runs", "0014_revision"),
    ]

    operations = [
        # What was cut off in the middle begins anew.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS run_newest", migrations.RunSQL.noop),
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS metric_with_its_run", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(fields=["-queued_at", "-id"], name="run_newest"),
        ),
        AddIndexConcurrently(
            model_name="runmetric",
            index=models.Index(fields=["name", "value"], include=["run"], name="metric_with_its_run"),
        ),
        RemoveIndexConcurrently(model_name="runmetric", name="metric_by_value"),
    ]
