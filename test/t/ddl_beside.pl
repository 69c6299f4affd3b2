# Random additions of an administrator to the tables, and maintenance, beside
# sessions that enqueue by function, INSERT and COPY and the relay that publishes
# and settles.  doc/dev/fault-cases.md K8.
#
# In the end every committed message has arrived once and in order, indexes and
# tables agree, and the catalog is as before.  Prints its seed; OUTBOX_SEED=N
# repeats what is drawn, though not what the processes make of it.
#
# make test-ddl [SECONDS=3600] runs it for so long (OUTBOX_TEST_DDL).
#
# suite: test faults

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Additions;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Shape;
use OutboxTest::Util;

my $SECONDS = $ENV{OUTBOX_TEST_DDL} // 8;
my $LONG = $SECONDS > 60;
my $MOST = 5;    # additions at a time

seed();
my $fake = OutboxTest::FakeBroker->start(lifetime => $SECONDS + 900);
my $node = OutboxTest::Node->create(
	broker => $fake,
	extension => 0,
	allows_streaming => 'logical',
	conf => <<'END');
fsync = off
log_min_messages = fatal
outbox.poll_interval = 100ms
outbox.retry_initial = 10ms
outbox.retry_max = 50ms
outbox.workers = 2
autovacuum_naptime = 1s
END
my $matrix = OutboxTest::Additions->new($node, $fake);
my $admin = $node->session('postgres', on_error_stop => 0);

sub admin
{
	my ($sql) = @_;
	$admin->{timeout}->start($PostgreSQL::Test::Utils::timeout_default);
	my $out = $admin->query($sql);
	my $err = $admin->{stderr};
	$admin->{stderr} = '';
	die "the administrator's connection is lost: $err" if $err =~ /server closed|connection to server was lost/;
	return ($out, $err);
}
admin("SET client_min_messages = error;\nSET lock_timeout = '2s'");

# ---------------------------------------------------------------------------
# Enqueue: a psql for each way runs a file of transactions, and then another one.

my @WAYS = qw(function insert copy);
my %loads;

# COPY comes first: in a transaction that has failed already, psql would take its
# lines for statements.
sub transaction
{
	my ($way, $key) = @_;
	my $type = rand() < 0.02 ? 'again' : 'matrix';
	my @ids = map { OutboxTest::Additions::uuid() } 1 .. 1 + rand 3;
	my $columns = 'id, event_type, aggregate_type, aggregate_id, payload, headers, routing_key';
	my $row = qq('$type', '$way', '$key', '{"n": 1}', '{"list": [1, "x"]}', 'some.key');
	my $sent = join '', map {
		"INSERT INTO test_sent VALUES (nextval('test_sent_n'), '$_', '$key');\n"
	} @ids;
	my $enqueue;

	if ($way eq 'function')
	{
		$enqueue = join '', map {
			"SELECT outbox_enqueue('$type', '{\"n\": 1}', '$way', '$key', '{\"list\": [1, \"x\"]}', routing_key => 'some.key', message_id => '$_');\n"
		} @ids;
	}
	elsif ($way eq 'insert')
	{
		$enqueue = "INSERT INTO outbox ($columns) VALUES " . join(', ', map { "('$_', $row)" } @ids) . ";\n";
	}
	else
	{
		$enqueue = "COPY outbox ($columns) FROM stdin;\n"
		  . join('', map { join("\t", $_, $type, $way, $key, '{"n": 1}', '{"list": [1, "x"]}', 'some.key') . "\n" } @ids)
		  . "\\.\n";
	}
	my $end = rand() < 0.05 ? 'ROLLBACK' : 'COMMIT';
	return "BEGIN;\n$enqueue$sent$end;\n";
}

sub start_load
{
	my ($way) = @_;

	$loads{$way} = $matrix->checker->run(
		join('',
			"\\o /dev/null\nSET SESSION AUTHORIZATION " . ($way eq 'function' ? 'app' : 'orm') . ";\n",
			map {
				transaction($way, "$way." . $_ % 5)
				  . ($LONG ? "SELECT pg_sleep(0.03);\n" : "SELECT pg_sleep(0.005);\n")
			} 1 .. ($LONG ? 1500 : 300)),
		keep_going => 1);
	return;
}

my %errors;

# What sessions were told; each must be the refusal of an addition.
sub look_at
{
	my ($load) = @_;
	foreach my $line (split /\n/, $load->error)
	{
		die "a session is lost: $line\n" if $line =~ /server closed|connection to server/;
		next unless $line =~ s/.*?ERROR:  //;
		$line =~ s/_\d+"/"/g;
		$line =~ s/(RI_ConstraintTrigger_\w_)\d+/$1/;
		$errors{$line}++;
	}
	return;
}

sub keep_loads
{
	foreach my $way (@WAYS)
	{
		my $load = $loads{$way};
		next if $load->running;
		$load->wait;
		look_at($load);
		start_load($way);
	}
	return;
}

# ---------------------------------------------------------------------------
# The administrator

