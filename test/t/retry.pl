# Failures of single messages and of destinations: who pays for them, who waits,
# and who is not affected.
#
# suite: test core faults

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $INITIAL = 0.2;
my $WINDOW = 100;
my $rabbit =
  OutboxTest::Rabbit->start(conf => "max_message_size = 65536\n");
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = ${\ ($INITIAL * 1000)}ms
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
my $row = 'SELECT status, attempts FROM outbox WHERE id =';

sub route
{
	my ($name, $exchange, $type, %more) = @_;
	$more{$_} = "'$more{$_}'" foreach keys %more;
	$type = defined $type ? "'$type'" : 'NULL';
	$node->sql('INSERT INTO outbox_route ('
		  . join(', ', qw(name exchange exchange_type), sort keys %more)
		  . ") VALUES ("
		  . join(', ', "'$name'", "'$exchange'", $type,
			map { $more{$_} } sort keys %more)
		  . ')');
	return;
}

sub enqueue
{
	my ($route, $event_type, $more) = @_;
	$more = defined $more ? ", $more" : '';
	return $node->sql(
		"SELECT outbox_enqueue('$event_type', '{}', route => '$route'$more)");
}

# Messages of other routes go through, and soon.
sub others_flow
{
	my ($when) = @_;
	my $before = $consumer->unique;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$checker->enqueue(200, keys => 20, prefix => 'flow');
	ok($consumer->wait_count($before + 200), "$when: others flow");
	return;
}

# --- unroutable: retried with backoff, then failed, then requeued

# What becomes of the row is written down by a trigger: a look from outside may
# come too late.
$node->sql(<<'SQL');
CREATE TABLE test_waits (attempts int PRIMARY KEY, available_at timestamptz);
CREATE FUNCTION test_wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.test_waits VALUES (NEW.attempts, NEW.available_at);
	RETURN NULL;
END $$;
CREATE TRIGGER test_wait AFTER UPDATE ON outbox FOR EACH ROW
	WHEN (NEW.status = 'pending') EXECUTE FUNCTION test_wait();
SQL
route('lonely', 'lonely', 'topic', max_attempts => 4);
my $id = enqueue('lonely', 'lonely.event');
$node->wait_sql("SELECT status FROM outbox WHERE id = '$id'", 'failed');
my %due = map { @$_ } $node->rows(
	'SELECT attempts, extract(epoch FROM available_at) FROM test_waits');
$node->sql('DROP FUNCTION test_wait CASCADE; DROP TABLE test_waits');
is(join(' ', sort keys %due), '1 2 3',
	'unroutable: pending with 1, 2, 3 attempts, one after the other');
cmp_ok($due{2} - $due{1}, '>', 2 * $INITIAL * 0.7,
	'unroutable: the second wait is twice the first');
cmp_ok($due{3} - $due{2}, '>', 4 * $INITIAL * 0.7,
	'unroutable: the third twice the second');
note sprintf 'waits: %.2f s, %.2f s', $due{2} - $due{1}, $due{3} - $due{2};
is($node->sql("$row '$id'"), 'failed|4', 'unroutable: failed after max_attempts');
like(
	$node->sql("SELECT last_error FROM outbox_failed WHERE id = '$id'"),
	qr/312.*NO_ROUTE/,
	'unroutable: last_error has the words of the broker');
is($node->sql("SELECT last_error_reason FROM outbox_failed WHERE id = '$id'"), 'unroutable', '... and the row its reason');
is( $node->sql('SELECT returned, retried, failed, published FROM outbox_workers'),
	'4|3|1|0',
	'unroutable: counted');
others_flow('a failed message');
$rabbit->amqp('queue', 'lonely', ',', 'bind', 'lonely', 'lonely');
is($node->sql("SELECT outbox_requeue('$id')"), 't', 'unroutable: requeued');
wait_until('requeued message arrives', sub { $rabbit->depth('lonely') == 1 });
is(($rabbit->get('lonely'))[0]{message_id},
	$id, 'unroutable: delivered once the binding is there');
$node->wait_sql("SELECT count(*) FROM outbox WHERE id = '$id'", '0');

# the binding comes while the message waits for another attempt
route('later', 'later', 'topic');
$id = enqueue('later', 'later.event');
$node->wait_sql("SELECT attempts >= 1 FROM outbox WHERE id = '$id'");
$rabbit->amqp('queue', 'later', ',', 'bind', 'later', 'later');
wait_until('message arrives by itself', sub { $rabbit->depth('later') == 1 });
$node->wait_drained;
my ($attempts, $first) = split /\|/, $node->sql(
	q{SELECT attempts, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
	FROM outbox_archive} . " WHERE id = '$id'");
