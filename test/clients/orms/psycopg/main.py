# psycopg 3 without an ORM: README.md of the folder above says what each operation does.

import json
import sys
import uuid

# [connect]
import psycopg
from psycopg.types.json import Jsonb
# [/connect]
from psycopg import sql
from psycopg.rows import class_row
from psycopg_pool import ConnectionPool


from dataclasses import dataclass, field
from typing import Any


@dataclass
class Message:
    event_type: str
    payload: Any = None
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    id: uuid.UUID = field(default_factory=uuid.uuid4)



# [enqueue]
def connect(**options):
    return psycopg.connect('', **options)       # where libpq's environment says: PGHOST, PGDATABASE ...


def order(connection, customer):
    return connection.execute('INSERT INTO orders (customer, total) VALUES (%s, %s) RETURNING id', (customer, 42)).fetchone()[0]


def enqueue(connection, event_type, aggregate_id, payload):
    return connection.execute(
        'INSERT INTO outbox_new (event_type, aggregate_type, aggregate_id, payload)'
        ' VALUES (%s, %s, %s, %s) RETURNING id',
        (event_type, 'order', aggregate_id, Jsonb(payload))).fetchone()[0]
# [/enqueue]


def insert(operation='insert'):
    # [insert]
    with connect() as connection:       # a transaction, committed at the end of the block
        order_id = order(connection, operation)
        message_id = enqueue(connection, 'order.' + operation, order_id, {'order': order_id})
    # [/insert]
    return {'ids': [message_id]}, order_id


def map_():
    values = {
        'route': 'default', 'event_type': 'order.map', 'aggregate_type': 'customer', 'aggregate_id': 42,
        'payload': Jsonb({'n': 42, 'name': 'Zoë', 'nothing': None}),
        'headers': Jsonb({'tenant': 'a\\b', 'x-retries': 3}), 'properties': Jsonb({'priority': 5}),
        'routing_key': 'a.key', 'created_at': '2026-01-02T03:04:05Z', 'available_at': '2040-01-02T03:04:05Z'}
    statement = sql.SQL('INSERT INTO outbox_new ({}) VALUES ({}) RETURNING id').format(
        sql.SQL(', ').join(map(sql.Identifier, values)), sql.SQL(', ').join(map(sql.Placeholder, values)))
    with connect() as connection:
        return {'ids': [connection.execute(statement, values).fetchone()[0]]}


def function():
    with connect() as connection:
        order_id = order(connection, 'function')
        message_id = connection.execute(
            'SELECT outbox_enqueue(%s, %s, %s, %s::text)',
            ('order.function', Jsonb({'order': order_id}), 'order', order_id)).fetchone()[0]
    return {'ids': [message_id]}


def own_id():
    with connect() as connection:
        order_id = order(connection, 'own_id')
        message = Message('order.own_id', {'order': order_id}, 'order', str(order_id))
        connection.execute(
            'INSERT INTO outbox_new (id, event_type, aggregate_type, aggregate_id, payload) VALUES (%s, %s, %s, %s, %s)',
            (message.id, message.event_type, message.aggregate_type, message.aggregate_id, Jsonb(message.payload)))
    return {'ids': [message.id]}


def bytes_():
    with connect() as connection:
        order_id = order(connection, 'bytes')
        message_id = connection.execute(
            'INSERT INTO outbox_new (event_type, aggregate_type, aggregate_id, body) VALUES (%s, %s, %s, %s) RETURNING id',
            ('order.bytes', 'order', order_id, bytes(range(256)))).fetchone()[0]
    return {'ids': [message_id]}


def batch():
    with connect() as connection:
        order_id = order(connection, 'batch')
        messages = [{'event_type': 'order.batch', 'aggregate_type': 'order', 'aggregate_id': order_id, 'payload': {'n': n}}
                    for n in range(100)]
        ids = [row[0] for row in connection.execute(
            'INSERT INTO outbox_new (event_type, aggregate_type, aggregate_id, payload)'
            ' SELECT event_type, aggregate_type, aggregate_id, payload'
            ' FROM jsonb_to_recordset(%s) AS m(event_type text, aggregate_type text, aggregate_id text, payload jsonb)'
            ' RETURNING id', (Jsonb(messages),))]
    return {'ids': ids}


def rollback():
    try:
        with connect() as connection:
            order_id = order(connection, 'rollback')
            enqueue(connection, 'order.rollback', order_id, {'order': order_id})
            raise RuntimeError('the payment was refused')
    except RuntimeError:
        pass
    return {}


def savepoint():
    with connect() as connection:
        order_id = order(connection, 'savepoint')
        first = enqueue(connection, 'order.savepoint', order_id, {'n': 1})
        try:
            with connection.transaction():      # a savepoint, as one is open already
                enqueue(connection, 'order.savepoint', order_id, {'n': 2})
                raise RuntimeError
        except RuntimeError:
            pass
        third = enqueue(connection, 'order.savepoint', order_id, {'n': 3})
    return {'ids': [first, third]}


def refused(statement, values, said):
    try:
        with connect() as connection:
            connection.execute(statement, values)
        return said
    except psycopg.Error as e:
        return {**said, 'error': e.sqlstate}


def update():
    said, _ = insert('update')
    return refused("UPDATE outbox_new SET event_type = 'order.changed' WHERE id = %s", said['ids'], said)


def delete():
    said, _ = insert('delete')
    return refused('DELETE FROM outbox_new WHERE id = %s', said['ids'], said)


def pool():
    from concurrent.futures import ThreadPoolExecutor
    with ConnectionPool('', min_size=1, max_size=4) as connections:
        def work(_):
            ids = []
            for _ in range(25):
                with connections.connection() as connection:    # a transaction
                    order_id = order(connection, 'pool')
                    ids.append(enqueue(connection, 'order.pool', order_id, {'order': order_id}))
            return ids
        with ThreadPoolExecutor(4) as threads:
            return {'ids': sum(threads.map(work, range(4)), [])}


def tests():
    with connect() as connection:
        order_id = order(connection, 'tests')
        enqueue(connection, 'order.tests', order_id, {'order': order_id})
        assert connection.execute('SELECT event_type FROM outbox').fetchall() == [('order.tests',)]
        connection.rollback()
    return {'says': 'rolled back'}


NONE = {'none': 'it has no such thing'}

OPERATIONS = {
    'map': map_, 'insert': lambda: insert()[0], 'function': function, 'own_id': own_id, 'bytes': bytes_, 'batch': batch,
    'rollback': rollback, 'savepoint': savepoint, 'update': update, 'delete': delete, 'pool': pool, 'tests': tests,
}

print(json.dumps(OPERATIONS.get(sys.argv[1], lambda: NONE)(), default=str))
