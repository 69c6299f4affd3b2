# A broker that goes away, comes back, blocks, refuses and forgets: messages wait
# for it, other routes are not affected, and what was confirmed is its business.
# doc/dev/fault-cases.md F3, F7 to F9, F11, F12, F26 to F28, F30.
#
# OUTBOX_TEST_FULL=1: the sizes and times that the cases name.
#
# suite: test faults
# takes: 93 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Proxy;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 200;
my $STOP_LIMIT = 5;
my $OTHERS_LIMIT = 6;                   # of a command in another database
my $INITIAL_MS = 100;
seed();

my $rabbit = OutboxTest::Rabbit->start;
my $proxy = OutboxTest::Proxy->start($rabbit);
my $second = OutboxTest::Proxy->start($rabbit);
my $node = OutboxTest::Node->create(
	broker => $proxy,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = ${INITIAL_MS}ms
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';
my $consumer;
my $log_mark;

# Each case has its own ledger and consumer; nothing is left of the one before.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$node->wait_drained;
	$node->sql('TRUNCATE test_sent, outbox_archive');
	$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
	$node->wait_sql($state, 'idle');
	$proxy->mark_connections;
	$log_mark = $node->log_end;
	return;
}

# The same link with another setting of it.
sub set_and_reconnect
{
	my ($setting, $value) = @_;
	$proxy->mark_connections;
	$node->set($setting, $value);
	wait_until("reconnect with $setting = $value",
		sub { $proxy->reconnects >= 1 });
	$node->wait_sql($state, 'idle');
	return;
}

# Every case ends here.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return $checker->finish($what, $consumer,
		wait => $FULL ? 300 : 120,
		window => $WINDOW, %params);
}

# Somebody in another database notices nothing.
sub others_go_on
{
	my ($what) = @_;
	my $start = time;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->sql('CREATE DATABASE probe', 'template1');
	$node->sql('DROP DATABASE probe', 'template1');
	cmp_ok(time - $start, '<', $OTHERS_LIMIT,
		"$what: CREATE and DROP DATABASE are not delayed");
	return;
}

# Producers that go on until stop_load(); what they have committed counts.
sub start_load
{
	my (%params) = @_;
	# at a rate that leaves the machine something for the other tests
	return $checker->load($FULL ? 300_000 : 100_000, keys => 50, pause_ms => 5, %params);
}

sub wait_seconds
{
	my ($start, $seconds, $what) = @_;
	return wait_until($what, sub { time - $start > $seconds }, $seconds + 10);
}

# Messages a second of a drain of so many, of what the archive has of the
# default route.
sub drain_rate
{
	my ($count, $during) = @_;

	$node->sql('SELECT outbox_pause()');
	$node->wait_sql($state, 'paused');
	$checker->enqueue($count, keys => 2000, per_tx => 5000);
	$during->() if $during;
	my $start = $node->sql('SELECT clock_timestamp() FROM outbox_resume()');
	$start =~ s/^\n//;
	$node->wait_sql(
		q{SELECT count(*) FROM outbox WHERE route = 'default'}, 0, 120);
	return $node->sql(qq{SELECT round($count
			/ extract(epoch FROM max(published_at) - '$start'))
		FROM outbox_archive WHERE route = 'default'
			AND published_at >= '$start'});
}

# --- F3: the broker's process is stopped for three heartbeats

begin('F3');
set_and_reconnect('outbox.heartbeat', '1s');
begin('F3: broker stopped for 3 heartbeats');
my $load = start_load(per_tx => 10);
$consumer->wait_count(300);
my $start = time;
$rabbit->pause;
others_go_on('F3, while it is stopped');
wait_until('the lost connection is noticed',
	sub { $node->log_text($log_mark) =~ /lost its connection/ }, 10);
cmp_ok(time - $start, '<', 2 * 1 + 2,
	'F3: noticed within 2 heartbeats and 2 s');
note sprintf 'noticed after %.2f s', time - $start;
wait_seconds($start, 3, 'three heartbeats are over');
$rabbit->resume;
$consumer->wait_count($consumer->unique + 500);
$checker->stop_load($load, 'F3');
my $v = finish('F3: broker stopped for 3 heartbeats',
	interruptions => $proxy->reconnects + 1);
$node->nobody_paid('F3');
note $proxy->reconnects . " reconnects, $v->{duplicates} duplicates";

