package OutboxTest::Additions;

=pod

=head1 NAME

OutboxTest::Additions - what an administrator adds to the tables, and whether it counts

=head1 SYNOPSIS

  my $matrix = OutboxTest::Additions->new($node, $fake);
  $matrix->run($_) foreach $matrix->cases;
  $matrix->finish('additions');

=head1 A CASE

A hash with name, up and down (SQL that adds and removes it), and what is to be
seen:

  find            [ [ table, condition, index ], ... ]: an index scan finds what a
                  sequential scan finds; the index must be used unless it is undef
  refuses         { sqlstate => S, fields => {...} }: a message with these fields
                  is refused with S, whichever way it comes
  honoured        SQL that is true after the cycle (the addition did its work)
  function, insert, copy => [ S, regexp ]
                  this way is refused with S and a message that matches
  stuck           regexp of the error: rows cannot be settled until it is removed
  drops           no way of enqueue makes a message
  up_fails        [ S, regexp ]: PostgreSQL refuses the addition itself
  requires        an extension without which the case is left out
  since           the version of PostgreSQL (18) without which it is left out

=cut

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Shape;
use OutboxTest::Util;

my $CATALOGS = <<'SQL';
DO $$
DECLARE
	t regclass;
	n bigint;
BEGIN
	FOR t IN SELECT oid FROM pg_catalog.pg_class
		WHERE relkind IN ('r', 'v') AND relnamespace = 'pg_catalog'::regnamespace
			AND has_table_privilege(oid, 'SELECT')
			AND relname !~ 'hba|ident|file|shmem|config|settings|backend_memory|mcv'
	LOOP
		EXECUTE format('SELECT count(*) FROM (SELECT FROM %s LIMIT 1) t', t) INTO n;
	END LOOP;
END
$$;
SQL

# For the relay to make it again
my $DROP_DAY_AFTER = <<'SQL';
DO $$
DECLARE
	part text := 'outbox_archive_p' || to_char(now() AT TIME ZONE 'UTC' + interval '2 days', 'YYYYMMDD');
BEGIN
	EXECUTE format('ALTER EXTENSION outbox DROP TABLE outbox_internal.%I', part);
	EXECUTE format('DROP TABLE outbox_internal.%I', part);
END
$$;
SQL

=pod

=over

=item OutboxTest::Additions->new($node, $fake)

Creates roles, the extension and the sessions that stay connected.

=cut

