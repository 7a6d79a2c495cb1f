"""Counts of an experiment's runs, kept by triggers from here on.

On a live lab: the triggers need a lock on the table of runs for a moment only. A count is then the sum of
what changed since and of what was there before, which is the plain count less those changes in any one
snapshot: both change in the same transactions. So migration 0011 counts once, while runs go on.
"""

import django.db.models.deletion
from django.db import migrations, models

TABLE = """
CREATE TABLE runs_runcount (
    experiment_id uuid NOT NULL REFERENCES runs_experiment ON DELETE CASCADE,
    state varchar(10) NOT NULL,
    slot smallint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (experiment_id, state, slot)
) WITH (fillfactor = 70)
"""
#: What a statement changed, by the transition tables that its kind has.
CAME = "SELECT experiment_id, state, 1 AS change FROM came"
WENT = "SELECT experiment_id, state, -1 FROM went"
CHANGES = {"insert": CAME, "delete": WENT.replace("-1", "-1 AS change"), "update": f"{CAME} UNION ALL {WENT}"}
NAMED = {"insert": "NEW TABLE AS came", "delete": "OLD TABLE AS went"}
NAMED["update"] = f"{NAMED['delete']} {NAMED['insert']}"
#: Rows in one order, so that two statements never wait for each other in turn. As its owner: a joined host
#: may write runs, not counts.
FUNCTION = """
CREATE FUNCTION runs_count_{kind}() RETURNS trigger
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
TRIGGER = """
CREATE TRIGGER runs_count_{kind} AFTER {kind} ON runs_run REFERENCING {named}
FOR EACH STATEMENT EXECUTE FUNCTION runs_count_{kind}()
"""
KINDS = ("insert", "delete", "update")
MADE = [
    "SET LOCAL lock_timeout = '10s'",
    TABLE,
    *[FUNCTION.format(kind=kind, changes=CHANGES[kind]) for kind in KINDS],
    *[TRIGGER.format(kind=kind, named=NAMED[kind]) for kind in KINDS],
]
TAKEN_BACK = [
    *[f"DROP TRIGGER runs_count_{kind} ON runs_run" for kind in KINDS],
    *[f"DROP FUNCTION runs_count_{kind}()" for kind in KINDS],
    "DROP TABLE runs_runcount",
]


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0009_validation"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(MADE, TAKEN_BACK)],
            state_operations=[
                migrations.CreateModel(
                    name="RunCount",
                    fields=[
                        ("pk", models.CompositePrimaryKey("experiment_id", "state", "slot", blank=True, editable=False, primary_key=True, serialize=False)),
                        ("experiment", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="counts", to="runs.experiment")),
                        ("state", models.CharField(max_length=10)),
                        ("slot", models.SmallIntegerField()),
                        ("count", models.BigIntegerField()),
                    ],
                ),
            ],
        ),
    ]
