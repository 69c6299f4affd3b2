# A hostile tenant: what a role that may enqueue to its own route does to others.  In
# each of these states a victim on another route enqueues at a steady rate, and its
# messages arrive while the attack goes on.  doc/security.md, Bounds; doc/dev/fault-cases.md
# H3, H5, H10, H11.
#
# OUTBOX_TEST_FULL=1: larger attacks, in turns with rounds without one, and the victim's
# p99 (commit to arrival) compared with theirs; otherwise only that its messages arrive
# before the deadline of a test, as a loaded machine is no measure.  The times are told
# as a table in both.  A flood of more than goes out is only told, and held where its
# route has a max_pending.  OUTBOX_TEST_CASE=REGEXP: some of the attacks.
# The short form has those that concern most.
#
# suite: test faults
# takes: 15 s

use strict;
use warnings;

use IPC::Run ();
use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Client;
use OutboxTest::Consumer;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $CASES = $ENV{OUTBOX_TEST_CASE} // '';
# Messages of the victim in a round, and how far apart.
my $MESSAGES = $FULL ? 500 : 10;
my $INTERVAL_US = $FULL ? 10_000 : 5_000;
my $ROUNDS = $FULL ? 3 : 1;
# p99 with the attack: twice that without it, or this, below which it is the machine's.
my $TIMES = 2;
my $FLOOR_S = 0.25;
# max_pending of a flood that is held.
my $CAP = 500;
# So many times fewer in the short form.
my $SCALE = $FULL ? 20 : 1;
my $LIMIT = 2000 * $SCALE;

my $rabbit = OutboxTest::Rabbit->start();
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<'END');
outbox.retry_initial = 100ms
outbox.retry_max = 1s
max_prepared_transactions = 40
END
my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'victim', exchange_type => 'topic');
$rabbit->amqp('exchange', 'sink', ',', 'queue', 'sink', 'x-max-length=1', ',', 'bind', 'sink', 'sink', ',',
	'exchange', 'full', ',', 'queue', 'full', 'x-max-length=1', 'x-overflow=reject-publish', ',',
	'bind', 'full', 'full', ',', 'exchange', 'nowhere', ',', 'exchange', 'poison');
$rabbit->ctl('set_topic_permissions', '-p', '/', 'guest', 'poison', '^none$', '.*');
$node->sql(<<"SQL");
CREATE ROLE victim LOGIN;
CREATE ROLE hostile LOGIN;
CREATE ROLE signaller LOGIN IN ROLE pg_signal_backend;
CREATE ROLE forwarder LOGIN;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes, outbox_enqueue_text, outbox_enqueue_batch, outbox_enqueue_once,
	outbox_wait TO victim, hostile;
GRANT INSERT (id, event_type, payload, body, aggregate_type, aggregate_id, headers, properties, route, routing_key, available_at),
	SELECT (seq, id, route, created_at) ON outbox TO hostile;
GRANT SET ON PARAMETER outbox.strict_keys TO hostile;
GRANT EXECUTE ON FUNCTION outbox_claim, outbox_ack, outbox_nack, outbox_extend, outbox_release TO forwarder;
INSERT INTO outbox_route (name, exchange, max_attempts, enqueue_roles, relay, max_pending) VALUES
	('victim', 'victim', 10, '{victim}', 'internal', NULL),
	('h_sink', 'sink', 10, '{hostile}', 'internal', NULL),
	('h_poison', 'poison', 3, '{hostile}', 'internal', NULL),
	('h_full', 'full', 3, '{hostile}', 'internal', NULL),
	('h_nowhere', 'nowhere', 2, '{hostile}', 'internal', NULL),
	('h_missing', 'missing', 10, '{hostile}', 'internal', NULL),
	('h_blocked', 'nowhere', 1, '{hostile}', 'internal', NULL),
	('h_paused', 'sink', 10, '{hostile}', 'internal', NULL),
	('h_capped', 'sink', 10, '{hostile}', 'internal', $LIMIT),
	('h_external', '', 10, '{hostile}', 'external', NULL);
