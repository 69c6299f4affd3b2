# The example relays outside the database, each against a real target: killed in mid-work, paused
# beyond their leases, stopped, with a target that refuses and one that is away, across a crash
# of the server; and how the two ways to read the table compare in one run.
#
# builds: examples/relays/go examples/relays/rust examples/relays/pgoutput
# takes: 200 s

use strict;
use warnings;

use IO::Socket::INET;
use IPC::Run ();
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Clients;
use OutboxTest::Node;
use OutboxTest::Util;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

# Seconds of a lease; messages that a relay claims at once.
my $LEASE = 3;
my $BATCH = 100;

my $node = OutboxTest::Node->create(conf => "$OutboxTest::Clients::CONF\n" . <<'END');
wal_level = logical
outbox.retry_initial = 200ms
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);
$node->sql(q{INSERT INTO outbox_route (name, exchange, relay, max_attempts) VALUES
	('nats', 'unused', 'external', 3), ('webhook', 'unused', 'external', 3), ('cdc', 'unused', 'external', 3)});

# What README.md of the examples grants, and nothing else.
$node->sql($_) foreach 'CREATE ROLE relay LOGIN REPLICATION',
  'GRANT EXECUTE ON FUNCTION outbox_claim, outbox_ack, outbox_nack, outbox_extend, outbox_release TO relay';

# --- targets

my $basedir = $node->basedir;
my (%server, $count);

sub background
{
	my ($name, @command) = @_;
	my $log = "$PostgreSQL::Test::Utils::log_path/relays-$name.log";

	$server{$name} = IPC::Run::start(\@command, '<', \undef, '>>', $log, '2>&1');
	return;
}

sub stop_target
{
	my ($name) = @_;
	$server{$name}->kill_kill(grace => 2) if $server{$name};
	delete $server{$name};
	return;
}

END
{
	local $?;
	stop_target($_) foreach keys %server;
}

sub wait_port
{
	my ($port) = @_;
	wait_until("something listens on $port",
		sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) });
	return;
}

# A record of the history checker: "time id event-type".
sub records
{
	my ($text) = @_;
	return map { my ($time, $id, $type) = split / /; { time => $time, id => $id, type => $type, redelivered => 0 } }
	  split /\n/, $text;
}

my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(nats webhook);
my ($taken, $delay) = ("$basedir/taken", 4);

my %target = (
	nats => {
		start => sub {
			background('nats', 'nats-server', '-a', '127.0.0.1', '-p', $port{nats}, '-js', '-sd', "$basedir/nats");
			wait_port($port{nats});
		},
		records => sub {
			my $out;
			run_tool(\$out, 'stream', $port{nats}, 'dump', 'nats');
			return records($out);
		},
	},
	webhook => {
		start => sub {
			background('webhook', 'test/clients/relays/receiver', $port{webhook}, $taken, $delay);
			wait_port($port{webhook});
		},
		records => sub { return records(slurp_file($taken)) },
	});

sub run_tool
{
	my ($out, $tool, @args) = @_;
	my $err = '';

	$$out = '';
	IPC::Run::run([ "test/clients/relays/$tool", @args ], '<', \undef, '>', $out, '2>', \$err, IPC::Run::timeout(60))
	  or die "$tool @args: $err\n";
	return;
}

# --- relays

my %start = (
	nats => sub {
		my ($name) = @_;
		return OutboxTest::Clients::start($node, 'examples/relays/go',
			env => { PGUSER => 'relay', PGAPPNAME => $name },
			args => [ '-nats', "nats://127.0.0.1:$port{nats}", '-lease', "${LEASE}s", '-batch', $BATCH ]);
	},
	webhook => sub {
		my ($name) = @_;
		my $url = sprintf 'postgres://relay@127.0.0.1:%d/postgres?sslmode=disable&application_name=%s', $node->port, $name;
		return OutboxTest::Clients::start($node, 'examples/relays/rust',
			args => [ $url, "http://127.0.0.1:$port{webhook}/hook", 'webhook', $LEASE ]);
	},
	cdc => sub {
		my ($name) = @_;
		return OutboxTest::Clients::start($node, 'examples/relays/pgoutput',
			env => { PGUSER => 'relay', PGAPPNAME => $name },
			args => [ "http://127.0.0.1:$port{webhook}/hook", 'cdc' ]);
	});