# --- F26: the worker is busy in SQL for three heartbeats

$node->sql(<<'SQL');
CREATE SEQUENCE test_slow MAXVALUE 9223372036854775807;
CREATE FUNCTION test_slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_catalog.nextval('public.test_slow') = 5 THEN
		PERFORM pg_catalog.pg_sleep(3.5);
	END IF;
	RETURN NULL;
END
$$;
SQL
begin('F26: worker busy for 3 heartbeats');
$node->sql(
	'CREATE TRIGGER test_slow BEFORE DELETE ON outbox EXECUTE FUNCTION test_slow()'
);
$start = time;
$load = $checker->load(2000, keys => 50, per_tx => 20);
$node->wait_sql(
	q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay'
		AND wait_event = 'PgSleep'}, 1);
$load->wait;
$v = finish('F26: worker busy for 3 heartbeats', interruptions => 1);
is($proxy->reconnects, 1, 'F26: one reconnect');
$node->nobody_paid('F26');
$node->sql('DROP TRIGGER test_slow ON outbox');
note $proxy->reconnects . " reconnects, $v->{duplicates} duplicates";
set_and_reconnect('outbox.heartbeat', '15s');

# --- F7: memory alarm under load

my $alarm = $FULL ? 60 : 3;
begin('F7: memory alarm');
$load = start_load(per_tx => 10);
$consumer->wait_count(300);
$rabbit->memory_alarm(1);
$node->wait_sql($state, 'blocked');
$start = time;
my ($blocked, $looks) = (0, 0);
wait_until(
	'the alarm has lasted',
	sub {
		$looks++;
		$blocked++ if $node->sql($state) eq 'blocked';
		return time - $start > $alarm;
	},
	$alarm + 10);
is($node->sql($state), 'blocked', 'F7: the state is "blocked" all the time');
is($blocked, $looks, 'F7: in every look at it');
others_go_on('F7');
$node->nobody_paid('F7, during the alarm');
my $before = $consumer->unique;
$rabbit->memory_alarm(0);
$start = time;
wait_until('publishing resumes', sub { $consumer->unique > $before });
cmp_ok(time - $start, '<', 2, 'F7: the flow resumes within 2 s');
note sprintf 'resumed %.2f s after rabbitmqctl', time - $start;
$checker->stop_load($load, 'F7');
$v = finish('F7: memory alarm', interruptions => 0);
is($proxy->reconnects, 0, 'F7: no reconnect');
is($v->{duplicates}, 0, 'F7: no duplicate');
is(scalar($node->relay_lines($log_mark)), 2, 'F7: a line for the change, and one back');

# --- F8: disk alarm while idle, then three messages

begin('F8: disk alarm while idle');
$rabbit->disk_alarm(1);
$checker->enqueue(3);
$node->wait_sql($state, 'blocked', 5);
is($node->sql('SELECT count(*) FROM test_sent'), 3, 'F8: enqueue goes on');
others_go_on('F8');
$node->nobody_paid('F8, during the alarm');
$rabbit->disk_alarm(0);
$start = time;
$consumer->wait_count(3);
cmp_ok(time - $start, '<', 2, 'F8: delivered within 2 s');
$v = finish('F8: disk alarm while idle', interruptions => 0);
is($proxy->reconnects + $v->{duplicates}, 0, 'F8: no reconnect, no duplicate');

# --- F12: the binding is removed, and comes back

begin('F12: binding removed under load');
$node->sql(q{UPDATE outbox_route SET max_attempts = 1000 WHERE name = 'default'});
$load = $checker->load(3000, keys => 50, per_tx => 15);
$consumer->wait_count(100);
my $returned = 0;
foreach my $round (1 .. ($FULL ? 20 : 3))
{
	$rabbit->amqp('unbind', 'q', 'outbox', '#');
	$returned = $node->sql('SELECT returned FROM outbox_workers');
	$checker->enqueue(1, keys => 1, prefix => "round$round");
	$node->wait_sql("SELECT returned > $returned FROM outbox_workers");
	$rabbit->amqp('bind', 'q', 'outbox', '#');
}
$load->wait;
$v = finish('F12: binding removed under load', interruptions => 0);
is($v->{duplicates} + $proxy->reconnects, 0,
	'F12: what was returned was not taken for published, and nothing else again');
