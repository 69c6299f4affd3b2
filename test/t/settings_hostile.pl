# Every setting that somebody can set for a database or a role, with values that could do harm
# (group D of doc/dev/fault-cases.md): messages are the same in every byte as those of a database without
# them, nothing stalls, and functions for operators say the same.  The settings are those that the
# server says it has, so newer servers are tried with theirs.
#
# Many are set at once, in rounds, each with another value of each; of a round that fails
# the setting that does it is looked for.
#
# OUTBOX_TEST_FULL=1: each value of each setting by itself, an hour.
# OUTBOX_TEST_CASE=REGEXP: only settings of such names.
#
# suite: test faults
# takes: 20 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Settings;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $ONLY = $ENV{OUTBOX_TEST_CASE} // '';
my $ROUNDS = $FULL ? 5 : 4;
my $SINGLES = 5;
my $SINGLE_S = 10;

# Longer than what a session itself waits for; and what operators' functions may take, which wait
# for nothing (measured 2 s; 49 s as a join of outbox_problems multiplied catalogs).
my $SESSION_S = 2 * $TIMEOUT;
my $OPERATORS_S = $TIMEOUT;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	extension => 0,
	conf => <<"END");
outbox.retry_initial = 10ms
outbox.retry_max = 20ms
autovacuum_naptime = 1d
END
my ($superuser) = $node->sql('SELECT current_user');
my @PLACES = (
	'DATABASE hostile', "ROLE $superuser IN DATABASE hostile",
	"ROLE $superuser", 'ROLE ALL');

# What only denies a session its own work, and what our own sessions need.
my %OURS = (
	default_transaction_isolation => 'read\\ committed',
	default_transaction_read_only => 'off',
	transaction_read_only => 'off',
	statement_timeout => 0,
	lock_timeout => 0,
	idle_in_transaction_session_timeout => 0,
	idle_session_timeout => 0,
	transaction_timeout => 0,
	search_path => 'public',
	role => 'none',
	session_authorization => 'default',
	session_preload_libraries => '',
	local_preload_libraries => '',
	session_replication_role => 'origin',
	restrict_nonsystem_relation_kind => '',
	client_encoding => 'UTF8',
	dynamic_library_path => '$libdir',
	temp_file_limit => -1,
	# Plans that such a session has forbidden cost so much that all of them are compiled.
	jit => 'off');

# --- two databases: one whose settings are the server's

# A table of everything that has another text under other settings, captured by row and by
# statement; routes; and an extension whose owner is not superuser.
my $SETUP = <<'SQL';
CREATE TABLE thing (id int PRIMARY KEY, f8 float8, f4 float4, n numeric, t timestamptz, d date,
	i interval, b bytea, m money, x xml, a int[], j jsonb, r tstzrange, l bool, s text);
CREATE TRIGGER thing_changed AFTER INSERT OR UPDATE OR DELETE ON thing
	FOR EACH ROW EXECUTE FUNCTION outbox_capture('key=id,f8,t,i,b');
CREATE TABLE many (LIKE thing, PRIMARY KEY (id));
CREATE TRIGGER many_inserted AFTER INSERT ON many REFERENCING NEW TABLE AS new_rows
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture();
INSERT INTO outbox_route (name, routing_key, max_attempts) VALUES
	('poison', '{event_type}', 1), ('replay', '{event_type}', 5), ('edited', '{event_type}', 1);
INSERT INTO outbox_route (name, relay, retention) VALUES ('ext', 'external', NULL), ('kept', 'internal', '3 days');
UPDATE outbox_route SET routing_key = '{event_type}.{aggregate_type}', max_attempts = 9 WHERE name = 'default';
SQL
$node->sql('CREATE ROLE keeper SUPERUSER; CREATE ROLE stranger; CREATE SCHEMA hostile');
foreach my $db (qw(control hostile))
{
	$node->sql("CREATE DATABASE $db OWNER keeper");
	$node->sql("SET ROLE keeper; CREATE EXTENSION outbox; $SETUP", $db);
}
$node->sql('ALTER ROLE keeper NOSUPERUSER');

# Sessions from before there were any settings, which therefore do not have them.
my $admin = $node->client;
my %inside = map { $_ => $node->client($_) } qw(control hostile);

# --- what is done in each of them, and what it says

