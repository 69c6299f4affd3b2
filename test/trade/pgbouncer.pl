# pgbouncer in transaction mode as the way in: many clients over few server
# connections, in each of pgbench's protocols; settings of a transaction, prepared
# transactions, DISCARD ALL, and server connections that are replaced meanwhile.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my ($version) = (`pgbouncer --version 2>/dev/null` // '') =~ /PgBouncer (\d+\.\d+)/;
plan skip_all => 'pgbouncer is not installed (make test-trade installs it)' unless $version;

my $CLIENTS = 60;
my $SERVERS = 4;
my $EACH = 40;

# max_prepared_statements: from 1.21 on, what a client has prepared follows it.
my ($minor) = $version =~ /\.(\d+)/;
my $follows = $version =~ /^1\./ ? $minor >= 21 : 1;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, conf => 'outbox.poll_interval = 10s');
my $checker = OutboxTest::Checker->install($node);
my $user = $node->sql('SELECT current_user');

# --- the pooler

my $dir = $node->basedir . '/pgbouncer';
my $port = 20000 + $$ % 9000;
mkdir $dir;
append_to_file("$dir/users", "\"$user\" \"\"\n\"app\" \"\"\n");
append_to_file("$dir/ini", <<"END" . ($follows ? "max_prepared_statements = 100\n" : ''));
[databases]
postgres = host=${\ $node->host} port=${\ $node->port} dbname=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = $dir
listen_port = $port
logfile = $dir/log
pidfile = $dir/pid
auth_type = trust
auth_file = $dir/users
admin_users = $user
pool_mode = transaction
default_pool_size = $SERVERS
max_client_conn = 500
END
my $pooler = IPC::Run::start([ 'pgbouncer', '-q', "$dir/ini" ],
	'<', \undef, '>', "$dir/out", '2>&1', init => sub { chdir $dir or die "$dir: $!" });
END
{
	my $status = $?;
	eval { $pooler->kill_kill(grace => 2) } if $pooler;
	$? = $status;
}

