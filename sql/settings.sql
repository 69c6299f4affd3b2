-- Settings: ranges, units, and what a bad value is told.
SET client_min_messages = error;
LOAD 'outbox';
SET search_path = public, outbox_regress;

SELECT name, vartype, unit, min_val, max_val, boot_val, context
FROM pg_settings WHERE name LIKE 'outbox.%' ORDER BY name COLLATE "C";
SELECT name FROM pg_settings
WHERE name LIKE 'outbox.%' AND (short_desc IS NULL OR category <> 'Customized Options');

\pset format unaligned
\pset tuples_only on

-- Units
SET outbox.confirm_timeout = '1min';
SHOW outbox.confirm_timeout;
SET outbox.retention = '7d';
SHOW outbox.retention;
SET outbox.retention = 0;
SHOW outbox.retention;
SET outbox.max_message_size = '64MB';
SHOW outbox.max_message_size;
SET outbox.poll_interval = '0.5s';
SHOW outbox.poll_interval;
RESET ALL;
SET client_min_messages = error;
SET search_path = public, outbox_regress;

-- Just within and just outside of each range; newer servers tell the unit with it
-- (window is a keyword of SQL and must be quoted there)
CREATE FUNCTION ranged(statement text) RETURNS text
LANGUAGE sql AS $$
	SELECT regexp_replace(outbox_regress.outcome(statement),
		'\((-?\d+) \w+ \.\. (\d+) \w+\)', '(\1 .. \2)')
$$;
SELECT ranged(format('SET %s = %L', quoted, min_val)) AS min,
	ranged(format('SET %s = %L', quoted, max_val)) AS max,
	ranged(format('SET %s = %L', quoted, min_val::int - 1)) AS below,
	ranged(format('SET %s = %L', quoted, max_val::bigint + 1)) AS above
FROM pg_settings, format('outbox.%I', substr(name, 8)) quoted WHERE name LIKE 'outbox.%' AND vartype = 'integer'
ORDER BY name COLLATE "C";
DROP FUNCTION ranged(text);
SELECT outcome('SET outbox."window" = ''x''');
SELECT outcome('SET outbox.retention = ''1kB''');
SELECT outcome('SET outbox.enabled = ''maybe''');
-- a misspelt name is told
SELECT outcome('SET outbox.windows = 1');

-- outbox.broker_uri: what is accepted
SELECT uri, outcome(format('SET outbox.broker_uri = %L', uri)) FROM unnest(ARRAY[
	'amqp://localhost', 'amqp://localhost:5672', 'amqp://localhost/', 'AMQP://h/v',
	'amqps://user@rabbit.example.org:5671/vhost', 'amqp://h1,h2:5673,h3/%2Forders',
	'amqp://[::1]', 'amqp://[fe80::1%eth0]:5672/', 'amqp://u%3A%40x@h/v%40w']) uri;
-- and what is not: SQLSTATE and detail, the hint is always the same
CREATE FUNCTION refused(uri text) RETURNS text
LANGUAGE sql AS $$
	SELECT coalesce(left(o, 5) || substring(o FROM '\n  DETAIL(:[^\n]*)'), o)
	FROM outbox_regress.outcome(format('SET outbox.broker_uri = %L', uri)) o
$$;
SELECT substring(outcome('SET outbox.broker_uri = ''h''') FROM 'HINT.*');
SELECT uri, refused(uri) FROM unnest(ARRAY[
	'', 'localhost', 'http://localhost', 'amqp:/localhost', 'amqp://', 'amqp:///v',
	'amqp://h:', 'amqp://h:0', 'amqp://h:65536', 'amqp://h:x', 'amqp://h:+1',
	'amqp://h,', 'amqp://,h', 'amqp://::1', 'amqp://[::1', 'amqp://h h', 'amqp://h_é',
	'amqp://@h', 'amqp://%zz@h', 'amqp://h/a/b', 'amqp://h/%', 'amqp://h/%00',
	'amqp://h?x=1', 'amqp://h/v#f']) uri;
SELECT refused('amqp://' || repeat('u', 255) || '@h'), refused('amqp://' || repeat('u', 256) || '@h');
SELECT refused('amqp://h/' || repeat('v', 255)), refused('amqp://h/' || repeat('v', 256));
SELECT refused('amqp://' || repeat('h,', 15) || 'h'), refused('amqp://' || repeat('h,', 16) || 'h');

-- A password does not belong there
SELECT uri, refused(uri) FROM unnest(ARRAY['amqp://user:secret@h', 'amqp://user:sec/ret@h/v',
	'amqp://user:@h', 'amqps://user:secret@h1,h2/v']) uri;
-- and no message repeats it
SELECT bool_or(outcome(format('SET outbox.broker_uri = %L', uri)) LIKE '%secret%') AS repeated
FROM unnest(ARRAY['amqp://user:secret@h', 'http://user:secret@h', 'amqp://h/secret/x']) uri;
DROP FUNCTION refused(text);

-- One for each database; a bad one is refused when it is set
SELECT format('ALTER DATABASE %I SET outbox.broker_uri = ', current_database()) AS alter,
	format('ALTER DATABASE %I RESET outbox.broker_uri', current_database()) AS reset \gset
:alter 'amqp://h/v';
:reset;
\set VERBOSITY sqlstate
:alter 'http://h';
\set VERBOSITY default
SELECT setconfig FROM pg_db_role_setting s JOIN pg_database d ON d.oid = setdatabase
WHERE datname = current_database() AND setconfig::text LIKE '%outbox.broker_uri%';