my $JSON = q{$j${"n": [0.1, 1e300, 1e-7, 12345678901234567890.123456789, -0.0, 100, 1.00, 3.4028235e38], "t": "2026-01-02T03:04:05.6789+05:45", "s": "\u00e4\u20ac\"/ {1,NULL}", "z": null, "b": true, "o": {"a": [1, [2.50, []]]}}$j$};
my $HEADERS = q{$j${"i": 9007199254740993, "d": 0.1, "e": 1e100, "s": "\u00e4", "b": false, "z": null, "a": [1, 2.5, "x"], "o": {"k": -1.5e-9}}$j$};
my $PROPERTIES = q{$j${"priority": 3, "expiration": "60000000", "app_id": "\u00fc", "correlation_id": "1e3", "content_encoding": "utf-8"}$j$};
my $ROW = q{0.1::float8 + 0.2, 1.1::float4, 12345.6700, make_timestamptz(2026, 2, 3, 4, 5, 6.789, 'UTC'),
	make_date(2026, 2, 3), make_interval(1, 2, 0, 3, -4, 5, 6.5), decode('00ff5c27', 'hex'), 1234.5::numeric::money,
	'<a b="1"/>'::xml, ARRAY[1, NULL, 3], '{"f": 1.10}'::jsonb,
	tstzrange(make_timestamptz(2026, 2, 3, 4, 5, 6, 'UTC'), NULL), true, chr(228) || chr(92) || chr(8364)};

# \if: psql's own literal of a text that has a backslash would be read by the session's rules.
my $ENQUEUE = <<"SQL";
SELECT extract(epoch FROM clock_timestamp()) AS start \\gset
SELECT outbox_enqueue('json', $JSON, 'kind', 'k1', $HEADERS, properties => $PROPERTIES) AS first \\gset
SELECT 'enqueued', count(outbox_enqueue('json', $JSON, 'kind', 'k' || i % 3, jsonb_build_object('i', i, 'd', i / 8::numeric)))
	FROM generate_series(1, 30) i;
SELECT 'bytes', outbox_enqueue_bytes('bytes', decode('00ff5c27800a0d', 'hex'), 'kind', 'k1', $HEADERS, content_type => 'a/b') IS NOT NULL;
SELECT 'text', outbox_enqueue_text('text', $JSON, 'kind', 'k2', $HEADERS, properties => $PROPERTIES, available_at => '2000-01-01T00:00:00Z') IS NOT NULL;
SELECT 'batch', count(*) FROM outbox_enqueue_batch(jsonb_build_array(
	jsonb_build_object('event_type', 'batch', 'payload', $JSON\::jsonb, 'aggregate_type', 'kind', 'aggregate_id', 7, 'headers', $HEADERS\::jsonb, 'properties', $PROPERTIES\::jsonb, 'available_at', '2000-01-01T00:00:00Z'),
	jsonb_build_object('event_type', 'batch.bytes', 'body_base64', 'AP9cJw==', 'content_type', 'text/plain')));
SELECT 'once', outbox_enqueue_once('once' || :start, 'once', $JSON) = outbox_enqueue_once('once' || :start, 'once', $JSON);
INSERT INTO outbox (event_type, payload, headers, aggregate_type, aggregate_id) VALUES ('insert', $JSON, $HEADERS, 'kind', 'k1');
INSERT INTO outbox_new (event_type, body, properties) VALUES ('new', decode('00ff', 'hex'), $PROPERTIES);
COPY outbox (event_type, payload, headers, aggregate_id) FROM stdin (FORMAT csv, QUOTE '~', DELIMITER '|');
copy|{"n": [0.1, 1e300, 12345678901234567890.123456789]}|{"d": 0.25}|c
\\.
INSERT INTO thing SELECT :n, $ROW;
UPDATE thing SET n = n + 0.10, t = t + interval '1 day' WHERE id = :n;
DELETE FROM thing WHERE id = :n;
INSERT INTO many SELECT 1, $ROW;
DELETE FROM many;
SELECT 'refused', outbox_enqueue('again', $JSON, 'kind', 'again') IS NOT NULL;
SELECT 'to fail', outbox_enqueue('poison', \$j\${"n": 1.50}\$j\$, route => 'poison') IS NOT NULL,
	outbox_enqueue('poison', '{}', route => 'edited') IS NOT NULL;
