from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="model_states",
            field=models.TextField(
                blank=True, help_text="what training keeps for a parameter, by part, in words"
            ),
        ),
    ]
