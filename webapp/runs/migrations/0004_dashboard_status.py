from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0003_does_not_fit")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="dashboard_status",
            field=models.CharField(
                blank=True, max_length=24, help_text="of a compiled model, in the words of PyTorch's dashboard"
            ),
        ),
    ]
