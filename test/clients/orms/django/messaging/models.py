# [model]
from django.db import models
from django.db.models.functions import Now


class OutboxMessage(models.Model):
    # what the database sets, and INSERT ... RETURNING brings back
    id = models.UUIDField(primary_key=True, db_default=models.Value(None))
    route = models.TextField(db_default='default')
    created_at = models.DateTimeField(db_default=Now())

    event_type = models.TextField()
    aggregate_type = models.TextField(null=True)
    aggregate_id = models.TextField(null=True)
    payload = models.JSONField(null=True)
    body = models.BinaryField(null=True)
    headers = models.JSONField(null=True)
    properties = models.JSONField(null=True)
    routing_key = models.TextField(null=True)
    available_at = models.DateTimeField(null=True)

    class Meta:
        db_table = 'outbox_new'
        managed = False
# [/model]
