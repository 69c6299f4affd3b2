import django.db.models.functions.datetime
from django.db import migrations, models


# What makemigrations writes: of a model that is not managed, nothing is made.
class Migration(migrations.Migration):
    dependencies = [('messaging', '0001_extension')]
    operations = [
        migrations.CreateModel('OutboxMessage', [
            ('id', models.UUIDField(db_default=models.Value(None), primary_key=True, serialize=False)),
            ('route', models.TextField(db_default='default')),
            ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ('event_type', models.TextField()),
            ('aggregate_type', models.TextField(null=True)),
            ('aggregate_id', models.TextField(null=True)),
            ('payload', models.JSONField(null=True)),
            ('body', models.BinaryField(null=True)),
            ('headers', models.JSONField(null=True)),
            ('properties', models.JSONField(null=True)),
            ('routing_key', models.TextField(null=True)),
            ('available_at', models.DateTimeField(null=True)),
        ], options={'db_table': 'outbox_new', 'managed': False}),
    ]
