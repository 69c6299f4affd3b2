# Objects of others are never called: doc/dev/fault-cases.md L1, L2.  The part of the check that
# needs a server; test/tools/names-check is the other one.
#
# What is bound (views, defaults, triggers, checks, indexes, functions with BEGIN ATOMIC) is
# looked at in the catalog: no call of ours has an argument that is cast to fit, and nothing
# but pg_catalog is needed beside the extension.
#
# What is resolved when it runs meets, in each round, one overload of each function of ours
# in the chosen schema and one in outbox_internal: alone, because several would make a call
# ambiguous.  The first has exactly our types; then one argument, several or all have types
# that could fit better, or there are fewer or more of them.  Each kind of role that could
# create it does so.  In each round all that the extension does is due: days of the archive
# to be dropped, detached and shrunk, locked rows, retries, dead letters, leases, jobs, each
# view and function.  Before them the schema is renamed, and another one has our names.
#
# OUTBOX_TEST_FULL=1: all the overloads.
# suite: test
# takes: 45 s

use strict;
use warnings;

use IPC::Run ();
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $LIMIT_S = 120;
my $ROUNDS = 10;
my $started = time;

seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.retry_initial = 10ms\noutbox.retry_max = 100ms\noutbox.retention = 1d\n"
	  . "autovacuum = off\ntrack_functions = all\nmax_prepared_transactions = 5\nwal_level = logical\nfsync = off");

# --- what is bound

my %ours = map { $_->[0] => $_->[1] } $node->rows(<<'SQL');
SELECT p.oid, p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'outbox'
SQL

