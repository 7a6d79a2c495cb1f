"""Short segments behind the last whole one.

On a live lab: two locks on a table of some hundred rows, for a moment.
"""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("history", "0003_segments")]

    operations = [
        migrations.AddField(
            model_name="segment",
            name="short",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RemoveConstraint(model_name="segment", name="one_segment_at_a_time"),
        migrations.AddConstraint(
            model_name="segment",
            constraint=models.UniqueConstraint(
                fields=("project", "begins", "short"), name="one_segment_at_a_time"
            ),
        ),
    ]