cmp_ok($attempts, '>=', 1, 'the archive knows the attempts that failed');
my ($later) = $rabbit->get('later');
is($later->{headers}{'x-outbox-attempts'}, $attempts, 'and the consumer');
is($later->{headers}{'x-first-enqueued'}, $first, 'which learns when it was enqueued');

# --- nack

$rabbit->amqp('queue', 'full', 'x-max-length=1', 'x-overflow=reject-publish',
	',', 'publish', '', 'full', 'x');
route('full', '', undef, routing_key => 'full', max_attempts => 50);
$id = enqueue('full', 'full.event');
$node->wait_sql("SELECT attempts >= 2 FROM outbox WHERE id = '$id'");
like($node->sql("SELECT last_error FROM outbox WHERE id = '$id'"),
	qr/nack/, 'nack: last_error says so');
is($node->sql("SELECT last_error_reason FROM outbox WHERE id = '$id'"), 'queue refuses', '... and the row its reason');
cmp_ok($node->sql('SELECT nacked FROM outbox_workers'),
	'>=', 2, 'nack: counted');
others_flow('a nacked message');
$rabbit->amqp('purge', 'full');
wait_until('nacked message arrives', sub { $rabbit->depth('full') == 1 });
is(($rabbit->get('full'))[0]{message_id}, $id, 'nack: delivered when there is room');
$node->wait_drained;

# --- larger than the broker takes, in the midst of good ones

$consumer->stop;
$node->sql('TRUNCATE test_sent; TRUNCATE outbox_archive');
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
route('big', 'outbox', 'topic', max_attempts => 2);
my $offset = $node->log_end;
$node->sql(<<'SQL');
BEGIN;
SELECT test_enqueue(300, 100), test_enqueue(300), test_enqueue(1, 1, 'k', 70000, 'big'),
	test_enqueue(300, 100), test_enqueue(300), test_enqueue(1, 0, '', 70000, 'big'),
	test_enqueue(300);
COMMIT
SQL
$consumer->wait_count(1500);
$node->wait_drained;
is( $node->sql(
		q{SELECT count(*), min(attempts), max(attempts) FROM outbox_failed WHERE last_error ~ '406.*PRECONDITION|PRECONDITION.*406|PRECONDITION_FAILED'}
	),
	'2|1|1',
	'too large: the guilty ones fail, with the reason');
note $node->sql('SELECT DISTINCT last_error FROM outbox_failed');
is($node->sql('SELECT DISTINCT last_error_reason FROM outbox_failed'), 'message refused', '... and with its code');
is($node->sql('SELECT count(*), max(attempts) FROM outbox_archive'),
	'1500|0', 'too large: no good one is blamed');
# Each of the two closes the channel twice: once among others, and once alone; no
# further attempt would help.
$checker->check('too large, in the midst of good ones',
	[ $consumer->records ], interruptions => 2, window => $WINDOW, failed => 2);
$node->sql('SELECT outbox_discard(id) FROM outbox_failed');
is($node->sql('SELECT count(*) FROM outbox'), '0', 'too large: discarded');

# --- exchange missing: the route waits, and only it

route('missing', 'not.there', undef);
$offset = $node->log_end;
enqueue('missing', 'missing.event', "aggregate_id => 'k$_'") foreach 1 .. 3;
others_flow('exchange missing');
$node->wait_sql(
	q{SELECT last_error ~ 'route "missing".*NOT_FOUND' FROM outbox_status});
enqueue('missing', 'missing.event');
others_flow('exchange missing, later');
is( $node->sql(
		q{SELECT count(*), max(attempts), min(status) FROM outbox WHERE route = 'missing'}
	),
	'4|0|pending',
	'exchange missing: its messages wait, with no attempt counted');
my @lines = grep { /outbox relay LOG:/ } split /\n/, $node->log_text($offset);
is(scalar @lines, 1, 'exchange missing: one line in the log') or diag join "\n", @lines;
# An exchange that has no queue yet would return the messages.
$node->sql('SELECT outbox_pause()');
$rabbit->amqp('exchange', 'not.there', ',', 'queue', 'missing', ',',
	'bind', 'missing', 'not.there');
$node->sql('SELECT outbox_resume()');
wait_until('messages arrive', sub { $rabbit->depth('missing') == 4 });
$node->wait_drained;
is($node->sql(q{SELECT max(attempts) FROM outbox_archive WHERE route = 'missing'}),
	'0', 'exchange missing: delivered once it is there');

# --- no permission: the same

$rabbit->amqp('exchange', 'secret', ',', 'queue', 'secret', ',', 'bind',
	'secret', 'secret');
$rabbit->ctl('set_permissions', '-p', '/', 'guest', '.*', '^(?!secret).*',
	'.*');