sub connstr
{
	my ($as) = @_;
	return "host=$dir port=$port dbname=postgres user=" . ($as // $user);
}

sub pooled
{
	my ($query, $as) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run(
		[ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', connstr($as) ],
		'<', \$query, '>', \$out, '2>', \$err);
	chomp($out, $err);
	return $err ne '' ? $err : $out;
}

sub admin
{
	my ($query) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run(
		[ $node->installed_command('psql'), '-XAtq', '-d', "host=$dir port=$port dbname=pgbouncer user=$user", '-c', $query ],
		'<', \undef, '>', \$out, '2>', \$err) or die "$query: $err";
	return $out;
}

sub bench
{
	my ($file, $protocol, @more) = @_;
	my $log = '';
	my $ok = IPC::Run::run(
		[
			$node->installed_command('pgbench'), '-n', '-M', $protocol,
			'-c', $CLIENTS, '-j', 2, '-t', $EACH, '-f', $file, @more, connstr()
		],
		'<', \undef, '>&', \$log);
	return $ok && $log =~ /number of transactions actually processed: (\d+)/ ? $1 : $log;
}

wait_until('the pooler answers', sub { pooled('SELECT 1') eq '1' });
note "pgbouncer $version, $CLIENTS clients over $SERVERS server connections";

# --- many clients, few connections

my $script = $node->basedir . '/enqueue.sql';
append_to_file($script, <<'END');
\set undo random(1, 5)
BEGIN;
SELECT set_config('app.trace', 'client ' || :client_id, true);
SELECT test_enqueue(2, 3, 'c' || :client_id || '.');
SELECT outbox_enqueue('traced', jsonb_build_object('client', 'client ' || :client_id, 'trace', current_setting('app.trace')));
\if :undo = 1
ROLLBACK;
\else
COMMIT;
\endif
END

foreach my $protocol ('simple', 'extended', $follows ? 'prepared' : ())
{
	$fake->begin_case;
	is(bench($script, $protocol), $CLIENTS * $EACH, "$protocol: every transaction went through");
	$node->wait_drained(60);
	my @got = $fake->of_case;
	my @traced = grep { $_->{type} eq 'traced' } @got;
	is(scalar(@traced), @got / 3, "$protocol: messages stand or fall with their transactions");
	is(scalar(grep { $_->{body} !~ /"(client \d+)".*"\1"/ } @traced),
		0, "$protocol: a setting of the transaction is that of its client");
	$checker->check("$protocol protocol through pgbouncer", [ grep { $_->{type} ne 'traced' } @got ],
		case => "pgbouncer, transaction mode, $protocol");
	$node->sql('TRUNCATE test_sent');
}
is($node->sql(q{SELECT count(*) <= 4 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}),
	't', "no more than $SERVERS server connections");
note "pgbouncer $version does not carry prepared statements from one server connection to another (1.21 does)"
  unless $follows;

# --- server connections are replaced while messages flow

$fake->begin_case;
my $log = '';
my $load = IPC::Run::start(
	[
		$node->installed_command('pgbench'), '-n', '-c', $CLIENTS, '-j', 2,
		'-t', 3 * $EACH, '-f', $script, connstr()
	],
	'<', \undef, '>&', \$log);
foreach my $i (1 .. 5)
{
	my $before = () = $fake->published;
	wait_until("messages flow ($i)", sub { (() = $fake->published) > $before + 50 || !$load->pumpable });
	admin('RECONNECT');
}
$load->finish;
like($log, qr/processed: ${\ ($CLIENTS * 3 * $EACH)}\//, 'RECONNECT: every transaction went through');
$node->wait_drained(60);
$checker->check('server connections are replaced', [ grep { $_->{type} ne 'traced' } $fake->of_case ],
	case => 'pgbouncer, RECONNECT under load');
$node->sql('TRUNCATE test_sent');

# --- settings of outbox

is(pooled('BEGIN; SET LOCAL outbox.strict_keys = on; SHOW outbox.strict_keys; COMMIT; SHOW outbox.strict_keys'),
	"on\noff", 'SET LOCAL ends with the transaction, whoever has the connection next');
$node->sql(q{CREATE ROLE app LOGIN; GRANT EXECUTE ON FUNCTION outbox_enqueue TO app});
like(pooled('SET outbox.strict_keys = on', 'app'),
	qr/permission denied to set parameter "outbox.strict_keys"/, 'an application cannot change them');
like(pooled(q{SELECT outbox_enqueue('by app', '{}')}, 'app'), qr/^[-0-9a-f]{36}$/, 'it can enqueue');
$node->sql('ALTER DATABASE postgres SET outbox.strict_keys = on');
admin('RECONNECT');
is(pooled('SHOW outbox.strict_keys'), 'on', 'ALTER DATABASE SET holds for new server connections');
$node->wait_drained(60);

# all clients of one key: strictly in the order of the commits
my $strict = $node->basedir . '/strict.sql';
append_to_file($strict, "BEGIN;\nSELECT test_enqueue(1, 1, 'shared');\nCOMMIT;\n");
$fake->begin_case;
is(bench($strict, 'extended'), $CLIENTS * $EACH, 'strict_keys, one key: every transaction went through');
$node->wait_drained(60);
$checker->check('strict_keys through pgbouncer', [ $fake->of_case ], case => 'pgbouncer, strict_keys', skip_order => 1);
my %order;
my $n = 0;
# body has the n that was drawn before the lock, so the order is that of seq
$order{ $_->{id} } //= ++$n foreach $fake->of_case;
is($node->sql('SELECT count(*) FROM outbox_archive a JOIN test_sent USING (id)'), $n, 'all of them once');
my @by_seq = map { $order{$_} } split /\n/,
  $node->sql('SELECT a.id FROM outbox_archive a JOIN test_sent USING (id) ORDER BY a.seq');
is(scalar(grep { $by_seq[$_] < $by_seq[ $_ - 1 ] } 1 .. $#by_seq), 0, 'in the order of the commits');
$node->sql('ALTER DATABASE postgres RESET outbox.strict_keys; TRUNCATE test_sent');
admin('RECONNECT');

# --- what a session leaves behind

$fake->begin_case;
like(pooled(q{DISCARD ALL; SELECT outbox_enqueue('discarded', '{}')}), qr/^[-0-9a-f]{36}$/, 'DISCARD ALL');
pooled(q{BEGIN; SELECT test_enqueue(3, 1, 'two'); PREPARE TRANSACTION 'pooled'});
pooled(q{COMMIT PREPARED 'pooled'});
$node->wait_drained(60);
is(scalar(() = $fake->of_case), 4, 'prepared on one connection, committed on another: it goes out');
is(pooled('SELECT sum(n) FROM (SELECT count(*) AS n FROM pg_prepared_xacts) p'), '0', 'nothing is left prepared');

done_testing();
