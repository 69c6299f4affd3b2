# Single promises of the relay that a few steps show, without load: what a route's
# retention of 0 means, when a message failed, errors of one message, jobs that have to wait, prepared
# transactions that change something, a standby that is missing while others wait for us.
#
# suite: test
# takes: 30 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.retention = 1h
outbox.retry_initial = 50ms
outbox.retry_max = 50ms
outbox.poll_interval = 100ms
max_prepared_transactions = 2
END
my $state = 'SELECT state FROM outbox_status';

$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, retention, max_attempts) VALUES
	('kept', 'outbox', NULL, 10), ('gone', 'outbox', '0', 10), ('once', 'outbox', NULL, 2), ('many', 'outbox', NULL, 1000)
SQL

sub enqueue
{
	my ($type, $more) = @_;
	return $node->sql("SELECT outbox_enqueue('$type', '{}'" . (defined $more ? ", $more" : '') . ')');
}

# --- retention 0 of a route keeps nothing, whatever the others keep

enqueue('kept', q{route => 'kept'});
enqueue('gone', q{route => 'gone'});
$node->wait_drained;
is($node->sql('SELECT string_agg(event_type, $$ $$) FROM outbox_archive'), 'kept', 'retention 0 of a route');

# --- what is archived, by the route's archive when a message is settled

$node->sql(q{INSERT INTO outbox_route (name, exchange, archive) VALUES ('whole', 'outbox', 'message'),
	('bodiless', 'outbox', 'metadata'), ('untraced', 'outbox', 'none')});
sub archived
{
	return $node->sql(q{SELECT string_agg(event_type || CASE WHEN payload IS NULL AND body IS NULL THEN ' without' ELSE ' with' END
		|| coalesce(' ' || headers::text, ''), ', ' ORDER BY seq) FROM outbox_archive WHERE event_type ~ '^kind'});
}
# In one transaction, and so in one round of settling.
$node->sql(q{BEGIN; SELECT outbox_enqueue('kind-' || r, '{"a": 1}', headers => '{"h": 1}', route => r) FROM unnest(ARRAY['whole', 'bodiless', 'untraced']) r;
	SELECT outbox_enqueue_bytes('kind-bytes', 'b', route => 'bodiless'); COMMIT});
$node->wait_drained;
is(archived(), 'kind-whole with {"h": 1}, kind-bodiless without {"h": 1}, kind-bytes without', 'archive = message, metadata and none');
$node->sql(q{UPDATE outbox_route SET archive = 'message' WHERE name = 'bodiless';
	UPDATE outbox_route SET archive = 'metadata' WHERE name = 'whole'});
enqueue("kind-later-$_", "route => '$_'") for qw(whole bodiless);
$node->wait_drained;
like(archived(), qr/kind-bytes without, kind-later-whole without, kind-later-bodiless with$/, 'a change counts for what is settled after it');
like($node->sql_fails(q{SELECT outbox_replay('-infinity', route => 'bodiless')}), qr/without their body cannot be replayed/, 'no replay of metadata');
$node->sql(q{DELETE FROM outbox_archive WHERE event_type ~ '^kind'});

# --- when it failed, if it has

$fake->do('when type=twice : nack');
enqueue('twice', q{route => 'once'});
$node->wait_sql('SELECT attempts FROM outbox_failed', 2);
is($node->sql(q{SELECT failed_at > created_at AND failed_at <= clock_timestamp() FROM outbox_failed}), 't',
	'when it became failed');
$fake->do('forget', 'when type=later : nack');
enqueue('later', q{route => 'many'});
$node->wait_sql(q{SELECT attempts > 0 FROM outbox WHERE event_type = 'later'});
is($node->sql(q{SELECT count(*), count(failed_at) FROM outbox WHERE event_type = 'later'}), '1|0', 'and not that an attempt has');
$fake->do('forget');
$node->sql(q{DELETE FROM outbox WHERE status = 'failed'});
$node->wait_drained;

# --- a job adds nothing while nothing can be published, and waits for locks

$node->sql('SELECT outbox_pause()');
$node->wait_sql($state, 'paused');
my $job = $node->sql(q{SELECT outbox_replay('-infinity')});
my $n = $node->sql("SELECT total FROM outbox_job WHERE id = $job");
# it would have been looked at at once
$node->sql('SELECT pg_sleep(0.7)');
$node->wait_turn;
is($node->sql("SELECT done, (SELECT count(*) FROM outbox) FROM outbox_job WHERE id = $job"), '0|0',
	'paused: a job adds nothing');