cmp_ok(
	$node->sql('SELECT sum(attempts) FROM outbox_archive'),
	'==',
	$node->sql('SELECT returned FROM outbox_workers'),
	'F12: each return is an attempt of its message');
begin('F12: never bound');
$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts)
	VALUES ('unbound', 'unbound', 'topic', 3)});
$checker->enqueue(5, keys => 5, route => 'unbound');
$checker->enqueue(200, keys => 5);
$node->wait_sql(q{SELECT count(*) FROM outbox_failed
	WHERE attempts = 3 AND last_error ~ 'NO_ROUTE'}, 5);
finish('F12: never bound, then failed', failed => 5);
$node->sql('SELECT outbox_discard(id) FROM outbox_failed');

# --- F11: a routing key that topic permissions forbid

$rabbit->ctl('set_topic_permissions', '-p', '/', 'guest', 'outbox',
	'^(?!forbidden)', '.*');
$node->sql(q{UPDATE outbox_route SET max_attempts = 3 WHERE name = 'default'});

# The broker remembers of a channel what it has allowed on it.
$proxy->do('close');
begin('F11: topic permission');
$checker->enqueue(150, keys => 50, per_tx => 150);
$checker->enqueue(2, keys => 2, event_type => 'forbidden.event');
$checker->enqueue(1, event_type => 'forbidden.event');
$checker->enqueue(150, keys => 50, per_tx => 150);
$checker->enqueue(150);
$start = time;
$consumer->wait_count(450);
note sprintf 'others delivered after %.2f s', time - $start;
$node->wait_sql(q{SELECT count(*) FROM outbox_failed}, 3);
is( $node->sql(
		q{SELECT count(*), min(attempts), max(attempts) FROM outbox_failed
			WHERE event_type = 'forbidden.event'
				AND last_error ~ 'ACCESS_REFUSED.*topic .forbidden.event'}),
	'3|3|3',
	'F11: messages with a forbidden routing key fail, with the words of the broker');
ok($node->wait_sql('SELECT count(*), max(attempts) FROM outbox_archive', '450|0'),
	'F11: the others of their route flow, and pay nothing');
ok( $node->wait_sql(q{SELECT state = 'idle' AND last_error !~ 'route "' FROM outbox_status}),
	'F11: the route is not broken');
cmp_ok(scalar $node->relay_lines($log_mark), '<=', 1, 'F11: few lines in the log');
$v = finish('F11: topic permission', failed => 3,
	interruptions => $proxy->reconnects);
note $proxy->reconnects . " reconnects, $v->{duplicates} duplicates";
unlike($node->sql('SELECT last_error FROM outbox_status'),
	qr/password|amqp:/, 'F11: no secret is shown');
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$rabbit->ctl('clear_topic_permissions', '-p', '/', 'guest');
$node->sql('SELECT outbox_requeue_failed()');
$consumer->wait_count(3);
$node->wait_drained;
$consumer->stop;
is($node->sql('SELECT count(*) FROM outbox'),
	0, 'F11: delivered once the permission is there');

# --- F9, F11: a route that cannot be written to, and the others' throughput

$rabbit->amqp('exchange', 'secret', ',', 'queue', 'secret', ',', 'bind',
	'secret', 'secret');
$rabbit->ctl('set_permissions', '-p', '/', 'guest', '.*', '^(?!secret).*',
	'.*');
$node->sql(q{INSERT INTO outbox_route (name, exchange)
	VALUES ('secret', 'secret'), ('missing', 'not.there')});
$proxy->do('close');
my $drain = $FULL ? 100_000 : 10_000;
begin('F9: drain with broken routes');
my ($best, @figures) = (0);
my $probes = 0;
foreach my $round (1 .. 3)
{
	$node->sql(q{DELETE FROM outbox WHERE route IN ('secret', 'missing')});
	my $normal = drain_rate($drain);
	my $n = $proxy->reconnects;
	my $broken = drain_rate(
		$drain,
		sub {
			$node->sql(qq{SELECT count(outbox_enqueue('e', '{}', aggregate_id => i::text,
					route => CASE i % 2 WHEN 0 THEN 'secret' ELSE 'missing' END))
				FROM generate_series(1, 1000) i});
		});
	$n = $proxy->reconnects - $n;
	$probes += $n;
	push @figures,
	  sprintf '%d a second, %d with broken routes (%.2f), %d probes', $normal,
	  $broken, $broken / $normal, $n;
	note $figures[-1];
	$best = $broken / $normal if $broken / $normal > $best;
	last if $best >= 0.8 && !$FULL;
}
cmp_ok($best, '>=', 0.8,
	'F9: others have 80 % of their throughput beside broken routes');