# Those that may stand beside others; each addition gets names of its own.
my @additions = grep {
	!$_->{up_fails} && !$_->{drops} && !$_->{all} && !$_->{restart}
	  && !$_->{before}
	  && $_->{up} !~ /TRUNCATE|DETACH|REVOKE|TABLESPACE|outbox_status_check|VACUUM|REPACK|MAINTAIN|UNLOGGED/
	  && (!$_->{requires} || $matrix->has($_->{requires}))
} $matrix->cases;

my @maintenance = (
	'VACUUM outbox', 'VACUUM FULL outbox', 'VACUUM (ANALYZE) outbox_archive',
	'VACUUM (FREEZE, INDEX_CLEANUP on) outbox', 'ANALYZE outbox', 'CLUSTER outbox USING outbox_pkey',
	'REINDEX TABLE outbox', 'REINDEX TABLE CONCURRENTLY outbox', 'REINDEX INDEX CONCURRENTLY outbox_ready',
	'REINDEX INDEX outbox_key', 'REINDEX TABLE outbox_archive',
	"CREATE INDEX CONCURRENTLY IF NOT EXISTS beside ON outbox USING gin (payload) WITH (fastupdate = off);\nDROP INDEX CONCURRENTLY beside",
	"CREATE INDEX CONCURRENTLY IF NOT EXISTS beside ON outbox (created_at, seq);\nDROP INDEX CONCURRENTLY IF EXISTS beside",
	'ALTER TABLE outbox SET TABLESPACE added', 'ALTER TABLE outbox SET TABLESPACE pg_default',
	'ALTER TABLE outbox SET UNLOGGED', 'ALTER TABLE outbox SET LOGGED',
	"ALTER INDEX outbox_ready RENAME TO renamed;\nALTER INDEX renamed RENAME TO outbox_ready",
	"ALTER TRIGGER outbox_row ON outbox RENAME TO renamed;\nALTER TRIGGER renamed ON outbox RENAME TO outbox_row",
	"SELECT outbox_pause();\nSELECT outbox_resume()", "SELECT outbox_pause('default');\nSELECT outbox_resume('default')",
	q{UPDATE outbox_route SET exchange = exchange}, 'SELECT pg_reload_conf()',
	"SELECT outbox_internal.outbox_archive_maintain('1 day')", 'CHECKPOINT',
	'ALTER TABLE outbox OWNER TO heir', 'ALTER TABLE outbox OWNER TO keeper',
	'COMMENT ON TABLE outbox IS NULL', 'ALTER TABLE outbox ALTER event_type SET STATISTICS 10',
	'SELECT bt_index_check(\'outbox_pkey\', true)');
push @maintenance, 'REPACK (CONCURRENTLY) outbox'
  if $node->sql('SHOW server_version_num') >= 190000;
# A worker that is told to leave while an addition keeps it from settling leaves
# what is confirmed to its successor, which sends it again.  So that is done now
# and then only, and copies may come in the seconds after it.
my @restarts = (
	'SELECT outbox_worker_restart()', "ALTER SYSTEM SET outbox.workers = 1;\nSELECT pg_reload_conf()",
	"ALTER SYSTEM SET outbox.workers = 2;\nSELECT pg_reload_conf()", 'ALTER DATABASE postgres SET outbox.window = 500',
	'ALTER DATABASE postgres RESET outbox.window');
my @restarted;
my $RESTART_EVERY = 60;
my $AFTER_RESTART = 15;
my %active;
my $number = 0;
my %done;

# 'up' or 'down' of an addition, with its own names
sub own
{
	my ($sql, $n) = @_;
	$sql =~ s/\b((?:[az]_)?added)(?=\b|_|\d)/$1_$n/g;
	$sql =~ s/\baddition\.(kind|refers|child|positive)\b/addition.$1_$n/g;
	$sql =~ s/\bgen\b/gen_$n/g;
	return $sql;
}

sub add
{
	my $case = pick(@additions);
	my $n = ++$number;
	my (undef, $err) = admin('BEGIN; ' . own($case->{up}, $n));
	(undef, my $err2) = admin($err eq '' ? 'COMMIT' : 'ROLLBACK');

	if ("$err$err2" eq '')
	{
		$active{$n} = { case => $case, until => time + rand($LONG ? 3 : 1) };
		$done{$case->{name}}++;
	}
	elsif ("$err$err2" !~ /lock timeout|deadlock|already (?:exists|an identity column)|rules on/)
	{
		$errors{"adding $case->{name}: " . $err . $err2}++;
	}
	return;
}

# It must be possible to remove it again.
sub remove
{
	my ($n) = @_;
	my $case = $active{$n}{case};
	my $err;

	foreach (1 .. 30)
	{
		(undef, $err) = admin('BEGIN; ' . own($case->{down}, $n));
		(undef, my $err2) = admin($err eq '' ? 'COMMIT' : 'ROLLBACK');
		$err .= $err2;
		last if $err eq '';
		last unless $err =~ /lock timeout|deadlock|in use|serialize|concurrently/;
	}
	is($err, '', "removes $case->{name}") if $err ne '';
	delete $active{$n};
	return;
}

