# Answers of the broker that are not waited for are left unread for up to 20 ms
# (relay_wait_set.c): that saves wake-ups, and is seen nowhere else.
#
# suite: test alone (times are measured)
# takes: 8 s

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $COUNT = 100;
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);
my $client = $node->client;

# The exchange is declared.
$client->query(q{SELECT outbox_enqueue('first', '{}')});
$node->wait_drained;
my $worker = $node->sql('SELECT pid FROM outbox_workers');

# How often the worker has gone to sleep.
sub sleeps
{
	my ($n) = slurp_file("/proc/$worker/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m;
	return $n;
}

# Of one message, when they come one by one.
sub sleeps_each
{
	my ($apart_ms) = @_;
	my $before = sleeps();

	foreach (1 .. $COUNT)
	{
		$client->query(q{SELECT outbox_enqueue('e', '{}')});
		usleep($apart_ms * 1000);
	}
	my $each = (sleeps() - $before) / $COUNT;
	$node->wait_sql('SELECT count(*) FROM outbox WHERE available_at IS NULL', 0);
	return $each;
}

sleeps_each(30);
my ($median) = $node->sql('SELECT outbox_quantile(0.5, bounds, publish_to_confirm) FROM outbox_database_stats()');
cmp_ok($median, '<', 0.01, 'an answer counts from when it came');

my $unread = sleeps_each(4);

# Somebody waits for a message that does not go.
my $id = $client->query(q{SELECT outbox_enqueue('e', '{}', available_at => now() + interval '1 hour')});
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_until(qr/^begun/m, "\\echo begun\nSELECT outbox_wait('$id', '1 hour');\n");
$node->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT outbox_wait%' AND state = 'active'}, 1);
my $read = sleeps_each(4);
note sprintf '%.2f wake-ups a message, and %.2f when somebody waits', $unread, $read;
cmp_ok($unread, '<', 0.8 * $read, 'fewer wake-ups where nobody waits');
$node->sql("SELECT outbox_discard('$id')");
$session->quit;

# It begins to wait when the answer is unread already.
my @ms = sort { $a <=> $b } map {
	my $sent = $client->query(q{SELECT outbox_enqueue('e', '{}')});
	usleep(3000);
	my $start = time;
	$client->query("SELECT outbox_wait('$sent', '1 minute')");
	1000 * (time - $start);
} 1 .. 40;
note sprintf 'outbox_wait() took %.1f, %.1f, %.1f ms', @ms[ 4, 10, 20 ];
cmp_ok($ms[10], '<', 12, 'outbox_wait() has the answers read');

# Each waits for the answer to the one before.
my @took = sort { $a <=> $b } map {
	my $start = time;
	$client->query(q{SELECT count(outbox_enqueue('e', '{}', 'k', '1')) FROM generate_series(1, 40)});
	$node->wait_drained;
	time - $start;
} 1 .. 5;
note sprintf '40 messages of a key: %.2f to %.2f s', @took[ 0, 4 ];
cmp_ok($took[0], '<', 0.6, 'and so does a key');

$node->stop;
done_testing();