my $log = $node->log_end;
my $locker = $node->session;
$locker->query_safe('BEGIN; LOCK TABLE outbox_archive IN ACCESS EXCLUSIVE MODE');
$node->sql('SELECT outbox_resume()');
# errors, eight of which end a job, are in the log
$node->wait_sql("SELECT last_error LIKE '%lock timeout%' FROM outbox_job WHERE id = $job");
unlike($node->log_text($log), qr/lock timeout/, 'a lock is no error of a job');
$locker->quit;
$node->wait_sql("SELECT state, done FROM outbox_job WHERE id = $job", "done|$n");

# --- what a prepared transaction changes counts within poll_interval of its end

$node->wait_drained;
$node->wait_sql($state, 'idle');
$node->sql(q{BEGIN; SELECT outbox_pause('kept'); PREPARE TRANSACTION 'p'});
$fake->begin_case;
$node->sql(q{COMMIT PREPARED 'p'});
$node->sql('SELECT pg_sleep(0.2)');
$node->wait_turn foreach 1 .. 2;
enqueue('paused', q{route => 'kept'});
enqueue('behind');
$fake->wait_type('behind');
is(join(' ', $fake->types), 'behind', 'COMMIT PREPARED of a pause');
$node->sql(q{SELECT outbox_resume('kept')});
$node->wait_drained;

# and what it removes: the key of a failed message
$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts, on_failed) VALUES ('block', 'outbox', 1, 'block')});
$fake->do('when type=first : nack');
$fake->begin_case;
my $first = enqueue('first', q{route => 'block', aggregate_id => '1'});
enqueue('second', q{route => 'block', aggregate_id => '1'});
$node->wait_sql('SELECT count(*) FROM outbox_failed', 1);
$node->wait_sql($state, 'idle');
$node->sql(qq{BEGIN; SELECT outbox_discard('$first'); PREPARE TRANSACTION 'p'});
$node->sql(q{COMMIT PREPARED 'p'});
$fake->wait_type('second');
$fake->do('forget');
$node->wait_drained;

# --- hopeless at once, however many attempts there were

$fake->do('when type=large : channel-close 406 "PRECONDITION_FAILED - message size 70000 is larger than configured max size 65536"');
enqueue('large', q{route => 'kept'});
$node->wait_sql(q{SELECT attempts FROM outbox_failed WHERE event_type = 'large'}, 1);
$fake->do('forget');

# --- a route of messages that close the channel has nobody to rest for

$node->sql('SELECT outbox_worker_restart()');    # no other route was in use lately
$node->wait_sql($state, 'idle');
$fake->do('when type=poison : channel-close 406 "PRECONDITION_FAILED - message size 70000 is larger than configured max size 65536"');
my @took = map {
	my $start = time;
	$node->sql("SELECT outbox_enqueue('poison', '{}') FROM generate_series(1, $_)");
	$node->wait_sql(q{SELECT count(*) FROM outbox WHERE status <> 'failed'}, 0);
	time - $start;
} 3, 9;
# with a neighbour it would be one in two seconds, after the first three
cmp_ok($took[1], '<', 3 * $took[0] + 9, 'nine more that are refused do not take longer than three did, each');
$fake->do('forget');
$node->sql(q{DELETE FROM outbox WHERE status = 'failed'});

# --- more locked rows than are looked for at a time: what was claimed between them goes out

$node->set('outbox."window"', '10');
foreach my $locked (1000, 1015, 1025, 1035)
{
	$fake->begin_case("$locked locked");
	$node->sql('SELECT outbox_pause()');
	$node->sql(q{SELECT outbox_enqueue('e', '{}') FROM generate_series(1, 1100)});
	my $locker = $node->session;
	$locker->query_safe("BEGIN; SELECT count(*) FROM (SELECT FROM outbox ORDER BY seq LIMIT $locked FOR UPDATE) l");
	$node->sql('SELECT outbox_resume()');
	wait_until("those that are not locked behind $locked",
		sub { (() = $fake->of_case) >= 1100 - $locked });
	$locker->query_safe('ROLLBACK');
	$locker->quit;
	$node->wait_drained;
	is(scalar(() = $fake->of_case), 1100, "$locked locked: each once");
}
$node->unset('outbox."window"');

# --- a number in headers with a fraction, be it 0, is no integer

$fake->begin_case;
enqueue('number', "headers => '{\"n\": $_}'") foreach '1', '1', '1.0';
$node->wait_drained;
my %digests;
$digests{ $_->{digest} }++ foreach $fake->of_case;
is(join(' ', sort values %digests), '1 2', 'two headers 1 are the same, and 1.0 is another');

# --- a routing key of 256 bytes is not cut

