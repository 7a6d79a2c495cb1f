from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("nightly", "0004_bisection")]

    operations = [
        migrations.AddField(
            model_name="change", name="seconded", field=models.BooleanField(blank=True, null=True)
        ),
    ]
