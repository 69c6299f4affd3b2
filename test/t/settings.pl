# Settings, names and owners that could be turned against the relay, or against
# whoever enqueues: group D (without D9) and C16 of doc/dev/fault-cases.md.  The broker is a scripted
# one, as nothing here is about brokers.
#
# OUTBOX_TEST_FULL=1: more messages.
#
# suite: test faults
# takes: 61 s

use strict;
use warnings;

use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $MESSAGES = $FULL ? 3000 : 400;
my $SINGLES = $FULL ? 200 : 20;
my $PASSWORD = 'Pa55wordMarker';
my $PAYLOAD = 'Pay10adMarker';

my $seed = seed();
my $fake = OutboxTest::FakeBroker->start;
my $passfile = "$PostgreSQL::Test::Utils::tmp_check/settings_passfile";
unlink $passfile;
append_to_file($passfile, "*:*:*:relay:$PASSWORD\n");
chmod 0600, $passfile;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
shared_preload_libraries = 'outbox, auto_explain'
outbox.broker_uri = 'amqp://relay\@127.0.0.1:${\ $fake->port}'
outbox.passfile = '$passfile'
outbox.retry_max = 1s
END
my %checker = (postgres => OutboxTest::Checker->install($node));
my $state = 'SELECT state FROM outbox_status';
my ($superuser) = $node->sql('SELECT current_user');
my $round = 0;

my @younger_timeouts =
  $node->sql('SHOW server_version_num') >= 170000 ? 'transaction_timeout' : ();

# From 19 on nobody can switch it off.
my @odd_strings =
  $node->sql('SHOW server_version_num') < 190000
  ? (standard_conforming_strings => 'off')
  : ();

# What the test's own sessions have instead of the database's settings.
my %ours = (
	default_transaction_read_only => 'off',
	lock_timeout => 0,
	statement_timeout => 0,
	idle_in_transaction_session_timeout => 0,
	idle_session_timeout => 0,
	(map { ($_ => 0) } @younger_timeouts),
	search_path => 'public',
	session_replication_role => 'origin',
	DateStyle => 'ISO',
	bytea_output => 'hex',
	standard_conforming_strings => 'on',
	client_encoding => 'UTF8',
	default_transaction_isolation => 'read\\ committed',
	jit => 'off',
	plan_cache_mode => 'auto',
	(
		map { ("enable_$_" => 'on') }
		  qw(indexscan indexonlyscan bitmapscan tidscan nestloop sort)
	));

sub options
{
	my (%settings) = @_;
	return join ' ', map { "-c $_=$settings{$_}" } sort keys %settings;
}

$ENV{PGOPTIONS} = options(%ours);