# Nodes as the server writes them: { type, fields }, lists, and words.
sub parse
{
	my ($text) = @_;
	my @words = $text =~ /\G\s*(\{[A-Z_]+|[{}()]|"(?:\\.|[^"\\])*"|(?:\\.|[^\s(){}\\])+)/gs;
	my $value;
	$value = sub {
		my $word = shift @words;
		if ($word =~ /^\{(\w+)/)
		{
			my %node = (_node => $1);
			my $field = '';
			while (@words && $words[0] ne '}')
			{
				if ($words[0] =~ /^:(\w+)$/) { $field = $1; shift @words; }
				else { push @{ $node{$field} }, $value->(); }
			}
			shift @words;
			return \%node;
		}
		if ($word eq '(')
		{
			my @list;
			push @list, $value->() while @words && $words[0] ne ')';
			shift @words;
			return \@list;
		}
		return $word;
	};
	return $value->();
}

my $calls = 0;
my @inexact;

sub look
{
	my ($node, $where) = @_;
	if (ref $node eq 'ARRAY') { look($_, $where) foreach @$node; }
	return unless ref $node eq 'HASH';
	if ($node->{_node} eq 'FUNCEXPR' && $ours{ $node->{funcid}[0] })
	{
		my $n = 0;
		$calls++;
		foreach my $argument (map { ref $_ eq 'ARRAY' ? @$_ : () } @{ $node->{args} // [] })
		{
			$argument = $argument->{arg}[0] if ref $argument eq 'HASH' && $argument->{_node} eq 'NAMEDARGEXPR';
			$n++;
			my ($form) = map { $argument->{$_} ? $argument->{$_}[0] : () } qw(funcformat relabelformat coerceformat coercionformat);
			push @inexact, "$where: argument $n of $ours{$node->{funcid}[0]} is cast to fit ($argument->{_node})" if ($form // 0) == 2;
		}
	}
	look($node->{$_}, $where) foreach grep { $_ ne '_node' } keys %$node;
	return;
}

my $members = q{SELECT d.objid FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE d.deptype = 'e' AND e.extname = 'outbox' AND d.classid = };
my $relations = "$members 'pg_class'::regclass";
my @bound = $node->rows(<<"SQL");
SELECT 'function ' || p.oid::regprocedure, p.prosqlbody FROM pg_proc p WHERE p.oid IN ($members 'pg_proc'::regclass) AND p.prosqlbody IS NOT NULL
UNION ALL SELECT 'view ' || r.ev_class::regclass, r.ev_action FROM pg_rewrite r WHERE r.ev_class IN ($relations)
UNION ALL SELECT 'default of ' || a.adrelid::regclass, a.adbin FROM pg_attrdef a WHERE a.adrelid IN ($relations)
UNION ALL SELECT 'check ' || c.conname, c.conbin FROM pg_constraint c WHERE c.conrelid IN ($relations) AND c.conbin IS NOT NULL
UNION ALL SELECT 'trigger ' || t.tgname, t.tgqual FROM pg_trigger t WHERE t.tgrelid IN ($relations) AND t.tgqual IS NOT NULL
UNION ALL SELECT 'index ' || i.indexrelid::regclass, i.indexprs FROM pg_index i WHERE i.indrelid IN ($relations) AND i.indexprs IS NOT NULL
UNION ALL SELECT 'predicate of ' || i.indexrelid::regclass, i.indpred FROM pg_index i WHERE i.indrelid IN ($relations) AND i.indpred IS NOT NULL
SQL
look(parse(join '|', @$_[ 1 .. $#$_ ]), $_->[0]) foreach @bound;
is(join("\n", @inexact), '', scalar(@bound) . " bound expressions: $calls calls of ours, each with exact types");
cmp_ok($calls, '>', 40, 'there are some');
is($node->sql(<<"SQL"), '', 'what is bound is of pg_catalog or of the extension');
SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid) FROM pg_depend d
	LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid,
	LATERAL pg_identify_object(d.refclassid, d.refobjid, 0) o
WHERE d.deptype = 'n' AND coalesce(r.ev_class, d.objid) IN (SELECT objid FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox'))
	AND o.schema IS DISTINCT FROM 'pg_catalog' AND o.schema IS DISTINCT FROM 'information_schema' AND d.refobjid NOT IN (
		SELECT objid FROM pg_depend WHERE deptype = 'e')
	AND d.refclassid NOT IN ('pg_namespace'::regclass, 'pg_language'::regclass) AND d.refobjid NOT IN (
		SELECT unnest(ARRAY[t.typrelid, t.typarray]) FROM pg_type t JOIN pg_depend m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid AND m.deptype = 'e')
SQL

# names-check takes the type of a column for known that has one in src/sql.
my ($out, $err) = ('', '');
{
	# the one that has the server's headers, which the installation of the tests has not
	local $ENV{PG_CONFIG} = (map { m{^(.*)/lib/pgxs/} ? "$1/bin/pg_config" : () } @INC)[0];
	ok(IPC::Run::run([ 'names-check', '--columns' ], '>', \$out, '2>', \$err), 'names-check') or diag $out . $err;
}
my %known = map { split /\|/ } split /\n/, $out;
my %types;
$types{ $_->[0] }{ $_->[1] } = $_->[2] foreach $node->rows(<<"SQL");
SELECT a.attname, format_type(a.atttypid, NULL), min(a.attrelid::regclass::text) FROM pg_attribute a WHERE a.attrelid IN ($relations) AND a.attnum > 0 GROUP BY 1, 2
SQL
my @others = map {
	my $column = $_;
	map { "$column is $_ in $types{$column}{$_}" } grep { $_ ne $known{$column} } sort keys %{ $types{$column} // {} }
} sort keys %known;
is(join("\n", @others), '', scalar(keys %known) . ' columns that calls rely upon have one type in all relations of ours');

# --- the roles, and a function that tells

my $S = 'public';
my ($superuser) = $node->sql('SELECT current_user');
my @kinds = (
	[ database_owner => 'ALTER SCHEMA public OWNER TO pg_database_owner' ],
	[ schema_owner => 'ALTER SCHEMA public OWNER TO schema_owner' ],
	[ granted => 'GRANT CREATE ON SCHEMA public TO granted' ],
	[ member => 'GRANT CREATE ON SCHEMA public TO grantees' ],
	[ owners_member => "ALTER SCHEMA public OWNER TO $superuser" ]);
$node->sql(<<"SQL");
CREATE ROLE grantees;
CREATE ROLE database_owner;
CREATE ROLE schema_owner;
CREATE ROLE granted;
CREATE ROLE member IN ROLE grantees;
CREATE ROLE owners_member IN ROLE $superuser;
CREATE ROLE app;
CREATE ROLE monitor IN ROLE pg_monitor;
ALTER DATABASE postgres OWNER TO database_owner;
CREATE SCHEMA canary;
GRANT USAGE ON SCHEMA canary TO PUBLIC;
CREATE SEQUENCE canary.fired;
GRANT USAGE ON SEQUENCE canary.fired TO PUBLIC;
CREATE FUNCTION canary.note(what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS \$\$
BEGIN
	PERFORM nextval('canary.fired');
	RAISE LOG 'canary: % as %, session of %', what, current_user, session_user;
END
\$\$;
SQL
my $log = 0;

sub fired
{
	my ($what) = @_;
	my $n = $node->sql('SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM canary.fired');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ok = is($n, 0, "$what: none was called")
	  || diag join "\n", sort keys %{ { map { $_ => 1 } $node->log_text($log) =~ /(canary: .*)/g } };
	$node->sql(q{SELECT setval('canary.fired', 1, false)});
	$log = $node->log_end;
	return $n == 0;
}

# --- overloads

my %other = (
	'text' => [ 'name', 'character varying' ], 'name' => ['text'], 'bigint' => [ 'numeric', 'integer' ], 'integer' => [ 'smallint', 'bigint' ],
	'oid' => [ 'bigint', 'regclass' ], 'regclass' => [ 'text', 'oid' ], 'double precision' => [ 'numeric', 'bigint' ],
	'interval' => [ 'text', 'time' ], 'timestamp with time zone' => [ 'timestamp', 'date' ], 'date' => [ 'timestamp', 'text' ],
	'jsonb' => [ 'json', 'text' ], 'uuid' => ['text'], 'boolean' => ['text'], 'bytea' => ['text'], 'tid' => ['text']);

# Each list of types that could be meant instead of these, the exact one first.
sub variants
{
	my (@types) = @_;
	my @choices = map { my $array = /\[\]$/; my $of = s/\[\]$//r; [ $_, map { $array ? "$_\[]" : $_ } @{ $other{$of} // ['text'] } ] } @types;
	my @all = ([]);

	foreach my $choice (@choices)
	{
		@all = map { my $left = $_; map { [ @$left, $_ ] } @$choice } @all;
		@all = (@all[ 0 .. 100 ], (sort { rand() <=> 0.5 } @all[ 101 .. $#all ])[ 0 .. 100 ]) if @all > 250;
	}
	my ($exact, @rest) = grep { defined } @all;
	my $changed = sub { scalar grep { $_[0][$_] ne $types[$_] } 0 .. $#types };
	my @ones = reverse grep { $changed->($_) == 1 } @rest;
	my @more = grep { $changed->($_) > 1 } @rest;
	my @shapes = ([ ('anyelement') x @types ], [ @types[ 0 .. $#types - 1 ] ], [ @types, 'integer DEFAULT 0' ], ['VARIADIC text[]']);
	# most often one argument; several, and other shapes, so that a few rounds have of each
	my @mixed;
	@more = sort { rand() <=> 0.5 } @more;
	while (@ones || @more || @shapes)
	{
		push @mixed, map { @$_ ? shift @$_ : () } \@ones, \@ones, \@more, \@ones, \@ones, \@shapes;
	}
	return ($exact, @mixed);
}

my @functions = map {
	my ($schema, $name, $result, $types, $outs) = @$_;
	{ schema => $schema, name => $name, result => $result, outs => $outs, variants => [ variants(split /;/, $types) ], types => $types }
} $node->rows(<<"SQL");
SELECT p.pronamespace::regnamespace, p.proname, pg_get_function_result(p.oid),
	(SELECT string_agg(format_type(t, NULL), ';' ORDER BY n) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY u(t, n)),
	(SELECT string_agg(format('OUT %I %s', p.proargnames[n], format_type(p.proallargtypes[n], NULL)), ', ' ORDER BY n)
	 FROM generate_subscripts(p.proallargtypes, 1) n WHERE p.proargmodes[n] = 'o')
FROM pg_proc p WHERE p.oid IN ($members 'pg_proc'::regclass) AND p.pronargs > 0 AND p.prorettype <> 'trigger'::regtype
SQL
my %named = map { ("$_->{schema}.$_->{name}" => 1) } @functions;
my $as_owner = 'owners_member as the owner, in outbox_internal';
my %made = map { $_ => 0 } $as_owner, map { $_->[0] } @kinds;

# One overload of each function, by that role in that schema.
sub create
{
	my ($role, $schema, $round) = @_;
	# what another role owns in outbox_internal makes the extension refuse to work: the owner's then
	my $internal = $schema eq 'outbox_internal';
	my $sql = "SET client_min_messages = error; SET check_function_bodies = off; SET SESSION AUTHORIZATION $role;\n" . ($internal ? "SET ROLE $superuser;\n" : '');

	foreach my $f (@functions)
	{
		my @variants = @{ $f->{variants} };
		next if $round > $#variants;
		my $arguments = join ', ', @{ $variants[$round] };
		# would make a call ambiguous, of the test's own or by a role that is trusted
		next if $arguments =~ /DEFAULT|VARIADIC/ && $named{"$schema.$f->{name}"};
		next if @{ $variants[$round] } < @{ $variants[0] } && $schema eq $S && $named{"$schema.$f->{name}"};
		my $outs = $f->{outs} ? ", $f->{outs}" : '';
		my $result = $arguments =~ /anyelement/ && $f->{result} =~ /any/ ? 'text' : $f->{result};
		my $return = $outs || $result =~ /SETOF|TABLE|void/ ? 'RETURN' : 'RETURN NULL';
		$outs = $outs =~ s/^, //r if $arguments eq '';
		# what is there already, ours among it, stays
		$sql .= "DO \$do\$BEGIN CREATE FUNCTION $schema.$f->{name}($arguments$outs) RETURNS $result LANGUAGE plpgsql AS
			\$f\$BEGIN PERFORM canary.note('$f->{name}($arguments) in $schema'); $return; END\$f\$;
			EXCEPTION WHEN OTHERS THEN NULL; END\$do\$;\n";
	}
	my $before = $node->sql('SELECT count(*) FROM pg_proc');
	$node->sql($sql);
	$before = $node->sql('SELECT count(*) FROM pg_proc') - $before;
	$made{ $internal ? $as_owner : $role } += $before;
	return $before;
}

# --- all that the extension does

$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange_type, relay) VALUES ('ext', 'topic', 'external');
INSERT INTO outbox_route (name, exchange_type, max_attempts, on_failed, max_pending) VALUES ('blocked', 'topic', 1, 'block', 1000);
INSERT INTO outbox_route (name, exchange_type, sequence) VALUES ('numbered', 'topic', 'key');
INSERT INTO outbox_route (name, exchange_type, max_attempts, failed_route) VALUES ('dying', 'topic', 1, 'numbered');
INSERT INTO outbox_route (name, exchange_type) VALUES ('locked', 'topic'), ('kept', 'topic'), ('used', 'topic');
SELECT pg_create_logical_replication_slot('reader', 'pgoutput');
INSERT INTO outbox_route (name, exchange_type, relay, slot) VALUES ('logged', 'topic', 'cdc', 'reader');
CREATE SCHEMA app AUTHORIZATION app;
CREATE TABLE app.captured (id integer PRIMARY KEY, t text);
ALTER TABLE app.captured OWNER TO app;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_capture TO app;
CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON app.captured FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=numbered');
SQL
my $day = q{((pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::date - 9)};

# Days that are due: the first one is divided by route in every other round, and has more
# than 16 MB, so it is detached and shrunk before it is dropped.
sub make_due
{
	my ($round) = @_;
	my $retention = $round % 2 ? q{'3 days'} : 'NULL';

	return <<"SQL";
UPDATE $S.outbox_route SET retention = $retention WHERE name = 'kept';
SELECT outbox_internal.outbox_archive_make_day($day), outbox_internal.outbox_archive_make_day($day + 1);
INSERT INTO $S.outbox_archive (seq, id, route, event_type, body, created_at, attempts, published_at)
	SELECT -i, pg_catalog.gen_random_uuid(), CASE WHEN i % 10 = 1 THEN 'kept' ELSE 'other' END, 'e', pg_catalog.decode(pg_catalog.repeat('00', 1000000), 'hex'),
		pg_catalog.now(), 0, $day + pg_catalog.make_interval(secs => i) FROM pg_catalog.generate_series(1, 22) i;
INSERT INTO $S.outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	SELECT -100, pg_catalog.gen_random_uuid(), 'other', 'e', pg_catalog.now(), 0, $day + 1;
SQL
}

my @statements = (
	(map { "SELECT * FROM %S.$_" } qw(outbox_status outbox_routes_status outbox_problems outbox_metrics outbox_workers outbox_archive_status
		outbox_versions outbox_messages outbox_failed outbox_held_keys outbox_leases outbox_progress outbox_new outboxevent)),
	(map { "SELECT pg_catalog.count(*) FROM %S.$_()" } qw(outbox_top outbox_locked_rows outbox_table_lockers outbox_database_stats outbox_version outbox_uuid7)),
	q{SELECT %S.outbox_quantile(0.5::float8, '{1,2}'::float8[], '{1,2}'::float8[])},
	q{SELECT %S.outbox_reason_hint('twin'::text)},
	q{SELECT pg_catalog.count(*) FROM %S.outbox_preflight('default'::text, 'key'::text, true)},
	q{SELECT outbox_internal.outbox_archive_maintain('1 day'::interval), outbox_internal.outbox_history_maintain('1 day'::interval),
		outbox_internal.outbox_once_maintain('0'::interval, '-infinity'::timestamptz), outbox_internal.outbox_object_problems('0'::interval), outbox_internal.outbox_drain()},
	# each way in
	q{SELECT %S.outbox_enqueue('e'::text, '{}'::jsonb, 't'::text, 'k'::text, '{}'::jsonb, 'default'::text)},
	q{SELECT %S.outbox_enqueue_bytes('e'::text, '\x00'::bytea)}, q{SELECT %S.outbox_enqueue_text('e'::text, '{}'::text)},
	q{SELECT * FROM %S.outbox_enqueue_batch('[{"event_type": "e", "payload": 1, "aggregate_id": 7, "headers": {"a": [1, null]}, "available_at": "2000-01-01"}]'::jsonb)},
	q{SELECT %S.outbox_enqueue_once(%S.outbox_uuid7()::text, 'e'::text, '{}'::jsonb)}, q{SELECT %S.outbox_wait(id, '0'::interval) FROM %S.outbox LIMIT 1},
	q{INSERT INTO %S.outbox_new (event_type, payload, aggregate_id) VALUES ('e', '{}', 'k') RETURNING id},
	q{INSERT INTO %S.outboxevent (type, payload, aggregateid, aggregatetype) VALUES ('e', '{}', 'k', 'a'); DELETE FROM %S.outboxevent},
	q{SET ROLE app; INSERT INTO app.captured VALUES (1); UPDATE app.captured SET t = 'u'; DELETE FROM app.captured; RESET ROLE},
	# an external relay
	q{SELECT %S.outbox_enqueue('ext'::text, '{}'::jsonb, 't'::text, i::text, NULL::jsonb, 'ext'::text) FROM pg_catalog.generate_series(1, 4) i},
	"SELECT token, id FROM %S.outbox_claim('ext'::text, 3::int4, '1 hour'::interval, 'w'::text) LIMIT 1 \\gset",
	q{SELECT %S.outbox_extend(:token::int8, '1 hour'::interval)}, q{SELECT %S.outbox_nack(:token::int8, :'id'::uuid, 'no'::text)},
	q{SELECT %S.outbox_ack(:token::int8, ARRAY(SELECT id FROM %S.outbox WHERE event_type = 'ext' AND aggregate_id = '2'))},
	q{SELECT pg_catalog.count(*) FROM %S.outbox_leases}, q{SELECT %S.outbox_release(:token::int8)},
	# operators
	q{SELECT %S.outbox_pause('blocked'::text, NULL::text), %S.outbox_resume('blocked'::text, NULL::text)},
	q{SELECT %S.outbox_edit(id, '2'::jsonb, NULL::bytea, NULL::jsonb, NULL::jsonb, NULL::text, 'numbered'::text, NULL::text[], 'r'::text) FROM %S.outbox_failed LIMIT 1},
	q{SELECT %S.outbox_requeue_ids(ARRAY(SELECT id FROM %S.outbox_failed LIMIT 1))}, q{SELECT %S.outbox_requeue(id) FROM %S.outbox_failed LIMIT 1},
	q{SELECT %S.outbox_discard(id) FROM %S.outbox_failed LIMIT 1},
	q{SELECT %S.outbox_requeue_failed('ext'::text, NULL::text, NULL::text, NULL::text, '%%no%%'::text, NULL::timestamptz, 1::int4)},
	q{SELECT %S.outbox_discard_messages(reason => 'r'::text, route => 'ext'::text, max_messages => 100::int4)},
	q{SELECT * FROM %S.outbox_erase('t'::text, '3'::text, 'r'::text)},
	q{SELECT %S.outbox_replay('-infinity'::timestamptz, NULL::timestamptz, 'numbered'::text, NULL::text, NULL::text, false, 10::int8) AS job \gset},
	q{SELECT %S.outbox_job_cancel(:job::int8), %S.outbox_job_retry(:job::int8)},
	q{UPDATE %S.outbox_route SET relay = 'external' WHERE name = 'kept'; UPDATE %S.outbox_route SET relay = 'internal' WHERE name = 'kept'},
	q{INSERT INTO %S.outbox_route (name) VALUES ('more'); UPDATE %S.outbox_route SET name = 'less' WHERE name = 'more'; DELETE FROM %S.outbox_route WHERE name = 'less'},
	q{BEGIN; SET LOCAL check_function_bodies = off; SELECT pg_catalog.set_config('search_path', '', true);
		INSERT INTO %S.outbox_route (name, exchange_type) VALUES ('default', 'topic'); INSERT INTO %S.outbox_control SELECT * FROM %S.outbox_control; ROLLBACK},
	q{DO $$BEGIN UPDATE %S.outbox_new SET event_type = 'x'; EXCEPTION WHEN feature_not_supported THEN NULL; END$$},
	q{SELECT %S.outbox_adopt()});

# Until that is true, or one of theirs was called, which may be why it never will be.
sub until_true
{
	return $node->wait_sql("SELECT (SELECT is_called FROM canary.fired) OR ($_[0])");
}

# A statement that waits for 3 s, and is refused; what ends it.
sub change
{
	my ($statement, $refused, $what) = @_;
	my ($out, $err) = ('', '');
	my $psql = IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'), '-c', $statement ],
		'<', \undef, '>', \$out, '2>', \$err);
	return sub { IPC::Run::finish($psql); like($err, $refused, $what); };
}

# Once: the relay and the maintenance of what is due, and each statement in a session that
# finds their overloads first where a name has no schema.
sub all_of_it
{
	my ($round, $what) = @_;
	my $locker = $node->session;
	my ($out, $err);
	$fake->do('when type=refused : nack', 'when type=later : nack times=1');
	$node->sql(make_due($round));
	$node->sql(<<"SQL");
SELECT $S.outbox_pause('locked'::text, NULL::text);
SELECT $S.outbox_enqueue('locked'::text, '{}'::jsonb, 't'::text, 'k'::text, NULL::jsonb, 'locked'::text);
SELECT $S.outbox_enqueue('refused'::text, '{}'::jsonb, 't'::text, 'k'::text, NULL::jsonb, r) FROM pg_catalog.unnest('{blocked,blocked,dying}'::text[]) r;
SELECT $S.outbox_enqueue('refused'::text, '{}'::jsonb, NULL::text, NULL::text, NULL::jsonb, 'blocked'::text), $S.outbox_enqueue('later'::text, '{}'::jsonb);
SQL
	$locker->query_safe(qq{BEGIN; SELECT id FROM $S.outbox WHERE event_type = 'locked' FOR UPDATE; SELECT $S.outbox_enqueue('e'::text, '{}'::jsonb, NULL::text, NULL::text, NULL::jsonb, 'used'::text)});
	$node->sql("SELECT $S.outbox_worker_restart(), $S.outbox_resume('locked'::text, NULL::text)");
	my @changes = (	# one at a time, as a change of routes waits for others, too
		$round % 7 == 0 ? change("UPDATE $S.outbox_route SET relay = 'external' WHERE name = 'locked'", qr/messages of route "locked" are locked/, "$what: who has locked a row is looked for")
		: $round % 7 == 3 ? change("DELETE FROM $S.outbox_route WHERE name = 'used'", qr/route "used" is in use/, "$what: who has enqueued to a route is looked for") : ());
	until_true("SELECT pg_catalog.count(*) > 2 FROM $S.outbox_failed");
	until_true("EXISTS (SELECT FROM $S.outbox_locked_rows())");
	($out, $err) = $node->script("SET client_min_messages = error; SET search_path = $S, outbox_internal, pg_catalog;\n"
		  . join '', map { my $one = s/%S/$S/gr =~ s/%%/%/gr; $one =~ /gset$/ ? "$one\n" : "$one;\n" } @statements);
	# the relay may be at the archive
	$err =~ s/^.*could not obtain lock on relation "\S*outbox_archive.*\n(?:CONTEXT: .*\n)?(?:PL.*\n)*//gm;
	is($err, '', "$what: everything goes");
	$_->() foreach @changes;
	$locker->query_safe("ROLLBACK; BEGIN; LOCK TABLE $S.outbox");
	$node->sql("SELECT * FROM $S.outbox_problems");
	$locker->query_safe('ROLLBACK');
	$locker->quit;
	until_true(q{NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^outbox_archive_(dropping|p)'
		AND relname < 'outbox_archive_p' || pg_catalog.to_char(pg_catalog.now() - interval '2 days', 'YYYYMMDD'))});
	until_true("NOT EXISTS (SELECT FROM $S.outbox WHERE status = 'pending' AND route <> 'ext' AND route <> 'blocked')");
	$fake->do('forget');
	$node->sql("DELETE FROM $S.outbox; DELETE FROM outbox_internal.outbox_lease");
	return;
}

# --- the schema is renamed, and its owner makes another one, with all our names

my $well;
{
	# Sessions that have called everything before, and the worker that runs.
	my @known = map { $node->client } 1 .. 2;
	my @errors;
	my $again = sub {
		my ($client) = @_;
		eval { $client->query($_); 1 } or push @errors, "$_: $@" foreach map { s/%S/$S/gr =~ s/%%/%/gr } grep { !/gset|:token|:job|;/ } @statements;
	};
	$again->($_) foreach @known;
	$node->sql('ALTER SCHEMA public OWNER TO pg_database_owner; SET ROLE database_owner; ALTER SCHEMA public RENAME TO moved;'
		  . 'CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO PUBLIC');
	my $n = create('database_owner', 'public', 0);
	my $views = $node->sql(<<'SQL');
DO $$
DECLARE
	name text;
BEGIN
	FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'moved'::regnamespace AND relkind IN ('r', 'p', 'v') LOOP
		EXECUTE format('SET LOCAL ROLE database_owner; CREATE VIEW public.%1$I AS SELECT (NULL::moved.%1$I).*, canary.note(%2$L) IS NULL AS noted;
			GRANT ALL ON public.%1$I TO PUBLIC', name, 'view ' || name);
	END LOOP;
END
$$;
SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace;
SQL
	$S = 'moved';
	$again->($known[0]);
	all_of_it(7, 'renamed and replaced');
	$again->($known[1]);
	$well = fired("the schema is renamed, and replaced by $n functions and $views relations");
	is(join('', @errors), '', 'sessions from before go on');
	$S = 'public';
	$node->sql('DROP SCHEMA public CASCADE; ALTER SCHEMA moved RENAME TO public');
}

# --- the rounds

my $most = max(map { scalar @{ $_->{variants} } } @functions);
my $rounds = $ENV{OUTBOX_TEST_FULL} ? $most : $ROUNDS;
my $overloads = 0;
my $drop = <<"SQL";
DO \$\$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT oid FROM pg_proc WHERE proname LIKE 'outbox%' AND oid NOT IN ($members 'pg_proc'::regclass) LOOP
		EXECUTE format('DROP FUNCTION %s', f);
	END LOOP;
END
\$\$
SQL
foreach my $round (0 .. $rounds - 1)
{
	# each kind of role once, also on a slow machine
	last unless $well && ($round < @kinds || $ENV{OUTBOX_TEST_FULL} || time - $started < $LIMIT_S - 30);
	my ($role, $way) = @{ $kinds[ $round % @kinds ] };

	$node->sql("$way; GRANT USAGE ON SCHEMA $S TO PUBLIC");
	my $n = create($role, $S, $round) + create('owners_member', 'outbox_internal', $round || 1);
	$overloads += $n;
	all_of_it($round, "round $round");
	$well = fired("round $round: $n overloads by $role");
	$node->sql($drop);
}
is(join(', ', grep { !$made{$_} } sort keys %made), '', sprintf '%d overloads of %d functions: %s', $overloads, scalar @functions,
	join ', ', map { "$made{$_} by $_" } sort keys %made);

# --- what has run, by the server's own count: it does not know what it has inlined

my @idle = $node->rows(<<"SQL");
SELECT p.oid::regprocedure FROM pg_proc p LEFT JOIN pg_stat_user_functions s ON s.funcid = p.oid
WHERE p.oid IN ($members 'pg_proc'::regclass) AND s.calls IS NULL AND p.prosqlbody IS NULL ORDER BY 1
SQL
is(join("\n", map { $_->[0] } @idle), '', scalar(keys %ours) . ' functions have run');
note sprintf '%.0f s', time - $started;
done_testing();
