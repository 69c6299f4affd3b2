# pg_upgrade from one major version of PostgreSQL to another, with messages that are
# published, pending, scheduled and failed: nothing is lost, the order is kept, neither
# server of pg_upgrade publishes, and the new one does so when it is told to.
#
# test/tools/pg-upgrade-test runs it, in a folder with several versions:
#	pg_upgrade.pl OLD NEW [OPTION]	directories of their installations; --link, --swap
#
# Its TRANSCRIPT file is what doc/dev/trade.md is made of.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Catalog;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my ($old_path, $new_path, @mode) = @ARGV;
my $transcript = $ENV{TRANSCRIPT};
my $STATE = 'SELECT state FROM outbox_status';
my $CONF = "outbox.poll_interval = 200ms\nautovacuum = off";
my $BACKLOG = 3000;

sub told
{
	my (@lines) = @_;
	foreach my $line (map { $_ eq '' ? $_ : split /\n/ } @lines)
	{
		note $line;
		append_to_file($transcript, "$line\n") if defined $transcript;
	}
	return;
}

my $rabbit = OutboxTest::Rabbit->start;
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $old = OutboxTest::Node->create(name => 'old', install_path => $old_path, broker => $rabbit, conf => $CONF);
my $checker = OutboxTest::Checker->install($old);
my ($old_version, $new_version) = map { my ($v) = run_command([ "$_/bin/postgres", '--version' ]); $v =~ s/.*\) //r } $old_path, $new_path;
told(join ' ', "PostgreSQL $old_version to $new_version", @mode);

sub content
{
	my ($node) = @_;
	return join "\n", map {
		"$_: " . $node->sql("SELECT count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM $_ t")
	} qw(outbox outbox_archive outbox_route outbox_control test_sent);
}

# --- what there is before: an archive, failed and scheduled messages, a backlog

$old->sql(<<'SQL');
CREATE ROLE app;
GRANT EXECUTE ON FUNCTION outbox_enqueue TO app;
GRANT INSERT ON outbox TO app;
INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts, enqueue_roles)
	VALUES ('nowhere', 'nowhere', 'topic', 1, '{app}');
SQL
$checker->enqueue(1000, keys => 20, prefix => 'before');
$old->wait_drained;
$old->sql(q{SET ROLE app; SELECT outbox_enqueue('lost', to_jsonb(n), route => 'nowhere') FROM generate_series(1, 20) n});
$old->wait_sql(q{SELECT count(*) FROM outbox_failed}, 20);
$old->set('outbox.enabled', 'off');
$old->wait_sql($STATE, 'disabled');
$checker->enqueue($BACKLOG, keys => 50, prefix => 'pending');
$old->sql(q{SELECT outbox_enqueue('later', '{}', available_at => '2100-01-01') FROM generate_series(1, 10)});
my $received = $consumer->unique;
is($received, 1000, 'the old server has published what came first');

# --- a prepared transaction is in the way

my $new = OutboxTest::Node->create(
	name => 'new', install_path => $new_path, broker => $rabbit, start => 0, extension => 0, conf => $CONF,
	# the default from 18 on, and it has to be as in the old one
	extra => $new_version >= 18 ? ['--no-data-checksums'] : []);
my $dir = $old->basedir . '/upgrade';
mkdir $dir or die "$dir: $!";
chdir $dir or die "$dir: $!";
my @upgrade = ("$new_path/bin/pg_upgrade", '-b', "$old_path/bin", '-B', "$new_path/bin",
	'-d', $old->data_dir, '-D', $new->data_dir,
	'-p', $old->port, '-P', $new->port, '-s', $new->host, '--retain', @mode);

