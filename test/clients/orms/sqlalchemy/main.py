# SQLAlchemy and Alembic: README.md of the folder above says what each operation does.

import datetime
import json
import os
import shutil
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import cast, create_engine, func, insert as insert_into, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from models import Base, Order, OutboxMessage

engine = create_engine('postgresql+psycopg://', pool_size=4, max_overflow=0)


# [insert]
def place_order(session, customer, event_type):
    order = Order(customer=customer, total=42)
    session.add(order)
    session.flush()         # order.id is set
    message = OutboxMessage(
        event_type=event_type, aggregate_type='order', aggregate_id=str(order.id), payload={'order': order.id})
    session.add(message)
    return message          # message.id is set by the next flush, at the latest by commit
# [/insert]


def insert(operation):
    with Session(engine, expire_on_commit=False) as session, session.begin():
        return place_order(session, operation, 'order.' + operation)


def ids(*messages):
    return {'ids': [m.id for m in messages]}


def map_():
    with Session(engine) as session, session.begin():
        return {'ids': [session.scalar(insert_into(OutboxMessage).returning(OutboxMessage.id), {
            'route': 'default', 'event_type': 'order.map', 'aggregate_type': 'customer', 'aggregate_id': '42',
            'payload': {'n': 42, 'name': 'Zoë', 'nothing': None},
            'headers': {'tenant': 'a\\b', 'x-retries': 3}, 'properties': {'priority': 5}, 'routing_key': 'a.key',
            'created_at': datetime.datetime.fromisoformat('2026-01-02T03:04:05+00:00'),
            'available_at': datetime.datetime.fromisoformat('2040-01-02T03:04:05+00:00')})]}


def function():
    with Session(engine) as session, session.begin():
        order = Order(customer='function', total=42)
        session.add(order)
        session.flush()
        message_id = session.scalar(select(func.outbox_enqueue(
            'order.function', cast({'order': order.id}, JSONB), 'order', str(order.id))))
    return {'ids': [message_id]}


def one_more(operation, **columns):
    with Session(engine, expire_on_commit=False) as session, session.begin():
        order = Order(customer=operation, total=42)
        session.add(order)
        session.flush()
        if 'body' not in columns:
            columns['payload'] = {'order': order.id}
        message = OutboxMessage(event_type='order.' + operation, aggregate_type='order', aggregate_id=str(order.id), **columns)
        session.add(message)
    return ids(message)


def batch():
    with Session(engine) as session, session.begin():
        order = Order(customer='batch', total=42)
        session.add(order)
        session.flush()
        ids = session.scalars(insert_into(OutboxMessage).returning(OutboxMessage.id), [
            {'event_type': 'order.batch', 'aggregate_type': 'order', 'aggregate_id': str(order.id), 'payload': {'n': n}}
            for n in range(100)]).all()
    return {'ids': ids}


def rollback():
    try:
        with Session(engine) as session, session.begin():
            place_order(session, 'rollback', 'order.rollback')
            session.flush()
            raise RuntimeError
    except RuntimeError:
        return {}


def savepoint():
    with Session(engine, expire_on_commit=False) as session, session.begin():
        order = Order(customer='savepoint', total=42)
        session.add(order)
        session.flush()

        def enqueue(n):
            message = OutboxMessage(
                event_type='order.savepoint', aggregate_type='order', aggregate_id=str(order.id), payload={'n': n})
            session.add(message)
            session.flush()
            return message
        first = enqueue(1)
        try:
            with session.begin_nested():
                enqueue(2)
                raise RuntimeError
        except RuntimeError:
            pass
        third = enqueue(3)
    return ids(first, third)


def refused(message, again):
    said = ids(message)
    try:
        with Session(engine) as session, session.begin():
            again(session)
        return said
    except DBAPIError as e:
        print(repr(e), file=sys.stderr)
        return {**said, 'error': e.orig.sqlstate}
    except ValueError as e:
        print(repr(e), file=sys.stderr)
        return {**said, 'error': 'by the model'}


def second_save():
    message = insert('second_save')
    with Session(engine, expire_on_commit=False) as session, session.begin():
        session.add(message)        # nothing has changed: nothing happens
    return refused(message, lambda session: session.merge(message))


def second_save_gone():
    message = insert('second_save_gone')
    with engine.begin() as connection:
        assert connection.scalar(select(func.outbox_wait(message.id, datetime.timedelta(minutes=1)))) == 'published'
    return refused(message, lambda session: session.merge(message))


def update():
    message = insert('update')

    def again(session):
        session.add(message)
        message.event_type = 'order.changed'
    return refused(message, again)


def delete():
    message = insert('delete')
    return refused(message, lambda session: session.delete(message))


def pool():
    with ThreadPoolExecutor(4) as threads:
        return {'ids': sum(threads.map(lambda _: [insert('pool').id for _ in range(25)], range(4)), [])}


# --- Alembic

def scripts():
    """A directory of scripts as `alembic init` makes it."""
    here = os.path.dirname(os.path.abspath(__file__))
    directory = tempfile.mkdtemp()
    os.mkdir(os.path.join(directory, 'versions'))
    shutil.copy(os.path.join(here, 'alembic_env.py'), os.path.join(directory, 'env.py'))
    for name in os.listdir(os.path.join(here, 'versions')):
        shutil.copy(os.path.join(here, 'versions', name), os.path.join(directory, 'versions'))
    return directory


def alembic(command, *args):
    from alembic import command as commands
    from alembic.config import Config
    with engine.connect() as connection:
        config = Config()
        config.set_main_option('script_location', scripts())
        config.set_main_option('path_separator', 'os')
        config.attributes['connection'] = connection
        getattr(commands, command)(config, *args)
        connection.commit()
    return {}


def flat(changes):
    for change in changes:
        if isinstance(change, list):
            yield from flat(change)
        else:
            yield '%s %s' % (change[0], getattr(change[1], 'name', change[2:]))


def diff(**options):
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return {'wants': list(flat(compare_metadata(context, Base.metadata)))}


def diff_mended():
    source = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'alembic_env.py')).read()
    names = {}
    exec(source[source.index('def include_object'):source.index('# [/include]')], names)
    return diff(include_object=names['include_object'])


def dump():
    from sqlalchemy.ext.automap import automap_base
    base = automap_base()
    base.prepare(autoload_with=engine)
    assert 'outbox' in base.classes.keys() and 'outbox_new' not in base.classes.keys()
    return {'says': 'automap: our tables, not the view'}


def tests():
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode='create_savepoint') as session:
            place_order(session, 'tests', 'order.tests')
            session.commit()        # what the code under test does: here the end of a savepoint
        assert connection.scalars(text('SELECT event_type FROM outbox')).all() == ['order.tests']
        outer.rollback()
    return {'says': 'rolled back'}


OPERATIONS = {
    'map': map_, 'insert': lambda: ids(insert('insert')), 'function': function,
    'own_id': lambda: one_more('own_id', id=uuid.uuid4()), 'bytes': lambda: one_more('bytes', body=bytes(range(256))),
    'batch': batch, 'rollback': rollback, 'savepoint': savepoint, 'second_save': second_save,
    'second_save_gone': second_save_gone, 'update': update, 'delete': delete, 'pool': pool,
    'diff': diff, 'diff_mended': diff_mended, 'dump': dump, 'migrate_up': lambda: alembic('upgrade', 'shop@head'),
    'migrate_down': lambda: alembic('downgrade', 'shop@base'), 'extension': lambda: alembic('upgrade', 'messaging@head'), 'tests': tests,
}

print(json.dumps(OPERATIONS[sys.argv[1]](), default=str))
