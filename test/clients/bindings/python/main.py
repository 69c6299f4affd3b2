# Binds values of Python's own types by psycopg 2, psycopg 3 and asyncpg; the
# folder above says what it reads and prints.

import asyncio
import datetime
import json
import os
import re
import sys
import uuid


def plain(kind, text):
    """What an application has in hand; a driver's own wrapper of JSON comes later."""
    if kind == 'text':
        return text
    if kind == 'null':
        return None
    if kind in ('int', 'bigint'):
        return int(text)
    if kind == 'uuid':
        return uuid.UUID(text)
    if kind in ('json', 'list'):
        return json.loads(text)
    if kind == 'time':
        return datetime.datetime.fromisoformat(text.replace('Z', '+00:00'))
    raise NotImplementedError(kind)


def by_psycopg2():
    import psycopg2
    import psycopg2.extras
    connection = psycopg2.connect('')
    connection.autocommit = True
    psycopg2.extras.register_uuid()

    def value(kind, text):
        v = plain(kind, text)
        return psycopg2.extras.Json(v) if kind in ('json', 'list') else v

    def run(statement, values):
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()[0]

    return value, run, '%s', lambda e: getattr(e, 'pgcode', None)


def by_psycopg(wrapper):
    import psycopg
    import psycopg.types.json
    connection = psycopg.connect('', autocommit=True)
    wrap = getattr(psycopg.types.json, wrapper)

    def value(kind, text):
        v = plain(kind, text)
        return wrap(v) if kind in ('json', 'list') else v

    return (value, lambda statement, values: connection.execute(statement, values).fetchone()[0],
            '%s', lambda e: getattr(e, 'sqlstate', None))


def by_asyncpg(codec):
    import asyncpg
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(os.environ['DATABASE_URL'].split('?')[0], ssl=False))
    if codec:
        loop.run_until_complete(connection.set_type_codec('jsonb', schema='pg_catalog', encoder=json.dumps, decoder=json.loads))
        loop.run_until_complete(connection.set_type_codec('json', schema='pg_catalog', encoder=json.dumps, decoder=json.loads))

    def value(kind, text):
        # without a codec asyncpg takes and gives JSON as strings
        return plain(kind, text) if codec or kind not in ('json', 'list') else json.dumps(plain(kind, text))

    return (value, lambda statement, values: loop.run_until_complete(connection.fetchval(statement, *values)),
            None, lambda e: getattr(e, 'severity', None) and e.sqlstate)


DRIVERS = {
    'psycopg2': by_psycopg2,
    'psycopg': lambda: by_psycopg('Jsonb'),
    'psycopg Json': lambda: by_psycopg('Json'),
    'asyncpg': lambda: by_asyncpg(False),
    'asyncpg codec': lambda: by_asyncpg(True),
}


def main():
    value, run, placeholder, sqlstate = DRIVERS[sys.argv[1]]()
    for line in sys.stdin:
        number, kinds, statement, *texts = line.rstrip('\n').split('\t')
        if placeholder:
            # each parameter stands once, and in order
            statement = re.sub(r'\$\d+', placeholder, statement)
        try:
            values = [value(kind, text) for kind, text in zip(kinds.split(','), texts)]
        except NotImplementedError:
            print(number, 'none', sep='\t')
            continue
        try:
            print(number, 'ok', run(statement, values), sep='\t')
        except Exception as e:
            print(number, sqlstate(e) or 'client', ' '.join(str(e).split()), sep='\t')


main()
