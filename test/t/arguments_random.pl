# Every function of the extensions, those for nobody too, with any arguments that SQL
# can make, in sessions in odd states: H13 of doc/dev/fault-cases.md.  By a superuser, and by a
# role that may execute all of them and nothing else.  Whatever comes out, no
# process ends, and no error is one that "cannot happen" (class XX).
#
# Each function is called in a few of these states, always the same calls of the same
# catalog.  OUTBOX_TEST_CALLS=N: N times in each of them, others each time; on servers
# that watch memory (make test-sanitize TESTS=arguments_random) by default 3 times.
#
# suite: test
# takes: 9 s

use strict;
use warnings;

use DBI;
use List::Util qw(shuffle);
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Arguments;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $LONG = $ENV{OUTBOX_TEST_CALLS} // ($ENV{SANITIZER} ? 3 : 0);
my $CALLS = $LONG || 3;

# What is found by chance is for whoever looks for it.
$ENV{OUTBOX_SEED} //= 15 unless $LONG;
seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.retry_max = 1s\nmax_locks_per_transaction = 256");
my (%of_state, %failed, $calls);

# What runs a text, in places where a function may be called from.
sub prepare
{
	my ($server) = @_;

	$server->sql($_) foreach (
		'CREATE EXTENSION outbox_inbox', 'CREATE ROLE tried LOGIN', 'GRANT CREATE, USAGE ON SCHEMA public TO tried',
		'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO tried',
		<<'SQL',
CREATE FUNCTION run(call text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE 'SELECT count(x) FROM (SELECT ' || call || ' AS x) c' INTO n;
	RETURN n;
END
$$
SQL
		<<'SQL',
CREATE FUNCTION run_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.run(NEW.call);
	RETURN NEW;
END
$$
SQL
		'CREATE TABLE at_once (call text)', 'CREATE TABLE at_commit (call text)',
		'CREATE TABLE indexed AS SELECT 1 AS one',
		'CREATE TRIGGER t BEFORE INSERT ON at_once FOR EACH ROW EXECUTE FUNCTION run_trigger()',
		'CREATE CONSTRAINT TRIGGER t AFTER INSERT ON at_commit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION run_trigger()',
		'GRANT ALL ON at_once, at_commit TO PUBLIC', 'ALTER TABLE indexed OWNER TO tried');
	return;
}

# Ways to say it.
sub statement
{
	my ($function, $call) = @_;
	my @ways = (
		"SELECT $call",
		"SELECT * FROM $call",
		"SELECT $call FROM generate_series(1, 3)",
		"SELECT count(*) FROM generate_series(1, 3) n, LATERAL $call WITH ORDINALITY f",
		"SELECT count(*) FROM ROWS FROM ($call, $call) f",
		"SELECT (SELECT count(*) FROM (SELECT $call LIMIT 1) f)",
		"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF) SELECT $call",
		"DO \$d\$ BEGIN PERFORM $call; EXCEPTION WHEN OTHERS THEN PERFORM $call; END \$d\$",
		"SELECT 1; PREPARE q AS SELECT $call; EXECUTE q; EXECUTE q; DEALLOCATE q");

	push @ways, "SELECT CASE WHEN $call IS NULL THEN 1 END", "SELECT row($call)" unless $function->{set};
	return pick(@ways);
}

# name => what to run, of a statement and a call, as one string; whatever it leaves
# open ROLLBACK ends.
my $parallel = $node->sql('SHOW server_version_num') >= 160000 ? 'debug_parallel_query' : 'force_parallel_mode';
my %states = (
	'transaction' => sub { "BEGIN; $_[0]; ROLLBACK" },
	'subtransaction' => sub { "BEGIN; SAVEPOINT a; SAVEPOINT b; $_[0]; ROLLBACK TO a; RELEASE a; $_[0]; ROLLBACK" },
	'read only' => sub { "BEGIN READ ONLY; $_[0]; ROLLBACK" },
	'serializable' => sub { "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1; $_[0]; ROLLBACK" },
	'trigger' => sub { "BEGIN; INSERT INTO at_once VALUES (\$c\$$_[1]\$c\$); ROLLBACK" },
	'deferred trigger' =>
	  sub { "BEGIN; INSERT INTO at_commit VALUES (\$c\$$_[1]\$c\$); SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK" },
	'parallel worker' => sub {
		"BEGIN; SET LOCAL $parallel = on; $_[0]; SELECT run(\$c\$$_[1]\$c\$) FROM indexed; ROLLBACK";
	},
	'parallel, forced' =>
	  sub { "BEGIN; SET LOCAL $parallel = on; SELECT run(\$c\$$_[1]\$c\$) FROM indexed; ROLLBACK" },
	'index' => sub { "BEGIN; CREATE INDEX ON indexed ((run(\$c\$$_[1]\$c\$))); ROLLBACK" },
	'held cursor' => sub {
		"BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT $_[1] FROM generate_series(1, 2); FETCH c; CLOSE c; ROLLBACK";
	},
	'as a restore' => sub {
		"BEGIN; SET LOCAL check_function_bodies = off; SET LOCAL search_path = ''; $_[0]; ROLLBACK";
	},
	'little memory' => sub {
		"BEGIN; SET LOCAL work_mem = '64kB'; $_[0]; ROLLBACK";
	},
	'generic plans' => sub { "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; $_[0]; $_[0]; ROLLBACK" },
	'by itself' => sub { $_[0] });

# A failed transaction takes no statement; what has prepared it before is none.
$states{'failed'} = sub { "BEGIN; PREPARE q AS SELECT $_[1]; SAVEPOINT a; SELECT 1/0" };

sub connect_as
{
	my ($server, $role) = @_;
	my $dbh = DBI->connect('dbi:Pg:' . $server->connstr('postgres') . " user=$role",
		'', '', { PrintError => 0, RaiseError => 0, PrintWarn => 0, AutoInactiveDestroy => 1 });
	$dbh or BAIL_OUT("no session of $role: " . DBI->errstr);
	$dbh->do(q{SET statement_timeout = '300ms'; SET client_min_messages = error});
	return $dbh;
}

# Runs it; its SQLSTATE, or "lost" where the session is gone.
sub outcome
{
	my ($dbh, $sql) = @_;

	return '00000' if defined $dbh->do($sql);
	my $state = $dbh->state;
	return $state =~ /^(?:08|S8|57P|S1)/ || !$dbh->ping ? 'lost' : $state;
}

sub try
{
	my ($server, $dbh, $role, $state, $function, $plain) = @_;
	my $call = OutboxTest::Arguments::call($function, $plain);
	my $sql = $states{$state}->(statement($function, $call), $call);
	my $outcome = outcome($$dbh, $sql);

	$calls++;
	$of_state{$outcome}++;
	if ($state eq 'failed')
	{
		outcome($$dbh, $_) foreach ('EXECUTE q', "SELECT $call", 'ROLLBACK TO a', 'EXECUTE q', 'DEALLOCATE q');
	}
	if ($outcome eq 'lost' || $outcome =~ /^XX/)
	{
		my $error = $$dbh->errstr // '';
		diag "$outcome, $role, $state: " . substr($sql, 0, 2000) . "\n$error" if $failed{$outcome}++ < 20;
	}
	if ($outcome eq 'lost')
	{
		$server->wait_sql('SELECT true');
		$$dbh = connect_as($server, $role);
	}
	outcome($$dbh, $_) foreach ('ROLLBACK', 'DEALLOCATE ALL');
	return;
}

# What is tried on a server by a role: each function so many times in states of those.
sub try_all
{
	my ($server, $role, @states) = @_;
	my $dbh = connect_as($server, $role);

	foreach my $function (grep { !$_->{trigger} } OutboxTest::Arguments::functions($server))
	{
		my @tried = $LONG ? (@states) x $CALLS : (shuffle @states)[ 0 .. $CALLS - 1 ];

		try($server, \$dbh, $role, $_, $function, rand() < 0.1) foreach grep { defined } @tried;
	}
	return;
}

# Functions for triggers, on tables that are not theirs.
sub try_triggers
{
	my ($server, $role) = @_;
	my $dbh = connect_as($server, $role);
	my %shapes = (
		'of no column' => '()',
		'of their names' => '(seq text, id integer, event_type bytea, payload text, route jsonb, status integer, name integer, paused text)',
		'with some' => '(id uuid, route text, event_type text)',
		'a copy of outbox' => '(LIKE public.outbox INCLUDING DEFAULTS)',
		'a copy of outbox_route' => '(LIKE public.outbox_route INCLUDING DEFAULTS)',
		'a copy of outbox_control' => '(LIKE public.outbox_control INCLUDING DEFAULTS)',
		'partitioned' => '(id uuid, route text) PARTITION BY LIST (route)');

	foreach my $function (grep { $_->{trigger} } OutboxTest::Arguments::functions($server))
	{
		my @tried = sort keys %shapes;

		@tried = (shuffle @tried)[ 0, 1 ] unless $LONG;
		foreach my $shape (@tried)
		{
			foreach my $when (
				'BEFORE INSERT OR UPDATE OR DELETE ON odd FOR EACH ROW',
				'AFTER INSERT OR UPDATE OR DELETE ON odd FOR EACH ROW',
				'BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON odd FOR EACH STATEMENT',
				'AFTER INSERT ON odd REFERENCING NEW TABLE AS n FOR EACH STATEMENT',
				'AFTER UPDATE ON odd REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT')
			{
				next if $shape eq 'partitioned' && $when =~ /TRUNCATE/;
				my $args = pick('', '', q{''}, q{'event_type', 'x', 'payload', '{}'}, q{'a', 'b', 'c'});
				my $sql = "BEGIN; CREATE TABLE odd $shapes{$shape}; "
				  . ($shape eq 'partitioned' ? 'CREATE TABLE odd_1 PARTITION OF odd DEFAULT; ' : '')
				  . "CREATE TRIGGER t $when EXECUTE FUNCTION $function->{name}($args); SAVEPOINT a";

				my $outcome = outcome($dbh, $sql);
				foreach my $change (
					'INSERT INTO odd DEFAULT VALUES',
					"ALTER TABLE odd DISABLE TRIGGER t; INSERT INTO odd DEFAULT VALUES; ALTER TABLE odd ENABLE TRIGGER t; SAVEPOINT a",
					'UPDATE odd SET ' . ($shape =~ /route/ ? q{name = 'x'} : $shape =~ /control/ ? 'paused = true' : 'id = NULL'),
					'DELETE FROM odd', 'TRUNCATE odd')
				{
					$outcome = outcome($dbh, $change) if $outcome ne 'lost';
					$calls++;
					$of_state{$outcome}++;
					if ($outcome eq 'lost' || $outcome =~ /^XX/)
					{
						diag "$outcome, $role: $sql; $change\n" . ($dbh->errstr // '') if $failed{$outcome}++ < 20;
					}
					outcome($dbh, 'ROLLBACK TO a') if $outcome ne '00000' && $outcome ne 'lost';
				}
				if ($outcome eq 'lost')
				{
					$server->wait_sql('SELECT true');
					$dbh = connect_as($server, $role);
				}
				outcome($dbh, 'ROLLBACK');
			}
		}
	}
	return;
}

# The server has the processes that it had, and says so.
sub verdict
{
	my ($server, $started, $what) = @_;

	is($server->sql('SELECT pg_postmaster_start_time()'), $started, "$what: the server runs");
	my @lines = grep { /terminated by signal|TRAP:|PANIC:/ } split /\n/, $server->log_text;
	is(scalar(@lines), 0, "$what: none of its processes has died") or diag join "\n", @lines[ 0 .. 5 ];
	my @never = grep { /ERROR:  XX|FATAL:  XX/ } split /\n/, $server->log_text;
	is(scalar(@never), 0, "$what: no error that cannot happen, of the relay neither") or diag join "\n", @never[ 0 .. 5 ];
	is_deeply(\%failed, {}, "$what: nor seen by a client");
	cmp_ok($of_state{'00000'} // 0, '>', $calls / 10, "$what: many of the calls go through");
	note "$calls calls so far; outcomes: " . join ', ', map { "$_ $of_state{$_}" } sort keys %of_state;
	return;
}

# --- preloaded

my ($superuser) = $node->sql('SELECT current_user');
my $started = $node->sql('SELECT pg_postmaster_start_time()');
my @rolled_back = grep { $_ ne 'by itself' } sort keys %states;

prepare($node);
$node->set('log_error_verbosity', 'verbose');
my @functions = OutboxTest::Arguments::functions($node);
cmp_ok(scalar(@functions), '>', 100, @functions . ' functions');
try_all($node, $superuser, @rolled_back);
# what lasts: a session of the superuser that commits any call may drop our tables
try_all($node, 'tried', sort keys %states);
try_triggers($node, $_) foreach ($superuser, 'tried');
verdict($node, $started, 'preloaded');
# one of the calls may have paused the database, or the route
$node->sql(q{SELECT public.outbox_resume(), public.outbox_resume('default'), public.outbox_adopt()});
my $id = $node->sql(q{SELECT public.outbox_enqueue('after', '{}')});
$node->wait_sql("SELECT NOT EXISTS (SELECT FROM outbox WHERE id = '$id')")
  or diag($node->sql('SELECT s.state, s.hint, p.problem, p.subject, p.detail FROM outbox_status s LEFT JOIN outbox_problems p ON true'));
ok((grep { $_->{id} eq $id } $fake->records), 'and the relay publishes');
$node->stop;

# --- the library in a session only

my $plain = OutboxTest::Node->create(name => 'plain', preload => 0);
$started = $plain->sql('SELECT pg_postmaster_start_time()');
prepare($plain);
$plain->set('log_error_verbosity', 'verbose');
try_all($plain, 'tried', 'by itself', 'parallel worker', 'failed');
verdict($plain, $started, 'not preloaded');

done_testing();
