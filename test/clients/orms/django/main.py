# Django: README.md of the folder above says what each operation does.

import datetime
import io
import json
import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'

import django

django.setup()

from django.core.management import call_command
from django.db import Error, connection, transaction

from messaging.models import OutboxMessage
from shop.models import Order


# [insert]
@transaction.atomic
def place_order(customer, event_type):
    order = Order.objects.create(customer=customer, total=42)
    message = OutboxMessage.objects.create(
        event_type=event_type, aggregate_type='order', aggregate_id=order.id, payload={'order': order.id})
    return message      # message.id is set
# [/insert]


def insert(operation):
    return place_order(operation, 'order.' + operation)


def ids(*messages):
    return {'ids': [m.id for m in messages]}


def map_():
    return ids(OutboxMessage.objects.create(
        route='default', event_type='order.map', aggregate_type='customer', aggregate_id=42,
        payload={'n': 42, 'name': 'Zoë', 'nothing': None},
        headers={'tenant': 'a\\b', 'x-retries': 3}, properties={'priority': 5}, routing_key='a.key',
        created_at=datetime.datetime.fromisoformat('2026-01-02T03:04:05+00:00'),
        available_at=datetime.datetime.fromisoformat('2040-01-02T03:04:05+00:00')))


@transaction.atomic
def function():
    order = Order.objects.create(customer='function', total=42)
    with connection.cursor() as cursor:
        cursor.execute('SELECT outbox_enqueue(%s, %s::jsonb, %s, %s::text)',
                       ['order.function', json.dumps({'order': order.id}), 'order', order.id])
        message_id = cursor.fetchone()[0]
    return {'ids': [message_id]}


@transaction.atomic
def own_id():
    order = Order.objects.create(customer='own_id', total=42)
    return ids(OutboxMessage.objects.create(
        id=uuid.uuid4(), event_type='order.own_id', aggregate_type='order', aggregate_id=order.id, payload={'order': order.id}))


@transaction.atomic
def bytes_():
    order = Order.objects.create(customer='bytes', total=42)
    return ids(OutboxMessage.objects.create(
        event_type='order.bytes', aggregate_type='order', aggregate_id=order.id, body=bytes(range(256))))


@transaction.atomic
def batch():
    order = Order.objects.create(customer='batch', total=42)
    messages = OutboxMessage.objects.bulk_create([
        OutboxMessage(id=uuid.uuid4(), event_type='order.batch', aggregate_type='order', aggregate_id=order.id, payload={'n': n})
        for n in range(100)])
    return ids(*messages)


def rollback():
    try:
        with transaction.atomic():
            insert('rollback')
            raise RuntimeError
    except RuntimeError:
        return {}


@transaction.atomic
def savepoint():
    order = Order.objects.create(customer='savepoint', total=42)

    def enqueue(n):
        return OutboxMessage.objects.create(
            event_type='order.savepoint', aggregate_type='order', aggregate_id=order.id, payload={'n': n})
    first = enqueue(1)
    try:
        with transaction.atomic():      # a savepoint, as one is open already
            enqueue(2)
            raise RuntimeError
    except RuntimeError:
        pass
    return ids(first, enqueue(3))


def refused(message, again):
    try:
        again()
        return ids(message)
    except Error as e:
        print(repr(e), file=sys.stderr)
        return {**ids(message), 'error': e.__cause__.sqlstate}


def second_save():
    message = insert('second_save')
    return refused(message, message.save)


def second_save_gone():
    message = insert('second_save_gone')
    with connection.cursor() as cursor:
        cursor.execute("SELECT outbox_wait(%s, '1 minute')", [message.id])
        assert cursor.fetchone() == ('published',)
    return refused(message, message.save)


def update():
    message = insert('update')
    message.event_type = 'order.changed'
    return refused(message, message.save)


def delete():
    message = insert('delete')
    return refused(OutboxMessage(id=message.id), message.delete)


def pool():
    def work(_):
        try:
            return [insert('pool').id for _ in range(25)]
        finally:
            connection.close()
    with ThreadPoolExecutor(4) as threads:
        return {'ids': sum(threads.map(work, range(4)), [])}


def diff():
    said = io.StringIO()
    call_command('makemigrations', dry_run=True, stdout=said)
    return {'wants': [line.strip() for line in said.getvalue().split('\n') if line.strip()[:1] in ('+', '-', '~')]}


def dump():
    said = io.StringIO()
    call_command('inspectdb', stdout=said)
    assert 'class Orders' in said.getvalue() and 'class Outbox' not in said.getvalue()
    return {'says': '`inspectdb`: none of ours'}


def migrate(*args):
    call_command('migrate', *args, verbosity=0)
    return {}


def tests():
    from django.test.utils import get_runner
    from django.conf import settings
    failures = get_runner(settings)(verbosity=0, interactive=False).run_tests(['shop'])
    assert not failures
    return {'says': 'its `test` command'}


OPERATIONS = {
    'map': map_, 'insert': lambda: ids(insert('insert')), 'function': function, 'own_id': own_id, 'bytes': bytes_,
    'batch': batch, 'rollback': rollback, 'savepoint': savepoint, 'second_save': second_save,
    'second_save_gone': second_save_gone, 'update': update, 'delete': delete, 'pool': pool,
    'diff': diff, 'diff_mended': diff, 'dump': dump, 'migrate_up': lambda: migrate(),
    'migrate_down': lambda: migrate('shop', 'zero'), 'extension': lambda: migrate(), 'tests': tests,
}

print(json.dumps(OPERATIONS[sys.argv[1]](), default=str))
