import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("api", "0001_initial")]

    operations = [
        migrations.AddField("apitoken", "expires_at", models.DateTimeField(blank=True, null=True)),
        migrations.CreateModel(
            name="KeptAnswer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=255)),
                ("request", models.CharField(max_length=64)),
                ("status", models.PositiveSmallIntegerField(null=True)),
                ("answer", models.TextField(default="")),
                ("made_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                (
                    "token",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="kept_answers",
                        to="api.apitoken",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("token", "key"), name="one_answer_for_a_key")
                ]
            },
        ),
    ]
