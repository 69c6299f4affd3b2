# A bad night, staged: everything that outbox_problems and the alerts are for, one after
# the other under a load, and what an operator does about it.  outbox_problems is read
# each second, Prometheus has the alerts.  The timeline becomes doc/dev/bad-night.md.

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Prometheus;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $missing = OutboxTest::Prometheus::missing();
plan skip_all => "not installed: $missing (make test-night installs them)" if $missing;

# A minute of the rules takes two seconds.
my $SPEED = 30;

my $rabbit = OutboxTest::Rabbit->start(name => 'broker', conf => "max_message_size = 65536\n");
$rabbit->ctl('add_user', 'shop', 'evening');
$rabbit->ctl('set_permissions', 'shop', '.*', '.*', '.*');
my $node = OutboxTest::Node->create(broker => $rabbit, allows_streaming => 1, conf => <<'END');
outbox.workers = 2
outbox.retry_initial = 200ms
outbox.retry_max = 1s
END
my $passfile = $node->basedir . '/passfile';
my $uri = $rabbit->uri =~ s/guest/shop/r;

sub password
{
	my ($text) = @_;
	unlink $passfile;
	append_to_file($passfile, "*:*:*:shop:$text\n");
	chmod 0600, $passfile;
	return;
}
password('evening');
$node->set('outbox.passfile', $passfile);
$node->set('outbox.broker_uri', $uri);
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

my $checker = OutboxTest::Checker->install($node);
$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts, on_failed) VALUES
	('billing', 'billing', 'topic', 10, 'skip'), ('orders', 'orders', 'topic', 3, 'block')});
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $orders = OutboxTest::Consumer->start($rabbit, queue => 'orders', exchange => 'orders', exchange_type => 'topic', key => '#');

$node->backup('base');
my $standby = OutboxTest::Node->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->set('synchronous_standby_names', 'standby');
$node->wait_sql(q{SELECT sync_state FROM pg_stat_replication}, 'sync');

my $prometheus = OutboxTest::Prometheus->start($node, speed => $SPEED, exporters => ['postgres']);

# outbox_problems each second, by a session that only reads.
my $seen = $node->basedir . '/problems';
append_to_file("$seen.sql", <<'SQL');
\set QUIET 1
\pset format unaligned
\pset tuples_only on
\pset fieldsep '\t'
\pset footer off
SELECT extract(epoch FROM clock_timestamp()), severity, problem, subject,
	regexp_replace(detail, '[[:cntrl:]]+', ' ', 'g'), regexp_replace(command, '[[:cntrl:]]+', ' ', 'g')
FROM outbox_problems \watch 1
SQL
my $watcher = IPC::Run::start(
	[ $node->installed_command('psql'), '-X', '-d', $node->connstr('postgres'), '-f', "$seen.sql" ],
	'<', \undef, '>', $seen, '2>', "$seen.err");

wait_until('Prometheus has read', sub { defined $prometheus->value('max(outbox_up)') && !$prometheus->firing });
my $load = $checker->load(1_000_000, per_tx => 10, pause_ms => 40, keys => 50);
my $started = time;
my @acts;

sub act
{
	my ($what) = @_;
	push @acts, [ time - $started, $what ];
	note sprintf '%4.0f s: %s', time - $started, $what;
	return;
}

# What was in outbox_problems so far: by problem and subject first, last, severity, detail, command.
sub problems
{
	my %found;
	foreach my $line (split /\n/, slurp_file($seen))
	{
		my ($at, $severity, $problem, $subject, $detail, $command) = split /\t/, $line, -1;
		next unless defined $command && $at =~ /^[\d.]+$/;
		my $row = $found{"$problem\t$subject"} //=
		  { first => $at - $started, severity => $severity, problem => $problem, subject => $subject,
			detail => $detail, command => $command };
		$row->{last} = $at - $started;
	}
	my @sorted = sort { $a->{first} <=> $b->{first} || $a->{problem} cmp $b->{problem} } values %found;
	return @sorted;
}