sub upgrade
{
	my (@options) = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run([ @upgrade, @options ], '<', \undef, '>', \$out, '2>', \$err);
	note $out, $err;
	# what is printed over and over within a line is of no interest, and neither are paths
	$out =~ s/^.*\r//mg;
	$out =~ s/\S*\Q$dir\E\S*//g;
	$out =~ s/\e\[K//g;
	$out =~ s/[ \t]+$//mg;
	return ($ok, $out);
}

$old->sql(q{BEGIN; SELECT outbox_enqueue('two-phase', '{}'); PREPARE TRANSACTION 'business'});
$old->stop('fast');
my ($ok, $out) = upgrade('--check');
ok(!$ok, 'pg_upgrade refuses prepared transactions');
like($out, qr/The source cluster contains prepared transactions/, 'and says so');
told('', 'With a message in a prepared transaction:', '', '    $ pg_upgrade --check ...',
	map { "    $_" } grep { /prepared transactions|Failure/ } split /\n/, $out);
$old->start;
$old->sql(q{COMMIT PREPARED 'business'});
$old->sql(q{DELETE FROM outbox WHERE event_type = 'two-phase'});
my $content = content($old);
my $status = $old->sql('SELECT count(*) FILTER (WHERE available_at IS NULL), count(*) FILTER (WHERE available_at IS NOT NULL) FROM outbox WHERE status = \'pending\'');
is($status, "$BACKLOG|10", 'a backlog');
my $identity = $old->sql('SELECT system_identifier FROM pg_control_system()');
$old->stop('fast');

# --- pg_upgrade

# Were there a relay under pg_upgrade, on either side, it would have work.
$old->append_conf('postgresql.auto.conf', "outbox.enabled = on");
my $start = time;
($ok, $out) = upgrade();
my $seconds = time - $start;
ok($ok, "pg_upgrade from $old_version to $new_version") or BAIL_OUT('pg_upgrade failed');
told('', "With $BACKLOG pending, 20 failed, 10 scheduled and 1000 archived messages ($seconds s):", '',
	"    \$ pg_upgrade @{[ @mode, '...' ]}", map { "    $_" } grep { /\S/ && !/^-+$|^Checking|^$/ } split /\n/, $out);
my @logs = grep { -f } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*'), glob("$dir/*.log");
my $logged = join '', map { slurp_file($_) } @logs;
cmp_ok(scalar @logs, '>', 2, 'it has kept its logs');
unlike($logged, qr/outbox (relay|launcher)/, 'no relay ran under pg_upgrade');
is($consumer->unique, $received, 'and nothing was published');

# --- the new server

$new->start;
is(content($new), $content, 'everything is there, unchanged: messages, archive, routes');
isnt($new->sql('SELECT system_identifier FROM pg_control_system()'), $identity, 'the new server has another identity');
$new->wait_sql($STATE, 'not adopted');
my $id = $new->sql(q{SET ROLE app; SELECT outbox_enqueue('early', '{}', available_at => now() + '1 hour')});
like($id, qr/^[0-9a-f-]{36}$/, 'enqueue works, with the rights that were given');
is($consumer->unique, $received, 'and nothing is published');
told('', "    new=# SELECT state, backlog, failed, scheduled FROM outbox_status;",
	'    ' . $new->sql('SELECT state, backlog, failed, scheduled FROM outbox_status'),
	'    new=# SELECT hint FROM outbox_status;', '    ' . $new->sql('SELECT hint FROM outbox_status'));

$new->sql('CREATE DATABASE fresh');
$new->sql('CREATE EXTENSION outbox', 'fresh');
$new->wait_sql(q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass}, 4, undef, 'fresh');
# Left out is what pg_upgrade makes another way: NOT NULL has names from 18 on, and
# initial rights that are those of every function need not be said.
my @differences = grep { !/^constraint \w+_not_null on / && !/initial rights\n.*\(none\)\n.*"PUBLIC EXECUTE f by postgres","postgres EXECUTE/ }
  differences(
	catalog($new, 'postgres', before => 'REVOKE ALL ON FUNCTION outbox_enqueue FROM app; REVOKE ALL ON outbox FROM app'),
	catalog($new, 'fresh'));
is(scalar @differences, 0, 'the catalog is that of a fresh installation') or diag join "\n", @differences;

# --- enqueue is as fast: 20000 calls, on the old server and on the new one in turns, in
# time on a processor, as others may load the machine

sub enqueue_us
{
	my ($node) = @_;
	return $node->sql(<<'SQL') / 20000;
BEGIN;
CREATE TEMPORARY TABLE cost AS SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::numeric AS ns;
CREATE TEMPORARY TABLE ids AS SELECT outbox_enqueue('cost', '{"a": 1}', 'cost', (n % 100)::text, available_at => '2100-01-01')
	FROM generate_series(1, 20000) n;
SELECT (split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::numeric - ns) / 1000 FROM cost;
ROLLBACK;
VACUUM outbox;
SQL
}

if (grep { /^--(link|swap)$/ } @mode)
{
	# The new server has the files now, so the old one must not, and does not, come back.
	ok(!$old->start(fail_ok => 1), 'the old server does not start any more');
	told('The old server does not start any more.');
}
else
{
	# The old data directory is still whole; nobody may publish from it.
	$old->append_conf('postgresql.auto.conf', 'outbox.enabled = off');
	$old->start;
	my (%least);
	foreach my $round (1 .. 10)
	{
		foreach my $server ([ old => $old ], [ new => $new ])
		{
			my $us = enqueue_us($server->[1]);
			$least{ $server->[0] } = $us if !defined $least{ $server->[0] } || $us < $least{ $server->[0] };
		}
		last if $round > 2 && $least{new} < 1.2 * $least{old};
	}
	$old->stop('fast');
	my $cost = sprintf '20000 x outbox_enqueue(): %.1f us of CPU a call before, %.1f after, ratio %.2f',
	  $least{old}, $least{new}, $least{new} / $least{old};
	told('', $cost);
	cmp_ok($least{new}, '<', 1.3 * $least{old}, "enqueue is as fast: $cost");
}

# --- partitions go on to be made
my $last = $new->sql(q{SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass});
$new->sql("BEGIN; ALTER EXTENSION outbox DROP TABLE $last; DROP TABLE $last; SELECT outbox_archive_maintain('1 day'); COMMIT");
$new->wait_sql("SELECT to_regclass('$last') IS NOT NULL");

# --- adopted

is($new->sql('SELECT outbox_adopt()'), 't', 'adopted');
$consumer->wait_count(1000 + $BACKLOG, 60);
$new->wait_sql(q{SELECT backlog FROM outbox_status}, 0);
$checker = $checker->of($new);
$checker->enqueue(500, keys => 50, prefix => 'pending');
$consumer->wait_count(1500 + $BACKLOG, 60);
$rabbit->amqp('queue', 'found', ',', 'bind', 'found', 'nowhere', '#');
is($new->sql('SELECT outbox_requeue_failed()'), '20', 'what had failed is tried again');
$new->wait_sql(q{SELECT count(*) FROM outbox WHERE available_at IS NULL}, 0);
is($rabbit->depth('found'), 20, 'and arrives');
is($new->sql(q{SELECT count(*) FROM outbox}), '11', 'what is scheduled stays');
$new->sql(q{DELETE FROM outbox});
my @records = $consumer->stop;
ok($checker->check("pg_upgrade $old_version to $new_version", \@records, interruptions => 0), 'history');
told('', '    new=# SELECT outbox_adopt();', '    t', '',
	sprintf('%d messages received, of %d; none lost, none twice, order kept.', scalar @records, 1500 + $BACKLOG));
$new->stop('fast');
done_testing();