# A relay with the name by which outbox_leases knows it.
sub relay
{
	my ($route) = @_;
	my $name = "$route-" . ++$count;
	return { name => $name, process => $start{$route}->($name) };
}

sub leased
{
	my ($relay) = @_;
	return $node->sql("SELECT count(*) FROM outbox_leases WHERE worker = '$relay->{name}'") > 0;
}

# Stopped while it has messages, and not while the server settles them already.
sub freeze_in_work
{
	my ($relay) = @_;
	my $busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = '$relay->{name}' AND state <> 'idle'";

	return wait_until("$relay->{name} is in the middle of something", sub {
			$relay->{process}->signal('STOP');
			usleep(50_000) if leased($relay);
			return 1 if $node->sql($busy) == 0 && leased($relay);
			$relay->{process}->signal('CONT');
			usleep(20_000);
			return;
		});
}

# Until another one has what it had. What is gone earlier it had acknowledged already, as a
# busy server may read that only now.
sub freeze_beyond_lease
{
	my ($relay) = @_;

	return wait_until("$relay->{name} is paused beyond its lease", sub {
			my ($end, $now) = (0, 0);

			freeze_in_work($relay);
			wait_until('it is taken over', sub {
					$now = $node->sql('SELECT extract(epoch FROM clock_timestamp())');
					my $until = $node->sql("SELECT max(extract(epoch FROM expires_at)) FROM outbox_leases WHERE worker = '$relay->{name}'");
					$end = $until if $until ne '';
					return $until eq '';
				});
			return 1 if $now >= $end;
			$relay->{process}->signal('CONT');
			return;
		});
}

sub loads
{
	my ($route) = @_;
	return map { $checker->load(50_000, keys => $_, prefix => "$route$_-", route => $route, per_tx => 5,
			rollback => 0.1, pause_ms => 20) } 0, 7, 20;
}

# Everything is delivered, in order, and not much of it twice.
sub judge
{
	my ($name, $records, %params) = @_;
	my $v = $checker->verdict($records, late_copies => 1);

	is(join('; ', @{ $v->{$_} }), '', "$name: $_") foreach qw(lost left ghosts disorder);
	cmp_ok($v->{duplicates}, '<=', $params{duplicates}, "$name: few duplicates ($v->{duplicates})");
	my $said = sprintf '%s: %d committed, %d delivered, %d of them again, %d lost, %d ghosts, %d out of order',
	  $name, $v->{committed}, $v->{deliveries}, $v->{duplicates}, scalar @{ $v->{lost} }, scalar @{ $v->{ghosts} },
	  scalar @{ $v->{disorder} };
	note $said;
	OutboxTest::Clients::result('relays', "$said\n");
	$node->sql('TRUNCATE test_sent');
	return;
}

my %own;    # what each subtest looks at: the records since it began

sub begin
{
	my ($target) = @_;
	$own{$target} = scalar $target{$target}{records}->();
	return;
}