# Messages with and without keys, bodies that need their text forms, a failed
# attempt and a scheduled one, all the ways in which the relay uses SQL.  Returns
# the seconds it took.
sub flows
{
	my ($case, $what, %params) = @_;
	my $db = $params{db} // 'postgres';
	my $checker = $checker{$db};
	my $messages = $params{messages} // $MESSAGES;
	my $before = @{ [ $fake->records ] };
	my $offset = $node->log_end;
	my $prefix = 'r' . ++$round . '.';
	my $start = time;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	local $ENV{PGOPTIONS} = options(%ours, %{ $params{producer} // {} });
	$node->sql('TRUNCATE test_sent', $db);
	$fake->do("when type=again times=2 : nack");
	my $load = $checker->load(
		$messages,
		keys => 40,
		prefix => $prefix,
		per_tx => 5,
		rollback => 0.1);
	$checker->enqueue($messages / 4, per_tx => 50);
	$checker->enqueue(3, keys => 1, prefix => "again$round.",
		event_type => 'again');
	$params{meanwhile}->() if $params{meanwhile};
	ok($load->wait, "$case: producers are not disturbed by $what")
	  or diag $load->error;
	$node->wait_drained($params{drained} // 20, $db);
	my $seconds = time - $start;
	my @records = $fake->records;
	splice @records, 0, $before;
	$fake->do('forget');
	$checker->check(
		"$case: $what", \@records,
		case => "$case: $what",
		seconds => $seconds,
		interruptions => 0);
	my @errors =
	  grep { /outbox (relay|launcher) .*(ERROR|FATAL|PANIC|WARNING):/ }
	  split /\n/, $node->log_text($offset);
	is(scalar @errors, 0, "$case: the relay has met no error")
	  or diag join "\n", @errors[ 0 .. ($#errors > 4 ? 4 : $#errors) ];
	return $seconds;
}

sub restart_worker
{
	my ($db) = @_;
	my $pid = $node->sql('SELECT pid FROM outbox_workers', $db);
	$node->sql('SELECT outbox_worker_restart()', $db);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_sql(
		"SELECT count(*) = 1 FROM outbox_workers WHERE pid <> $pid AND state IN ('idle', 'publishing')",
		't', undef, $db);
}

sub alter
{
	my ($where, %settings) = @_;
	$node->sql("ALTER $where SET $_ = $settings{$_}")
	  foreach sort keys %settings;
	return;
}

sub reset_all
{
	$node->sql('ALTER DATABASE postgres RESET ALL');
	$node->sql("ALTER ROLE $superuser IN DATABASE postgres RESET ALL");
	return;
}

# Milliseconds from before the enqueue to the broker, of single messages.
sub latencies
{
	my @ms;
	my $session = $node->session;
	foreach my $i (1 .. $SINGLES)
	{
		my $start = time;
		my $id = $session->query_safe(
			q{SELECT outbox_enqueue('single', '{"n": 1}')});
		$id =~ s/\s+//g;
		my $record = wait_until('single message',
			sub { (grep { $_->{id} eq $id } reverse $fake->records)[0] })
		  or last;
		push @ms, ($record->{us} / 1e6 - $start) * 1000;
	}
	$session->quit;
	return @ms;
}

# --- D1 to D4, D8: the relay's session

my @usual = latencies();
note sprintf 'usual: median %.1f ms, p99 %.1f ms', median(@usual),
  percentile(99, @usual);

my @hostile = (
	[ 'D1', 'default_transaction_read_only', { default_transaction_read_only => 'on' } ],
	[
		'D2',
		'lock_timeout and deadlock_timeout of 1 ms',
		{ lock_timeout => "'1ms'", deadlock_timeout => "'1ms'" }
	],
	[
		'D3',
		'timeouts of statements and sessions',
		{
			statement_timeout => "'1ms'",
			idle_in_transaction_session_timeout => "'1ms'",
			idle_session_timeout => "'1ms'",
			map { ($_ => "'1ms'") } @younger_timeouts
		}
	],
	[
		'D4',
		'serializable deferrable by default',
		{
			default_transaction_isolation => 'serializable',
			default_transaction_deferrable => 'on'
		}
	],
	[
		'D8',
		'planner, text forms, replication role',
		{
			session_replication_role => 'replica',
			row_security => 'on',
			jit => 'on',
			(map { ("jit_${_}above_cost" => 0) } '', 'inline_', 'optimize_'),
			(
				map { ("enable_$_" => 'off') }
				  qw(indexscan indexonlyscan bitmapscan tidscan nestloop sort)
			),
			plan_cache_mode => 'force_custom_plan',
			work_mem => "'64kB'",
			bytea_output => 'escape',
			DateStyle => 'German',
			IntervalStyle => 'sql_standard',
			TimeZone => "'Asia/Kathmandu'",
			client_encoding => 'LATIN1',
			@odd_strings,
			array_nulls => 'off',
			transform_null_equals => 'on',
			quote_all_identifiers => 'on',
			extra_float_digits => -15,
			default_toast_compression => 'pglz'
		}
	]);

# A lock that the relay has to wait for, and that the 1 ms would not see end.
sub lock_for_a_moment
{
	$node->sql('BEGIN; LOCK TABLE outbox; SELECT pg_sleep(0.05); COMMIT')
	  foreach 1 .. 3;
	return;
}

foreach my $case (@hostile)
{
	my ($number, $what, $settings) = @$case;
	alter('DATABASE postgres', %$settings);
	alter("ROLE $superuser IN DATABASE postgres", %$settings);
	restart_worker();
	flows($number, "$what, of the database and the relay's role",
		meanwhile => \&lock_for_a_moment);
	if ($number eq 'D8')
	{
		my @ms = latencies();
		note sprintf 'D8: median %.1f ms, p99 %.1f ms', median(@ms),
		  percentile(99, @ms);
		cmp_ok(median(@ms), '<', 3 * median(@usual) + 50,
			'D8: a message takes no longer than usual');
	}
	reset_all();
}
restart_worker();

# --- D8, D5: the producer's session

my %planner = map { $_ => 'off' } map { "enable_$_" }
  qw(seqscan indexscan indexonlyscan bitmapscan tidscan nestloop sort);
flows(
	'D8',
	'planner, jit and plan cache of the producer',
	messages => 80,
	producer => {
		%planner,
		row_security => 'on',
		jit => 'on',
		jit_above_cost => 0,
		jit_inline_above_cost => 0,
		jit_optimize_above_cost => 0,
		plan_cache_mode => 'force_generic_plan',
		work_mem => '64kB',
		DateStyle => 'German',
		bytea_output => 'escape',
		@odd_strings
	});

# For what a function enqueues the triggers fire all the same.
flows(
	'D8',
	'session_replication_role = replica of the producer',
	producer => { session_replication_role => 'replica' });

# Settings of the database reach it at the next reload, and not when it looks at its tables.
{
	my $pid = $node->sql('SELECT pid FROM outbox_workers');

	$node->sql(q{ALTER DATABASE postgres SET work_mem = '5MB'});
	$node->sql('ALTER TABLE outbox SET (fillfactor = 90)');
	$node->sql(q{SELECT outbox_enqueue('looked', '{}')});
	$node->wait_drained;
	is($node->sql('SELECT pid FROM outbox_workers'), $pid, 'ALTER DATABASE SET alone does not restart the relay');
	$node->reload;
	$node->wait_sql("SELECT count(*) FROM outbox_workers WHERE pid <> $pid AND state IN ('idle', 'publishing')", 1);
	$node->sql(q{ALTER DATABASE postgres RESET work_mem});
	$node->sql('ALTER TABLE outbox RESET (fillfactor)');
	restart_worker();

	# Also one whose worker could not attach when the reload came: the old setting goes nowhere.
	my $version = $node->sql(q{SELECT extversion FROM pg_extension WHERE extname = 'outbox'});
	$node->sql(q{UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'outbox'});
	$node->sql('SELECT pg_terminate_backend(pid) FROM outbox_workers');
	$node->wait_sql($state, 'version mismatch');
	$node->sql(q{ALTER DATABASE postgres SET outbox.broker_uri = 'amqp://relay@127.0.0.1:2'});
	$node->reload;
	$node->sql(qq{UPDATE pg_extension SET extversion = '$version' WHERE extname = 'outbox'; ALTER EXTENSION outbox UPDATE});
	$node->sql(q{SELECT outbox_enqueue('elsewhere', '{}')});
	ok($node->wait_sql($state, 'broker down'), 'a worker that was not attached at a reload follows it when it is');
	is($node->sql(q{SELECT count(*) FROM outbox WHERE event_type = 'elsewhere'}), 1, 'and publishes to no broker of before');
	$node->sql(q{ALTER DATABASE postgres RESET outbox.broker_uri});
	$node->reload;
	ok($node->wait_drained, 'the next reload has it publish');

	# What is in flight when it leaves for them is waited for, or it would be published again.
	$fake->begin_case('slow confirms');
	$fake->do('answer delay 2000');
	$node->sql(q{SELECT outbox_enqueue('slow confirms', '{}') FROM generate_series(1, 10)});
	ok($node->wait_sql('SELECT sum(in_flight) FROM outbox_workers', 10), 'ten messages are in flight');
	$pid = $node->sql('SELECT pid FROM outbox_workers');
	$node->sql(q{ALTER DATABASE postgres SET work_mem = '5MB'});
	$node->reload;
	ok($node->wait_sql("SELECT count(*) FROM outbox_workers WHERE pid <> $pid", 1), 'its worker leaves');
	$fake->do('forget');
	ok($node->wait_drained, 'another one comes');
	my @sent = $fake->of_case;
	is(scalar @sent, 10, 'and no message is published twice');
	$node->sql(q{ALTER DATABASE postgres RESET work_mem});
	restart_worker();
}

# A pause reaches the relay at the next reload.
$node->sql('SET session_replication_role = replica; SELECT outbox_pause()');
$node->reload;
$node->wait_sql($state, 'paused');
$node->sql('SELECT outbox_resume()');
$node->wait_sql($state, 'idle');

# --- D5: a search_path that leads elsewhere

$node->sql(<<'SQL');
CREATE SCHEMA evil;
CREATE TABLE evil.canary (what text, who text, session text, at timestamptz DEFAULT pg_catalog.now());
CREATE TABLE evil.outbox (LIKE outbox);
CREATE TABLE evil.outbox_route (LIKE outbox_route);
CREATE TABLE evil.outbox_control (LIKE outbox_control);
CREATE TABLE evil.outbox_archive (LIKE outbox_archive);
CREATE ROLE app;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA evil TO PUBLIC;

/* Every operator and function that SQL of ours could mean. */
DO $$
DECLARE
	o record;
	body text;
BEGIN
	FOR o IN
		SELECT oprname, oprleft::regtype AS l, oprright::regtype AS r,
			oprresult::regtype AS t, oprcode::oid::regprocedure::text AS code,
			p.proname
		FROM pg_operator JOIN pg_proc p ON p.oid = oprcode
		WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b'
			AND oprleft IN ('text'::regtype, 'bigint'::regtype, 'integer'::regtype,
				'uuid'::regtype, 'oid'::regtype, 'name'::regtype, 'boolean'::regtype,
				'timestamptz'::regtype, 'interval'::regtype, 'tid'::regtype,
				'double precision'::regtype, 'date'::regtype, 'jsonb'::regtype)
			AND oprright = ANY (ARRAY['text', 'bigint', 'integer', 'uuid', 'oid', 'name',
				'boolean', 'timestamptz', 'interval', 'tid', 'double precision', 'date',
				'jsonb']::regtype[])
			AND oprname IN ('=', '<>', '<', '>', '<=', '>=', '+', '-', '*', '/', '%', '&',
				'||', '~', '~~')
	LOOP
		EXECUTE pg_catalog.format('CREATE OR REPLACE FUNCTION evil.%I(a %s, b %s) RETURNS %s
			LANGUAGE plpgsql SET search_path = pg_catalog AS
			$f$BEGIN INSERT INTO evil.canary VALUES (%L, current_user, session_user);
			RETURN a OPERATOR(pg_catalog.%s) b; END$f$',
			'op_' || o.proname, o.l, o.r, o.t, o.oprname || ' ' || o.l || ' ' || o.r, o.oprname);
		EXECUTE pg_catalog.format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.%I)',
			o.oprname, o.l, o.r, 'op_' || o.proname);
	END LOOP;
	FOR o IN
		SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args,
			prorettype::regtype AS t, pronargs,
			(SELECT string_agg('$' || i, ', ') FROM generate_series(1, pronargs) i) AS given
		FROM pg_proc p
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset
			AND proname IN ('now', 'clock_timestamp', 'format', 'to_char', 'to_regclass',
				'to_date', 'right', 'current_database', 'quote_ident', 'current_schemas',
				'pg_control_system', 'hashtext', 'to_jsonb', 'jsonb_build_object')
			AND provariadic = 0 AND prorettype <> 'record'::regtype
	LOOP
		EXECUTE pg_catalog.format('CREATE FUNCTION evil.%I(%s) RETURNS %s
			LANGUAGE plpgsql SET search_path = pg_catalog AS
			$f$BEGIN INSERT INTO evil.canary VALUES (%L, current_user, session_user);
			RETURN pg_catalog.%I(%s); END$f$',
			o.proname, o.args, o.t, o.proname, o.proname, coalesce(o.given, ''));
	END LOOP;
END
$$;
CREATE FUNCTION evil.outbox_key_hash(text, text, text) RETURNS bigint LANGUAGE sql AS
	$$INSERT INTO evil.canary VALUES ('outbox_key_hash', current_user, session_user) RETURNING 1::bigint$$;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes, outbox_enqueue_text, outbox_enqueue_batch TO app;
GRANT SELECT ON outbox_status, outbox_workers TO app;
GRANT EXECUTE ON FUNCTION outbox_internal.outbox_relay_state, outbox_internal.outbox_worker_stats, outbox_internal.outbox_backlog,
	outbox_database_stats, outbox_internal.outbox_problem_list, outbox_internal.outbox_claims TO app;
SQL
my $canaries = $node->sql(
	q{SELECT count(*) FROM pg_operator WHERE oprnamespace = 'evil'::regnamespace});
cmp_ok($canaries, '>', 80, "D5: $canaries operators are there to be called");
my $called = q{SELECT DISTINCT what, who FROM evil.canary};
is($node->sql("SET search_path = evil, pg_catalog; SELECT 'a'::text = 'b'::text; $called"),
	"f\n= text text|$superuser", 'D5: and would say so');
$node->sql('TRUNCATE evil.canary');

# Each part of the enqueue side, by a role that may do no more than that, in a
# session that has not planned anything yet.  (Errors are told: a trojan may not
# write everywhere.)
$node->sql('TRUNCATE test_sent');
my $before = @{ [ $fake->records ] };
foreach my $call (
	q{public.outbox_enqueue('evil.event', '{"a": 1}', aggregate_type => 't', aggregate_id => 'k', headers => '{"h": "1", "n": 2}', properties => '{"priority": 1}')},
	q{public.outbox_enqueue('evil.event', '{"a": 2}', aggregate_type => 't', aggregate_id => 'k', available_at => pg_catalog.now())},
	q{public.outbox_enqueue_bytes('evil.event', '\x00ff', content_type => 'text/plain', properties => '{"app_id": "a"}')},
	q{public.outbox_enqueue_text('evil.event', '{"a": 3}', headers => '{"h": "1"}', properties => '{"priority": 1}', available_at => '2000-01-01', message_id => '01890a5d-ac96-774b-bcce-b302099a8057')},
	q{public.outbox_enqueue_batch('[{"event_type": "evil.event", "payload": {"a": 4}, "aggregate_type": "t", "aggregate_id": 7, "headers": {"h": "1"},
		"properties": {"priority": 1}, "available_at": "2000-01-01"}]')},
	q{public.outbox_enqueue_batch('[{"event_type": "evil.event", "body_base64": "AP8=", "content_type": "text/plain", "properties": {"app_id": "a"}}]')}
  )
{
	my ($rc, $out, $err) = $node->psql('postgres', <<"SQL", on_error_stop => 1);
SET ROLE app;
SET search_path = evil, pg_catalog, public;
SELECT $call;
SQL
	is($rc, 0, 'D5: enqueue with a hostile search_path') or diag $err;
	$node->sql("INSERT INTO test_sent VALUES (nextval('test_sent_n'), '$out', NULL)")
	  if $rc == 0;
}
my ($id) = $node->sql(<<'SQL');
SET search_path = evil, pg_catalog, public;
WITH i AS (INSERT INTO public.outbox (event_type, payload, aggregate_id) VALUES ('evil.event', '{}', 'k') RETURNING id)
	SELECT id FROM i;
SQL
$node->sql("INSERT INTO test_sent VALUES (nextval('test_sent_n'), '$id', NULL)");
$node->sql(<<'SQL');
SET search_path = evil, pg_catalog, public;
SET client_min_messages = error;
UPDATE public.outbox_route SET max_attempts = 7 WHERE public.outbox_route.name OPERATOR(pg_catalog.=) 'default';
INSERT INTO public.outbox_route (name, routing_key) VALUES ('extra', '{event_type}.x');
INSERT INTO public.outbox_route (name, exchange_type) VALUES ('default', 'topic') ON CONFLICT DO NOTHING;
DELETE FROM public.outbox_route WHERE public.outbox_route.name OPERATOR(pg_catalog.=) 'extra';
SELECT public.outbox_pause('default'), public.outbox_resume('default'), public.outbox_pause(), public.outbox_resume();
SELECT public.outbox_requeue_failed('default', 'x', 'y', 'z', 'w', '2000-01-01', 5);
SELECT public.outbox_discard(public.outbox_uuid7()), public.outbox_adopt();
SELECT outbox_internal.outbox_archive_maintain('1 day');
TABLE public.outbox_status;
TABLE public.outbox_workers;
TABLE public.outbox_messages;
TABLE public.outbox_failed;
SQL
is($node->sql($called), '', 'D5: no trojan of a caller was called');
$node->wait_drained;
my @records = $fake->records;
splice @records, 0, $before;
$checker{postgres}->check(
	'D5: messages of producers with a hostile search_path', \@records,
	case => 'D5: hostile search_path of the producer');

$node->sql('TRUNCATE evil.canary');
alter('DATABASE postgres', search_path => 'evil, pg_catalog, public');
alter("ROLE $superuser IN DATABASE postgres", search_path => 'evil, pg_catalog, public');
restart_worker();
flows('D5', "trojans in the search_path of the database and of the relay's role");
is($node->sql($called), '', 'D5: no trojan was called by the relay');
reset_all();
restart_worker();

# --- D6, D11: row level security, forced, without a policy; and the role that
# the relay runs as, which is the owner of the table outbox

my @tables = qw(outbox outbox_route outbox_control outbox_archive);

sub row_security
{
	my ($what, $db) = @_;
	$node->sql("ALTER TABLE $_ $what ROW LEVEL SECURITY", $db)
	  foreach @tables;
	return;
}

# A table that is given away is refused: worker_ladder.pl
row_security('ENABLE');
row_security('FORCE');
flows('D6', 'row level security forced on all tables, of a superuser');
restart_worker();
flows('D6', 'the same, a new worker');
row_security('NO FORCE');
row_security('DISABLE');

# The extension of an owner who is not superuser any more.
$node->sql(<<'SQL');
CREATE ROLE keeper SUPERUSER;
CREATE DATABASE kept OWNER keeper;
SQL
$node->sql('SET ROLE keeper; CREATE EXTENSION outbox; RESET ROLE; ALTER ROLE keeper NOSUPERUSER', 'kept');
$checker{kept} = OutboxTest::Checker->install($node, dbname => 'kept');
flows('D11', 'the owner is not superuser', db => 'kept');
row_security('ENABLE', 'kept');
row_security('FORCE', 'kept');
like(
	$node->sql_fails(q{SELECT outbox_enqueue('e', '{}')}, 'kept'),
	qr/row-level security policy for table "outbox"/,
	'D6: forced, without a policy that lets it in: enqueue is refused');
$node->sql('CREATE POLICY all_messages ON outbox USING (true)', 'kept');
flows('D6', 'row level security forced, of an owner who is not superuser', db => 'kept');
restart_worker('kept');
flows('D6', 'the same, a new worker of that owner', db => 'kept');
row_security('NO FORCE', 'kept');

# With messages on their way.
foreach my $change (
	[ 'renamed', 'ALTER ROLE keeper RENAME TO guardian' ],
	[
		'NOLOGIN CONNECTION LIMIT 0',
		'ALTER ROLE guardian NOLOGIN CONNECTION LIMIT 0'
	])
{
	my ($what, $command) = @$change;
	flows('D11', "owner $what", db => 'kept',
		meanwhile => sub { $node->sql($command, 'kept') });
	restart_worker('kept');
	flows('D11', "owner $what, a new worker", db => 'kept');
}
$node->sql('CREATE ROLE heir; REASSIGN OWNED BY guardian TO heir; DROP ROLE guardian',
	'kept');
flows('D11', 'owner dropped, after REASSIGN OWNED', db => 'kept');
is($node->sql(q{SELECT relowner::regrole FROM pg_class WHERE oid = 'outbox'::regclass}, 'kept'),
	'heir', 'D11: that was the owner');
like($node->sql_fails('DROP ROLE heir'), qr/cannot be dropped/,
	'D11: the owner cannot be dropped while there are its tables');
$node->sql('DROP DATABASE kept');

# --- C16: the relay is not part of anybody's serialization failure

# Each producer has a table of its own: in a common one they would fail because of
# each other, relay or not, as soon as it is read by a sequential scan.
$node->sql("CREATE TABLE account_$_ (n int NOT NULL); INSERT INTO account_$_ VALUES (0)")
  foreach 0 .. 7;
my $script = "$PostgreSQL::Test::Utils::tmp_check/settings_serializable.sql";
unlink $script;
append_to_file($script, <<'SQL');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT n FROM account_:client_id;
UPDATE account_:client_id SET n = n + 1;
SELECT test_enqueue(2, 1, 'ser' || :client_id || '.');
COMMIT;
SQL
$node->sql('TRUNCATE test_sent');
$before = @{ [ $fake->records ] };
my ($out, $err) = ('', '');
IPC::Run::run(
	[
		'pgbench', '-n', '-c', 8, '-j', 2, '-t', $FULL ? 1000 : 60,
		'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres'
	],
	'<', \undef, '>', \$out, '2>', \$err) or diag "pgbench: $err";
like($out, qr/number of failed transactions: 0 /,
	'C16: serializable producers: no serialization failure');
$node->wait_drained;
@records = $fake->records;
splice @records, 0, $before;
$checker{postgres}->check(
	'C16: serializable producers under load', \@records,
	case => 'C16: serializable producers');

# --- D10: everything is logged

my $offset = $node->log_end;
my %logging = (
	log_statement => 'all',
	log_min_duration_statement => '0',
	log_parameter_max_length => '-1',
	log_parameter_max_length_on_error => '-1',
	log_error_verbosity => 'verbose',
	log_min_messages => 'debug1',
	debug_print_plan => 'off',
	log_connections => 'on',
	'auto_explain.log_min_duration' => '0',
	'auto_explain.log_nested_statements' => 'on',
	'auto_explain.log_analyze' => 'on',
	'auto_explain.log_verbose' => 'on');
$node->sql(join ';', map { "ALTER SYSTEM SET $_ = '$logging{$_}'" } sort keys %logging);
$node->sql('SELECT pg_reload_conf()');
restart_worker();
$id = $node->sql(qq{SELECT outbox_enqueue('logged', '{"p": "$PAYLOAD"}', headers => '{"h": "$PAYLOAD"}')});
$fake->do('when type=refused : nack');
$node->sql(q{UPDATE outbox_route SET max_attempts = 1});
$node->sql(qq{SELECT outbox_enqueue('refused', '{"p": "$PAYLOAD"}')});
$node->wait_sql(q{SELECT count(*) FROM outbox_failed}, 1);
$fake->do('now rst');
$node->sql('SELECT outbox_requeue_failed()');
$node->wait_sql(q{SELECT count(*) FROM outbox_failed}, 1);
$node->sql('SELECT outbox_discard(id) FROM outbox_failed');
$node->sql('ALTER SYSTEM RESET ALL');
$node->sql('SELECT pg_reload_conf()');
my $log = $node->log_text($offset);
unlike($node->log_text(0), qr/\Q$PASSWORD\E/, 'D10: the password is nowhere in the log');
like($log, qr/outbox relay .*(plan|Query Text)/s, 'D10: the relay\'s statements are logged');
my @exposed = grep { /\Q$PAYLOAD\E/ && /outbox (relay|launcher)/ } split /\n/, $log;
is(scalar @exposed, 0, 'D10: no payload in the relay\'s lines');
like($log, qr/client backend .*\Q$PAYLOAD\E/, 'D10: and in those of the producer, as documented');
is( $node->sql("SELECT count(*) FROM pg_settings s WHERE s::text LIKE '%$PASSWORD%'")
	  + $node->sql("SELECT count(*) FROM pg_file_settings s WHERE s::text LIKE '%$PASSWORD%'"),
	0,
	'D10: the password is in no setting');

# --- all of it

unlike($node->log_text(0), qr/TRAP:|PANIC:|terminated by signal/,
	'no process crashed');
$node->stop;

# --- a URI that cannot be used, set before the library was preloaded

my $early = OutboxTest::Node->create(name => 'early', broker => $fake, preload => 0, extension => 0);
$early->sql(q{ALTER ROLE ALL SET outbox.broker_uri = 'http://nowhere'});
$early->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\noutbox.broker_uri = '" . $fake->uri . q{'});
$early->restart;
$fake->begin_case('set early');
$early->sql('CREATE EXTENSION outbox');
foreach my $whose ('all roles', 'the role of the workers')
{
	$early->sql(q{SELECT outbox_enqueue('set early', '{}')});
	$early->wait_sql('SELECT state, reason FROM outbox_workers', 'config error|URI unusable');
	is(scalar(() = $fake->of_case), 0, "set early for $whose: nothing goes to another broker");
	$early->sql('UPDATE pg_db_role_setting SET setrole = 10; SELECT outbox_worker_restart()');
}
$early->stop;
done_testing();
