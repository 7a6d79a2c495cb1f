"""Verdicts of projects are computed anew by the rule of docs/verdicts.md from the runs that are stored."""

from django.db import migrations


def forget(apps, schema_editor):
    """A check without a verdict is judged again when its page is next opened."""
    apps.get_model('papers', 'ClaimCheck').objects.all().delete()


class Migration(migrations.Migration):

    dependencies = [
        ('papers', '0002_shipped_verdicts'),
    ]

    operations = [
        migrations.RunPython(forget, migrations.RunPython.noop, elidable=True),
    ]
