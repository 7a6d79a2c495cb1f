"""Ended runs in columns, and triggers that mark those whose runs change.

On a live lab: the triggers need a lock on three tables for a moment. What begins before they are there has
ended before a segment is built, since none is there yet.
"""

import django.db.models.deletion
from django.db import migrations, models

ENDED = "state NOT IN ('queued', 'running')"
#: One mark of a transaction is enough, and nobody waits for that of another.
FUNCTION = """
CREATE FUNCTION {name}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO history_segmentmark (segment_id, transaction)
    SELECT DISTINCT segment.id, pg_current_xact_id()::text::bigint
    FROM ({changed}) AS run (project_id, ended) JOIN history_segment AS segment
    ON segment.project_id = run.project_id AND segment.begins <= run.ended AND run.ended < segment.ends
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$
"""
#: Of runs row by row, and only of those that have ended: a claim or a lease costs nothing.
ROWS = {"insert": ("NEW",), "delete": ("OLD",), "update": ("OLD", "NEW")}
ROW = "SELECT {row}.project_id, coalesce({row}.finished_at, {row}.queued_at)"
ROW_TRIGGER = """
CREATE TRIGGER history_mark_{kind} AFTER {kind} ON {table}
FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION {name}()
"""
#: Of what runs have, by the rows that a statement changed.
NAMED = {"insert": "NEW TABLE AS changed", "delete": "OLD TABLE AS changed", "update": "NEW TABLE AS changed"}
PARTS = f"""
    SELECT run.project_id, coalesce(run.finished_at, run.queued_at) FROM changed AS part
    JOIN runs_run AS run ON run.id = part.run_id WHERE run.{ENDED}"""
PARTS_OF = {"runs_runmetric": PARTS, "history_runtag": f"{PARTS} AND part.name = 'archived'"}
TRIGGER = """
CREATE TRIGGER history_mark_{kind} AFTER {kind} ON {table} REFERENCING {named}
FOR EACH STATEMENT EXECUTE FUNCTION {name}()
"""
MADE = [
    "SET LOCAL lock_timeout = '10s'",
    # Bytes that are read in whole are not packed.
    'ALTER TABLE history_segmentcolumn ALTER "values" SET STORAGE EXTERNAL',
]
TAKEN_BACK = []


def _make(table, kind, changed, trigger, **told):
    name = f"history_mark_{table}_{kind}"
    MADE.append(FUNCTION.format(name=name, changed=changed))
    MADE.append(trigger.format(name=name, kind=kind, table=table, **told))
    TAKEN_BACK.append(f"DROP TRIGGER history_mark_{kind} ON {table}")
    TAKEN_BACK.append(f"DROP FUNCTION {name}()")


for kind, rows in ROWS.items():
    changed = " UNION ALL ".join(ROW.format(row=row) for row in rows)
    condition = " OR ".join(f"{row}.{ENDED}" for row in rows)
    _make("runs_run", kind, changed, ROW_TRIGGER, condition=condition)
    for table, parts in PARTS_OF.items():
        _make(table, kind, parts, TRIGGER, named=NAMED[kind])


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0003_keep_runs_days"),
        ("history", "0002_notes"),
        ("runs", "0019_ended"),
    ]

    operations = [
        migrations.CreateModel(
            name="Segment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("begins", models.DateTimeField()),
                ("ends", models.DateTimeField()),
                ("armed", models.BigIntegerField(null=True)),
                ("size", models.PositiveIntegerField(null=True)),
                ("project", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.project")),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("project", "begins"), name="one_segment_at_a_time")]},
        ),
        migrations.CreateModel(
            name="SegmentColumn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=8)),
                ("name", models.CharField(max_length=100)),
                ("words", models.BinaryField(null=True)),
                ("values", models.BinaryField()),
                ("rows", models.BinaryField(null=True)),
                ("segment", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="columns", to="history.segment")),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("segment", "kind", "name"), name="one_column_of_a_field")]},
        ),
        migrations.CreateModel(
            name="SegmentMark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("transaction", models.BigIntegerField()),
                ("segment", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="marks", to="history.segment")),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("segment", "transaction"), name="one_mark_of_a_transaction")]},
        ),
        migrations.RunSQL(MADE, TAKEN_BACK),
    ]
