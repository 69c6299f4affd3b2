# Copies of a whole server, which have the identity of the original: by the name of
# their environment, where they run under another configuration, and by what the
# server notes of a recovery to a target.  What takes over in the same environment
# goes on by itself.  The extension's owner is no superuser, and may not see where
# settings come from.  (Dumps, templates, subscribers: copies.pl; failovers under
# load: failover.pl.)  doc/dev/fault-cases.md B13, B14.
#
# suite: test faults

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $STATE = 'SELECT state FROM outbox_status';
my $TOLD = q{SELECT s.hint, s.last_error, p.detail LIKE s.last_error || '%' FROM outbox_status s, outbox_problems p
	WHERE p.problem IN ('not adopted', 'environment unusable')};
my $RECORDED = 'SELECT environment FROM outbox_control';

my $fake = OutboxTest::FakeBroker->start;

# The server's process has the name in its environment.
sub start_in
{
	my ($name, $server) = @_;

	local $ENV{OUTBOX_ENVIRONMENT} = $name;
	$server->start;
	return $server;
}

# Nothing comes from there, also when all of it was read again; enqueue works.
sub silent
{
	my ($name, $server, $state, $told) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $waiting = $server->sql('SELECT count(*) FROM outbox');

	$server->wait_sql($STATE, $state);
	like($server->sql($TOLD), qr/$told.*\|t$/, "$name: says why");
	$server->sql(q{SELECT test_enqueue(3, 1, 'silent')});
	my $now = $server->sql('SELECT clock_timestamp()');
	$server->sql('SELECT outbox_worker_restart()');
	$server->wait_sql(
		"SELECT bool_and(started_at > '$now' AND state NOT IN ('starting', 'connecting')) FROM outbox_workers", 't');
	$server->wait_sql($STATE, $state);
	is($server->sql('SELECT count(*) FROM outbox'), $waiting + 3, "$name: messages are taken and wait");
	is(scalar(() = $fake->of_case), 0, "$name: nothing is published");
	return;
}

sub goes_on
{
	my ($name, $server) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $id = $server->sql(q{SELECT outbox_enqueue('goes on', '{}')});

	wait_until("$name: publishes", sub { grep { $_->{id} eq $id } $fake->published });
	return;
}

# How many messages outbox_claim() gives of one.
sub claimed
{
	my ($server) = @_;

	$server->sql(q{SELECT outbox_enqueue('claimed', '{}', route => 'elsewhere')});
	my $claimed = $server->sql(q{SELECT count(*) FROM outbox_claim('elsewhere', lease => '1 ms')});
	$server->sql(q{SELECT outbox_discard(id) FROM outbox WHERE route = 'elsewhere'});
	return $claimed;
}

my $node = OutboxTest::Node->create(
	name => 'original',
	broker => $fake,
	allows_streaming => 1,
	has_archiving => 1,
	start => 0,
	extension => 0,
	conf => "outbox.poll_interval = 100ms\noutbox.window = 100\noutbox.retention = 10d");
start_in('production', $node);
$node->sql('CREATE ROLE keeper SUPERUSER; SET ROLE keeper; CREATE EXTENSION outbox; RESET ROLE; ALTER ROLE keeper NOSUPERUSER');
my $checker = OutboxTest::Checker->install($node);
is($node->sql($RECORDED), 'production', 'the name is recorded with CREATE EXTENSION');
is($node->sql('SHOW outbox.environment'), 'production', 'and shown');
goes_on('the original', $node);
$node->wait_drained;
$node->sql(q{INSERT INTO outbox_route (name, exchange, relay) VALUES ('elsewhere', 'x', 'external')});
is(claimed($node), 1, 'and may be claimed from');

# what each copy would publish, and remove
$node->set('outbox.enabled', 'off');
$node->wait_sql($STATE, 'disabled');
$checker->enqueue(100, keys => 10, prefix => 'backlog');
$node->sql(q{SET ROLE keeper; SELECT outbox_internal.outbox_archive_make_day((clock_timestamp() AT TIME ZONE 'UTC')::date - 5)});
$node->sql(q{INSERT INTO outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
	VALUES (1, gen_random_uuid(), 'default', 'old', '{}', now(), 0, clock_timestamp() - interval '5 days')});
my $OLD = q{SELECT count(*) FROM outbox_archive WHERE event_type = 'old'};
$node->backup('base');