# A fault: the problem must be in the view and the alert must fire; then it is mended.
sub stage
{
	my ($name, $do, $problem, $alert, $mend) = @_;

	act($name);
	$do->();
	wait_until("$name: outbox_problems", sub {
			grep { $_->{problem} =~ $problem && $_->{last} > time - $started - 3 } problems();
		}, 100) and pass("$name: outbox_problems has it");
	$prometheus->wait_alert($alert, 100) and pass("$name: $alert fires");
	act($mend->());
	$prometheus->wait_no_alert($alert, 150) and pass("$name: $alert ends");
	return;
}

# A day of the archive that is to be dropped; without the relay, which would be quicker than the reader.
$node->set('outbox.enabled', 'off');
$node->wait_sql('SELECT state FROM outbox_status', 'disabled');
$node->sql(<<'SQL');
DO $$
DECLARE
	day date := (clock_timestamp() AT TIME ZONE 'UTC')::date - 3;
	part text := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
BEGIN
	EXECUTE format('CREATE TABLE %I PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
		part, day || ' 00:00+00', day + 1 || ' 00:00+00');
	EXECUTE format('ALTER EXTENSION outbox ADD TABLE %I', part);
END
$$;
SQL
my $reader = $node->session;
$reader->query_safe('BEGIN');
$reader->query_safe('SELECT count(*) FROM outbox_archive');
act('somebody opens a transaction that reads the archive, and goes to bed');
$node->set('outbox.enabled', 'on');
$node->sql('SELECT outbox_worker_restart()');
wait_until('half a minute of work', sub { time - $started > 30 }, 60);

stage('the broker has an alarm of memory', sub { $rabbit->memory_alarm(1) },
	qr/alarm/, 'OutboxBrokerBlocked',
	sub { $rabbit->memory_alarm(0); 'memory is free again' });

stage('somebody changes the password at the broker, which restarts all connections', sub {
		$rabbit->ctl('change_password', 'shop', 'night');
		$rabbit->ctl('close_all_connections', 'night');
	}, qr/login refused/, 'OutboxBrokerDown',
	sub { password('night'); $node->sql('SELECT outbox_worker_restart()'); 'the new password is in the file; SELECT outbox_worker_restart()' });

stage('a queue is full and rejects', sub {
		$rabbit->amqp('exchange', 'billing', ',', 'queue', 'billing', 'x-max-length=5', 'x-overflow=reject-publish', ',',
			'bind', 'billing', 'billing');
		$checker->enqueue(40, route => 'billing', prefix => 'b', keys => 0);
	}, qr/queue refuses/, 'OutboxMessagesRefused',
	sub {
		$rabbit->amqp('delete-queue', 'billing', ',', 'queue', 'billing', ',', 'bind', 'billing', 'billing');
		my $n = $node->sql(q{SELECT outbox_requeue_failed(route => 'billing')});
		"the queue has room again; SELECT outbox_requeue_failed(route => 'billing'): $n" });

stage('a poison message: larger than the broker takes', sub {
		$node->sql(q{SELECT outbox_enqueue('report', to_jsonb(repeat('x', 100000)), aggregate_type => 'order', aggregate_id => '7', route => 'orders')});
		$checker->enqueue(10, route => 'orders', prefix => 'o', keys => 1);
		$node->sql(q{SELECT count(outbox_enqueue('small', '{}', aggregate_type => 'order', aggregate_id => '7', route => 'orders')) FROM generate_series(1, 5)});
	}, qr/key held/, 'OutboxMessagesFailed',
	sub {
		my $n = $node->sql(q{SELECT count(*) FILTER (WHERE outbox_discard(id)) FROM outbox_failed WHERE route = 'orders'});
		"SELECT outbox_discard(id) FROM outbox_failed WHERE route = 'orders': $n" });

stage('the synchronous standby is lost: commits wait, but those with synchronous_commit = local', sub {
		$standby->stop('immediate');
		$node->safe_psql('postgres', q{SET synchronous_commit = local;
			SELECT count(outbox_enqueue('order.created', '{}', route => 'orders')) FROM generate_series(1, 50)});
	},
	qr/standby/, 'OutboxRelayFault',
	sub { $standby->start; 'the standby is back' });