SELECT 'external', outbox_enqueue('external', $JSON, 'kind', 'e' || i, $HEADERS, 'ext') IS NOT NULL FROM generate_series(1, 2) i;
SELECT 'kept', outbox_enqueue('kept', '{}', route => 'kept') IS NOT NULL;
SELECT 'replayed', count(outbox_enqueue('replay', jsonb_build_object('i', i), 'kind', 'r', route => 'replay')) FROM generate_series(1, 5) i;
SELECT 'wait', outbox_wait(:'first', make_interval(secs => $TIMEOUT));
SELECT 'start', :start;
SQL

# What is told of a database, or is not, as a machine is slow or a day ends meanwhile.
my $BY_TIME = join ', ', map { "'$_'" } 'replay job', 'queue refuses', 'failed messages', 'worker stopped', 'clock jumped',
  'backlog old', 'external relay missing', 'row locked', 'table locked', 'key held', 'vacuum held back', 'vacuum behind',
  'archive maintenance', 'archive behind', 'archive partition missing';

# What repairs and the like do, and what views say.
my $OPERATE = <<"SQL";
SELECT 'failed', route, event_type, attempts, last_error FROM outbox_failed ORDER BY 1, 2, 3;
SELECT 'edit', outbox_edit(id, payload => $JSON, route => 'replay', reason => 'edited') FROM outbox_failed WHERE route = 'edited';
SELECT 'requeued', outbox_requeue_failed('replay');
SELECT 'discard', outbox_discard_messages('hostile', route => 'poison', created_before => clock_timestamp());
SELECT token, id FROM outbox_claim('ext', 1) \\gset
SELECT 'claimed', event_type, aggregate_id, payload::text, headers::text, attempts FROM outbox_messages WHERE id = :'id';
SELECT 'nack', outbox_nack(:token, :'id', 'not now', make_interval());
SELECT token, array_agg(id) AS ids FROM outbox_claim('ext') GROUP BY token \\gset
SELECT 'extended', outbox_extend(:token) > clock_timestamp();
SELECT 'ack', outbox_ack(:token, :'ids');
SELECT 'replay', outbox_replay(to_timestamp(:start), route => 'replay') > 0;
SELECT 'paused', outbox_pause('kept', 'why'), outbox_resume('kept');
SELECT 'erased', live, history, remaining FROM outbox_erase('kind', 'none');
SELECT 'maintained', count(outbox_internal.outbox_archive_maintain(make_interval(days => 1))) >= 0;
SELECT 'history', outbox_internal.outbox_history_maintain(make_interval(days => 90)), outbox_internal.outbox_once_maintain(make_interval(days => 1), '-infinity');
SELECT 'preflight', "check", ok FROM outbox_preflight('default');
SELECT 'problems', problem, severity FROM outbox_problems WHERE problem NOT IN ($BY_TIME) ORDER BY 2;
SELECT 'metric', name, jsonb_strip_nulls(labels) FROM outbox_metrics WHERE name <> 'outbox_problem' ORDER BY name COLLATE "C", labels::text COLLATE "C";
SELECT 'status', workers, database IS NULL FROM outbox_status;
SELECT 'archive', count(*) > 0 FROM outbox_archive_status;
SELECT 'route', route FROM outbox_routes_status ORDER BY 2;
SELECT 'views', (SELECT count(*) >= 0 FROM outbox_held_keys), (SELECT count(*) >= 0 FROM outbox_progress),
	(SELECT count(*) > 0 FROM outbox_history), (SELECT count(*) > 0 FROM outbox_workers);
SELECT 'top', count(*) > 5 FROM outbox_top();
SQL

# psql in a session that has the settings, but for those that only deny it its own work.
my %there = map { $_ => 1 } split /\n/, $node->sql('SELECT name FROM pg_settings');
my $OPTIONS = join ' ', map { "-c $_=$OURS{$_}" } grep { $there{$_} && $OURS{$_} ne '' } sort keys %OURS;
my $EMPTY = join ' ', map { "-c $_=" } grep { $there{$_} && $OURS{$_} eq '' } sort keys %OURS;