cmp_ok($probes, '>', 0, 'F9: the broken routes were tried');

# Under a load that lasts: one probe a backoff, and what each costs others.
$before = $proxy->reconnects;
$load = start_load(per_tx => 10);
wait_until('some probes under load',
	sub { $proxy->reconnects >= $before + ($FULL ? 30 : 3) });
$start = time;
my $n = $proxy->reconnects;
wait_until('some more probes',
	sub { time - $start > ($FULL ? 20 : 3) });
$n = $proxy->reconnects - $n;
cmp_ok($n, '<=', 1 + (time - $start) / 0.7,
	'F9: no more than one probe a backoff');
note sprintf '%d probes in %.1f s', $n, time - $start;
$checker->stop_load($load, 'F9');
is( $node->sql(
		q{SELECT count(*), max(attempts), min(status) FROM outbox WHERE route <> 'default'}
	),
	'1000|0|pending',
	'F9: messages of broken routes wait, with no attempt counted');
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE route = 'default'}, 0);
$n = $proxy->reconnects;
$rabbit->ctl('set_permissions', '-p', '/', 'guest', '.*', '.*', '.*');
$rabbit->amqp('exchange', 'not.there', ',', 'queue', 'missing', ',', 'bind',
	'missing', 'not.there');
wait_until('messages of the broken routes arrive',
	sub { $rabbit->depth('secret') >= 500 && $rabbit->depth('missing') >= 490 }
);
# The first failure of a route may come amid others; each later one is alone.
$v = finish('F9: drain with broken routes', interruptions => 3);
note "$n reconnects, $v->{duplicates} duplicates";
cmp_ok($rabbit->depth('secret'), '==', 500, 'F9: all of them, and once');

# --- F27: of two brokers one is always away

begin('F27: two brokers in turns');
$node->set('outbox.broker_uri',
	$proxy->uri =~ s/127\.0\.0\.1:\d+/'127.0.0.1:' . $proxy->port
	  . ',127.0.0.1:' . $second->port/er);
my @doors = ($proxy, $second);
$load = start_load(per_tx => 10);
my $worst = 0;
my $changes = $FULL ? 20 : 4;
foreach my $turn (1 .. $changes)
{
	my ($dead, $live) = @doors[ $turn % 2, ($turn + 1) % 2 ];
	$live->do('accept');
	$dead->do(pick(qw(refuse blackhole)), pick(qw(rst close)));
	my $from = time;
	$checker->enqueue(1);
	my $id = $node->sql('SELECT id FROM test_sent WHERE key IS NULL ORDER BY n DESC LIMIT 1');
	wait_until("message by the live one, turn $turn",
		sub { grep { $_->{id} eq $id } reverse $consumer->records });
	$worst = time - $from if time - $from > $worst;
	wait_seconds($from, $FULL ? 5 : 1.5, 'this turn is over');
}
$_->do('accept', 'forward') foreach @doors;
cmp_ok($worst, '<', 2 * 3 + 1,
	'F27: delivered by the live one within the connect timeouts');
note sprintf 'worst %.2f s', $worst;
$checker->stop_load($load, 'F27');
finish('F27: two brokers in turns', interruptions => $changes + 1);
$node->nobody_paid('F27');
$node->unset('outbox.broker_uri');

# --- F28: a long outage.  With the defaults a relay tries about 125 times in an
# hour (the wait is 30 s in the end); here the same number in seconds.