$prometheus->wait_alert('OutboxArchiveFault', 150) and pass('the long reader: OutboxArchiveFault fires');
ok((grep { $_->{problem} =~ /archive/ } problems()), 'the long reader: outbox_problems has it');
$reader->query_safe('COMMIT');
$reader->quit;
act('the reader of the archive ends its transaction');
$prometheus->wait_no_alert('OutboxArchiveFault', 150) and pass('the long reader: OutboxArchiveFault ends');
wait_until('no alert is left', sub { !$prometheus->firing }, 150) or diag join ' ', $prometheus->firing;
$load->stop;
$node->wait_drained(120);
act('all is published');
$node->wait_sql('SELECT count(*) FROM outbox_problems', 0);
pass('outbox_problems is empty');
$watcher->kill_kill;
my $ended;
wait_until('the ends of all alerts are recorded',
	sub { $ended = time; !grep { !defined $_->[3] } $prometheus->timeline($started, $ended) });

# --- nothing was lost, nothing overtook

$orders->stop;
$node->sql(q{DELETE FROM test_sent WHERE id IN (SELECT id FROM outbox_archive WHERE route <> 'default')});
$checker->check('after the night', [ $consumer->stop ], interruptions => 8, window => 1000, late_copies => 1);

# --- the page

my @page;
my $sent = $node->sql('SELECT count(*) FROM test_sent');
my $rate = int($sent / ($ended - $started));

sub clock
{
	my ($s) = @_;
	return defined $s ? sprintf '%d:%02d', int($s / 60), $s % 60 : 'end';
}

sub cell
{
	my ($text) = @_;
	$text =~ s/\|/\\|/g;
	$text =~ s/\Q$passfile\E/PASSFILE/g;
	$text = substr($text, 0, 140) . ' ...' if length $text > 145;
	return $text;
}

push @page, <<"END";
# A bad night

Staged by `make test-night` (test/monitoring/night.pl) at commit ${\ ($ENV{OUTBOX_TEST_COMMIT} // 'unknown')} under a load of some $rate messages/s, with two workers, a synchronous
standby and a RabbitMQ of its own; written by it. Each fault stays until its alert has fired, and is then mended as the
runbook says. The times of the alert rules are shortened, a minute of theirs takes ${\ (60 / $SPEED)} seconds; otherwise they are those of
`monitoring/prometheus`, and the metrics come by postgres_exporter. Times are minutes and seconds from the beginning.

## What happened, and what was done

| at | |
| --- | --- |
END
push @page, map { sprintf "| %s | %s |\n", clock($_->[0]), cell($_->[1]) } @acts;
push @page, <<'END';

## What outbox_problems said

Read each second; from the first time that the row was there to the last.

| from | to | severity | problem | subject | detail, as the broker or the server says it | command |
| --- | --- | --- | --- | --- | --- | --- |
END
push @page, map { my $p = $_;
	sprintf "| %s | %s | %s | %s | %s | %s | %s |\n", clock($p->{first}), clock($p->{last}), $p->{severity},
	  map { cell($p->{$_}) } qw(problem subject detail command) } problems();
push @page, <<'END';

## Which alerts fired

| from | to | alert | severity | labels |
| --- | --- | --- | --- | --- |
END
foreach my $line ($prometheus->timeline($started, $ended))
{
	my ($name, $labels, $from, $to) = @$line;
	push @page, sprintf "| %s | %s | %s | %s | %s |\n", clock($from - $started),
	  clock(defined $to ? $to - $started : undef), $name, $labels->{severity},
	  join ' ', map { "$_ $labels->{$_}" } grep { defined $labels->{$_} } qw(route state);
}
push @page, <<"END";

## In the end

`outbox_problems` is empty and no alert fires. Of $sent messages of the load none is missing, none came that was not committed, and
none has overtaken another of its key (the history checker, `OutboxTest::Checker`).
END
note join '', @page;

my ($out) = ($ENV{OUTBOX_TEST_SUMMARY} // '') =~ m{^(.*)/};
if (defined $out && Test::More->builder->is_passing)
{
	mkdir "$out/monitoring";
	unlink "$out/monitoring/bad-night";
	append_to_file("$out/monitoring/bad-night", join '', @page);
}
done_testing();