sub new
{
	my ($class, $node, $fake) = @_;
	my $self = bless { node => $node, fake => $fake, number => 0 }, $class;

	$node->sql(<<'SQL');
CREATE ROLE keeper SUPERUSER LOGIN;
CREATE ROLE app LOGIN;
CREATE ROLE orm LOGIN;
GRANT CREATE ON SCHEMA public TO keeper;
CREATE EXTENSION amcheck;
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE added OWNER keeper LOCATION '';
SET ROLE keeper;
CREATE EXTENSION outbox;
RESET ROLE;
ALTER ROLE keeper NOSUPERUSER;
SQL
	foreach my $extension (qw(btree_gist bloom))
	{
		my $there = $node->sql(
			"SELECT count(*) FROM pg_available_extensions WHERE name = '$extension'");
		$node->sql("CREATE EXTENSION $extension") if $there;
		$self->{extensions}{$extension} = $there;
	}
	$self->{version} = int($node->sql('SHOW server_version_num') / 10000);
	$self->{checker} = OutboxTest::Checker->install($node);
	$node->sql(<<'SQL');
ALTER TABLE test_sent ADD tag text, ADD way text;
CREATE INDEX ON test_sent (tag);
GRANT SELECT, INSERT ON test_sent TO app, orm;
GRANT USAGE ON SEQUENCE test_sent_n TO app, orm;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes TO app;
GRANT INSERT ON outbox TO orm;

-- What additions do is noted here.  All names have a schema, so that it works
-- under any search_path.
CREATE SCHEMA addition;
CREATE TABLE addition.fired (name text, op text, level text, who text,
	session text, path text, way text);
CREATE FUNCTION addition.note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	way text;
BEGIN
	IF TG_LEVEL = 'ROW' THEN
		way := CASE TG_OP WHEN 'DELETE' THEN OLD.aggregate_type ELSE NEW.aggregate_type END;
	END IF;
	INSERT INTO addition.fired VALUES (TG_NAME, TG_OP, TG_LEVEL, current_user,
		session_user, pg_catalog.current_setting('search_path'), way);
	RETURN coalesce(NEW, OLD);
END
$$;
CREATE FUNCTION addition.note_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO addition.fired SELECT TG_NAME, TG_OP, TG_LEVEL, current_user,
		session_user, pg_catalog.current_setting('search_path'), r.aggregate_type
	FROM rows r;
	RETURN NULL;
END
$$;
CREATE FUNCTION addition.note_value(text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO addition.fired VALUES ('value', 'INSERT', 'VALUE', current_user,
		session_user, pg_catalog.current_setting('search_path'), $1);
	RETURN $1;
END
$$;
CREATE FUNCTION addition.nothing() RETURNS trigger LANGUAGE plpgsql
	AS $$BEGIN RETURN NULL; END$$;
CREATE FUNCTION addition.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.event_type = 'refused' THEN
		RAISE EXCEPTION 'not this one' USING ERRCODE = 'ZZ001';
	END IF;
	RETURN NEW;
END
$$;
CREATE FUNCTION addition.change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.headers := NEW.headers || '{"changed": true}';
	RETURN NEW;
END
$$;
CREATE FUNCTION addition.lower(text) RETURNS text IMMUTABLE LANGUAGE plpgsql
	AS $$BEGIN RETURN pg_catalog.lower($1); END$$;
-- Was it noted for each way, and as the right role?
CREATE FUNCTION addition.noted(level text, ways text[] DEFAULT '{function, insert, copy}')
RETURNS boolean LANGUAGE sql AS $$
	SELECT count(*) > 0 AND bool_and(CASE session
			WHEN 'app' THEN who = 'keeper' AND path = 'pg_catalog, pg_temp'
			ELSE who = session AND path <> 'pg_catalog, pg_temp' END)
		AND (noted.level = 'STATEMENT' OR array_agg(DISTINCT way) @> ways AND ways @> array_agg(DISTINCT way))
		AND array_agg(DISTINCT session) = '{app, orm}'
	FROM addition.fired f WHERE f.op = 'INSERT' AND f.level = noted.level
$$;
-- and for what the relay does?
CREATE FUNCTION addition.noted_relay(op text, level text) RETURNS boolean LANGUAGE sql AS $$
	SELECT count(*) > 0 AND bool_and(who = 'keeper' AND path !~ 'public')
	FROM addition.fired f WHERE f.op = noted_relay.op AND f.level = noted_relay.level
$$;
GRANT USAGE ON SCHEMA addition TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA addition TO PUBLIC;

-- 'same', or how an index scan differs from a sequential one
CREATE FUNCTION addition.compare(relation text, condition text, index text) RETURNS text
LANGUAGE plpgsql SET max_parallel_workers_per_gather = 0 AS $$
DECLARE
	query text := format('SELECT coalesce(string_agg(id::text, '','' ORDER BY id), ''none'') FROM %s WHERE %s', relation, condition);
	plan text;
	line text;
	by_index text;
	by_scan text;
BEGIN
	SET LOCAL enable_seqscan = off;
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		plan := concat_ws(E'\n', plan, line);
	END LOOP;
	EXECUTE query INTO by_index;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_indexonlyscan = off;
	EXECUTE query INTO by_scan;
	IF by_scan IS DISTINCT FROM by_index THEN
		RETURN format('index scan: %s, sequential scan: %s', length(by_index), length(by_scan));
	ELSIF by_scan = 'none' THEN
		RETURN 'nothing to find';
	ELSIF plan !~ index THEN
		RETURN 'not used: ' || plan;
	END IF;
	RETURN 'same';
END
$$;
-- Damaged B-trees of our tables
CREATE FUNCTION addition.amcheck() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(bt_index_check(c.oid, true)::text)
	FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		JOIN pg_am a ON a.oid = c.relam
	WHERE a.amname = 'btree' AND i.indisvalid AND c.relkind = 'i'
		AND (i.indrelid IN ('outbox'::regclass, 'outbox_route'::regclass)
			OR i.indrelid IN (SELECT relid FROM pg_partition_tree('outbox_archive')))
$$;
SQL
	$self->{admin} = $self->_session('');
	$self->{function} = $self->_session('app');
	$self->{insert} = $self->_session('orm');
	$self->{copy} = $self->_session('orm');
	$self->{expected} = 0;

	# rows that stay: indexes are never empty
	$self->_ok('function', <<'SQL');
SELECT count(outbox_enqueue('kept', '{"a": 1, "n": 1}', aggregate_id => 'kept' || g % 10,
	aggregate_type => 'kept', headers => '{"tag": "kept", "list": [1]}',
	available_at => '2100-01-01')) FROM generate_series(1, 200) g
SQL
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	$self->{log} = $node->log_end;
	return $self;
}

sub _session
{
	my ($self, $role) = @_;
	my $session = $self->{node}->session('postgres', on_error_stop => 0);
	$session->query("\\set VERBOSITY verbose\nSET client_min_messages = error");
	$session->query("SET SESSION AUTHORIZATION $role") if $role ne '';
	return $session;
}

# Output and error of a statement in one of the sessions.
sub _try
{
	my ($self, $who, $sql) = @_;
	my $session = $self->{$who};

	$session->{timeout}->start($PostgreSQL::Test::Utils::timeout_default);
	my $out = $session->query($sql);
	my $err = $session->{stderr};
	$session->{stderr} = '';
	die "the connection of session $who is lost: $err\n"
	  if $err =~ /server closed the connection|connection to server was lost/;
	return ($out, $err);
}

sub _ok
{
	my ($self, $who, $sql) = @_;
	my ($out, $err) = $self->_try($who, $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fail("$who: $sql") if $err ne '';
	diag $err if $err ne '';
	return $out;
}

=pod

=item $matrix->cases

=cut

# Additions that only note that they ran, and where that shows.
sub _noting
{
	my ($name, $trigger, $honoured, $enable) = @_;
	my $up = "CREATE $trigger";
	$up .= "; ALTER TABLE outbox ENABLE $enable TRIGGER z_added" if $enable;
	return {
		name => $name,
		up => $up,
		down => 'DROP TRIGGER z_added ON outbox',
		honoured => "SELECT $honoured"
	};
}

# An index on the live table and one on the archive.
sub _index
{
	my ($name, $definition, $condition, %more) = @_;
	my $unique = $more{unique} ? 'UNIQUE' : '';
	my $archived = $more{archive} // $definition;
	my $up = "CREATE $unique INDEX added_live ON outbox $definition";
	my $down = 'DROP INDEX added_live';
	my @find = ([ 'outbox', $condition, $more{used} // 'added_live' ]);

	if ($archived ne '')
	{
		$up .= "; CREATE INDEX added_archive ON outbox_archive $archived";
		$down .= '; DROP INDEX added_archive';
		push @find, [ 'outbox_archive', $condition, undef ];
	}
	return {
		name => "index: $name",
		up => $up,
		down => $down,
		find => \@find,
		index => 'added_live',
		requires => $more{requires}
	};
}

# For today's partition.  Unlike those above, or one of theirs on the archive
# would take it over.
sub _partition_index
{
	my ($name, $definition, $condition) = @_;
	return {
		name => "index of a partition: $name",
		up => "DO \$do\$BEGIN EXECUTE format('CREATE INDEX added_part ON outbox_internal.outbox_archive_p%s $definition', to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')); END\$do\$",
		down => 'DROP INDEX outbox_internal.added_part',
		find => [ [ 'outbox_archive', $condition, undef ] ]
	};
}

sub cases
{
	my ($self) = @_;
	my $row = 'FOR EACH ROW EXECUTE FUNCTION addition';
	my $statement = 'FOR EACH STATEMENT EXECUTE FUNCTION addition';
	my @cases = (

		# K1
		_index('btree', '(created_at)', "created_at > '2001-01-01'"),
		_index('btree on jsonb, descending', '(headers DESC NULLS LAST)', "headers > '{}'"),
		_index('btree, INCLUDE, no deduplication', '(event_type) INCLUDE (seq) WITH (deduplicate_items = off)',
			"event_type = 'matrix'"),
		_index('hash', 'USING hash (event_type)', "event_type = 'matrix'"),
		_index('gin', 'USING gin (headers)', q{headers @> '{"list": [1]}'}),
		_index('gin, fastupdate off', 'USING gin (headers) WITH (fastupdate = off)', q{headers @> '{"list": [1]}'}),
		_index('gin, jsonb_path_ops', 'USING gin (payload jsonb_path_ops) WITH (fastupdate = off)',
			q{payload @> '{"n": 1}'}),
		_index('gist', q{USING gist (to_tsvector('english', event_type))},
			q{to_tsvector('english', event_type) @@ to_tsquery('english', 'matrix')}),
		_index('gist of an extension', 'USING gist (aggregate_id, seq)', q{aggregate_id > 'a'},
			requires => 'btree_gist'),
		_index('spgist', 'USING spgist (event_type)', q{event_type = 'matrix'}),
		_index('brin', 'USING brin (seq) WITH (pages_per_range = 1, autosummarize = on)', 'seq > 10'),
		_index('brin, minmax_multi', 'USING brin (created_at timestamptz_minmax_multi_ops)',
			"created_at > '2001-01-01'"),
		_index('brin, bloom', 'USING brin (event_type text_bloom_ops)', "event_type = 'matrix'"),
		_index('access method of an extension', 'USING bloom (event_type, aggregate_id)',
			"event_type = 'matrix'", requires => 'bloom'),
		_index('unique', '(aggregate_type, id)', q{aggregate_type > 'a'}, unique => 1),
		_index('unique, partial', q{(seq) WHERE status = 'pending'}, q{seq > 10 AND status = 'pending'},
			unique => 1, archive => ''),
		_index('unique, nulls not distinct', '(id, aggregate_id) NULLS NOT DISTINCT',
			q{id > '00000000-0000-7000-8000-000000000000' AND aggregate_id > 'a'}, unique => 1, archive => '', used => '.'),
		_index('expression', '(lower(event_type))', q{lower(event_type) = 'matrix'}),
		_index('expression, an administrator\'s function', '(addition.lower(event_type))',
			q{addition.lower(event_type) = 'matrix'}),
		_index('partial, an administrator\'s function',
			q{(event_type) WHERE addition.lower(event_type) = 'matrix'},
			q{event_type > 'a' AND addition.lower(event_type) = 'matrix'}),
		_partition_index('btree', '(seq DESC)', 'seq > 10'),
		_partition_index('hash', 'USING hash (id)', 'seq > 10'),
		_partition_index('gin', 'USING gin (headers, payload) WITH (fastupdate = off)', q{headers @> '{"list": [1]}'}),
		_partition_index('brin', 'USING brin (created_at) WITH (pages_per_range = 1)', "created_at > '2001-01-01'"),
		_partition_index('spgist', 'USING spgist (routing_key)', q{routing_key = 'some.key'}),
		{
			name => 'unique constraint, deferrable',
			up => 'ALTER TABLE outbox ADD CONSTRAINT added UNIQUE (id, seq) DEFERRABLE',
			down => 'ALTER TABLE outbox DROP CONSTRAINT added',
			find => [ [ 'outbox', q{id > '00000000-0000-7000-8000-000000000000' AND seq > 10}, undef ] ]
		},

		# K2
		{
			name => 'NOT NULL',
			up => 'ALTER TABLE outbox ALTER headers SET NOT NULL',
			down => 'ALTER TABLE outbox ALTER headers DROP NOT NULL',
			refuses => { sqlstate => '23502', fields => { headers => undef } }
		},
		{
			name => 'CHECK',
			up => q{ALTER TABLE outbox ADD CONSTRAINT added CHECK (event_type <> 'refused')},
			down => 'ALTER TABLE outbox DROP CONSTRAINT added',
			refuses => { sqlstate => '23514', fields => { event_type => 'refused' } }
		},
		{
			name => 'CHECK, not valid',
			up => q{ALTER TABLE outbox ADD CONSTRAINT added CHECK (event_type <> 'refused' AND event_type <> 'kept') NOT VALID},
			down => 'ALTER TABLE outbox DROP CONSTRAINT added',
			refuses => { sqlstate => '23514', fields => { event_type => 'refused' } }
		},
		{
			name => 'CHECK with the name that one of ours had',
			up => q{ALTER TABLE outbox ADD CONSTRAINT outbox_status_check CHECK (event_type <> 'refused')},
			down => 'ALTER TABLE outbox DROP CONSTRAINT outbox_status_check',
			refuses => { sqlstate => '23514', fields => { event_type => 'refused' } }
		},
		{
			name => 'default, changed',
			up => q{ALTER TABLE outbox ALTER created_at SET DEFAULT '2001-02-03 04:05:06Z'},
			down => 'ALTER TABLE outbox ALTER created_at SET DEFAULT pg_catalog.clock_timestamp()',
			honoured => q{SELECT count(*) > 0 AND bool_and(created_at = '2001-02-03 04:05:06Z')
				FROM outbox_archive JOIN test_sent USING (id) WHERE tag = '%t' AND way <> 'flying'}
		},
		{
			name => 'default, an administrator\'s function',
			up => q{ALTER TABLE outbox ALTER last_error SET DEFAULT addition.note_value('all')},
			down => 'ALTER TABLE outbox ALTER last_error DROP DEFAULT',
			honoured => q{SELECT addition.noted('VALUE', '{all}')}
		},
		{
			name => 'column with a default',
			up => q{ALTER TABLE outbox ADD added text NOT NULL DEFAULT current_user::text || ' ' || session_user},
			down => 'ALTER TABLE outbox DROP added',
			live => q{SELECT count(DISTINCT added) = 3 FROM outbox WHERE added IN
				('keeper app', 'orm orm', 'postgres postgres')},
			find => [ [ 'outbox', 'seq > 10', undef ] ]
		},
		{
			name => 'columns, and one of them removed',
			up => 'ALTER TABLE outbox ADD added1 int DEFAULT 7, ADD added2 jsonb; ALTER TABLE outbox DROP added1',
			down => 'ALTER TABLE outbox DROP added2'
		},
		{
			name => 'column that must be given',
			up => q{TRUNCATE outbox; ALTER TABLE outbox ADD added text NOT NULL},
			down => 'ALTER TABLE outbox DROP added',
			all => [ '23502', qr/"added"/ ]
		},
		{
			name => 'generated column',
			up => q{ALTER TABLE outbox ADD added text GENERATED ALWAYS AS (addition.lower(event_type) || '!') STORED},
			down => 'ALTER TABLE outbox DROP added',
			live => q{SELECT bool_and(added = event_type || '!') FROM outbox}
		},
		{
			name => 'generated column, virtual',
			since => 18,
			up => q{ALTER TABLE outbox ADD added text GENERATED ALWAYS AS (event_type || '!') VIRTUAL},
			down => 'ALTER TABLE outbox DROP added',
			live => q{SELECT bool_and(added = event_type || '!') FROM outbox},
			find => [ [ 'outbox', 'seq > 10', undef ] ]
		},
		{
			name => 'generated column, virtual and NOT NULL',
			since => 18,
			up => q{ALTER TABLE outbox ADD added text GENERATED ALWAYS AS (jsonb_typeof(headers)) VIRTUAL NOT NULL},
			down => 'ALTER TABLE outbox DROP added',
			refuses => { sqlstate => '23502', fields => { headers => undef } }
		},
		{
			name => 'CHECK of a virtual column',
			since => 18,
			up => q{ALTER TABLE outbox ADD added text GENERATED ALWAYS AS (upper(event_type)) VIRTUAL,
				ADD CONSTRAINT added CHECK (added <> 'REFUSED')},
			down => 'ALTER TABLE outbox DROP added CASCADE',
			refuses => { sqlstate => '23514', fields => { event_type => 'refused' } }
		},
		{
			name => 'NOT NULL by name, not valid',
			since => 18,
			up => 'ALTER TABLE outbox ADD CONSTRAINT added NOT NULL headers NOT VALID',
			down => 'ALTER TABLE outbox DROP CONSTRAINT added',
			refuses => { sqlstate => '23502', fields => { headers => undef } }
		},
		{
			name => 'NOT NULL of ours, removed by its name',
			since => 18,
			up => 'ALTER TABLE outbox DROP CONSTRAINT outbox_event_type_not_null, DROP CONSTRAINT outbox_route_not_null',
			down => 'ALTER TABLE outbox ADD CONSTRAINT outbox_event_type_not_null NOT NULL event_type, ADD CONSTRAINT outbox_route_not_null NOT NULL route',
			refuses => { sqlstate => '22004', fields => { event_type => undef } }
		},
		{
			name => 'CHECK, not enforced',
			since => 18,
			up => q{ALTER TABLE outbox ADD CONSTRAINT added CHECK (event_type <> 'matrix') NOT ENFORCED},
			down => 'ALTER TABLE outbox DROP CONSTRAINT added'
		},
		{
			name => 'foreign key, not enforced',
			since => 18,
			up => q{CREATE TABLE addition.parent (a text PRIMARY KEY);
				ALTER TABLE outbox ADD CONSTRAINT added FOREIGN KEY (event_type) REFERENCES addition.parent NOT ENFORCED},
			down => 'ALTER TABLE outbox DROP CONSTRAINT added; DROP TABLE addition.parent'
		},
		{
			name => 'unique without overlaps',
			since => 18,
			requires => 'btree_gist',
			up => q{ALTER TABLE outbox ADD added tstzrange NOT NULL DEFAULT '[2001-01-01,2001-01-02)',
				ADD CONSTRAINT added UNIQUE (id, added WITHOUT OVERLAPS)},
			down => 'ALTER TABLE outbox DROP added'
		},
		{
			name => 'archive: a virtual column',
			since => 18,
			up => q{ALTER TABLE outbox_archive ADD gen text GENERATED ALWAYS AS (event_type || '!') VIRTUAL},
			down => 'ALTER TABLE outbox_archive DROP gen',
			honoured => q{SELECT bool_and(gen = event_type || '!') FROM outbox_archive}
		},
		{
			name => 'column of a domain',
			up => q{CREATE DOMAIN addition.positive AS int DEFAULT 5 CHECK (value > 0);
				ALTER TABLE outbox ADD added addition.positive},
			down => 'ALTER TABLE outbox DROP added; DROP DOMAIN addition.positive',
			live => q{SELECT bool_and(added = 5) FROM outbox}
		},
		{
			name => 'column of a domain whose default it refuses',
			up => q{CREATE DOMAIN addition.positive AS int CHECK (value > 0);
				ALTER TABLE outbox ADD added addition.positive;
				ALTER TABLE outbox ALTER added SET DEFAULT -1},
			down => 'ALTER TABLE outbox DROP added; DROP DOMAIN addition.positive',
			all => [ '23514', qr/positive/ ]
		},
		{
			name => 'type of a column',
			up => 'ALTER TABLE outbox ALTER event_type TYPE varchar(20)',
			up_fails => [ '0A000', qr/used by a view/ ]
		},
		{
			name => 'removed column',
			up => 'ALTER TABLE outbox DROP headers',
			up_fails => [ '2BP01', qr/other objects depend on it/ ]
		},
		{
			name => 'exclusion constraint',
			up => q{ALTER TABLE outbox ADD CONSTRAINT added EXCLUDE USING hash (routing_key WITH =) WHERE (event_type = 'refused')},
			before => q{INSERT INTO outbox (event_type, payload, routing_key, available_at) VALUES ('refused', '{}', 'only', '2100-01-01')},
			down => q{ALTER TABLE outbox DROP CONSTRAINT added; DELETE FROM outbox WHERE event_type = 'refused'},
			refuses => { sqlstate => '23P01', fields => { event_type => 'refused', routing_key => 'only' } }
		},
		{
			name => 'foreign key to another table',
			up => q{CREATE TABLE addition.kind (name text PRIMARY KEY);
				INSERT INTO addition.kind VALUES ('matrix'), ('kept'), ('again'), ('flying');
				ALTER TABLE outbox ADD CONSTRAINT added FOREIGN KEY (event_type) REFERENCES addition.kind;
				GRANT SELECT ON addition.kind TO keeper},
			down => 'ALTER TABLE outbox DROP CONSTRAINT added; DROP TABLE addition.kind',
			refuses => { sqlstate => '23503', fields => { event_type => 'refused' } }
		},
		{
			name => 'foreign key to another table, deferred',
			up => q{CREATE TABLE addition.kind (name text PRIMARY KEY);
				INSERT INTO addition.kind VALUES ('matrix'), ('kept'), ('again'), ('flying');
				ALTER TABLE outbox ADD CONSTRAINT added FOREIGN KEY (event_type) REFERENCES addition.kind
					DEFERRABLE INITIALLY DEFERRED},
			down => 'ALTER TABLE outbox DROP CONSTRAINT added; DROP TABLE addition.kind',
			function => [ '0A000', qr/deferred trigger "added"/ ],
			# for the UPDATE of a message that is tried again
			either => qr/deferred trigger "added"/
		},
		{
			name => 'foreign key from another table, ON DELETE CASCADE',
			up => q{CREATE TABLE addition.refers (id uuid REFERENCES outbox ON DELETE CASCADE);
				ALTER TABLE addition.refers OWNER TO keeper;
				INSERT INTO addition.refers SELECT id FROM outbox},
			down => 'DROP TABLE addition.refers',
			honoured => q{SELECT count(*) = (SELECT count(*) FROM outbox WHERE event_type = 'kept') FROM addition.refers}
		},
		{
			name => 'foreign key from another table, ON DELETE SET NULL',
			up => q{CREATE TABLE addition.refers (id uuid REFERENCES outbox ON DELETE SET NULL);
				ALTER TABLE addition.refers OWNER TO keeper;
				INSERT INTO addition.refers SELECT id FROM outbox},
			down => 'DROP TABLE addition.refers',
			honoured => q{SELECT count(*) FILTER (WHERE id IS NULL) > 0 FROM addition.refers}
		},
		{
			name => 'foreign key from another table',
			up => q{CREATE TABLE addition.refers (id uuid REFERENCES outbox);
				INSERT INTO addition.refers SELECT id FROM outbox},
			down => 'DROP TABLE addition.refers',
			stuck => qr/foreign key constraint/
		},
		{
			name => 'archive: NOT NULL',
			up => 'DELETE FROM outbox_archive WHERE aggregate_id IS NULL; ALTER TABLE outbox_archive ALTER aggregate_id SET NOT NULL',
			down => 'ALTER TABLE outbox_archive ALTER aggregate_id DROP NOT NULL',
			extra => { aggregate_type => undef, aggregate_id => undef },
			stuck => qr/not-null constraint/
		},
		{
			name => 'archive: CHECK',
			up => q{ALTER TABLE outbox_archive ADD CONSTRAINT added CHECK (event_type <> 'unwanted') NOT VALID},
			down => 'ALTER TABLE outbox_archive DROP CONSTRAINT added',
			extra => { event_type => 'unwanted' },
			stuck => qr/check constraint "added"/
		},
		{
			name => 'archive: an identity of its own',
			up => 'ALTER TABLE outbox_archive ALTER seq ADD GENERATED ALWAYS AS IDENTITY',
			down => 'ALTER TABLE outbox_archive ALTER seq DROP IDENTITY',
			stuck => qr/cannot insert a non-DEFAULT value into column "seq"/
		},
		{
			name => 'archive: a column with a default, a generated one',
			up => q{ALTER TABLE outbox_archive ADD added text DEFAULT 'a', ADD gen text GENERATED ALWAYS AS (event_type || '!') STORED},
			down => 'ALTER TABLE outbox_archive DROP added, DROP gen',
			honoured => q{SELECT bool_and(added = 'a' AND gen = event_type || '!') FROM outbox_archive}
		},
		{
			name => 'archive: foreign key',
			up => q{CREATE TABLE addition.kind (name text PRIMARY KEY);
				INSERT INTO addition.kind SELECT DISTINCT event_type FROM outbox_archive;
				INSERT INTO addition.kind VALUES ('matrix'), ('again'), ('flying') ON CONFLICT DO NOTHING;
				GRANT SELECT ON addition.kind TO keeper;
				ALTER TABLE outbox_archive ADD CONSTRAINT added FOREIGN KEY (event_type) REFERENCES addition.kind},
			down => 'ALTER TABLE outbox_archive DROP CONSTRAINT added; DROP TABLE addition.kind'
		},

		# K3
		_noting('trigger: BEFORE ROW', "TRIGGER z_added BEFORE INSERT ON outbox $row.note()", "addition.noted('ROW')"),
		{
			%{ _noting('trigger: BEFORE ROW, before ours', "TRIGGER a_added BEFORE INSERT ON outbox $row.note()",
					"addition.noted('ROW')") },
			down => 'DROP TRIGGER a_added ON outbox'
		},
		_noting('trigger: AFTER ROW', "TRIGGER z_added AFTER INSERT ON outbox $row.note()", "addition.noted('ROW')"),
		_noting('trigger: BEFORE STATEMENT', "TRIGGER z_added BEFORE INSERT ON outbox $statement.note()",
			"addition.noted('STATEMENT')"),
		_noting('trigger: AFTER STATEMENT', "TRIGGER z_added AFTER INSERT ON outbox $statement.note()",
			"addition.noted('STATEMENT')"),
		_noting('trigger: transition table',
			"TRIGGER z_added AFTER INSERT ON outbox REFERENCING NEW TABLE AS rows $statement.note_rows()",
			"addition.noted('STATEMENT') AND (SELECT array_agg(DISTINCT way) \@> '{function, insert, copy}' FROM addition.fired)"),
		_noting('trigger: WHEN', "TRIGGER z_added AFTER INSERT ON outbox FOR EACH ROW WHEN (NEW.event_type = 'matrix') EXECUTE FUNCTION addition.note()",
			"addition.noted('ROW')"),
		_noting('trigger: ALWAYS', "TRIGGER z_added AFTER INSERT ON outbox $row.note()", "addition.noted('ROW')", 'ALWAYS'),
		_noting('trigger: REPLICA', "TRIGGER z_added AFTER INSERT ON outbox $row.note()",
			'NOT EXISTS (SELECT FROM addition.fired)', 'REPLICA'),
		_noting('constraint trigger', "CONSTRAINT TRIGGER z_added AFTER INSERT ON outbox $row.note()",
			"addition.noted('ROW')"),
		_noting('constraint trigger, deferrable',
			"CONSTRAINT TRIGGER z_added AFTER INSERT ON outbox DEFERRABLE $row.note()", "addition.noted('ROW')"),
		{
			name => 'constraint trigger, deferred',
			up => "CREATE CONSTRAINT TRIGGER z_added AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED $row.note()",
			down => 'DROP TRIGGER z_added ON outbox',
			function => [ '0A000', qr/deferred trigger "z_added"/ ],
			honoured => q{SELECT count(*) > 0 AND bool_and(who = 'orm') FROM addition.fired}
		},
		{
			name => 'trigger that refuses',
			up => "CREATE TRIGGER z_added BEFORE INSERT ON outbox $row.refuse()",
			down => 'DROP TRIGGER z_added ON outbox',
			refuses => { sqlstate => 'ZZ001', fields => { event_type => 'refused' } }
		},
		{
			name => 'trigger that changes the row',
			up => "CREATE TRIGGER a_added BEFORE INSERT ON outbox $row.change()",
			down => 'DROP TRIGGER a_added ON outbox',
			honoured => q{SELECT count(*) > 0 AND bool_and(headers ? 'changed') FROM outbox_archive
				JOIN test_sent USING (id) WHERE tag = '%t' AND way <> 'flying'}
		},
		{
			name => 'trigger that changes the row after ours',
			up => "CREATE TRIGGER z_added BEFORE INSERT ON outbox $row.change()",
			down => 'DROP TRIGGER z_added ON outbox',
			honoured => q{SELECT count(*) > 0 AND bool_and(headers ? 'changed') FROM outbox_archive
				JOIN test_sent USING (id) WHERE tag = '%t' AND way <> 'flying'}
		},
		{
			name => 'trigger that returns NULL',
			up => "CREATE TRIGGER a_added BEFORE INSERT ON outbox $row.nothing()",
			down => 'DROP TRIGGER a_added ON outbox',
			drops => 1
		},
		{
			name => 'trigger that returns NULL, after ours',
			up => "CREATE TRIGGER z_added BEFORE INSERT ON outbox $row.nothing()",
			down => 'DROP TRIGGER z_added ON outbox',
			drops => 1
		},
		{
			name => 'triggers on what the relay does',
			up => "CREATE TRIGGER added1 BEFORE UPDATE OR DELETE ON outbox $row.note();
				CREATE TRIGGER added2 AFTER UPDATE OR DELETE ON outbox $row.note();
				CREATE TRIGGER added3 AFTER UPDATE OR DELETE ON outbox $statement.note();
				CREATE TRIGGER added4 AFTER INSERT ON outbox_archive $row.note();
				CREATE TRIGGER added5 AFTER INSERT ON outbox_archive REFERENCING NEW TABLE AS rows $statement.note_rows()",
			down => 'DROP TRIGGER added1 ON outbox; DROP TRIGGER added2 ON outbox; DROP TRIGGER added3 ON outbox;
				DROP TRIGGER added4 ON outbox_archive; DROP TRIGGER added5 ON outbox_archive',
			honoured => q{SELECT addition.noted_relay('UPDATE', 'ROW') AND addition.noted_relay('DELETE', 'ROW')
				AND addition.noted_relay('DELETE', 'STATEMENT') AND addition.noted_relay('INSERT', 'ROW')
				AND addition.noted_relay('INSERT', 'STATEMENT')}
		},
		{
			name => 'constraint trigger on DELETE, deferred',
			up => "CREATE CONSTRAINT TRIGGER z_added AFTER DELETE ON outbox DEFERRABLE INITIALLY DEFERRED $row.note()",
			down => 'DROP TRIGGER z_added ON outbox',
			stuck => qr/deferred trigger "z_added"/
		},
		{
			name => 'constraint trigger on the archive, deferred',
			up => "CREATE CONSTRAINT TRIGGER z_added AFTER INSERT ON outbox_archive DEFERRABLE INITIALLY DEFERRED $row.note()",
			down => 'DROP TRIGGER z_added ON outbox_archive',
			stuck => qr/deferred trigger "z_added"/
		},
		{
			name => 'rule: INSERT DO ALSO',
			up => q{CREATE RULE added AS ON INSERT TO outbox DO ALSO INSERT INTO addition.fired (name) VALUES ('rule')},
			down => 'DROP RULE added ON outbox',
			honoured => q{SELECT count(*) > 0 FROM addition.fired}
		},
		{
			name => 'rule: INSERT DO INSTEAD NOTHING',
			up => q{CREATE RULE added AS ON INSERT TO outbox WHERE NEW.event_type = 'refused' DO INSTEAD NOTHING},
			down => 'DROP RULE added ON outbox',
			honoured => q{SELECT NOT EXISTS (SELECT FROM outbox WHERE event_type = 'refused')}
		},
		{
			name => 'rule: DELETE DO ALSO',
			up => q{CREATE RULE added AS ON DELETE TO outbox DO ALSO INSERT INTO addition.fired (name) VALUES ('rule')},
			down => 'DROP RULE added ON outbox',
			either => qr/rules are not supported|rule/
		},
		{
			name => 'event triggers',
			up => q{CREATE FUNCTION addition.on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $f$
				BEGIN INSERT INTO addition.fired VALUES ('ddl', TG_TAG, TG_EVENT, current_user); END$f$;
				CREATE EVENT TRIGGER added1 ON ddl_command_end EXECUTE FUNCTION addition.on_ddl();
				CREATE EVENT TRIGGER added2 ON sql_drop EXECUTE FUNCTION addition.on_ddl()},
			middle => $DROP_DAY_AFTER,
			restart => 1,
			down => 'DROP EVENT TRIGGER added1; DROP EVENT TRIGGER added2; DROP FUNCTION addition.on_ddl()',
			honoured => q{SELECT count(*) > 0 FROM addition.fired WHERE op = 'CREATE TABLE' AND who = 'keeper'}
		},
		{
			name => 'event trigger that refuses DDL of the relay',
			up => q{CREATE FUNCTION addition.on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $f$
				BEGIN IF current_user = 'keeper' THEN RAISE EXCEPTION 'no tables today'; END IF; END$f$;
				CREATE EVENT TRIGGER added ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION addition.on_ddl()},
			middle => $DROP_DAY_AFTER,
			restart => 1,
			log => qr/no tables today/,
			down => 'DROP EVENT TRIGGER added; DROP FUNCTION addition.on_ddl()'
		},

		# K4
		{
			name => 'row level security without a policy',
			up => 'ALTER TABLE outbox ENABLE ROW LEVEL SECURITY',
			down => 'ALTER TABLE outbox DISABLE ROW LEVEL SECURITY',
			insert => [ '42501', qr/row-level security/ ],
			copy => [ '0A000', qr/COPY FROM not supported/ ]
		},
		{
			name => 'row level security with a policy',
			up => q{CREATE POLICY added ON outbox FOR INSERT TO orm WITH CHECK (event_type <> 'refused');
				ALTER TABLE outbox ENABLE ROW LEVEL SECURITY},
			down => 'DROP POLICY added ON outbox; ALTER TABLE outbox DISABLE ROW LEVEL SECURITY',
			refuses => { sqlstate => '42501', fields => { event_type => 'refused' }, ways => ['insert'] },
			copy => [ '0A000', qr/COPY FROM not supported/ ]
		},
		{
			name => 'row level security, forced, with a policy',
			up => q{CREATE POLICY added ON outbox USING (true) WITH CHECK (event_type <> 'refused');
				ALTER TABLE outbox ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
			down => 'DROP POLICY added ON outbox; ALTER TABLE outbox DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY',
			refuses => { sqlstate => '42501', fields => { event_type => 'refused' }, ways => [ 'function', 'insert' ] },
			copy => [ '0A000', qr/COPY FROM not supported/ ]
		},
		{
			name => 'archive: row level security, forced',
			up => q{ALTER TABLE outbox_archive ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
			down => 'ALTER TABLE outbox_archive DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY',
			either => qr/row-level security/
		},
		{
			name => 'privileges of columns',
			up => 'REVOKE INSERT ON outbox FROM orm; GRANT INSERT (id, event_type, payload, aggregate_type, aggregate_id, headers, routing_key) ON outbox TO orm',
			down => 'GRANT INSERT ON outbox TO orm',
			refuses => { sqlstate => '42501', fields => { attempts => 1 }, ways => [ 'insert', 'copy' ] }
		},

		# K5
		{
			name => 'publication FOR ALL TABLES',
			up => 'CREATE PUBLICATION added FOR ALL TABLES',
			middle => q{SELECT outbox_internal.outbox_archive_maintain('1 day')},
			down => 'DROP PUBLICATION added'
		},
		{
			name => 'replica identity FULL, published',
			up => 'CREATE PUBLICATION added FOR ALL TABLES; ALTER TABLE outbox REPLICA IDENTITY FULL',
			down => 'DROP PUBLICATION added; ALTER TABLE outbox REPLICA IDENTITY DEFAULT'
		},
		{
			name => 'replica identity NOTHING',
			up => 'ALTER TABLE outbox REPLICA IDENTITY NOTHING',
			down => 'ALTER TABLE outbox REPLICA IDENTITY DEFAULT'
		},
		{
			name => 'replica identity NOTHING, published',
			up => 'CREATE PUBLICATION added FOR TABLE outbox; ALTER TABLE outbox REPLICA IDENTITY NOTHING',
			down => 'DROP PUBLICATION added; ALTER TABLE outbox REPLICA IDENTITY DEFAULT',
			stuck => qr/replica identity/
		},
		{
			name => 'publication of some columns and rows',
			up => q{CREATE PUBLICATION added FOR TABLE outbox (id, seq, event_type) WHERE (id IS NOT NULL)},
			down => 'DROP PUBLICATION added'
		},
		{
			name => 'archive: published through the root',
			up => q{CREATE PUBLICATION added FOR TABLE outbox_archive WITH (publish_via_partition_root)},
			middle => q{SELECT outbox_internal.outbox_archive_maintain('1 day')},
			down => 'DROP PUBLICATION added'
		},

		# K6
		{
			name => 'another tablespace',
			up => q{ALTER TABLE outbox SET TABLESPACE added; ALTER TABLE outbox_archive SET TABLESPACE added},
			down => 'ALTER TABLE outbox SET TABLESPACE pg_default; ALTER TABLE outbox_archive SET TABLESPACE pg_default'
		},
		{
			name => 'UNLOGGED',
			up => 'ALTER TABLE outbox SET UNLOGGED',
			down => 'ALTER TABLE outbox SET LOGGED'
		},
		{
			name => 'rewritten while in flight',
			up => 'VACUUM FULL outbox',
			down => 'CLUSTER outbox USING outbox_pkey'
		},
		{
			name => 'maintenance by a role that may do nothing else',
			since => 17,
			up => "GRANT MAINTAIN ON outbox, outbox_archive TO app;\nSET ROLE app;\nVACUUM FULL outbox;\nVACUUM (ANALYZE) outbox_archive;\nREINDEX TABLE CONCURRENTLY outbox;\nRESET ROLE",
			down => 'REVOKE MAINTAIN ON outbox, outbox_archive FROM app'
		},
		{
			name => 'repacked while in flight, concurrently',
			since => 19,
			up => 'REPACK (CONCURRENTLY) outbox',
			down => 'REPACK (CONCURRENTLY) outbox USING INDEX outbox_pkey'
		},
		{
			name => 'storage parameters',
			up => 'ALTER TABLE outbox SET (fillfactor = 40, autovacuum_enabled = off, toast_tuple_target = 128, parallel_workers = 4, vacuum_truncate = off, user_catalog_table = on)',
			down => 'ALTER TABLE outbox RESET (fillfactor, autovacuum_enabled, toast_tuple_target, parallel_workers, vacuum_truncate, user_catalog_table)'
		},
		{
			name => 'compression lz4, storage of columns',
			up => q{ALTER TABLE outbox ALTER payload SET COMPRESSION lz4, ALTER headers SET STORAGE EXTERNAL, ALTER body SET STORAGE MAIN;
				ALTER TABLE outbox_archive ALTER payload SET COMPRESSION lz4, ALTER payload SET STORAGE EXTENDED},
			down => q{ALTER TABLE outbox ALTER payload SET COMPRESSION default, ALTER headers SET STORAGE EXTENDED, ALTER body SET STORAGE EXTENDED;
				ALTER TABLE outbox_archive ALTER payload SET COMPRESSION default, ALTER payload SET STORAGE EXTERNAL},
			extra => { payload => '{"pad": "' . 'lz4 ' x 5000 . '"}' },
			lz4 => 1
		},
		{
			name => 'statistics',
			up => 'CREATE STATISTICS added ON event_type, aggregate_type FROM outbox; ALTER TABLE outbox ALTER headers SET STATISTICS 500; ANALYZE outbox',
			down => 'DROP STATISTICS added; ALTER TABLE outbox ALTER headers SET STATISTICS -1'
		},
		{
			name => 'partition by hand with our name',
			up => q{CREATE TABLE outbox_archive_p20990101 PARTITION OF outbox_archive FOR VALUES FROM ('2099-01-01Z') TO ('2099-01-02Z')},
			restart => 1,
			down => 'DROP TABLE outbox_archive_p20990101'
		},
		{
			name => 'partition by hand that is today\'s as well as others\'',
			up => q{DO $do$DECLARE d date := (now() AT TIME ZONE 'UTC')::date; BEGIN
				EXECUTE format('ALTER TABLE outbox_archive DETACH PARTITION outbox_internal.outbox_archive_p%s', to_char(d + 2, 'YYYYMMDD'));
				EXECUTE format('CREATE TABLE by_hand PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)', (d + 2) || ' 00:00:00Z', (d + 40) || ' 00:00:00Z'); END$do$},
			restart => 1,
			down => q{DROP TABLE by_hand; DO $do$BEGIN EXECUTE format('ALTER EXTENSION outbox DROP TABLE outbox_internal.outbox_archive_p%1$s; DROP TABLE outbox_internal.outbox_archive_p%1$s', to_char((now() AT TIME ZONE 'UTC')::date + 2, 'YYYYMMDD')); END$do$}
		},
		{
			name => 'today\'s partition with columns in another order',
			up => q{DO $do$DECLARE d date := (now() AT TIME ZONE 'UTC')::date; p text := 'outbox_archive_p' || to_char(d, 'YYYYMMDD'); BEGIN
				EXECUTE format('ALTER TABLE outbox_archive DETACH PARTITION outbox_internal.%I', p);
				CREATE TABLE other_order (gone int, attempts int NOT NULL, published_at timestamptz NOT NULL, created_at timestamptz NOT NULL, available_at timestamptz,
					routing_key text, properties jsonb, headers jsonb, body bytea, payload jsonb, aggregate_id text, aggregate_type text, event_type text NOT NULL,
					route text NOT NULL, id uuid NOT NULL, seq bigint NOT NULL);
				ALTER TABLE other_order DROP gone; ALTER TABLE other_order OWNER TO keeper;
				EXECUTE format('ALTER TABLE outbox_archive ATTACH PARTITION other_order FOR VALUES FROM (%L) TO (%L)', d || ' 00:00:00Z', (d + 1) || ' 00:00:00Z');
				END$do$},
			down => q{DO $do$DECLARE d date := (now() AT TIME ZONE 'UTC')::date; p text := 'outbox_archive_p' || to_char(d, 'YYYYMMDD'); BEGIN
				ALTER TABLE outbox_archive DETACH PARTITION other_order;
				EXECUTE format('INSERT INTO outbox_internal.%I SELECT seq, id, route, event_type, aggregate_type, aggregate_id, payload, body, headers, properties, routing_key, created_at, available_at, attempts, published_at FROM other_order', p);
				DROP TABLE other_order;
				EXECUTE format('ALTER TABLE outbox_archive ATTACH PARTITION outbox_internal.%I FOR VALUES FROM (%L) TO (%L)', p, d || ' 00:00:00Z', (d + 1) || ' 00:00:00Z');
				END$do$}
		},
		{
			name => 'today\'s partition is missing: the default takes them',
			up => q{DO $do$BEGIN EXECUTE format('ALTER TABLE outbox_archive DETACH PARTITION outbox_internal.outbox_archive_p%s', to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')); END$do$},
			restart => 1,
			honoured => q{SELECT count(*) > 0 FROM outbox_internal.outbox_archive_default},
			down => q{DO $do$DECLARE d date := (now() AT TIME ZONE 'UTC')::date; p text := 'outbox_archive_p' || to_char(d, 'YYYYMMDD'); BEGIN
				EXECUTE format('INSERT INTO outbox_internal.%I SELECT * FROM outbox_internal.outbox_archive_default', p);
				DELETE FROM outbox_internal.outbox_archive_default;
				EXECUTE format('ALTER TABLE outbox_archive ATTACH PARTITION outbox_internal.%I FOR VALUES FROM (%L) TO (%L)', p, d || ' 00:00:00Z', (d + 1) || ' 00:00:00Z');
				END$do$}
		});
	return grep { !$_->{since} || $self->{version} >= $_->{since} } @cases;
}

=pod

=item $matrix->several

From now on there are several workers.

=cut

sub several
{
	my ($self) = @_;
	$self->{several} = 1;
	return;
}

=pod

=item $matrix->has($extension)

=cut

sub has
{
	my ($self, $extension) = @_;
	return $self->{extensions}{$extension};
}

# ---------------------------------------------------------------------------
# Enqueue

sub uuid
{
	return sprintf '%08x-%04x-7%03x-8%03x-%012x', rand 2**32, rand 2**16,
	  rand 2**12, rand 2**12, rand 2**48;
}

sub _literal
{
	my ($value) = @_;
	return 'NULL' unless defined $value;
	$value =~ s/'/''/g;
	return "'$value'";
}

# The fields of the n-th message that comes in a way.
sub _message
{
	my ($way, $tag, $n, %fields) = @_;
	return {
		id => uuid(),
		event_type => 'matrix',
		payload => qq({"n": $n, "case": "$tag"}),
		aggregate_type => $way,
		aggregate_id => "$way.$tag." . $n % 2,
		headers => qq({"list": [1, "x", {"y": null}], "tag": "$tag"}),
		routing_key => 'some.key',
		%fields
	};
}

my %TYPES = (payload => '::jsonb', headers => '::jsonb', attempts => '::int');

sub _enqueue_sql
{
	my ($self, $way, $tag, $single, @messages) = @_;
	my @columns = sort keys %{ $messages[0] };
	my $columns = join ', ', @columns;
	my $sql = '';

	if ($way eq 'function' || $way eq 'flying')
	{
		foreach my $m (@messages)
		{
			my $args = join ', ', map {
				($_ eq 'id' ? 'message_id' : $_) . ' => ' . _literal($m->{$_})
			} @columns;
			$sql .= 'INSERT INTO test_sent SELECT nextval(\'test_sent_n\'), outbox_enqueue('
			  . "$args), "
			  . _literal($m->{aggregate_id} // '')
			  . ", '$tag', '$way';\n";
		}
	}
	else
	{
		$sql = join '', map {
			"INSERT INTO test_sent SELECT nextval('test_sent_n'), '$_->{id}', "
			  . _literal($_->{aggregate_id} // '')
			  . ", '$tag', '$way';\n"
		} @messages;
		if ($way eq 'copy')
		{
			my $file = $self->{node}->basedir . '/copied';
			unlink $file;
			append_to_file(
				$file,
				join '',
				map {
					my $m = $_;
					join("\t", map { defined $m->{$_} ? $m->{$_} =~ s/\\/\\\\/gr : '\N' } @columns) . "\n"
				} @messages);
			$sql .= "\\copy outbox ($columns) FROM '$file'\n";
		}
		else
		{
			my @rows = map {
				my $m = $_;
				join ', ', map { _literal($m->{$_}) . ($TYPES{$_} // '') . ($_ eq 'id' ? '::uuid' : '') } @columns
			} @messages;
			$sql .= "INSERT INTO outbox ($columns) "
			  . ( $single
				? "VALUES ($rows[0])"
				: "SELECT * FROM (VALUES " . join(', ', map { "($_)" } @rows) . ') v')
			  . ";\n";
		}
	}
	return "BEGIN;\n${sql}COMMIT";
}

# In one transaction; returns the error, or ''.
sub _enqueue
{
	my ($self, $way, $tag, $single, @messages) = @_;
	my $session = $way eq 'flying' ? 'function' : $way;
	my (undef, $err) =
	  $self->_try($session, $self->_enqueue_sql($way, $tag, $single, @messages));
	$err = '' if $err !~ /ERROR|FATAL|PANIC/;
	$self->_try($session, 'ROLLBACK') if $err ne '';
	return $err;
}

sub _published
{
	my ($self) = @_;
	return scalar(() = $self->{fake}->published);
}

sub _hold
{
	my ($self) = @_;
	# with several connections there is no acking them all
	$self->{fake}->do($self->{several} ? 'answer delay 300' : 'answer hold');
	return;
}

sub _release
{
	my ($self) = @_;
	$self->{fake}->do('answer ack', $self->{several} ? () : 'now ack multiple');
	return;
}

# Messages of which the broker has all bytes and the relay no answer.
sub _fly
{
	my ($self, $tag) = @_;
	my $before = $self->_published;
	my @messages = map { _message('flying', $tag, $_, aggregate_id => "flying.$tag.$_." . rand) } 1 .. 2;

	$self->_hold;
	my $err = $self->_enqueue('flying', $tag, 0, @messages);
	is($err, '', 'enqueue of what is in flight');
	wait_until('messages are in flight',
		sub { $self->_published >= $before + @messages }) if $err eq '';
	return;
}

sub _drained
{
	my ($self) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ok = wait_until(
		'drained',
		sub {
			$self->_ok('admin',
				q{SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'pending' AND available_at IS DISTINCT FROM '2100-01-01')}
			) eq 't';
		});
	diag $self->_ok('admin', 'SELECT state, last_error FROM outbox_status') unless $ok;
	return;
}

# ---------------------------------------------------------------------------
# One case

=pod

=item $matrix->run($case)

One subtest.

=cut

sub run
{
	my ($self, $case) = @_;
	my $tag = 'c' . ++$self->{number};
	my $start = time;
	my $number = $self->{number};

	if ($case->{requires} && !$self->{extensions}{ $case->{requires} })
	{
		note "$case->{name}: without the extension $case->{requires}";
		return;
	}
	if ($case->{lz4})
	{
		my (undef, $err) = $self->_try('admin', 'CREATE TEMP TABLE lz (a text COMPRESSION lz4); DROP TABLE lz');
		return note "$case->{name}: the server has no lz4" if $err ne '';
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	clear_of_midnight(30) if $case->{up} =~ /AT TIME ZONE 'UTC'/;
	subtest $case->{name} => sub {
		$self->_ok('admin', 'TRUNCATE addition.fired');
		return $self->_refused_by_server($case) if $case->{up_fails};
		$self->{fake}->do('forget');
		$self->_ok('admin', $case->{before}) if $case->{before};
		$self->_fly($tag);
		# a TRUNCATE would take what is in flight: let it land first
		if ($case->{up} =~ /TRUNCATE/)
		{
			$self->_release;
			$self->_drained;
		}
		my $log = $self->{node}->log_end;
		$self->_statements($case->{up});

		my $expect_all = $case->{all};
		foreach my $way (qw(function insert copy))
		{
			$self->_by($case, $tag, $way, $case->{$way} // $case->{all});
		}
		$self->_is_refused($case, $tag) if $case->{refuses};
		$self->_compare($case, 'outbox') if $case->{find};
		is($self->_ok('admin', $case->{live}), 't', 'it counts for rows of the table') if $case->{live};
		$self->_maintain($case, $tag);
		$self->_ok('admin', $case->{middle}) if $case->{middle};
		$self->_restart_relay if $case->{restart};
		my $stuck = $case->{stuck};
		$self->_release;
		if ($case->{either})
		{
			$stuck = $case->{either} if $self->_stuck_or_drained eq 'stuck';
		}
		$self->_is_stuck($stuck) if $stuck;
		if (!$stuck)
		{
			$self->_drained;
			$self->_compare($case, 'outbox_archive') if $case->{find};
			$self->_is_honoured($case, $tag);
			$self->{node}->wait_log($case->{log}, $log) if $case->{log};
			$self->_fly("$tag") unless $case->{all} || $case->{function} || $case->{drops};
		}
		$self->_statements($case->{down});
		$self->_release;
		$self->_refill if $case->{up} =~ /TRUNCATE/;
		$self->_drained;
		is($self->_ok('admin', "SELECT string_agg(way || ' ' || id, ', ') FROM test_sent s WHERE tag = '$tag' AND NOT EXISTS (SELECT FROM outbox_archive a WHERE a.id = s.id)"),
			'', 'each message is in the archive');
		cmp_ok($self->_ok('admin', 'SELECT addition.amcheck()'), '>', 4, 'B-trees are sound');
	};
	note sprintf '%s: %.2f s', $case->{name}, time - $start;
	return;
}

# Outside of a transaction block, one after the other.
sub _statements
{
	my ($self, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$self->_ok('admin', $sql);
	return;
}

sub _refused_by_server
{
	my ($self, $case) = @_;
	my ($sqlstate, $re) = @{ $case->{up_fails} };
	my (undef, $err) = $self->_try('admin', "BEGIN;\n$case->{up}");
	$self->_try('admin', 'ROLLBACK');
	like($err, qr/ERROR:  $sqlstate:/, 'refused by the server');
	like($err, $re, 'with its reason');
	return;
}

# Several messages in one transaction, a single one, one that fails at first.
sub _by
{
	my ($self, $case, $tag, $way, $refused) = @_;
	my @batches = ([ map { _message($way, $tag, $_) } 1 .. 4 ], [ _message($way, $tag, 5) ]);

	push @batches, [ _message($way, $tag, 6, event_type => 'again') ];
	$self->{fake}->do('when type=again times=1 : nack') unless $refused || $case->{drops};
	push @batches, [ _message($way, $tag, 7, aggregate_id => "extra.$tag.$way", %{ $case->{extra} }) ]
	  if $case->{extra};
	foreach my $i (0 .. $#batches)
	{
		my @messages = @{ $batches[$i] };
		if ($case->{drops})
		{
			my (undef, $err) = $self->_try($way,
				$self->_enqueue_sql($way, $tag, $i, @messages) =~ s/COMMIT\z/ROLLBACK/r);
			# the function has no id to return, and test_sent needs one
			like($err, $way eq 'function' ? qr/\A[^\n]*ERROR:  23502: null value in column "id" of relation "test_sent"/ : qr/\A\z/,
				"$way: dropped without an error");
			next;
		}
		my $err = $self->_enqueue($way, $tag, $i, @messages);
		if ($refused)
		{
			like($err, qr/ERROR:  $refused->[0]:/, "$way is refused");
			like($err, $refused->[1], "$way: with its reason");
			last;
		}
		is($err, '', "$way: accepted");
	}
	return;
}

sub _is_refused
{
	my ($self, $case, $tag) = @_;
	my %refuses = %{ $case->{refuses} };

	foreach my $way (@{ $refuses{ways} // [qw(function insert copy)] })
	{
		foreach my $single (0, 1)
		{
			my $err = $self->_enqueue($way, $tag, $single,
				_message($way, $tag, 9, %{ $refuses{fields} }));
			like($err, qr/ERROR:  $refuses{sqlstate}:/, "$way: $refuses{sqlstate}");
		}
	}
	return;
}

sub _compare
{
	my ($self, $case, $table) = @_;

	foreach my $find (@{ $case->{find} })
	{
		my ($relation, $condition, $index) = @$find;
		next if $relation ne $table;
		# one snapshot for both scans
		my $result = $self->_ok('admin', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT addition.compare('
			  . join(', ', map { _literal($_) } $relation, $condition, $index // '.') . '); COMMIT');
		is($result, 'same', "$relation: an index scan finds what a sequential scan finds");
	}
	return;
}

# VACUUM and news of the index alone, then other tables take the memory of what
# was forgotten; then enqueue again.
sub _maintain
{
	my ($self, $case, $tag) = @_;
	my $full = $ENV{OUTBOX_TEST_FULL};
	my $index = $case->{index} // ($full ? 'outbox_ready' : return);

	return if $case->{all} || $case->{drops};
	$self->_ok('admin', 'VACUUM outbox');
	$self->_each_way($case, $tag, 10, 'after VACUUM');
	$self->_ok('admin', "ALTER INDEX $index RENAME TO renamed");
	$self->_ok('admin', "ALTER INDEX renamed RENAME TO $index");
	$self->_ok($_, $CATALOGS) foreach qw(function insert copy);
	$self->_each_way($case, $tag, 15, 'after news of the index alone');
	if ($full || $self->{number} % 4 == 0)
	{
		$self->_ok('admin', "REINDEX INDEX CONCURRENTLY $index");
		$self->_ok('admin', 'CREATE INDEX CONCURRENTLY added_beside ON outbox (attempts)');
		$self->_each_way($case, $tag, 20, 'after REINDEX');
		$self->_ok('admin', 'DROP INDEX CONCURRENTLY added_beside');
		$self->_ok('admin', 'REINDEX TABLE outbox');
	}
	$self->_each_way($case, $tag, 30, 'after maintenance');
	$self->_compare($case, 'outbox') if $case->{find};
	return;
}

sub _each_way
{
	my ($self, $case, $tag, $from, $name) = @_;
	foreach my $way (qw(function insert copy))
	{
		next if $case->{$way};
		is($self->_enqueue($way, $tag, 0, map { _message($way, $tag, $from + $_) } 1 .. 3),
			'', "$way: $name");
	}
	return;
}

sub _restart_relay
{
	my ($self) = @_;
	# what is in flight must land, or it would be sent again
	$self->_release;
	$self->_drained;
	my $now = $self->_ok('admin', 'SELECT clock_timestamp()');
	$self->_ok('admin', 'SELECT outbox_worker_restart()');
	wait_until('the relay has started anew',
		sub { $self->_ok('admin', "SELECT count(*) > 0 AND bool_and(started_at > '$now' AND state IN ('idle', 'publishing')) FROM outbox_workers") eq 't' });
	return;
}

sub _stuck_or_drained
{
	my ($self) = @_;
	return wait_until(
		'settled or refused',
		sub {
			return 'stuck' if $self->_ok('admin', 'SELECT state FROM outbox_status') eq 'database error';
			return 'drained' if $self->_ok('admin',
				q{SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'pending' AND available_at IS DISTINCT FROM '2100-01-01')}) eq 't';
			return;
		});
}

# Nothing new goes out while what was confirmed cannot be settled, and the view
# says why.
sub _is_stuck
{
	my ($self, $re) = @_;

	wait_until('the state says that the database refuses, and another worker has sent what it has',
		sub { $self->_ok('admin', q{SELECT (SELECT state FROM outbox_status) = 'database error' AND bool_and(state IN ('database error', 'idle')) FROM outbox_workers}) eq 't' });
	like($self->_ok('admin', 'SELECT last_error FROM outbox_status'), $re, 'with the reason');
	my $published = $self->_published;
	my $errors = 'SELECT database_errors FROM outbox_database_stats()';
	my $before = $self->_ok('admin', $errors);
	wait_until('it is tried again', sub { $self->_ok('admin', $errors) > $before + 1 });
	is($self->_published, $published, 'and nothing is sent again and again');
	return;
}

sub _is_honoured
{
	my ($self, $case, $tag) = @_;

	if ($case->{honoured})
	{
		my $sql = $case->{honoured} =~ s/%t/$tag/gr;
		my $out = $self->_ok('admin', $sql);
		is($out, 't', 'the addition was honoured');
		diag $self->_ok('admin', 'SELECT DISTINCT * FROM addition.fired') if $out ne 't';
	}
	is($self->_ok('admin', q{SELECT count(*) FROM outbox WHERE event_type <> 'kept' AND event_type <> 'refused'}), 0, 'nothing is left')
	  if $case->{drops};
	return;
}

sub _refill
{
	my ($self) = @_;
	$self->_ok('function', <<'SQL');
SELECT count(outbox_enqueue('kept', '{"a": 1, "n": 1}', aggregate_id => 'kept' || g % 10,
	aggregate_type => 'kept', headers => '{"tag": "kept", "list": [1]}',
	available_at => '2100-01-01')) FROM generate_series(1, 200) g
SQL
	return;
}

=pod

=item $matrix->locked_catalogs

An enqueue that fails in the middle of learning what the table is leaves the
session able to enqueue.

=cut

sub locked_catalogs
{
	my ($self) = @_;
	my $tag = 'locked';

	my $waited = 0;

	$self->{fake}->do('forget');
	foreach my $catalog (qw(pg_depend pg_trigger pg_attrdef pg_constraint pg_index
		pg_proc pg_sequence pg_attribute))
	{
		subtest "an error while $catalog is locked" => sub {
			$self->_ok('admin', 'ALTER TABLE outbox ALTER headers SET STATISTICS 100');
			$self->_ok('admin', "BEGIN; LOCK TABLE $catalog");
			foreach my $way (qw(function insert copy))
			{
				$self->_try($way, "SET lock_timeout = '20ms'");
				my $err = $self->_enqueue($way, $tag, 0, _message($way, $tag, 1));
				like($err, qr/^$|ERROR:  55P03:/, "$way: waits for the lock, if at all");
				$waited++ if $err ne '';
			}
			$self->_ok('admin', 'COMMIT');
			foreach my $way (qw(function insert copy))
			{
				$self->_ok($way, 'RESET lock_timeout');
				is($self->_enqueue($way, $tag, 0, _message($way, $tag, 2)), '', "$way: goes on");
			}
		};
	}
	cmp_ok($waited, '>', 0, 'some waited for a lock');
	$self->_drained;
	return;
}

=pod

=item $matrix->checker

The OutboxTest::Checker whose test_sent the matrix fills.

=item $matrix->finish($name, %params)

Did each message arrive once, in order, and no server process die? The parameters
are those of the checker.

=back

=cut

sub checker { return $_[0]{checker} }

sub finish
{
	my ($self, $name, %params) = @_;
	$self->{checker}->check($name, [ $self->{fake}->records ], %params);
	unlike($self->{node}->log_text($self->{log}), qr/was terminated by signal|PANIC|TRAP:/,
		'no server process has died');
	return;
}

1;
