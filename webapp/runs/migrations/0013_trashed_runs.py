"""Runs in the trash, alone or together, which counts of experiments leave out.

On a live lab: a new column without a value rewrites nothing, its index holds what is in the trash alone, and
the triggers change between two statements.
"""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

#: What a statement changed: as in 0010, of runs that are not in the trash.
CAME = "SELECT experiment_id, state, 1 AS change FROM came WHERE trash_id IS NULL"
WENT = "SELECT experiment_id, state, -1 AS change FROM went WHERE trash_id IS NULL"
CHANGES = {"insert": CAME, "delete": WENT, "update": f"{CAME} UNION ALL {WENT}"}
FUNCTION = """
CREATE OR REPLACE FUNCTION runs_count_{kind}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO runs_runcount AS kept (experiment_id, state, slot, count)
    SELECT experiment_id, state, pg_backend_pid() % 16, sum(change) FROM ({changes}) AS changes
    WHERE EXISTS (SELECT FROM runs_experiment AS e WHERE e.id = experiment_id)
    GROUP BY experiment_id, state HAVING sum(change) <> 0 ORDER BY experiment_id, state
    ON CONFLICT (experiment_id, state, slot) DO UPDATE SET count = kept.count + excluded.count;
    RETURN NULL;
END $$
"""
COUNTED = [FUNCTION.format(kind=kind, changes=changes) for kind, changes in CHANGES.items()]
#: Taken back only where nothing is in the trash: then both count the same.
UNCOUNTED = [sql.replace(" WHERE trash_id IS NULL", "") for sql in COUNTED]


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0003_keep_runs_days"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("runs", "0012_logged_runs"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="TrashedRuns",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("why", models.CharField(blank=True, max_length=200)),
                ("count", models.PositiveIntegerField()),
                ("trashed_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("by", models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to=settings.AUTH_USER_MODEL)),
                ("project", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="trashed_runs", to="accounts.project")),
            ],
        ),
        migrations.AddField(
            model_name="run",
            name="trash",
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="runs", to="runs.trashedruns"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(condition=models.Q(("trash__isnull", False)), fields=["trash"], name="run_trash"),
        ),
        migrations.RunSQL(COUNTED, UNCOUNTED),
    ]