sub since
{
	my ($target) = @_;
	my @all = $target{$target}{records}->();
	return [ @all[ $own{$target} .. $#all ] ];
}

# --- two relays of a route, and what happens to them

foreach my $route (qw(nats webhook))
{
	subtest "$route: crashes, a pause, a stop" => sub {
		my $kills = 5;

		$target{$route}{start}->();
		run_tool(\my $out, 'stream', $port{nats}, 'create', 'nats') if $route eq 'nats';
		append_to_file($taken, '');
		begin($route);
		my @relays = map { relay($route) } 1, 2;
		my @loads = loads($route);

		foreach my $i (1 .. $kills)
		{
			my $victim = $relays[ $i % 2 ];
			freeze_in_work($victim);
			$victim->{process}->signal('KILL');
			is($victim->{process}->end, 137, "kill $i: $victim->{name} is dead");
			$node->wait_sql("SELECT count(*) FROM outbox_leases WHERE worker = '$victim->{name}'", 0);
			$relays[ $i % 2 ] = relay($route);
		}

		# Longer than its lease: the other one takes the messages over.
		my $paused = $relays[0];
		freeze_beyond_lease($paused);
		$paused->{process}->signal('CONT');
		$paused->{process}->wait_output(qr/lease \d+ is not held any more|deadline exceeded/);
		wait_until("$paused->{name} goes on", sub { leased($paused) });

		# A stop gives back what it had, at once.
		my $stopped = $relays[1];
		freeze_in_work($stopped);
		$stopped->{process}->signal('TERM');
		$stopped->{process}->signal('CONT');
		is($stopped->{process}->end(5), 0, "$stopped->{name} ends by itself");
		ok(!leased($stopped), '... and has released what it had');
		$relays[1] = relay($route);

		# The server restarts, and the relays find it again.
		$_->stop foreach @loads;
		my $more = $checker->load(600, keys => 5, prefix => "${route}x", route => $route, pause_ms => 5);
		$node->wait_sql('SELECT count(*) > 0 FROM outbox_leases');
		$node->restart('immediate');
		$more->wait;
		$node->wait_drained(60);
		judge("$route: 5 kills, a pause, a stop and a crash of the server", since($route),
			duplicates => $route eq 'nats' ? 0 : ($kills + 2) * $BATCH);

		is($node->sql("SELECT sum(attempts) FROM outbox_messages WHERE route = '$route'"), 0, 'none of it was an attempt')
		  if $route eq 'nats';
		foreach my $relay (@relays)
		{
			$relay->{process}->signal('TERM');
			is($relay->{process}->end(5), 0, "$relay->{name} ends");
		}
		is($node->sql('SELECT count(*) FROM outbox_leases'), 0, 'no lease is left');
	};

	subtest "$route: a target that refuses, and one that is away" => sub {
		my $relay = relay($route);
		my ($type, $size) = $route eq 'nats' ? ('some.big', 30_000) : ('some.refused', 1);

		# Two of a key around each that is not taken.
		begin($route);
		$node->sql(qq{SELECT outbox_enqueue(type, jsonb_build_object('pad', repeat('x', size)), 'a', key, route => '$route')
			FROM (VALUES (1, 'one', 1, '1'), (2, '$type', $size, '1'), (3, 'two', 1, '1'), (4, 'other', 1, '2'),
				(5, 'some.later', 1, '3'), (6, 'three', 1, '3')) m(n, type, size, key) ORDER BY n});
		$node->wait_sql("SELECT count(*) FROM outbox WHERE route = '$route' AND status = 'pending'", 0);
		is($node->sql("SELECT event_type, status, attempts FROM outbox WHERE route = '$route'"), "$type|failed|3",
			'it has failed after its attempts');
		like($node->sql("SELECT last_error FROM outbox WHERE route = '$route'"),
			$route eq 'nats' ? qr/message size exceeds maximum/ : qr/^400 Bad Request/, '... as the target says it');
		my @types = map { $_->{type} } @{ since($route) };
		is(join(' ', sort @types), 'one other some.later three two', 'all others are delivered');
		is(join(' ', grep { /one|two/ } @types), 'one two', '... those of its key in their order');
		is(join(' ', grep { /later|three/ } @types), 'some.later three', '... none before what is tried again');
		is($node->sql(q{SELECT attempts, published_at - created_at >= interval '1 s' FROM outbox_messages WHERE event_type = 'some.later'
				AND route = 'webhook'}), '1|t', '... which is when the target wants it') if $route eq 'webhook';
		$node->sql("SELECT outbox_discard(id) FROM outbox WHERE route = '$route'");

		stop_target($route);
		$checker->enqueue(300, keys => 10, route => $route);
		$relay->{process}->wait_output($route eq 'nats' ? qr/ nats: / : qr/Connection refused/);
		is($node->sql(qq{SELECT sum(attempts), count(*) FROM outbox WHERE route = '$route'}), '0|300', 'out of reach: nothing is blamed');
		$target{$route}{start}->();
		begin($route);
		$node->wait_drained(60);
		judge("$route: an outage of the target", since($route), duplicates => 0);
		$relay->{process}->signal('TERM');
		is($relay->{process}->end(5), 0, 'it ends');
	};
}

# --- the table read by logical replication

$node->sql($_) foreach
  q{CREATE PUBLICATION outbox_cdc FOR TABLE outbox (id, event_type, aggregate_type, aggregate_id, payload, body, headers)
	WHERE (route = 'cdc') WITH (publish = 'insert')},
  q{SELECT pg_create_logical_replication_slot('outbox_cdc', 'pgoutput')};

sub reader
{
	return $node->sql(q{SELECT application_name FROM pg_stat_replication WHERE pid =
		(SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'outbox_cdc')});
}

subtest 'logical replication: crashes and a stop' => sub {
	my ($kills, @readers) = (3, map { relay('cdc') } 1, 2);
	my @loads = loads('cdc');

	begin('webhook');
	foreach my $i (1 .. $kills)
	{
		wait_until('somebody reads', sub { reader() ne '' });
		my $before = @{ since('webhook') };
		wait_until('... and delivers', sub { @{ since('webhook') } > $before + 200 });
		my ($victim) = grep { $_->{name} eq reader() } @readers;
		$victim->{process}->signal('KILL');
		is($victim->{process}->end, 137, "kill $i: $victim->{name} is dead");
		wait_until('another one reads', sub { my $now = reader(); $now ne '' && $now ne $victim->{name} });
		@readers = (grep({ $_ != $victim } @readers), relay('cdc'));
	}
	$_->stop foreach @loads;
	$node->wait_drained(90);
	judge("logical replication: $kills kills", since('webhook'), duplicates => $kills * 2 * $BATCH);
	foreach my $reader (@readers)
	{
		$reader->{process}->signal('TERM');
		is($reader->{process}->end(10), 0, "$reader->{name} ends");
	}
};

# --- both ways in one run

sub measure
{
	my ($route, $messages) = @_;
	my $wal = sub { $node->sql(q{SELECT pg_current_wal_insert_lsn() - '0/0'}) };
	my $rows = qq{SELECT id, extract(epoch FROM created_at) FROM outbox_messages WHERE route = '$route'};
	my ($from, %is) = $wal->();

	begin('webhook');
	$checker->enqueue($messages, keys => 50, route => $route);
	$is{enqueued} = ($wal->() - $from) / $messages;
	$is{kept} = $node->sql(q{SELECT pg_current_wal_insert_lsn() - confirmed_flush_lsn FROM pg_replication_slots})
	  if $route eq 'cdc';
	$from = $wal->();
	my $relay = relay($route);
	wait_until('the backlog is delivered', sub { @{ since('webhook') } >= $messages }, 120);
	my @times = map { $_->{time} } @{ since('webhook') };
	$is{rate} = ($messages - 1) / ($times[-1] - $times[0]);
	$node->wait_drained(60);
	$is{wal} = ($wal->() - $from) / $messages;

	my $load = $checker->load(1000, keys => 50, route => $route, per_tx => 2, pause_ms => 10);
	ok($load->wait, 'a steady load');
	$node->wait_drained(60);
	my %enqueued = map { $_->[0] => $_->[1] } $node->rows($rows);
	my @lag = map { 1000 * ($_->{time} - $enqueued{ $_->{id} }) } @{ since('webhook') }[ $messages .. $messages + 999 ];
	@is{qw(p50 p95)} = (percentile(50, @lag), percentile(95, @lag));
	$relay->{process}->signal('TERM');
	is($relay->{process}->end(10), 0, 'it ends');
	judge("measured, $route", since('webhook'), duplicates => 0);
	return \%is;
}

subtest 'both ways in one run' => sub {
	stop_target('webhook');
	$delay = 0;
	$target{webhook}{start}->();
	my %is;
	$is{$_} = measure($_, 3000) foreach qw(webhook cdc);
	my @lines = map { sprintf '%s: %.0f messages/s from a backlog; lag %.1f ms (median), %.1f ms (95 %%); WAL a message: %.0f B enqueue, %.0f B relay and removal',
		  $_, @{ $is{$_} }{qw(rate p50 p95 enqueued wal)} } qw(webhook cdc);

	OutboxTest::Clients::result('relays', "$_\n"), note $_ foreach @lines,
	  sprintf 'cdc: %.0f B of WAL kept for a backlog of 3000 messages', $is{cdc}{kept};
};
done_testing();