sub copy_of_it
{
	my ($name, %p) = @_;
	my $copy = OutboxTest::Node->new($name);

	$copy->init_from_backup($node, 'base', %p);
	$copy->adjust_conf('postgresql.auto.conf', 'outbox.enabled', undef);
	$copy->append_conf('postgresql.conf', 'archive_mode = off');
	return $copy;
}

# --- a copy that is started beside the original

$fake->begin_case('a copy under another name');
my $log;
my $copy = copy_of_it('copy');
$copy->append_conf('postgresql.conf', 'outbox.retention = 1d');
start_in('staging', $copy);
silent('another name', $copy, 'not adopted',
	qr/outbox_adopt\(\).*\|"outbox.environment" is "staging" here, and the messages belong to "production"/);
like($copy->log_text(0), qr/outbox relay is silent: this server may be a copy/, 'and so does the log');
my $uri = $copy->sql('SHOW outbox.broker_uri');
$copy->set('outbox.broker_uri', $uri =~ s/:\d+/:1/r);
$copy->sql('SELECT outbox_worker_restart()');
$copy->wait_sql('SELECT state, reason FROM outbox_workers', 'not adopted|connection refused');
like($copy->sql($TOLD), qr/\|"outbox.environment" is "staging" here.*\|t$/, 'and also while there is no broker');
$copy->unset('outbox.broker_uri');
$copy->stop;
$copy->start;
silent('no name', $copy, 'not adopted',
	qr/"outbox.environment" is "" here, and the messages belong to "production"/);

$fake->begin_case('a name that is copied with the data');
$copy->stop;
$copy->append_conf('postgresql.conf', q{outbox.environment = 'production'});
$copy->start;
my $unusable = qr/outbox\.environment.*\|"outbox.environment" is not set outside of the data directory/;
silent('a name inside of the data directory', $copy, 'config error', $unusable);
is(claimed($copy), 0, 'nor is a message given to an external relay');
is($copy->sql('SELECT reason FROM outbox_workers'), 'environment unusable', 'also as a kind');
$copy->adjust_conf('postgresql.conf', 'outbox.environment', undef);
$copy->reload;
silent('without it', $copy, 'not adopted', qr/is "" here/);

# as managers keep their parameters, whatever the variable says
$copy->stop;
append_to_file($copy->data_dir . '/custom.conf', "outbox.environment = 'production'\n");
$copy->append_conf('postgresql.conf', q{include 'custom.conf'});
start_in('production', $copy);
silent('a name in a file beside it', $copy, 'config error', $unusable);
symlink $copy->data_dir, $copy->basedir . '/link' or die $!;
my $linked = $copy->basedir . '/link/custom.conf';
$copy->adjust_conf('postgresql.conf', 'include', "'$linked'");
$copy->reload;
silent('a name in a file that a link leads to', $copy, 'config error', $unusable);
unlink $copy->data_dir . '/custom.conf';
append_to_file($copy->data_dir . '/custom.conf', '');
$copy->stop;
$copy->start;
silent('without that', $copy, 'not adopted', qr/is "" here/);

# --- a name outside of it, by reload: another, the recorded one, another

$fake->begin_case('a name in a file outside');
my $outside = $copy->basedir . '/environment.conf';
sub name_outside
{
	my ($name) = @_;

	append_to_file("$outside.new", "outbox.environment = '$name'\n");
	rename "$outside.new", $outside or die "$outside: $!";
	$copy->reload;
	return;
}
name_outside('test');
$copy->append_conf('postgresql.conf', "include '$outside'");
$copy->reload;
silent('a name outside of the data directory', $copy, 'not adopted', qr/is "test" here/);
my $before = $copy->sql('SELECT count(*) FROM outbox');
is($copy->sql($OLD), 1, 'none of its relays has removed what is old in the archive');
is($copy->sql('SELECT outbox_adopt()'), 't', 'adopted');
$copy->wait_sql($OLD, 0);
is($copy->sql('SELECT outbox_adopt()'), 'f', 'once is enough');
is($copy->sql($RECORDED), 'test', 'the new name is recorded');
$copy->wait_drained;
$checker->of($copy)->check('an adopted copy publishes what it has', [ $fake->of_case ],
	case => 'B14: a copy of the server in another environment, adopted');
$copy->restart;
goes_on('adopted, after a restart', $copy);

