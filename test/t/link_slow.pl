# Slow is not stalled: on a link of any speed each message is sent once, the
# connection lives as long as bytes go out, heartbeats go both ways, and whoever
# wants the worker to stop has it stopped within five seconds.  doc/dev/fault-cases.md J1, J2,
# J4, J5.
#
# OUTBOX_TEST_FULL=1: bodies up to the limit, and every speed.
#
# suite: test faults
# takes: 117 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::Proxy;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $LIMIT = 5;
my $WINDOW = 100;
my $state = 'SELECT state FROM outbox_status';

my $preload = OutboxTest::Preload->build;
my $fake = OutboxTest::FakeBroker->start(lifetime => 3600);
my $proxy = OutboxTest::Proxy->start($fake, lifetime => 3600);
my $node = OutboxTest::Node->create(
	broker => $proxy,
	start => 0,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 50ms
outbox.retry_max = 500ms
max_worker_processes = 16
END
$preload->start($node);
$node->sql('CREATE EXTENSION outbox');
my $checker = OutboxTest::Checker->install($node);
my ($mark, $connections, $log_mark, $interruptions);
$interruptions = 0;

# Each case begins with a new worker, that has the case's settings, on a fast link.
sub begin
{
	my ($what, %settings) = @_;
	my %all = (heartbeat => '15s', confirm_timeout => '30s', %settings);

	note "--- $what";
	$fake->do('forget', 'heartbeats strict');
	$proxy->do('forward');
	$node->wait_drained(60);
	$node->sql(join '',
		map { "ALTER SYSTEM SET outbox.$_ = '$all{$_}';\n" } sort keys %all);
	$node->reload;
	restart_worker();
	$checker->enqueue(1);       # the exchange is declared
	$node->wait_drained;
	mark();
	return;
}

sub restart_worker
{
	my ($pid) = $node->backend_pids;
	$node->sql("SELECT pg_terminate_backend($pid)");
	$node->wait_sql("SELECT state = 'idle' AND pid <> $pid FROM outbox_workers");
	return;
}

sub mark
{
	$mark = scalar $fake->published;
	$connections = $proxy->stats->{connections};
	$log_mark = $node->log_end;
	return;
}

sub new_connections { return $proxy->stats->{connections} - $connections }

# What has come since the case began, by message.
sub arrived
{
	my @published = $fake->published;
	my %count;
	$count{ $_->{id} }++ foreach @published[ $mark .. $#published ];
	return \%count;
}

# Every case ends here: each message was sent once, on the same connection.
sub once
{
	my ($what, $count, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $seconds = $params{seconds} // 60;
	my $start = time;

	# a loop of reconnects need not be watched to its end
	wait_until("$what: delivered",
		sub { new_connections() > ($params{connections} // 0) + 2
			  || $node->sql('SELECT NOT EXISTS (SELECT FROM outbox)') eq 't' },
		$seconds);
	my $arrived = arrived();
	is(new_connections(), $params{connections} // 0, "$what: connections made");
	is(scalar keys %$arrived, $count, "$what: all messages");
	is_deeply([ grep { $_ > 1 } values %$arrived ], [], "$what: each once")
	  unless $params{again};
	note sprintf '%s: %.1f s', $what, time - $start;
	return;
}

# A body of 0 bytes has no place for the checker's number.
sub enqueue_nothing
{
	$node->sql(q{INSERT INTO test_sent VALUES (nextval('test_sent_n'),
		outbox_enqueue_bytes(event_type => 'nothing', body => ''))});
	return;
}

# Waits until that much has left for the broker since the case began.
sub wait_bytes
{
	my ($bytes, $before) = @_;
	return wait_until("$bytes bytes on their way",
		sub { $proxy->sent('up') - $before >= $bytes }, 30);
}

# A message that has begun; the link is slow from then on.
sub in_the_middle
{
	my ($rate, $size) = @_;
	my $before = $proxy->sent('up');
	$proxy->do("rate both $rate");
	$checker->enqueue(1, size => $size);
	wait_bytes(30_000, $before);
	return;
}

# --- confirms that cannot be, or do not come

subtest 'a confirm of what is only half sent' => sub {
	begin('half sent');
	my $before = $proxy->sent('up');
	in_the_middle(500_000, 4_000_000);
	$fake->do('now ack');
	wait_until('a new connection', sub { new_connections() > 0 }, 10);
	cmp_ok($proxy->sent('up') - $before, '<', 4_000_000, 'it is not believed, and not one byte more is sent');
	like($node->log_text($log_mark), qr/not outstanding/, 'with the reason');
	$proxy->do('forward');
	once('half sent', 1, connections => 1);
};

subtest 'a confirm that is lost among others is noticed' => sub {
	begin('lost confirm', confirm_timeout => '1s');
	$fake->do('when type=lost : silent');
	$checker->enqueue(1, event_type => 'lost');
	my $load = $checker->load(100, per_tx => 1, pause_ms => 50);
	wait_until('a new connection', sub { new_connections() > 0 }, 10);
	ok($load->running, 'during the flow of the others');
	$fake->do('forget');
	$load->wait;
	$node->wait_drained;
	$interruptions++;
};

# --- J1: links and bodies

sub over_link
{
	my ($rate, $bodies, %settings) = @_;
	my $what = join ', ', "$rate bytes a second",
	  map { "$_ $settings{$_}" } sort keys %settings;

	subtest $what => sub {
		begin($what, %settings);
		$proxy->do("rate both $rate");
		$_ == 0 ? enqueue_nothing() : $checker->enqueue(1, size => $_)
		  foreach @$bodies;
		once($what, scalar @$bodies, seconds => 300);
	};
	return;
}

# takes longer than a link may that takes no bytes
over_link(100_000, [ 0, 1, $FULL ? 2_000_000 : 1_250_000 ], heartbeat => '1s');
over_link(400_000, [ 0, 2_000_000 ], confirm_timeout => '3s');

# --- stalled

subtest 'a link that takes no byte' => sub {
	begin('stalled', heartbeat => '2s', confirm_timeout => '2s');
	$fake->do('heartbeats on');    # a strict broker would end it itself
	in_the_middle(1_000_000, 3_000_000);
	$proxy->do('stall up');
	my $start = time;
	wait_until('some seconds pass', sub { time - $start > 5 });
	is(new_connections(), 0, 'it is not given up after 5 s');
	$proxy->do('forward');
	once('after a stall of 5 s', 1);

	begin('stalled for good', heartbeat => '2s', confirm_timeout => '2s');
	$fake->do('heartbeats on');
	in_the_middle(1_000_000, 3_000_000);
	$start = time;
	$proxy->do('stall up');
	wait_until('a new connection', sub { new_connections() > 0 }, 30);
	cmp_ok(time - $start, '>', 8, 'it is given up');
	like($node->log_text($log_mark), qr/takes no data/, 'with the reason');
	$proxy->do('forward', 'rst');
	$node->wait_drained;
};

# --- J1: other links and bodies

my @links = (
	[ 10_000, [ 0, 1, 64_000 ] ],
	[ 400_000, [ 0, 1_300_000 ], heartbeat => '1s', confirm_timeout => '1s' ],
	$FULL
	? ( [ 100_000, [ 16_000_000 ] ],
		[ 400_000, [ 16_000_000 ] ],
		[ 10_000, [ 0, 1, 64_000 ], heartbeat => '1s' ],
		[ 1_000_000, [ 0, 1, 16_000_000 ], heartbeat => '1s', confirm_timeout => '1s' ],
		[ 2_000_000, [ 0, 1, 16_000_000 ] ])
	: ());
over_link(@$_) foreach @links;

# The same with TLS, where only the library can send.
{
	package TlsFront;
	use parent -norequire, 'OutboxTest::LineTool';
	sub uri { return 'amqps://guest@127.0.0.1:' . $_[0]->port }
}

subtest 'with TLS' => sub {
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $certificate = "$dir/certificate.pem";

	system(qw(openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj
		  /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout),
		"$dir/key.pem", '-out', $certificate) == 0
	  or BAIL_OUT('no certificate');
	append_to_file($certificate, slurp_file("$dir/key.pem"));
	my $front = TlsFront->start_tool('tls-front', '--to', $fake->port,
		'--cert', $certificate);
	my $plain = $proxy;
	$proxy = OutboxTest::Proxy->start($front);
	begin('TLS', heartbeat => '1s', broker_uri => $proxy->uri,
		tls_ca_file => $certificate);
	$proxy->do('rate both 1000000');
	enqueue_nothing();
	$checker->enqueue(1, size => $_) foreach 1, 100_000, 3_000_000;
	once('TLS', 4);
	$proxy = $plain;
	$node->sql('ALTER SYSTEM RESET outbox.broker_uri');
};

subtest 'many at a time, and keys, behind each other' => sub {
	begin('many', confirm_timeout => '1s', heartbeat => '1s');
	$proxy->do('rate both 200000', 'delay both 50');
	$checker->enqueue(40, size => 15_000, per_tx => 40);
	$checker->enqueue(10, size => 2_000, keys => 2, per_tx => 10);
	$checker->enqueue(2, size => 100_000, per_tx => 2);
	once('many', 52);
};

subtest 'the answers are slow: a large message comes back' => sub {
	begin('returned', confirm_timeout => '1s', heartbeat => '1s');
	$node->sql(q{UPDATE outbox_route SET max_attempts = 1});
	$fake->do('when type=nowhere : return 312 NO_ROUTE body=1000000');
	$proxy->do('rate down 300000');
	$checker->enqueue(1, event_type => 'nowhere');
	$checker->enqueue(20);
	wait_until('it has failed', sub {
		new_connections() > 2 || $node->sql(
			q{SELECT count(*) FROM outbox WHERE status = 'failed'}) == 1 });
	is(new_connections(), 0, 'the connection lives');
	$node->sql(q{DELETE FROM test_sent USING outbox WHERE outbox.id = test_sent.id
		AND status = 'failed'; SELECT outbox_discard(id) FROM outbox_failed;
		UPDATE outbox_route SET max_attempts = DEFAULT});
	once('returned', 21);
};

# A destination that is new is asked for when what is on the way is there.
subtest 'an exchange is declared behind what is on its way' => sub {
	begin('declare');
	$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type)
		VALUES ('other', 'other', 'topic') ON CONFLICT DO NOTHING});
	$proxy->do('rate both 50000');
	$checker->enqueue(14, size => 20_000, per_tx => 14);
	$checker->enqueue(1, route => 'other');
	once('declare', 15);
};

# A message that is refused makes the relay try another connection; one that is
# still being sent must not be the reason for that, nor begin anew each time.
subtest 'a queue is full while a large message is being sent' => sub {
	begin('full queue');
	$node->sql(q{UPDATE outbox_route SET max_attempts = 1000});
	$fake->do('when type=full : nack');
	$checker->enqueue(1, event_type => 'full');
	in_the_middle(400_000, 2_000_000);
	wait_until('delivered',
		sub { new_connections() > 5
			  || $node->sql('SELECT count(*) FROM outbox') == 1 }, 30);
	cmp_ok(new_connections(), '<=', 1, 'it is not begun anew');
	$fake->do('forget');
	$node->sql(q{UPDATE outbox_route SET max_attempts = DEFAULT});
	$proxy->do('forward');
	$node->wait_drained;
	my $sizes = grep { $_->{size} > 1_000_000 }
	  ($fake->published)[ $mark .. $fake->published - 1 ];
	is($sizes, 1, 'and is sent once');
};

# --- J2: an alarm in the middle of a body

subtest 'an alarm in the middle of a large message' => sub {
	begin('alarm', heartbeat => '2s', confirm_timeout => '1s');
	in_the_middle(1_000_000, 4_000_000);
	$fake->do('now blocked low on memory', 'now deaf');
	$proxy->do('stall up');        # nobody's buffer takes any more
	$node->wait_sql($state, 'blocked');
	like($node->sql('SELECT last_error FROM outbox_status'),
		qr/low on memory/, 'with the reason');
	# longer than a link that takes no data is kept
	my $start = time;
	wait_until('it lasts', sub { time - $start > ($FULL ? 12 : 4) });
	is($node->sql($state), 'blocked', 'it stays blocked');
	$proxy->do('forward');
	$fake->do('now hear', 'now unblocked');
	once('after the alarm', 1);
};

# --- J4: a broker that takes its time

subtest 'a broker that confirms one message after the other' => sub {
	my $ms = $FULL ? 25_000 : 700;

	foreach my $order ('', ' last')
	{
		my $what = "every $ms ms$order";
		begin($what, confirm_timeout => $FULL ? '30s' : '1s');
		$fake->do("answer serial $ms$order");
		$checker->enqueue(5, keys => 5, per_tx => 5);
		once($what, 5, seconds => 200);
	}
};

# --- stopping, at any speed and any moment

# Runs code; all that it waits for must be there in time.
sub in_time
{
	my ($what, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $start = time;
	$code->();
	my $took = time - $start;
	cmp_ok($took, '<', $LIMIT, "$what in time");
	note sprintf '%s: %.2f s', $what, $took;
	return;
}

# The message in the middle of which it stopped arrives after, once.
sub afterwards
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$proxy->do('forward');
	$node->wait_drained(60);
	is_deeply([ values %{ arrived() } ], [1], "$what: arrives once");
	return;
}

my $LARGE = 8_000_000;
my $victims = 0;

sub terminated
{
	my ($rate) = @_;
	in_the_middle($rate, $LARGE);
	my ($pid) = $node->backend_pids;
	in_time('pg_terminate_backend',
		sub {
			$node->sql("SELECT pg_terminate_backend($pid)");
			wait_until('it ends', sub { !OutboxTest::Node::alive($pid) }, 60);
		});
	afterwards('after pg_terminate_backend');
	return;
}

sub other_workers
{
	my ($rate) = @_;
	in_the_middle($rate, $LARGE);
	my ($pid) = $node->backend_pids;
	in_time('another outbox.workers',
		sub {
			$node->set('outbox.workers', 2);
			wait_until('it ends', sub { !OutboxTest::Node::alive($pid) }, 60);
		});
	$node->unset('outbox.workers');
	$node->wait_sql(q{SELECT count(*) = 1 AND bool_and(state <> 'stopping')
		FROM outbox_workers WHERE pid IS NOT NULL});
	afterwards('after another outbox.workers');
	return;
}

sub database_dropped
{
	my ($rate) = @_;
	my $name = 'victim' . ++$victims;

	$node->sql("CREATE DATABASE $name");
	$node->sql('CREATE EXTENSION outbox', $name);
	$node->wait_sql($state, 'idle', 30, $name);
	my $before = $proxy->sent('up');
	$proxy->do("rate both $rate");
	$node->sql(qq{SELECT outbox_enqueue('e', to_jsonb(repeat('x', $LARGE)))},
		$name);
	wait_bytes(30_000, $before);
	in_time('DROP DATABASE',
		sub {
			is($node->sql_fails("DROP DATABASE $name") // '', '',
				'DROP DATABASE succeeds');
		});
	return;
}

sub server_stopped
{
	my ($rate) = @_;
	in_the_middle($rate, $LARGE);
	in_time('pg_ctl stop', sub { $node->stop('fast') });
	$proxy->do('forward');
	$preload->start($node);
	afterwards('after pg_ctl stop');
	return;
}

my %stops = (
	'pg_terminate_backend' => \&terminated,
	'another outbox.workers' => \&other_workers,
	'DROP DATABASE' => \&database_dropped,
	'pg_ctl stop' => \&server_stopped);

# in quick mode each at one speed
foreach my $case ($FULL ?
	(map { [ $_, sort keys %stops ] } 10_000, 100_000, 400_000, 1_000_000, 2_000_000)
	: ( [ 100_000, 'another outbox.workers', 'DROP DATABASE' ],
		[ 1_000_000, 'pg_terminate_backend', 'pg_ctl stop' ]))
{
	my ($rate, @ways) = @$case;

	subtest "stops in the middle of a large message, $rate bytes a second" => sub {
		foreach my $way (@ways)
		{
			begin("$way at $rate");
			$stops{$way}->($rate);
		}
	};
}

# Every step of a stop at its slowest: the rest of a message that does not go out,
# confirms that come in the last moment, of keys that go on, so that settling is
# flushed; a disk with 200 ms a flush; and a broker that does not say good-bye.
subtest 'a stop where everything is slow' => sub {
	begin('slow disk');
	$node->sql('CHECKPOINT');
	$preload->slow_flush(200);
	my $start = time;
	$checker->enqueue(3);
	my $own = time - $start;
	cmp_ok($own, '<', 1.5,
		sprintf 'a producer waits for its own flush (%.2f s)', $own);
	$node->wait_drained;

	foreach my $large (1, 0)
	{
		my ($pid) = $node->backend_pids;

		$fake->do('stage close : silent', 'when type=slow : delay 800');
		$checker->enqueue(20, keys => 10, event_type => 'slow', per_tx => 20);
		if ($large)
		{
			in_the_middle(50_000, 8_000_000);
		}
		else
		{
			$node->wait_sql('SELECT in_flight >= 10 FROM outbox_status');
		}
		in_time($large ? 'the worker, with a large message' : 'the worker',
			sub {
				kill 'TERM', $pid;
				wait_until('it ends', sub { !OutboxTest::Node::alive($pid) }, 60);
			});
		$fake->do('forget', 'heartbeats strict');
		$proxy->do('forward', 'rst');
		$node->wait_drained(60);
		$interruptions++;
	}
	$preload->slow_flush(0);
};

$checker->check('slow links', [ $fake->records ],
	interruptions => $interruptions, window => $WINDOW, case => 'J1 J2 J4 J5 slow links');
is($fake->stats->{violations}, 0, 'the broker has nothing to complain of')
  or diag join "\n", $fake->events(qr/violation/);
unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:/,
	'the server survives all of it');
done_testing();