# What another statement of the administrator was told, in a transaction or not.
sub beside
{
	my ($what, $err) = @_;
	return if $err eq '';
	admin('ROLLBACK');
	$errors{"$what: $err"}++ if $err !~ /lock timeout|deadlock|already exists|does not exist|temporarily unavailable/;
	return;
}

my $compared = 0;

sub compare
{
	my ($n) = @_;
	my $case = $active{$n}{case};

	foreach my $find (@{ $case->{find} // [] })
	{
		my ($relation, $condition) = @$find;
		$condition =~ s/'/''/g;
		my ($out, $err) = admin("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT addition.compare('$relation', '$condition', '.'); COMMIT");
		fail("$case->{name}: $out") if $out =~ /^index scan/;
		$compared++ if $err eq '';
		beside("comparing $case->{name}", $err);
		last;
	}
	return;
}

$node->sql('CREATE ROLE heir; GRANT CREATE ON SCHEMA public TO heir; GRANT keeper TO heir');
$node->sql('UPDATE outbox_route SET max_attempts = 1000');
my $shape = shape($node, 'postgres');
start_load($_) foreach @WAYS;
my $start = time;
my $checked = 0;
my $next_restart = $start + $RESTART_EVERY;
while (time - $start < $SECONDS)
{
	if (time > $next_restart)
	{
		push @restarted, time;
		admin(pick(@restarts));
		$next_restart = time + $RESTART_EVERY;
	}

	my $draw = rand;

	keep_loads();
	if ($draw < 0.35 && keys %active < $MOST) { add(); }
	elsif ($draw < 0.5) { my $sql = pick(@maintenance); my (undef, $err) = admin($sql); $done{$sql}++; beside($sql, $err); }
	elsif ($draw < 0.55) { compare($_) foreach keys %active; }
	elsif ($draw < 0.56) { my (undef, $err) = admin('SELECT addition.amcheck()'); $checked++; beside('amcheck', $err); }
	foreach my $n (sort keys %active)
	{
		remove($n) if time > $active{$n}{until};
	}
	# at most one of them is left over
	$fake->do('forget', 'when type=again times=1 : nack') if rand() < 0.1;
	usleep(10_000 + rand 50_000);
}

# ---------------------------------------------------------------------------
# The end

remove($_) foreach sort keys %active;
foreach my $way (@WAYS)
{
	$loads{$way}->stop;
	look_at($loads{$way});
}
$node->sql(q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename IN ('app', 'orm')
	OR pid <> pg_backend_pid() AND application_name = 'psql' AND query ~ 'test_sent'});
beside($_, (admin($_))[1]) foreach 'ALTER TABLE outbox SET TABLESPACE pg_default', 'ALTER TABLE outbox SET LOGGED',
  'ALTER TABLE outbox OWNER TO keeper', 'ALTER TABLE outbox ALTER event_type SET STATISTICS -1',
  'DROP INDEX IF EXISTS beside', 'SELECT outbox_resume()', q{SELECT outbox_resume('default')};
$fake->do('forget');
$node->wait_sql(
	q{SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'pending' AND available_at IS DISTINCT FROM '2100-01-01')},
	't', 60);
note "$_: $done{$_}" foreach sort keys %done;
note "sessions were told: $_: $errors{$_}" foreach sort keys %errors;
note "$number additions, $checked times amcheck meanwhile, $compared times both scans";
ok($number > 2, 'there were additions');
# What does not go together, by the server's own rules; and the data of a COPY that the
# server has refused (a row each, which begins with an id), which psql then takes for
# statements.
my @strange = grep {
	!/to unlogged because|cannot add relation "outbox" to publication|used as a catalog table|permanent tables may reference only|has pending trigger events/
	  && !/violates|belongs to role|row-level security|not this one|deferred|must be owner|cached plan|deadlock|RI_Constraint|constraint trigger|trigger "|COPY FROM not supported|current transaction is aborted|permission denied|duplicate key/
	  && !/(?:syntax error|trailing junk after numeric literal) at or near "?[0-9a-f]{4,}/
} keys %errors;
is("@strange", '', 'only additions have refused messages');
my $now = shape($node, 'postgres');
is($now->{$_}, $shape->{$_}, "the catalog is as before: $_") foreach sort keys %$shape;
cmp_ok($node->sql('SELECT addition.amcheck()'), '>', 4, 'B-trees are sound');
$matrix->finish('K8: random DDL beside enqueue', interruptions => scalar @restarted);

# copies, and when the first of them came
my %seen;
my @unexplained;
foreach my $record ($fake->records)
{
	next unless $seen{ $record->{id} }++;
	my $at = $record->{us} / 1e6;
	push @unexplained, sprintf '%s at %.1f s', $record->{id}, $at - $start
	  unless grep { $at > $_ && $at < $_ + $AFTER_RESTART } @restarted;
}
is("@unexplained[0 .. ($#unexplained > 5 ? 5 : $#unexplained)]", '', 'copies only after a worker was told to leave');
note scalar(@restarted) . ' times workers were told to leave: at '
  . join ', ', map { sprintf '%.0f', $_ - $start } @restarted;
$node->stop('fast');
done_testing();
