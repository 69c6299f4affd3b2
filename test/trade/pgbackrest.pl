# A server that pgBackRest restores: under another name of the environment it is
# silent until adopted, and so it is where it was restored to a point in time; a
# standby that was made from the backup goes on when it is promoted.  (The same with
# pg_basebackup: copies_environment.pl.)  Its notes are the transcript in doc/dev/trade.md.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my ($version) = (`pgbackrest version 2>/dev/null` // '') =~ /^pgBackRest (\S+)/;
plan skip_all => 'pgbackrest is not installed (make test-trade installs it)' unless $version;

my $STATE = 'SELECT state FROM outbox_status';
my $fake = OutboxTest::FakeBroker->start;

sub start_in
{
	my ($name, $server) = @_;

	local $ENV{OUTBOX_ENVIRONMENT} = $name;
	$server->start;
	$server->wait_sql('SELECT NOT pg_is_in_recovery()') unless -e $server->data_dir . '/standby.signal';
	return;
}

my $node = OutboxTest::Node->create(
	name => 'original', broker => $fake, start => 0, extension => 0, allows_streaming => 1,
	conf => "outbox.poll_interval = 100ms");
my $dir = $node->basedir . '/pgbackrest';
my @TOOL = ('pgbackrest', "--config=$dir.conf", '--stanza=main');

sub tool
{
	my (@words) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $log = '';

	note "\$ pgbackrest --stanza=main @words";
	ok(IPC::Run::run([ @TOOL, @words ], '<', \undef, '>&', \$log), "pgbackrest $words[-1]")
	  or diag $log;
	return;
}

mkdir $_ foreach $dir, "$dir/repo", "$dir/log", "$dir/lock", "$dir/spool";
append_to_file("$dir.conf", <<"END");
[global]
repo1-path=$dir/repo
log-path=$dir/log
lock-path=$dir/lock
spool-path=$dir/spool
start-fast=y
compress-level=1
log-level-console=warn
[main]
pg1-path=${\ $node->data_dir}
pg1-socket-path=${\ $node->host}
pg1-port=${\ $node->port}
END
$node->append_conf('postgresql.conf', "archive_mode = on\narchive_command = '@TOOL archive-push %p'");
start_in('production', $node);
$node->sql('CREATE EXTENSION outbox');
my $checker = OutboxTest::Checker->install($node);
note "pgBackRest $version";
tool('stanza-create');
$checker->enqueue(100, keys => 10, prefix => 'before');
$node->wait_drained;
my @published = $fake->of_case;
tool('--type=full', 'backup');
$node->set('outbox.enabled', 'off');
$node->wait_sql($STATE, 'disabled');
$checker->enqueue(60, keys => 10, prefix => 'pending');
$node->sql(q{SELECT pg_create_restore_point('before_the_accident')});
my $segment = $node->sql('SELECT pg_walfile_name(pg_current_wal_lsn())');
$node->set('outbox.enabled', 'on');
$node->wait_drained;
$checker->enqueue(40, keys => 10, prefix => 'after');
$node->wait_drained;
my @original = $fake->of_case;
$node->sql('SELECT pg_switch_wal()');
$node->wait_sql("SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver");
my $last = $node->sql('SELECT pg_walfile_name(pg_switch_wal())');
$node->wait_sql("SELECT last_archived_wal >= '$last' FROM pg_stat_archiver");
$node->stop;

sub restored
{
	my ($name, @words) = @_;
	my $server = OutboxTest::Node->new($name);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	mkdir $server->data_dir, 0700;
	tool('--pg1-path=' . $server->data_dir, @words, 'restore');
	$server->append_conf('postgresql.conf', <<"END");
port = ${\ $server->port}
unix_socket_directories = '${\ $server->host}'
archive_mode = off
END
	return $server;
}

sub shows
{
	my ($server) = @_;
	my $out = $server->sql("SELECT format('%-13s| backlog %s | %s', state, backlog, last_error) FROM outbox_status");
	note "outbox_status: $out";
	return $out;
}

sub silent
{
	my ($name, $server, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$server->wait_sql($STATE, 'not adopted');
	like(shows($server), $why, "$name: is silent and says why");
	ok($server->sql(q{SELECT test_enqueue(1, 1, 'here')}) eq '', "$name: enqueue works");
	is(scalar(() = $fake->of_case), 0, "$name: nothing is published");
	return;
}

sub adopt
{
	my ($name, $server, @before) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	note 'SELECT outbox_adopt();';
	is($server->sql('SELECT outbox_adopt()'), 't', "$name: adopted");
	$server->wait_drained;
	shows($server);
	my $copy = $checker->of($server);
	my $known = $copy->committed;
	# what the original had published after the point is not known here, and what
	# was pending at the point goes out again, in order
	$copy->check("$name: adopted it publishes what it has",
		[ (grep { $known->{ $_->{id} } && $_->{aggregate_id} =~ /^before/ } @published), $fake->of_case ],
		case => "pgBackRest: $name");
	return;
}

$fake->begin_case('a restore for tests, with the last word of the archive');
my $server = restored('tests', '--type=default');
start_in('staging', $server);
silent('another environment', $server,
	qr/"outbox.environment" is "staging" here, and the messages belong to "production"/);
$server->sql('TRUNCATE outbox; TRUNCATE test_sent');
$server->sql(q{SELECT test_enqueue(5, 1, 'tests')});
adopt('another environment', $server);
$server->stop;

$fake->begin_case('back to a point in time, in place of the original');
$server = restored('in_place', '--type=name', '--target=before_the_accident', '--target-action=promote');
start_in('production', $server);
silent('point in time', $server, qr/restored to a point in time: at restore point "before_the_accident"/);
is($server->sql(q{SELECT count(*) FROM outbox JOIN test_sent USING (id) WHERE key LIKE 'pending%'}),
	'60', 'what was pending then is pending again');
{
	local $ENV{OUTBOX_ENVIRONMENT} = 'production';
	$server->restart;
}
silent('point in time, restarted', $server, qr/restored to a point in time/);
adopt('point in time', $server);
$server->stop;

$fake->begin_case('a standby made from the backup');
$server = restored('standby', '--type=standby');
start_in('production', $server);
$server->wait_sql(q{SELECT count(*) FROM test_sent WHERE key LIKE 'after%'}, '40');
is($server->sql($STATE), 'standby', 'a standby publishes nothing');
$server->promote;
$server->wait_sql($STATE, 'idle');
$server->sql(q{SELECT test_enqueue(5, 1, 'promoted')});
$server->wait_drained;
shows($server);
cmp_ok(scalar(grep { $_->{aggregate_id} =~ /^promoted/ } $fake->of_case), '==', 5, 'promoted it goes on by itself');
$server->stop;

done_testing();