sub session
{
	my ($db, $script, %variables) = @_;
	local $ENV{PGOPTIONS} = "$OPTIONS $EMPTY -c role=none";
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	my ($out, $err) = ('', '');
	my @command = (
		$node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1',
		(map { ('-v', "$_=$variables{$_}") } sort keys %variables),
		'-d', $node->connstr($db));
	my $end = eval {
		IPC::Run::run(\@command, '<', \$script, '>', \$out, '2>', \$err,
			IPC::Run::timeout($SESSION_S));
		1;
	};
	return ($out, "not done in $SESSION_S s") unless $end;
	my $code = $?;
	my @errors = grep { /ERROR|FATAL|PANIC|could not|psql:/ } split /\n/, $err;
	push @errors, "psql ended with $code: $err" if $code && !@errors;
	return ($out, @errors);
}

# Polls by a session of before.  True if it came true.
sub soon
{
	my ($db, $query) = @_;
	my $end = time + $TIMEOUT;
	while (1)
	{
		return 1 if $inside{$db}->query($query) eq 't';
		return 0 if time > $end;
		Time::HiRes::usleep(5000);
	}
}

my $DRAINED = q{SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'pending' AND route <> 'ext')};

# All of it in one database: what arrived, what was said, what went wrong.  With the first that
# goes wrong it ends.
sub cycle
{
	my ($db) = @_;
	my %result = (trouble => [], said => '', messages => []);

	$inside{$db}->query($_)
	  foreach 'DELETE FROM outbox', 'DELETE FROM outbox_internal.outbox_lease', 'UPDATE outbox_job SET ended_at = coalesce(ended_at, now())';
	$fake->begin_case;
	my ($said, @errors) = session($db, $ENQUEUE, n => 1);
	push @{ $result{trouble} }, map { "enqueue: $_" } @errors;
	return \%result if @errors;
	my ($start) = $said =~ s/^start\|(.*)\n//m ? $1 : 0;
	soon($db, $DRAINED)
	  or push @{ $result{trouble} }, 'messages are pending: ' . ($inside{$db}->query('SELECT coalesce(last_error, hint, state) FROM outbox_status') // '');
	return \%result if @{ $result{trouble} };
	my $asked = time;
	my ($told, @wrong) = session($db, $OPERATE, start => $start);
	push @wrong, "not done in $OPERATORS_S s" if !@wrong && time > $asked + $OPERATORS_S;
	push @{ $result{trouble} }, map { "operators: $_" } @wrong;
	return \%result if @wrong;
	soon($db, "$DRAINED AND NOT EXISTS (SELECT FROM outbox_job WHERE ended_at IS NULL)")
	  or push @{ $result{trouble} }, 'messages or jobs are pending';
	$result{said} = $said . $told;
	$result{messages} = [
		sort map {
			my $m = $_;
			join ' ', map { $m->{$_} // '-' } qw(type key exchange aggregate_type aggregate_id size digest fate)
		} $fake->of_case ];
	return \%result;
}

# Milliseconds that a message takes from before its enqueue to the broker: the median of some.
sub single
{
	my ($db) = @_;
	my @ms;

	$fake->begin_case;
	foreach my $i (1 .. $SINGLES)
	{
		my $sent = time;
		my $id = $inside{$db}->query(q{SELECT outbox_enqueue('single', '{"n": 1}')});
		my $came;
		while (!$came)
		{
			return 1000 * $SINGLE_S if time > $sent + $SINGLE_S;
			($came) = grep { $_->{id} eq $id } reverse $fake->of_case;
		}
		push @ms, ($came->{us} / 1e6 - $sent) * 1000;
	}
	return median(@ms);
}

# Others use the machine: it has to be slow each time, compared with what takes its way at the
# same time without settings.
sub slow
{
	my ($ms, $usual);
	foreach (1 .. 4)
	{
		($ms, $usual) = (single('hostile'), single('control'));
		return if $ms < 50 + 3 * $usual;
	}
	return sprintf 'a message takes %.0f ms, usually %.0f', $ms, $usual;
}

# In what the two differ: the first lines of each.
sub differences
{
	my ($what, $expected, $got) = @_;
	my %count;
	$count{$_}++ foreach @$expected;
	$count{$_}-- foreach @$got;
	my @lines = map { ($count{$_} > 0 ? 'missing: ' : 'instead: ') . $_ }
	  grep { $count{$_} != 0 } sort keys %count;
	return map { "$what: $_" } @lines[ 0 .. ($#lines > 5 ? 5 : $#lines) ];
}

sub complaints
{
	my ($control, $result) = @_;
	return @{ $result->{trouble} } if @{ $result->{trouble} };
	return (
		differences('messages', $control->{messages}, $result->{messages}),
		differences('said', map { [ split /\n/, $_->{said} ] } $control, $result));
}

sub rules
{
	$fake->do('forget', 'when type=again times=2 : nack', 'when type=poison : nack');
	return;
}

rules();
soon('control', q{SELECT count(*) > 0 FROM outbox_workers WHERE state IN ('idle', 'publishing')});
# Who makes a partition while a worker makes the same one meets an error, or the worker does.
soon($_, q{SELECT count(*) >= 3 FROM pg_class WHERE relname ~ '^outbox_archive_p[0-9]{8}$'}) foreach qw(control hostile);
cycle('control');
rules();
my $control = cycle('control');
is(join("\n", @{ $control->{trouble} }), '', 'without settings: nothing goes wrong');
cmp_ok(scalar @{ $control->{messages} }, '>', 60, 'messages of all kinds') or diag join "\n", @{ $control->{messages} };
note join "\n", @{ $control->{messages} }, $control->{said};

# --- the settings

sub restart_worker
{
	my ($pid) = $inside{hostile}->query('SELECT pid FROM outbox_workers') || 0;
	$inside{hostile}->query('SELECT outbox_worker_restart()');
	return soon('hostile',
		"SELECT count(*) = 1 FROM outbox_workers WHERE pid <> $pid AND state IN ('idle', 'publishing')");
}

my %refused;

sub trial
{
	my (@pairs) = @_;
	my $offset = $node->log_end;
	$refused{$_}++ foreach set_all($admin, \@PLACES, @pairs);
	my $restarted = restart_worker();
	rules();
	my $result = cycle('hostile');
	my $slow = @{ $result->{trouble} } ? undef : slow();
	reset_all($admin, @PLACES);
	my @log = grep { /outbox (relay|launcher) .*(ERROR|FATAL|PANIC):/ }
	  split /\n/, $node->log_text($offset);
	my @complaints = (
		($restarted ? () : 'no worker'),
		complaints($control, $result),
		$slow // (),
		map { "log: $_" } @log[ 0 .. ($#log > 3 ? 3 : $#log) ]);
	return @complaints;
}

my @all = grep { $_->{name} =~ /$ONLY/ } settings($node);
my $values = 0;
$values += @{ $_->{values} } foreach @all;
note scalar(@all) . " settings, $values values";

# Which of them it was: halves of what fails, until one is left that does it alone.
sub culprits
{
	my ($deadline, @pairs) = @_;
	return "$pairs[0][0] = '$pairs[0][1]'" if @pairs == 1;
	return 'one or several of ' . join ' ', map { $_->[0] } @pairs if time > $deadline;

	my $half = int @pairs / 2;
	my @halves = ([ @pairs[ 0 .. $half - 1 ] ], [ @pairs[ $half .. $#pairs ] ]);
	my @guilty = grep { trial(@$_) } @halves;
	return 'only together: ' . join ' ', map { $_->[0] } @pairs unless @guilty;
	return map { culprits($deadline, @$_) } @guilty;
}

sub round
{
	my ($name, @pairs) = @_;
	my $start = time;
	my @complaints = trial(@pairs);
	if (@complaints)
	{
		# the machine may be to blame; what a setting does it does again
		diag join "\n", "$name, once more after:", @complaints;
		@complaints = trial(@pairs);
	}
	note sprintf '%s: %d settings, %.1f s', $name, scalar @pairs, time - $start;
	is(join("\n", @complaints), '', $name) and return;
	diag "it is $_" foreach @pairs > 1 ? culprits(time + 60, @pairs) : ();
	return;
}

# The round of a value is another one for each setting, so that what masks others (a log that
# is silent) does not do so in all of them; and the places go around.
foreach my $i (0 .. $ROUNDS - 1)
{
	my $n = 0;
	my @pairs = map { [ $_->{name}, $_->{values}[ ($i + $n++) % @{ $_->{values} } ] ] }
	  grep { @{ $_->{values} } } @all;
	push @PLACES, shift @PLACES;
	round("round $i", @pairs);
}

# From 18 on with a client_encoding whose conversion is in a library it keeps every process
# of the database from starting, before anything of ours runs.
round("dynamic_library_path = '$_'", [ dynamic_library_path => $_ ]) foreach $FULL ? ('', '/absent') : '/absent';

if ($FULL)
{
	foreach my $setting (@all)
	{
		round("$setting->{name} = '$_'", [ $setting->{name}, $_ ])
		  foreach @{ $setting->{values} };
	}
}
note 'neither for a database nor for a role: ' . join ' ', sort keys %refused;

# --- what the owner of a database may set, who is no superuser

my @ours = map { $_->[0] } $node->rows(q{SELECT name FROM pg_settings WHERE name ~ '^outbox[.]'});
my @his = grep {
	my ($value) = $node->sql("SELECT quote_literal(current_setting('$_'))");
	!defined $node->sql_fails("SET ROLE keeper; ALTER DATABASE hostile SET "
		  . (s/\.(.*)/."$1"/r) . " = $value; ALTER DATABASE hostile RESET ALL");
} @ours;
is("@his", 'outbox.sqlcommenter outbox.traceparent outbox.tracestate',
	'of the settings of outbox he may set those of his own messages');

# Rows of outbox that the worker has read by sequential scans for a backlog, as its statistics say
# that it has removed all of it.
sub read_in_sequence
{
	my ($db, $messages) = @_;
	my $inside = $inside{$db};
	my $read = q{SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'outbox'};
	my $removed = q{SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'outbox'};

	$inside->query('DELETE FROM outbox');
	$inside->query('SELECT outbox_pause()');
	$node->sql("INSERT INTO outbox (event_type, payload, aggregate_id) SELECT 'many', '{}', 'k' || i % 500 FROM generate_series(1, $messages) i; ANALYZE outbox; SELECT pg_stat_force_next_flush()", $db);
	soon($db, "SELECT n_ins_since_vacuum > 0 FROM pg_stat_user_tables WHERE relname = 'outbox'");
	my ($before, $gone) = map { $inside->query($_) } $read, $removed;
	$fake->begin_case;
	$inside->query('SELECT outbox_resume()');
	$fake->wait_case($messages, 2 * $TIMEOUT);
	soon($db, "SELECT ($removed) >= $gone + $messages") or return 1e9;
	return $inside->query($read) - $before;
}

my %costs = map { $_ => '1e300' }
  qw(random_page_cost cpu_index_tuple_cost cpu_tuple_cost cpu_operator_cost);
$node->sql("SET ROLE keeper; ALTER DATABASE hostile SET $_ = $costs{$_}") foreach sort keys %costs;
restart_worker();
my $read = read_in_sequence('hostile', 3000);
note "read in sequence: $read rows";
cmp_ok($read, '<', 3000,
	'plans of the relay stay what they are, whatever he says that an index costs');
reset_all($admin, @PLACES);

# An error that the worker lives with, as it does with any: somebody has the table for himself.
$node->sql('ALTER DATABASE hostile SET exit_on_error = on');
restart_worker();
my $pid = $inside{hostile}->query('SELECT pid FROM outbox_workers');
my $errors = 'SELECT database_errors FROM outbox_database_stats()';
my $before = $inside{hostile}->query($errors);
my $locker = $node->client('hostile');
$locker->query($_) foreach 'BEGIN', 'LOCK TABLE outbox';
ok(soon('hostile', "SELECT ($errors) > $before"), 'the worker has met an error');
$locker->query('ROLLBACK');
$inside{hostile}->query(q{SELECT outbox_enqueue('after', '{}')});
ok(soon('hostile', $DRAINED), 'exit_on_error: it goes on');
is($inside{hostile}->query('SELECT pid FROM outbox_workers'), $pid, 'and is the same process');
reset_all($admin, @PLACES);

# --- D11: who may connect

$node->sql('ALTER DATABASE hostile CONNECTION LIMIT 0; REVOKE CONNECT ON DATABASE hostile FROM PUBLIC, keeper; ALTER ROLE keeper NOLOGIN CONNECTION LIMIT 0');
ok(restart_worker(), 'D11: a worker starts in a database that nobody may connect to');
$node->sql('ALTER DATABASE hostile ALLOW_CONNECTIONS false');
$inside{hostile}->query(q{SELECT outbox_enqueue('closed', '{}')});
ok(soon('hostile', $DRAINED), 'D11: and works when it is closed');

$node->stop;
done_testing();