my $tries = $FULL ? 1440 : 125;
my $backlog = $FULL ? 100_000 : 10_000;
begin('F28: long outage');
$node->set('outbox.retry_max', '20ms');
$node->set('outbox.retry_initial', '10ms');
my @ratios;
my $rounds = 0;
# The two are measured one after the other, with other tests beside them.
while ($rounds++ < 5 && !grep { $_ >= 0.8 } @ratios)
{
	my $normal = drain_rate($backlog);
	$log_mark = $node->log_end;
	$proxy->mark_connections;

	# taken, and closed with the first byte
	$proxy->do('cut up 1', 'close');
	$checker->enqueue($backlog, keys => 2000, per_tx => 1000);
	wait_until('tries of a long outage', sub { $proxy->reconnects >= $tries }, 120);
	is($node->sql($state), 'broker down', 'F28: the outage is shown');
	$node->nobody_paid('F28, during the outage');
	# An estimate of the server's, which a session tells of its rows 10 s late at most.
	my $seen;
	my $known = wait_until('the backlog is known',
		sub {
			($seen) = $node->rows(q{SELECT backlog, s.* FROM outbox_status, pg_stat_user_tables s WHERE relname = 'outbox'});
			abs($seen->[0] - $backlog) < $backlog / 5;
		},
		30);
	diag join '|', map { $_ // '' } @$seen if !$known;
	my @lines = $node->relay_lines($log_mark);
	cmp_ok(scalar @lines, '<=', 2, 'F28: the log tells the change of state');
	my $back = $node->sql('SELECT clock_timestamp()');
	$proxy->do('cut up off');
	$node->wait_drained(120);
	my ($first, $rate) = @{
		($node->rows(
				qq{SELECT extract(epoch FROM min(published_at) - '$back'),
					round($backlog / extract(epoch FROM max(published_at) - '$back'))
					FROM outbox_archive WHERE published_at > '$back'}))[0]};
	push @ratios, $rate / $normal;
	note sprintf 'first after %.3f s, %d a second, normally %d (%.2f); %d tries',
	  $first, $rate, $normal, $ratios[-1], $proxy->reconnects;
	cmp_ok(scalar $node->relay_lines($log_mark), '<=', 3, 'F28: and the change back');
}
my ($ratio) = sort { $b <=> $a } @ratios;
cmp_ok($ratio, '>=', 0.8, 'F28: the backlog drains at 80 % of the normal rate');
finish('F28: long outage', interruptions => 2 * $rounds);
$node->nobody_paid('F28');
$node->unset($_) foreach qw(outbox.retry_max outbox.retry_initial);

# An address where nobody listens is tried every 5 s, however long the wait of a
# broker that is there and refuses us has become.

begin('unreachable');
$node->set('outbox.retry_initial', '60s');
$proxy->do('refuse', 'rst');
$node->sql('SELECT outbox_worker_restart()');
$node->wait_sql($state, 'broker down');
$node->wait_sql(q{SELECT last_error LIKE 'could not connect%' FROM outbox_status});
$checker->enqueue(100, keys => 10);
$proxy->do('accept');
my $open_at = time;
$node->wait_drained(30);
cmp_ok(time - $open_at, '<', 10,
	'a broker that listens again is found soon, though retry_initial is 60 s');
finish('unreachable', interruptions => 1);
$node->nobody_paid('unreachable');
$node->unset('outbox.retry_initial');

# --- F30: the queue is deleted while confirms are outstanding

begin('F30');
$consumer->stop;
$proxy->do('delay down 300');
$checker->enqueue(500, keys => 100);
$node->wait_sql('SELECT in_flight > 0 FROM outbox_status');
$rabbit->amqp('delete-queue', 'q');
my ($pid) = $node->backend_pids;
$node->wait_sql(q{SELECT count(*) > 0 FROM outbox WHERE attempts > 0});
$proxy->do('forward');
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
$node->wait_drained;
is( $node->sql(
		q{SELECT count(*), count(*) FILTER (WHERE status IN ('published', 'failed'))
			FROM test_sent JOIN outbox_messages USING (id)}),
	'500|500',
	'F30: each message was confirmed, or is failed');
my $confirmed_lost =
  500 - $consumer->unique - $node->sql('SELECT count(*) FROM outbox_failed');
note "$confirmed_lost messages were confirmed and went with the queue";
is(join(' ', $node->backend_pids), $pid, 'F30: the worker survives');
is($proxy->reconnects, 0, 'F30: and so does its connection');
$consumer->stop;
# some have used up their attempts if the consumer took its time
$node->sql('SELECT outbox_discard(id) FROM outbox_failed');
begin('F30: after the queue was deleted');
$checker->enqueue(100, keys => 10);
finish('F30: after the queue was deleted');

unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:/,
	'the server survives all of it');
done_testing();