$node->sql(q{INSERT INTO outbox_route (name, exchange, routing_key) VALUES ('long', 'outbox', '{event_type}')});
$node->sql(q{SELECT outbox_pause('long')});
$fake->begin_case;
enqueue('e' x $_, q{route => 'long'}) foreach 127, 128;
$node->sql(q{UPDATE outbox_route SET routing_key = repeat('k', 128) || '{event_type}', paused = false WHERE name = 'long'});
$node->wait_sql(q{SELECT status FROM outbox WHERE length(event_type) = 128}, 'failed');
enqueue('behind');
$fake->wait_type('behind');
is(join(' ', sort map { length } $fake->types), '127 6', 'a routing key of 256 bytes');
$node->sql(q{DELETE FROM outbox});
$node->wait_drained;

# --- outbox.max_message_size is asked at enqueue only

$node->sql(q{SELECT outbox_pause()});
$fake->begin_case;
$node->sql(q{SELECT outbox_enqueue_bytes('large', convert_to(repeat('x', 2000), 'UTF8'))});
$node->set('outbox.max_message_size', '1kB');
$node->sql(q{SELECT outbox_resume()});
$node->wait_drained;
is(join(' ', $fake->types), 'large', 'a smaller max_message_size: what was accepted goes out');
$node->unset('outbox.max_message_size');

# --- an error of one message is its own: the others go out, and once

my $reasons = q{SELECT string_agg(concat_ws(' ', event_type, status, attempts, last_error), ', ' ORDER BY seq) FROM outbox};
$node->sql(q{CREATE CAST (bytea AS jsonb) WITHOUT FUNCTION});

sub enqueue_among_good
{
	my ($type, $damage) = @_;
	$node->sql(q{SELECT outbox_pause()});
	$fake->begin_case;
	$node->sql(q{SELECT outbox_enqueue('good', '{}') FROM generate_series(1, 20)});
	enqueue($type, q{headers => '{"h": 1}'});
	$node->sql(q{SELECT outbox_enqueue('good', '{}') FROM generate_series(1, 20)});
	$node->sql("SET session_replication_role = replica; UPDATE outbox SET $damage WHERE event_type = '$type'");
}

# A type that no entry has; a length beyond the end of the value.
foreach (q{payload = '\x0100004000000060'::bytea::jsonb}, q{payload = '\x01000040ffffff0f'::bytea::jsonb},
	q{headers = '\x01000020ffffff0fffffff0f'::bytea::jsonb})
{
	enqueue_among_good('damaged', $_);
	$node->sql(q{SELECT outbox_resume()});
	$node->wait_sql($reasons, 'damaged failed 1 a jsonb value is damaged');
	is(join(' ', $fake->types), join(' ', ('good') x 40), "$_: the others go out, and once");
	$node->sql(q{DELETE FROM outbox});
}

# An error anywhere else ends the worker, which settles before.
my $pid = $node->worker;
enqueue_among_good('good', 'payload = payload');
$node->test_point('mid_publish error 5');
$node->sql(q{SELECT outbox_resume()});
$node->wait_drained;
isnt($node->worker, $pid, 'an error while messages are sent: another worker');
is(scalar(() = $fake->types), 41, 'and none of them goes out twice');

# What one message needs, and the process cannot get.
$node->set('outbox.max_message_size', '100MB');
enqueue_among_good('huge', q{payload = to_jsonb(repeat(E'\x01', 12000000))});
$pid = $node->worker;
my ($size) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^VmSize:\s+(\d+) kB/m;
system('prlimit', "--pid=$pid", '--as=' . ($size + 70_000) * 1024 . ':') == 0 or die "prlimit failed\n";
$node->sql(q{SELECT outbox_resume()});
$node->wait_sql(q{SELECT string_agg(concat_ws(' ', event_type, status, attempts > 1, last_error), ', ') FROM outbox},
	'huge pending t out of memory');
is(join(' ', $fake->types), join(' ', ('good') x 40), 'out of memory: the others go out, and once');
is($node->worker, $pid, 'of the same worker');
system('prlimit', "--pid=$pid", '--as=unlimited:') == 0 or die "prlimit failed\n";
$node->wait_drained;
is(scalar(() = $fake->types), 41, 'and it, when there is memory');
$node->unset('outbox.max_message_size');

# --- confirm_timeout: from one confirm to the next, and not while the broker blocks us

$node->set('outbox.confirm_timeout', '3s');
$node->wait_sql($state, 'idle');
my $connections = $fake->stats->{connections};
$fake->do('answer serial 700 last');
enqueue("slow$_") foreach 1 .. 5;
$node->wait_drained;
$fake->do('answer hold');
enqueue('held');
$fake->wait_type('held');
$fake->do('now blocked low');
$node->wait_sql($state, 'blocked');
$node->sql('SELECT pg_sleep(3.5)');
$fake->do('now unblocked');
$fake->release;
$node->wait_drained;
is($fake->stats->{connections}, $connections, 'no connection is given up meanwhile');

