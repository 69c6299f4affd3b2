from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from messaging.models import OutboxMessage


def pending():
    with connection.cursor() as cursor:
        cursor.execute('SELECT event_type, payload::text FROM outbox ORDER BY seq')
        return cursor.fetchall()


class InTransaction(TestCase):
    def test_message(self):
        OutboxMessage.objects.create(event_type='order.tests', payload={'order': 1})
        self.assertEqual(pending(), [('order.tests', '{"order": 1}')])


class Committed(TransactionTestCase):
    def tearDown(self):
        with connection.cursor() as cursor:
            cursor.execute('TRUNCATE outbox')

    def test_commit(self):
        with transaction.atomic():
            OutboxMessage.objects.create(event_type='order.tests', payload={'order': 2})
        self.assertEqual(len(pending()), 1)

    def test_view_is_empty(self):
        message = OutboxMessage.objects.create(event_type='order.tests', payload={'order': 3})
        self.assertEqual(OutboxMessage.objects.count(), 0)
        with self.assertRaises(OutboxMessage.DoesNotExist):
            message.refresh_from_db()
