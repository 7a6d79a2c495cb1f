"""What was there before the triggers of migration 0010, in slot -1: one statement, one snapshot, no lock but
on the experiments' rows against being deleted meanwhile.
"""

from django.db import migrations

COUNT = """
WITH present AS MATERIALIZED (SELECT id FROM runs_experiment ORDER BY id FOR KEY SHARE),
there AS (
    SELECT experiment_id, state, count(*) AS count FROM runs_run
    WHERE experiment_id IS NOT NULL GROUP BY experiment_id, state
    UNION ALL SELECT experiment_id, state, -count FROM runs_runcount
)
INSERT INTO runs_runcount (experiment_id, state, slot, count)
SELECT experiment_id, state, -1, sum(count) FROM there JOIN present ON present.id = experiment_id
GROUP BY experiment_id, state HAVING sum(count) <> 0
"""


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0010_run_counts"),
    ]

    operations = [
        migrations.RunSQL(COUNT, "DELETE FROM runs_runcount WHERE slot = -1"),
    ]