# --- half a basic.return: no sign that the broker is at work

$fake->do('answer hold');
$fake->begin_case('half a basic.return');
$fake->mark_connections;
my $header = '003c0000' . '0000000000000064' . '0080' . '24' . unpack('H*', enqueue('half'));
$fake->wait_type('half');
$fake->do('now raw 01 0001 0000000d 003c 0032 0138 024e4f 0178 0179 ce '
	  . sprintf('02 0001 %08x %s ce', length($header) / 2, $header), 'answer ack');
$fake->wait_reconnects(1, 10);
$node->wait_drained;
is(join(' ', $fake->types), 'half half', 'half a basic.return: the message is sent again');
$node->unset('outbox.confirm_timeout');
$node->wait_sql($state, 'idle');

# --- a new connection while a slow broker confirms: what is in flight is waited for

$fake->do('answer delay 2500');
$fake->begin_case('a reload that needs a new connection');
$fake->mark_connections;
enqueue("reload$_") foreach 1 .. 5;
$fake->wait_case(5);
$node->set('outbox.heartbeat', '20s');
$fake->wait_reconnects(1, 10);
$node->wait_drained;
is(scalar(() = $fake->of_case), 5, 'a reload that needs a new connection: each message is published once');
$fake->do('answer ack');

# --- a queue that refuses is a reason to connect again, once what another one has is answered

$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('slow', 'slow')});
$fake->do('when type=full : nack', 'when exchange=slow : delay 2500');
$fake->begin_case('a full queue beside a slow one');
$fake->mark_connections;
enqueue("slow$_", q{route => 'slow'}) foreach 1 .. 5;
enqueue('full', q{route => 'many'});
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE route = 'slow'}, 0);
is(scalar(grep { /slow/ } $fake->types), 5, 'a full queue beside a slow one: each message is published once');
my $before = $fake->reconnects;
$fake->do('now fin');
$fake->wait_reconnects($before + 2);    # the second because of the refusals
$fake->do('forget');
$node->wait_drained;

# --- what waits for its next attempt holds its key when the route gets an order, or the workers get it

$node->set('outbox.retry_max', '2s');
$node->set('outbox.retry_initial', '2s');
$node->sql(q{INSERT INTO outbox_route (name, exchange, relay, ordering) VALUES
	('taken', 'outbox', 'external', 'key'), ('ordered', 'outbox', 'internal', 'none')});
$fake->begin_case;
$fake->do('when type=ordered-1 times=1 : nack');
my %key = map { $_ => "route => '$_', aggregate_id => 'key'" } qw(taken ordered);
enqueue("taken-$_", $key{taken}) foreach 1, 2;
$node->sql(q{SELECT outbox_nack(token, id, 'no', '2 s') FROM outbox_claim('taken', 1)});
$node->sql(q{UPDATE outbox_route SET relay = 'internal' WHERE name = 'taken'});
my $refused = enqueue('ordered-1', $key{ordered});
$node->wait_sql("SELECT attempts FROM outbox WHERE id = '$refused'", 1);
$node->sql(q{UPDATE outbox_route SET ordering = 'key' WHERE name = 'ordered'});
$node->wait_turn;
enqueue('ordered-2', $key{ordered});
$node->wait_drained;
is(join(' ', grep { /taken/ } $fake->types), 'taken-1 taken-2', 'an external relay has left a retry');
is(join(' ', grep { /ordered/ } $fake->types), 'ordered-1 ordered-1 ordered-2', 'so had the time without an order');
$fake->do('forget');

# --- a commit that waits for a standby lets others go on, and waits again

$node->sql("CREATE DATABASE other$_") foreach 1 .. 3;
$node->set('synchronous_standby_names', 'ghost');
$fake->begin_case;
$node->sql(q{SET synchronous_commit = local; SELECT outbox_enqueue('unsafe', '{}')});
my $waits = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND wait_event = 'SyncRep'};
$node->wait_sql($waits, 1);
foreach (1 .. 3)
{
	my $drops = $node->session;
	$drops->query_safe("SET synchronous_commit = local; DROP DATABASE other$_");
	$drops->quit;
	$node->wait_sql($waits, 1);
}
$node->sql('SELECT pg_sleep(0.3)');
is($node->sql($waits), 1, 'the relay waits still');
is(join(' ', $fake->types), '', 'nothing goes to the broker that the standby has not');
$node->set('synchronous_standby_names', '');
$fake->wait_type('unsafe');
$node->wait_drained;

done_testing();