$fake->begin_case('the name changes while it publishes');
$log = $copy->log_end;
name_outside('elsewhere');
$copy->wait_sql($STATE, 'not adopted');
$fake->begin_case('since then');
silent('renamed', $copy, 'not adopted', qr/is "elsewhere" here, and the messages belong to "test"/);
name_outside('test');
$copy->wait_drained;
is(scalar(() = $fake->of_case), 3, 'named as before it goes on');
name_outside("t\x{c3}\x{a4}st");
$copy->wait_log(qr/invalid value for parameter "outbox.environment"/, $log);
goes_on('a name that is not taken changes nothing', $copy);
$copy->stop;

# --- a server that is named only now

$fake->begin_case('named later');
my $unnamed = OutboxTest::Node->create(name => 'unnamed', broker => $fake);
OutboxTest::Checker->install($unnamed);
is($unnamed->sql($RECORDED), '', 'no name');
goes_on('no name', $unnamed);
$unnamed->wait_drained;
$fake->begin_case('named later');
$unnamed->stop;
start_in('production', $unnamed);
silent('named later', $unnamed, 'not adopted', qr/is "production" here, and the messages belong to ""/);
is($unnamed->sql('SELECT outbox_adopt()'), 't', 'adopted');
$unnamed->wait_drained;
is(scalar(() = $fake->of_case), 3, 'and goes on');
$unnamed->stop;

# --- a standby in the same environment takes over

$fake->begin_case('a standby');
my $standby = start_in('production', copy_of_it('standby', has_streaming => 1));
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$standby->promote;
$standby->wait_drained;
$checker->of($standby)->check('a standby in the same environment goes on by itself', [ $fake->of_case ],
	case => 'B13: a standby in the same environment');
$standby->stop;

# --- recovery to a target, in the environment of the original

my $xid = $node->sql('SELECT pg_current_xact_id()');
$node->sql(q{SELECT pg_create_restore_point('target')});
my $lsn = $node->lsn('insert');
my $time = $node->sql('SELECT clock_timestamp()');
$node->sql(q{SELECT test_enqueue(10, 1, 'after')});
my $segment = $node->sql('SELECT pg_walfile_name(pg_current_wal_lsn())');
$node->sql('SELECT pg_switch_wal()');
$node->wait_sql("SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver");
$node->stop;

sub recovered
{
	my ($name, $target) = @_;
	my $server = copy_of_it($name, has_restoring => 1, standby => 0);

	$server->append_conf('postgresql.conf', "$target\nrecovery_target_action = promote");
	start_in('production', $server);
	$server->wait_sql('SELECT NOT pg_is_in_recovery()');
	return $server;
}

my %targets = (
	immediate => [ q{recovery_target = 'immediate'}, qr/reached consistency/ ],
	name => [ q{recovery_target_name = 'target'}, qr/at restore point "target"/ ],
	lsn => [ "recovery_target_lsn = '$lsn'", qr/(before|after) LSN/ ],
	xid => [ "recovery_target_xid = '$xid'", qr/after transaction $xid/ ],
	time => [ "recovery_target_time = '$time'", qr/before 2/ ]);
foreach my $kind (sort keys %targets)
{
	my ($target, $how) = @{ $targets{$kind} };

	$fake->begin_case("recovery to a target: $kind");
	my $server = recovered("to_$kind", $target);
	silent("target $kind", $server, 'not adopted',
		qr/outbox_adopt\(\).*\|this server was restored to a point in time: $how/);
	if ($kind eq 'name')
	{
		$server->stop;
		start_in('production', $server);
		silent('after a restart', $server, 'not adopted', $how);
		$server->sql('CREATE DATABASE fresh');
		$server->sql('CREATE EXTENSION outbox', 'fresh');
		$server->wait_sql($STATE, 'idle', undef, 'fresh');
		is($server->sql('SELECT outbox_adopt()'), 't', 'adopted');
		$server->wait_drained;
		$checker->of($server)->check('a restored server publishes what it has', [ $fake->of_case ],
			case => 'B14: recovery to a point in time in the same environment, adopted');

		# its standby takes over
		$server->stop;
		append_to_file($server->data_dir . '/standby.signal', '');
		$server->adjust_conf('postgresql.conf', 'recovery_target_name', undef);
		start_in('production', $server);
		$server->promote;
		goes_on('a promotion after that', $server);
	}
	$server->stop;
}

# What the server does not tell from a failover, and the name does.
$fake->begin_case('recovery to the end of the archive');
my $end = recovered('to_the_end', '');
$end->wait_drained;
is(scalar(() = $fake->of_case), $end->sql('SELECT count(*) FROM test_sent'),
	'recovery to the end of the archive is a failover, in the same environment');
$end->stop;

done_testing();
