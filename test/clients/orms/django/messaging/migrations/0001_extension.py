from django.db import migrations


class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL(
            ['CREATE SCHEMA IF NOT EXISTS outbox',
             'CREATE EXTENSION IF NOT EXISTS outbox SCHEMA outbox'],
            reverse_sql=migrations.RunSQL.noop),
    ]