route('secret', 'secret', undef);
$consumer->stop;
$node->sql('TRUNCATE test_sent');
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$offset = $node->log_end;
$node->sql(<<'SQL');
SELECT test_enqueue(100, 10),
	outbox_enqueue('secret.event', '{}', route => 'secret', aggregate_id => 'k1'),
	outbox_enqueue('secret.event', '{}', route => 'secret', aggregate_id => 'k1'),
	outbox_enqueue('secret.event', '{}', route => 'secret'),
	test_enqueue(100, 10)
SQL
$consumer->wait_count(200);
$node->wait_sql(
	q{SELECT last_error ~ 'route "secret".*ACCESS_REFUSED' FROM outbox_status});
others_flow('no permission');

# Retries of the route close the channel each time; the log tells changes.
my $reconnects = $node->sql('SELECT reconnects FROM outbox_workers');
$node->wait_sql("SELECT reconnects >= $reconnects + 2 FROM outbox_workers");
others_flow('no permission, later');
is( $node->sql(
		q{SELECT count(*), max(attempts), min(status) FROM outbox WHERE route = 'secret'}
	),
	'3|0|pending',
	'no permission: its messages wait, with no attempt counted');
@lines = grep { /outbox relay LOG:/ } split /\n/, $node->log_text($offset);
ok(@lines >= 1 && @lines <= 3, 'no permission: few lines in the log') or diag join "\n", @lines;
note $_ foreach @lines;
# Among others it was at first; the message that tries the route again goes alone.
$checker->check('no permission for another route',
	[ $consumer->records ], interruptions => 1, window => $WINDOW);
$rabbit->ctl('set_permissions', '-p', '/', 'guest', '.*', '.*', '.*');
wait_until('messages arrive', sub { $rabbit->depth('secret') == 3 });
$node->wait_drained;

# --- paused

my $before = $consumer->unique;
route('slow', 'outbox', 'topic');
$node->sql(q{SELECT outbox_pause('slow')});
enqueue('slow', 'slow.event') foreach 1 .. 3;
others_flow('paused route');
is($node->sql(q{SELECT count(*) FROM outbox WHERE route = 'slow'}),
	'3', 'paused route: its messages wait');
is($consumer->unique, $before + 200, 'paused route: none was sent');
isnt($node->sql('SELECT state FROM outbox_status'),
	'paused', 'paused route: the database is not paused');
$node->sql(q{SELECT outbox_resume('slow')});
$consumer->wait_count($before + 203);
$node->wait_drained;

$node->sql('SELECT outbox_pause()');
$node->wait_sql('SELECT state FROM outbox_status', 'paused');
isnt($node->sql('SELECT hint FROM outbox_status'),
	'', 'paused database: with a hint');
$checker->enqueue(50);
enqueue('slow', 'slow.event');
$node->wait_turn foreach 1 .. 2;
is($consumer->unique, $before + 203, 'paused database: nothing is sent');
is($node->sql('SELECT backlog, in_flight FROM outbox_status'),
	'51|0', 'paused database: messages wait');
$node->sql('SELECT outbox_resume()');
$consumer->wait_count($before + 254);
$node->wait_drained;

# --- scheduled

$id = enqueue('default', 'scheduled.event',
	q{available_at => clock_timestamp() + '2 s'});
my $due = $node->sql(
	"SELECT extract(epoch FROM available_at) FROM outbox WHERE id = '$id'");
is($node->sql('SELECT scheduled, backlog FROM outbox_status'),
	'1|0', 'scheduled: shown as such');
my $past = enqueue('default', 'scheduled.event',
	q{available_at => clock_timestamp() - interval '1 h'});
others_flow('a scheduled message');
wait_until(
	'scheduled message arrives',
	sub {
		grep { $_->{id} eq $id } $consumer->records;
	});
sub late
{
	my ($record) = $consumer->copies($id);
	my $late = $record->{us} / 1e6 - $due;
	cmp_ok($late, '>=', 0, 'scheduled: not before its time');
	return $late;
}
my $scheduled = 0;
my $late = best_of(1, sub {
	return late() unless $scheduled++;
	$id = enqueue('default', 'scheduled.event', q{available_at => clock_timestamp() + '1 s'});
	$due = $node->sql("SELECT extract(epoch FROM available_at) FROM outbox WHERE id = '$id'");
	wait_until('another scheduled message arrives', sub { $consumer->copies($id) });
	return late();
});
cmp_ok($late, '<', 1, sprintf 'scheduled: and soon after (%.0f ms)', $late * 1000);
ok((grep { $_->{id} eq $past } $consumer->records),
	'scheduled: a time that has passed means at once');
$node->wait_drained;
$consumer->stop;

# --- a failed message and the later ones of its key