UPDATE outbox_route SET on_failed = 'block' WHERE name = 'h_blocked';
SELECT outbox_pause('h_paused');
SELECT outbox_pause('h_capped');
SQL
my %pending = map { $_ => "SELECT count(*) > 0 FROM outbox WHERE route = '$_'" }
  qw(h_sink h_full h_nowhere h_missing h_paused h_external);

# --- the hostile

my (@attackers, %said);

# A session that does this until it is ended.
sub attack
{
	my ($sql, $role) = @_;
	local $ENV{PGAPPNAME} = 'attack';
	push @attackers, IPC::Run::start(
		[
			'psql', '-XAtq', '-d', $node->connstr('postgres') . ' user=' . ($role // 'hostile'),
			'-c', 'SET client_min_messages = error', map { ('-c', $_) } ref $sql ? @$sql : $sql
		],
		'<', \undef, '>', \my $out, '2>', ($said{ scalar keys %said } = \my $err));
	return;
}

# The same again and again, in a transaction each; what is refused is tried again.
sub again
{
	my ($statement) = @_;
	return "DO \$\$ BEGIN LOOP BEGIN $statement EXCEPTION WHEN OTHERS THEN NULL; END; COMMIT; END LOOP; END \$\$";
}

# Without a subtransaction.
sub commits
{
	my ($statement) = @_;
	return "DO \$\$ BEGIN LOOP $statement COMMIT; END LOOP; END \$\$";
}

# A flood goes on when it is refused.
sub flood
{
	my ($attack, $statement) = @_;
	return attack($attack->{cap} ? again($statement) : commits($statement));
}

sub many
{
	my ($n, $arguments) = @_;
	return "PERFORM outbox_enqueue($arguments) FROM generate_series(1, $n) i;";
}

sub as_hostile
{
	return OutboxTest::Client->connect($node->connstr('postgres') . ' user=hostile');
}

my $EXTREME = q{jsonb_build_object(repeat('n', 200), repeat('v', 100000), 'x', (SELECT jsonb_object_agg('k' || j, j) FROM generate_series(1, 500) j))};

# name; begin: the attack; there: what shows that it has begun; end: what is left to
# be undone.  full: only in the long form.  flood: of this route, of more than goes out.
my @attacks = (
	{
		name => 'nothing but a flood',
		flood => 'h_sink',
		begin => sub { flood($_[0], many(100, q{'e', '{}', route => 'h_sink'})) foreach 1 .. 2 },
		there => $pending{h_sink},
	},
	{
		name => 'refused (basic.nack)',
		flood => 'h_full',
		begin => sub { flood($_[0], many(50, q{'e', '{}', route => 'h_full'})) },
		there => q{SELECT nacked > 0 FROM outbox_routes_status WHERE route = 'h_full'},
	},
	{
		name => 'unroutable, and given up',
		flood => 'h_nowhere',
		full => 1,
		begin => sub { flood($_[0], many(50, q{'e', '{}', route => 'h_nowhere'})) },
		there => q{SELECT gave_up > 0 FROM outbox_routes_status WHERE route = 'h_nowhere'},
	},
	{
		name => 'exchange missing',
		flood => 'h_missing',
		begin => sub { flood($_[0], many(50, q{'e', '{}', route => 'h_missing'})) },
		there => q{SELECT waits_because IS NOT NULL FROM outbox_routes_status WHERE route = 'h_missing'},
	},
	{
		name => 'given up, and blocking, for the aggregates of the victim',
		begin => sub {
			attack(again(q{PERFORM outbox_enqueue('e', '{}', 't', (i % 5)::text, route => 'h_blocked') FROM generate_series(1, 50) i; PERFORM pg_sleep(0.1);}));
		},
		there => q{SELECT count(DISTINCT aggregate_id) = 5 FROM outbox_held_keys WHERE route = 'h_blocked' AND reason = 'failed'},
	},
	{
		name => 'paused, with a backlog that grows',
		begin => sub {
			$node->sql("SELECT count(outbox_enqueue('e', '{}', aggregate_id => (i % 7)::text, route => 'h_paused'))
				FROM generate_series(1, 5000 * $SCALE) i");
			attack(commits(many(100, q{'e', '{}', aggregate_id => (i % 7)::text, route => 'h_paused'})));
		},
		there => $pending{h_paused},
	},
	{
		name => 'a route at its limit',
		begin => sub {
			attack(again(many(1, q{'e', '{}', route => 'h_capped'}))) foreach 1 .. 3;
			attack(again(many(100, q{'e', '{}', route => 'h_capped'})));
		},
		there => q{SELECT count(*) > 0 FROM outbox_problems WHERE problem = 'route full'},
		end => sub {
			cmp_ok($node->sql(q{SELECT count(*) FROM outbox WHERE route = 'h_capped'}), '<=', $LIMIT + 4,
				'it has no more than its limit and one message for each session');
		},
	},
	{
		name => 'huge messages',
		begin => sub {
			attack(commits(q{PERFORM outbox_enqueue_bytes('e', convert_to(repeat('x', 16000000), 'UTF8'), route => 'h_sink'); PERFORM pg_sleep(0.2);}));
		},
		there => $pending{h_sink},
	},
	{
		name => 'one hot key',
		begin => sub { attack(commits(many(1000 * $SCALE, q{'e', '{}', aggregate_id => 'hot', route => 'h_sink'}) . 'PERFORM pg_sleep(1);')) },
		there => $pending{h_sink},
	},
	{
		name => 'as many keys as messages',
		flood => 'h_sink',
		full => 1,
		begin => sub { flood($_[0], many(100, q{'e', '{}', aggregate_id => gen_random_uuid()::text, route => 'h_sink'})) },
		there => $pending{h_sink},
	},
	{
		name => 'large headers, and all properties',
		full => 1,
		begin => sub {
			attack(commits(many(5, qq{'e', '{}', headers => $EXTREME, properties => jsonb_build_object('correlation_id', repeat('c', 255),
				'app_id', repeat('a', 255), 'expiration', '0', 'priority', 255), route => 'h_sink'})));
		},
		there => $pending{h_sink},
	},
	{
		name => 'many short commits, and rollbacks',
		flood => 'h_sink',
		begin => sub {
			flood($_[0], many(1, q{'e', '{}', route => 'h_sink'})) foreach 1 .. 2;
			attack('DO $$ BEGIN LOOP BEGIN ' . many(200, q{'e', '{}', route => 'h_sink'})
				. ' EXCEPTION WHEN OTHERS THEN NULL; END; ROLLBACK; END LOOP; END $$') foreach 1 .. 2;
		},
		there => $pending{h_sink},
	},
	{
		name => 'thousands of savepoints',
		full => 1,
		begin => sub {
			attack('DO $$ BEGIN FOR i IN 1 .. ' . 2000 * $SCALE . q{ LOOP BEGIN PERFORM outbox_enqueue('e', '{}', aggregate_id => i::text, route => 'h_sink');
				IF i % 3 = 0 THEN RAISE division_by_zero; END IF; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; PERFORM pg_sleep(600); END $$});
		},
		there => q{SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'hostile' AND wait_event = 'PgSleep'},
	},
	{
		name => 'open transactions that have enqueued, and locked what they can',
		begin => sub {
			my $client = as_hostile();
			$client->query('BEGIN');
			ok(!eval { $client->query('LOCK TABLE outbox IN ACCESS SHARE MODE') } && $@ =~ /permission denied/, 'the table cannot be locked');
			attack([ 'BEGIN',
				q{SELECT outbox_enqueue('e', '{}', aggregate_id => 'v', route => 'h_sink')},
				q{SELECT count(pg_advisory_lock_shared(i)) FROM generate_series(1, 500) i},
				q{SELECT count(pg_advisory_lock_shared(id)) FROM (SELECT hashtextextended(i::text, 0) id FROM generate_series(1, 500) i) k},
				'SELECT pg_sleep(600)' ]) foreach 1 .. 5 * ($FULL ? 4 : 1);
		},
		there => q{SELECT count(*) >= 5 FROM pg_stat_activity WHERE usename = 'hostile' AND wait_event = 'PgSleep'},
	},
	{
		name => 'prepared transactions left open',
		begin => sub {
			my $client = as_hostile();
			foreach my $n (1 .. 35)
			{
				$client->query($_) foreach 'BEGIN', "SELECT outbox_enqueue('e', '{}', aggregate_id => 'v', route => 'h_sink')",
				  "PREPARE TRANSACTION 'h$n'";
			}
		},
		there => 'SELECT count(*) = 35 FROM pg_prepared_xacts',
		end => sub { $node->sql("ROLLBACK PREPARED 'h$_'") foreach 1 .. 35 },
	},
	{
		name => 'scheduled far in the future',
		full => 1,
		begin => sub {
			$node->sql("SELECT count(outbox_enqueue('e', '{}', aggregate_id => 'v', available_at => '2200-01-01', route => 'h_sink'))
				FROM generate_series(1, 5000 * $SCALE)");
			attack(commits(many(100, q{'e', '{}', available_at => clock_timestamp() + i * interval '3 ms', route => 'h_sink'})));
		},
		there => $pending{h_sink},
	},
	{
		name => 'many that wait for a message (outbox_wait)',
		begin => sub {
			$node->sql(q{SELECT outbox_enqueue('e', '{}', route => 'h_paused')});
			attack([ (q{SELECT outbox_wait((SELECT id FROM outbox WHERE route = 'h_paused' LIMIT 1), interval '1 minute')}) x 100 ]) foreach 1 .. ($FULL ? 50 : 10);
		},
		there => q{SELECT count(*) >= 10 FROM pg_stat_activity WHERE usename = 'hostile' AND wait_event_type = 'Extension'},
	},
	{
		name => 'outbox_enqueue_once(), and its keys',
		full => 1,
		flood => 'h_sink',
		begin => sub {
			attack(commits(q{PERFORM outbox_enqueue_once('k', 'e', '{}', route => 'h_sink');
				PERFORM outbox_enqueue_once(gen_random_uuid()::text, 'e', '{}', route => 'h_sink') FROM generate_series(1, 50);})) foreach 1 .. 2;
		},
		there => 'SELECT count(*) > 50 FROM outbox_internal.outbox_once',
	},
	{
		name => 'all locks that strict keys may take',
		begin => sub {
			attack([ 'SET outbox.strict_keys = on',
				again(many(20_000, q{'e', '{}', aggregate_id => i::text, route => 'h_sink'})) ]);
		},
		there => q{SELECT count(*) > 500 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 3},
	},
	{
		name => 'claims of an external relay that are never acknowledged',
		full => 1,
		begin => sub {
			$node->sql("SELECT count(outbox_enqueue('e', '{}', aggregate_id => i::text, route => 'h_external'))
				FROM generate_series(1, 2000 * $SCALE) i");
			attack(commits(q{PERFORM outbox_claim('h_external', 10, interval '1 day'); PERFORM pg_sleep(0.001);}), 'forwarder');
		},
		there => 'SELECT count(*) > 5 FROM outbox_leases',
		end => sub { $node->sql('DELETE FROM outbox_internal.outbox_lease') },
	},
	{
		name => 'a member of pg_signal_backend ends the worker',
		begin => sub {
			attack(again(q{PERFORM pg_terminate_backend(pid), pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%';}),
				'signaller');
		},
		there => q{SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'signaller'},
	},
	{
		name => 'messages that the broker closes the channel for',
		begin => sub { attack(commits(many(50, q{'poison', '{}', route => 'h_poison'}))) },
		there => q{SELECT gave_up + retried > 0 FROM outbox_routes_status WHERE route = 'h_poison'},
	});

sub end_attack
{
	my ($attack) = @_;
	$node->sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'attack'});
	$node->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'attack'}, 0);
	eval { $_->finish } foreach splice @attackers;
	my $told = join '', map { $$_ // '' } values %said;
	%said = ();
	is(join("\n", grep { /ERROR:/ } split /\n/, $told), '', "$attack->{name}: it is what it says");
	$attack->{end}->() if $attack->{end};
	$node->sql('TRUNCATE outbox, outbox_internal.outbox_once');
	return;
}

# --- the victim

my $victim = OutboxTest::Client->connect($node->connstr('postgres') . ' user=victim');
my $sent = 0;

# Seconds from commit to arrival, of a round.
sub victim_round
{
	my ($name, $timeout) = @_;
	my %committed;

	for my $i (1 .. $MESSAGES)
	{
		my $due = time + $INTERVAL_US / 1e6;
		my $id = $victim->query(qq{SELECT outbox_enqueue('v', '{"n": $i}', aggregate_type => 't', aggregate_id => '@{[$i % 5]}', route => 'victim')});
		$committed{$id} = time;
		my $left = $due - time;
		usleep($left * 1e6) if $left > 0;
	}
	$sent += $MESSAGES;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $arrive = ok($consumer->wait_count($sent, $timeout // $TIMEOUT), "$name: the victim's messages arrive");
	my %arrived = map { $_->{id} => $_->{us} / 1e6 } $consumer->records;
	# The others go with the attack.
	$sent = keys %arrived unless $arrive;
	return map { max(0, ($arrived{$_} // time) - $committed{$_}) } keys %committed;
}

sub log_lines
{
	my ($offset) = @_;
	return scalar(my @lines = $node->log_text($offset) =~ /^.*outbox.*$/mg);
}

# Floods are of a route that may have so many; in the long form also as they are.
my @cases = map {
	!$_->{flood} ? $_ : ($FULL ? $_ : (), { %$_, cap => $CAP, name => "$_->{name}, with max_pending" })
} @attacks;

victim_round('at first');
foreach my $attack (@cases)
{
	my $name = $attack->{name};
	next if $name !~ /$CASES/ || ($attack->{full} && !$FULL);
	my (@alone, @beside);
	my $offset = $node->log_end;
	$node->sql("UPDATE outbox_route SET max_pending = $attack->{cap} WHERE name = '$attack->{flood}'") if $attack->{cap};
	foreach my $round (1 .. $ROUNDS)
	{
		$node->wait_sql(q{SELECT count(*) FROM outbox_internal.outbox_claims()}, 0) if $FULL;
		push @alone, victim_round("alone, before: $name") if $FULL;
		$attack->{begin}->($attack);
		$node->wait_sql($attack->{there});
		# More than goes out is in the way of all.
		push @beside, victim_round($name, $attack->{flood} && !$attack->{cap} ? 4 * $TIMEOUT : $TIMEOUT);
		end_attack($attack);
	}
	$node->sql("UPDATE outbox_route SET max_pending = NULL WHERE name = '$attack->{flood}'") if $attack->{cap};
	my $text = sprintf '%-66s p50 %4d p99 %5d ms, %d lines of the log', $name, 1000 * median(@beside),
	  1000 * percentile(99, @beside), log_lines($offset);
	if (!$FULL)
	{
		note $text;
		next;
	}
	my ($before, $with) = map { percentile(99, @$_) } \@alone, \@beside;
	diag sprintf '%s; alone p50 %d p99 %d ms', $text, 1000 * median(@alone), 1000 * $before;
	next if $attack->{flood} && !$attack->{cap};
	cmp_ok($with, '<=', max($FLOOR_S, $TIMES * $before), "$name: p99 of the victim");
}
is($node->sql(q{SELECT count(*) FROM outbox_archive WHERE route = 'victim' AND attempts > 0}), 0, 'no attempt of the victim was counted');
$node->stop;
done_testing();
