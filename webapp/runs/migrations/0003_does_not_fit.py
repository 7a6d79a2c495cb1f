"""A run whose plan does not fit ends in a state of its own, and one whose plan is impossible as rejected."""

from django.db import migrations, models

STATES = ["queued", "running", "succeeded", "failed", "cancelled", "rejected"]


def tell_apart(apps, schema_editor):
    runs = apps.get_model("runs", "Run").objects
    for status in ("infeasible", "rejected"):
        runs.filter(state="succeeded", outcome_status=status).update(state=status)


def put_together(apps, schema_editor):
    apps.get_model("runs", "Run").objects.filter(state="infeasible").update(state="succeeded")


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_model_states")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="state",
            field=models.CharField(
                choices=[*((state, state) for state in STATES), ("infeasible", "does not fit")],
                default="queued",
                max_length=10,
            ),
        ),
        migrations.RunPython(tell_apart, put_together, elidable=True),
    ]