$rabbit->amqp('exchange', 'seq', ',', 'queue', 'seq', ',',
	'bind', 'seq', 'seq', 'good.#');
route('block', 'seq', 'topic', max_attempts => 1, on_failed => 'block');
route('skip', 'seq', 'topic', max_attempts => 1, on_failed => 'skip');
my %bad;
my %depth = (block => 0, skip => 2);
foreach my $on_failed (qw(block skip))
{
	$bad{$on_failed} = enqueue($on_failed, 'bad.event', q{aggregate_id => 'k'});
	enqueue($on_failed, 'good.event',
		q{aggregate_id => 'k'}) foreach 1 .. 2;
	enqueue($on_failed, 'good.event', q{aggregate_id => 'other'});
	$node->wait_sql("SELECT status FROM outbox WHERE id = '$bad{$on_failed}'",
		'failed');
	wait_until("$on_failed: others arrive",
		sub { $rabbit->depth('seq') == 1 + $depth{$on_failed} });

	# a new worker must know it, too
	$node->sql('SELECT outbox_worker_restart()');
	enqueue($on_failed, 'good.event', q{aggregate_id => 'third'});
	wait_until("$on_failed: others arrive after a restart",
		sub { $rabbit->depth('seq') == 2 + $depth{$on_failed} });
	# What has arrived is settled soon.
	$node->wait_sql(
		"SELECT count(*) FROM outbox WHERE route = '$on_failed' AND status = 'pending'",
		$on_failed eq 'block' ? 2 : 0);
	is( $node->sql(
			"SELECT count(*), coalesce(max(attempts), 0) FROM outbox WHERE route = '$on_failed' AND status = 'pending'"
		),
		$on_failed eq 'block' ? '2|0' : '0|0',
		$on_failed eq 'block'
		? 'block: later messages of the key wait for the failed one'
		: 'skip: later messages of the key go on without it');
	$rabbit->amqp('purge', 'seq');
	next if $on_failed eq 'skip';
	is($node->sql("SELECT outbox_discard('$bad{block}')"),
		't', 'block: the failed one is discarded');
	wait_until('block: later messages arrive',
		sub { $rabbit->depth('seq') == 2 });
	$rabbit->amqp('purge', 'seq');
}

# block, and requeue after the fix: the failed one comes first
$bad{requeue} = enqueue('block', 'bad.event', q{aggregate_id => 'r'});
enqueue('block', 'good.event', q{aggregate_id => 'r'});
$node->wait_sql("SELECT status FROM outbox WHERE id = '$bad{requeue}'",
	'failed');
$rabbit->amqp('bind', 'seq', 'seq', 'bad.#');
$node->sql("SELECT outbox_requeue('$bad{requeue}')");
wait_until('both arrive', sub { $rabbit->depth('seq') == 2 });
is(join(' ', map { $_->{type} } $rabbit->get('seq', 2)),
	'bad.event good.event',
	'block: a requeued message goes before the later ones of its key');
$rabbit->amqp('unbind', 'seq', 'seq', 'bad.#');
$node->wait_drained;
is($node->sql('SELECT count(*) FROM outbox'),
	'1', 'skip: the failed one stays until it is discarded');
$node->sql('SELECT outbox_discard(id) FROM outbox_failed');

# --- order per key across retries

route('seq', 'seq', 'topic', max_attempts => 100);
$node->sql('TRUNCATE test_sent');
$consumer = OutboxTest::Consumer->start(
	$rabbit,
	queue => 'seq',
	passive => 1);
my %to = (route => 'seq', keys => 2, prefix => 'late');
$checker->enqueue(4, %to, event_type => 'good.event');
$checker->enqueue(2, %to, event_type => 'bad.event');
$checker->enqueue(6, %to, event_type => 'good.event');
$checker->enqueue(30, %to, prefix => 'other', event_type => 'good.event');
$consumer->wait_count(34);
$node->wait_sql(
	q{SELECT count(*) FROM outbox WHERE event_type = 'bad.event' AND attempts >= 3},
	'2');
is( $node->sql(
		q{SELECT count(*), max(attempts) FROM outbox WHERE event_type = 'good.event'}
	),
	'6|0',
	'order: later messages of the key wait for the one that is retried');
$node->sql('SELECT outbox_worker_restart()');
$checker->enqueue(10, %to, prefix => 'fourth', event_type => 'good.event');
$consumer->wait_count(44);
ok( $node->wait_sql(q{SELECT count(*) FROM outbox WHERE event_type = 'good.event'}, 6),
	'order: also after a new worker has started');
$rabbit->amqp('bind', 'seq', 'seq', 'bad.#');
$consumer->wait_count(52);
$node->wait_drained;
$checker->check('order per key across retries',
	[ $consumer->stop ], interruptions => 0);

done_testing();
