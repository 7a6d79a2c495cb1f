"""The figures of a run are read from their index, values included, which also serves as that of the runs; made
while runs go on.
"""

import django.db.models.deletion
from django.db import migrations, models

NARROW = "one_value_per_run_and_metric"
BY_RUN = "runs_runmetric_run_id_c2661aa0"


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ("runs", "0020_trashed_experiments"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                # What was cut off in the middle begins anew.
                migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS figure_of_run", migrations.RunSQL.noop),
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY figure_of_run"
                    " ON runs_runmetric (run_id, name) INCLUDE (value)",
                    "DROP INDEX CONCURRENTLY IF EXISTS figure_of_run",
                ),
                migrations.RunSQL(
                    f"ALTER TABLE runs_runmetric DROP CONSTRAINT IF EXISTS {NARROW}",
                    f"ALTER TABLE runs_runmetric ADD CONSTRAINT {NARROW} UNIQUE (run_id, name)",
                ),
                migrations.RunSQL(
                    f"DROP INDEX CONCURRENTLY IF EXISTS {BY_RUN}",
                    f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {BY_RUN} ON runs_runmetric (run_id)",
                ),
            ],
            state_operations=[
                migrations.RemoveConstraint(model_name="runmetric", name=NARROW),
                migrations.AlterField(
                    model_name="runmetric",
                    name="run",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="metrics",
                        to="runs.run",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="runmetric",
                    constraint=models.UniqueConstraint(
                        fields=("run", "name"), include=("value",), name="figure_of_run"
                    ),
                ),
            ],
        ),
    ]
