# Nothing spins, nothing waits without bound, and nobody is starved or sent
# again and again for somebody else's fault.  doc/dev/fault-cases.md F27, J6, J7.
#
# suite: test faults
# takes: 137 s

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::Util;

seed();
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.window = 100
outbox.retry_initial = 100ms
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);
my $state = 'SELECT state FROM outbox_status';

# --- a worker that can do nothing sleeps, also with work waiting

sub cpu_s
{
	my ($pid) = @_;
	my @stat = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //r;
	return ($stat[11] + $stat[12]) / 100;
}

# A loop makes 1000 wake-ups a second, or takes the processor and makes none.
# What has just begun may have something to do: there are a few looks for it.
sub sleeps
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($pid) = $node->backend_pids;
	my ($rate, $cpu);

	foreach (1 .. 6)
	{
		my ($switches, $used, $start) = (switches($pid), cpu_s($pid), time);
		usleep(500_000);
		$rate = (switches($pid) - $switches) / (time - $start);
		$cpu = (cpu_s($pid) - $used) / (time - $start);
		last if $rate < 30 && $cpu < 0.1;
	}
	ok($rate < 30 && $cpu < 0.1,
		sprintf '%s: the worker sleeps (%.1f wake-ups a second, %.0f %% of a processor)',
		$what, $rate, 100 * $cpu);
	return;
}

sub begin
{
	my ($what) = @_;
	note "--- $what";
	$fake->do('forget');
	$node->wait_drained;
	$node->wait_sql($state, 'idle');
	return;
}

# A port that takes no connection and refuses none: its backlog is full.
sub black_hole
{
	my ($host, $port) = @_;
	my $listener = IO::Socket::INET->new(LocalAddr => $host,
		LocalPort => $port // 0, Listen => 1, ReuseAddr => 1)
	  or die "could not listen: $!";
	my @clients = map {
		IO::Socket::INET->new(PeerAddr => $host,
			PeerPort => $listener->sockport, Blocking => 0)
	} 1 .. 4;
	return { port => $listener->sockport, sockets => [ $listener, @clients ] };
}

# Some messages are at the broker, which has not confirmed them.
sub hold_some
{
	$fake->do('answer hold');
	$checker->enqueue(20, keys => 10);
	$checker->enqueue(300);
	$node->wait_sql('SELECT in_flight >= 100 FROM outbox_status');
	return;
}

subtest 'a worker that can do nothing sleeps' => sub {
	begin('full window');
	hold_some();
	sleeps('full window');

	$node->set('outbox.enabled', 'off');
	$node->wait_sql($state, 'disabled');
	sleeps('disabled, in flight');
	$fake->release;
	$node->wait_sql('SELECT in_flight FROM outbox_status', 0);
	sleeps('disabled');
	$node->unset('outbox.enabled');

	begin('disabled while it lets in flight be confirmed before a new connection');
	hold_some();
	$node->set('outbox.heartbeat', '20s');
	$node->set('outbox.enabled', 'off');
	$node->wait_sql($state, 'disabled');
	sleeps('disabled, before a new connection');
	$fake->release;
	$node->unset('outbox.enabled');
	$node->unset('outbox.heartbeat');

	begin('disabled after a nack, before the first ack');
	my $connections = $fake->stats->{connections};
	$fake->do('now fin');
	wait_until('another connection', sub { $fake->stats->{connections} > $connections });
	hold_some();
	$fake->do('now nack');
	$node->set('outbox.enabled', 'off');
	$node->wait_sql($state, 'disabled');
	sleeps('disabled, after a nack');
	$fake->release;
	$node->unset('outbox.enabled');

	begin('the oldest confirm is missing');
	$fake->do('when total=' . ($fake->stats->{published} + 1) . ' times=1 : silent');
	$checker->enqueue(21000, per_tx => 7000);
	my $published = $fake->stats->{published};
	wait_until('nothing is sent any more', sub {
		my $now = $fake->stats->{published};
		my $still = $now == $published;
		$published = $now;
		$still && select undef, undef, undef, 0.3;
		$still && $fake->stats->{published} == $published;
	});
	sleeps('the oldest confirm is missing');
	$fake->release;

	begin('paused');
	$node->sql('SELECT outbox_pause()');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'paused');
	sleeps('paused');
	$node->sql('SELECT outbox_resume()');

	begin('blocked');
	$fake->do('now blocked low on memory');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'blocked');
	sleeps('blocked');
	$fake->do('now unblocked');

	begin('not adopted');
	$node->sql('UPDATE outbox_control SET system_identifier = system_identifier + 1');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'not adopted');
	sleeps('not adopted');
	$node->sql('SELECT outbox_adopt()');

	begin('version mismatch');
	$node->sql(q{UPDATE pg_extension SET extversion = '0.99' WHERE extname = 'outbox'});
	$node->sql('SELECT outbox_worker_restart()');
	$node->wait_sql($state, 'version mismatch');
	$checker->enqueue(200, keys => 10);
	sleeps('version mismatch');
	$node->sql(q{UPDATE pg_extension SET extversion = outbox_version() WHERE extname = 'outbox'});
	$node->sql('SELECT outbox_worker_restart()');

	begin('version mismatch, in flight');
	hold_some();
	$node->sql(q{UPDATE pg_extension SET extversion = '0.99' WHERE extname = 'outbox'});
	$node->sql('ALTER TABLE outbox SET (fillfactor = 100)');
	$node->wait_sql($state, 'version mismatch', 70);
	sleeps('version mismatch, in flight');
	$fake->do('answer ack');
	$node->sql(q{UPDATE pg_extension SET extversion = outbox_version() WHERE extname = 'outbox'});
	$node->sql('SELECT outbox_worker_restart()');

	begin('config error');
	$node->set('outbox.passfile', '/nowhere');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql('SELECT reason FROM outbox_workers', 'password file missing');
	sleeps('config error');
	$node->unset('outbox.passfile');

	begin('database error');
	$node->sql('ALTER TABLE outbox_archive ADD CONSTRAINT no CHECK (false) NOT VALID');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'database error');
	sleeps('database error');
	$node->sql('ALTER TABLE outbox_archive DROP CONSTRAINT no');

	begin('broken route');
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('gone', 'gone')});
	$fake->do('when exchange=gone : channel-close 404 "NOT_FOUND - no exchange gone"');
	$checker->enqueue(100, route => 'gone', keys => 10);
	$node->wait_sql('SELECT last_error ~ $$route "gone"$$ FROM outbox_status');
	sleeps('broken route');
	$fake->do('forget');

	begin('rows that somebody has locked');
	$node->sql('SELECT outbox_pause()');
	$checker->enqueue(200, keys => 10);
	$checker->enqueue(200);
	my $session = $node->session;
	$session->query_safe('BEGIN');
	$session->query_safe('SELECT count(*) FROM (SELECT FROM outbox FOR UPDATE) o');
	$node->sql('SELECT outbox_resume()');
	sleeps('rows that somebody has locked');
	$session->quit;

	begin('broker down');
	my $hole = black_hole('127.0.0.1');
	$node->set('outbox.broker_uri', 'amqp://guest@127.0.0.1:1');
	$checker->enqueue(200, keys => 10);
	$node->wait_sql($state, 'broker down');
	sleeps('nobody listens');
	$node->set('outbox.broker_uri', "amqp://guest\@127.0.0.1:$hole->{port}");
	$node->wait_sql($state, 'connecting');
	sleeps('connecting');
	$node->set('outbox.enabled', 'off');
	sleeps('connecting, and disabled');
	$node->unset('outbox.enabled');
	$node->unset('outbox.broker_uri');

	begin('in the end');
};

# --- a message because of which the broker closes the link

# How often each message has arrived since then, the most of all but the bad ones.
sub most_copies
{
	my ($mark, @bad) = @_;
	my %copies;
	my @all = $fake->published;
	foreach my $copy (@all[ $mark .. $#all ])
	{
		$copies{ $copy->{id} }++ unless grep { $_ eq $copy->{type} } @bad;
	}
	my ($most) = sort { $b <=> $a } values %copies, 0;
	my $again = grep { $_ > 1 } values %copies;
	return ($most, $again);
}

sub settled_case
{
	my ($what, $mark, $n, $failed) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @all = $fake->published;

	$checker->check($what, [ grep { $_->{fate} eq 'ack' } @all[ $mark .. $#all ] ],
		interruptions => $n, window => 100, failed => $failed);
	is($node->sql('SELECT count(*) FROM outbox_archive WHERE attempts > 0'),
		0, "$what: nobody else has paid");
	$node->sql('DELETE FROM outbox; TRUNCATE test_sent, outbox_archive');
	return;
}

subtest 'closed because of one message' => sub {
	$node->set('outbox.retry_initial', '20ms');
	$node->set('outbox.retry_max', '200ms');
	$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('strict', 'strict', 4)});
	$node->sql('DELETE FROM outbox; TRUNCATE test_sent, outbox_archive');
	foreach my $close ((map { "connection-close $_ OUCH" } 501 .. 505, 541),
		'channel-close 406 OUCH')
	{
		begin($close);
		my $mark = () = $fake->published;
		my $connections = $fake->stats->{connections};
		$fake->do("when type=poison : $close");
		$checker->enqueue(60, keys => 60, route => 'strict');
		$checker->enqueue(1, route => 'strict', event_type => 'poison', aggregate_id => 'k');
		$checker->enqueue(100, route => 'strict');
		$node->wait_sql(q{SELECT count(*) FROM outbox WHERE attempts > 0}, 1);
		# and others that come while it is tried again
		foreach (1 .. 10)
		{
			$checker->enqueue(30, keys => 10, route => 'strict');
		}
		$node->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'failed'}, 1);
		$node->wait_drained;
		is($node->sql('SELECT event_type, attempts FROM outbox'),
			'poison|4', "$close: the guilty one has used up its attempts");
		my ($most, $again) = most_copies($mark, 'poison');
		cmp_ok($most, '<=', 2, "$close: others are sent at most once more");
		cmp_ok($again, '<=', 100, "$close: and no more of them than a window");
		my $n = $fake->stats->{connections} - $connections;
		cmp_ok($n, '<=', 5, "$close: a connection an attempt, and one to find out");
		note "$again of the others were sent twice, $n connections";
		settled_case($close, $mark, $n, 1);
	}

	# Not about a message, whoever was alone in flight.
	foreach my $code (320, 403, 530)
	{
		begin("connection-close $code");
		my $mark = () = $fake->published;
		$fake->do("when type=alone times=1 : connection-close $code OUCH");
		$checker->enqueue(1, route => 'strict', event_type => 'alone');
		$node->wait_drained;
		settled_case("connection-close $code", $mark, 1, 0);
	}
};

subtest 'what can never get through fails at once' => sub {
	foreach my $close (
		'channel-close 406 "PRECONDITION_FAILED - message size 17000000 is larger than configured max size 16777216"',
		'channel-close 406 "PRECONDITION_FAILED - message size 17000000 larger than max size 16777216"',
		'channel-close 311 "CONTENT_TOO_LARGE - no"',
		'connection-close 311 "CONTENT_TOO_LARGE - no"')
	{
		begin($close);
		my $mark = () = $fake->published;
		my $connections = $fake->stats->{connections};
		$fake->do("when type=large : $close");
		$checker->enqueue(60, keys => 60);
		$checker->enqueue(1, event_type => 'large');
		$checker->enqueue(100);
		$node->wait_sql(q{SELECT status || ' ' || attempts FROM outbox WHERE event_type = 'large'}, 'failed 1');
		$node->wait_drained;
		my ($most) = most_copies($mark, 'large');
		cmp_ok($most, '<=', 2, "$close: others are sent at most once more");
		my $n = $fake->stats->{connections} - $connections;
		cmp_ok($n, '<=', 2, "$close: two connections at most");
		settled_case($close, $mark, $n, 1);
	}

	begin('does not fit into a frame');
	my $mark = () = $fake->published;
	$fake->do('tune frame_max=4096', 'now fin');
	my $connections = $fake->stats->{connections};
	$checker->enqueue(20);
	$node->sql(q{SELECT outbox_enqueue('large', '{}', headers => jsonb_build_object('h', repeat('x', 5000)))});
	$checker->enqueue(20);
	$node->wait_sql(q{SELECT status || ' ' || attempts FROM outbox WHERE event_type = 'large'}, 'failed 1');
	like($node->sql('SELECT last_error FROM outbox'), qr/do not fit/, 'and the reason is with it');
	$node->wait_drained;
	$node->sql(q{DELETE FROM outbox});
	settled_case('does not fit into a frame', $mark, 1, 0);
	$fake->do('forget', 'now fin');
};

# --- the broker is back

subtest 'after an outage' => sub {
	my $second = OutboxTest::FakeBroker->start;
	my $port = $second->port;
	$node->set('outbox.retry_initial', '1s');
	$node->set('outbox.retry_max', '5min');

	foreach my $uri ("amqp://guest\@127.0.0.1:$port",
		"amqp://guest\@127.0.0.1:1,127.0.0.1:$port,127.0.0.1:2")
	{
		$node->set('outbox.broker_uri', $uri);
		my $slowest = 0;
		foreach my $round (1 .. 2)
		{
			$second->stop;
			$node->wait_sql($state, 'broker down');
			my $offset = $node->log_end;
			my $start = time;
			$node->sql(q{SELECT outbox_enqueue('back', '{}')});
			wait_until('a while', sub { time - $start > 5.5 });
			if ($uri !~ /,/)
			{
				my ($pid) = $node->backend_pids;
				my ($switches, $at) = (switches($pid), time);
				usleep(3_000_000);
				my $rate = (switches($pid) - $switches) / (time - $at);
				cmp_ok($rate, '<', 4, sprintf 'hardly any wake-ups (%.1f a second)', $rate);
			}
			unlike($node->log_text($offset), qr/could not connect/, 'no line a try');
			$second = OutboxTest::FakeBroker->start(port => $port);
			$start = time;
			wait_until('the first message arrives', sub { $second->stats->{published} > 0 });
			$slowest = time - $start if time - $start > $slowest;
		}
		# a second, and what other tests take of the machine; with the old backoff up to 6 s
		cmp_ok($slowest, '<', 3, sprintf 'the first message goes out within a second (%.2f s)', $slowest);
	}
	$node->unset('outbox.broker_uri');
};

# --- one database is stuck, and only that one

sub relays
{
	my ($server, $db) = @_;
	return $server->sql(qq{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'outbox relay' AND datname = '$db'});
}

subtest 'a worker that is stuck in its start, and another launcher' => sub {
	begin('stuck in its start');
	$node->sql('CREATE DATABASE renamed');
	$node->sql('CREATE EXTENSION outbox', 'renamed');
	$node->wait_sql($state, 'idle', undef, 'renamed');
	my $session = $node->session;
	# It comes between the launcher's look for it and the start.
	append_to_file($node->data_dir . '/outbox_test_point.lock', '');
	$session->query_safe('BEGIN');
	$session->query_safe('ALTER DATABASE renamed RENAME TO other_name');
	$node->wait_sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted
		AND locktype = 'object' AND classid = 'pg_database'::regclass}, 1);
	my $offset = $node->log_end;
	kill 'TERM', $node->backend_pids('outbox launcher');
	my $mark = () = $fake->published;
	my $start = time;
	$checker->enqueue(100, keys => 10);
	wait_until('the next launcher is there', sub { $node->backend_pids('outbox launcher') });
	$node->sql('SELECT outbox_worker_restart()');
	$checker->enqueue(100, keys => 10);
	ok($node->wait_drained(20), 'another database goes on');
	note sprintf 'after %.1f s', time - $start;
	$node->wait_log(qr/waits for a relay worker of its predecessor/, $offset, 20);
	unlink $node->data_dir . '/outbox_test_point.lock';
	$session->query_safe('ROLLBACK');
	my $most = 0;
	$session->quit;
	my $id = $node->sql(q{SELECT outbox_enqueue('renamed', '{}')}, 'renamed');
	wait_until('its own message is out', sub {
		my $n = relays($node, 'renamed');
		$most = $n if $n > $most;
		grep { $_->{id} eq $id } $fake->published;
	});
	is($most, 1, 'and it has one worker at a time');
	my @all = $fake->published;
	$checker->check('a worker that is stuck in its start',
		[ grep { $_->{fate} eq 'ack' && $_->{id} ne $id } @all[ $mark .. $#all ] ],
		interruptions => 2, window => 100);
	$node->sql('DROP DATABASE renamed');
	$node->stop;
};

subtest 'a worker that cannot make room' => sub {
	# Launchers of outbox and of logical replication need one each: two are left.
	my $small = OutboxTest::Node->create(
		name => 'small',
		broker => $fake,
		extension => 0,
		conf => 'max_worker_processes = 4');
	my @databases = qw(one two three);
	$fake->do('forget');
	foreach my $db (@databases)
	{
		$small->sql("CREATE DATABASE $db");
		$small->sql('CREATE EXTENSION outbox', $db);
		$small->sql(q{SELECT outbox_enqueue('first', '{}')}, $db);
	}
	$small->wait_drained(60, $_) foreach @databases;
	$small->wait_sql(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'outbox relay'}, 't');
	my ($stuck, $pid) = split /\|/, $small->sql(q{SELECT datname, pid FROM pg_stat_activity
		WHERE backend_type = 'outbox relay' LIMIT 1});
	kill 'STOP', $pid;
	my $start = time;
	foreach my $round (1 .. 3)
	{
		foreach my $db (grep { $_ ne $stuck } @databases)
		{
			$small->sql(q{SELECT outbox_enqueue('beside', '{}') FROM generate_series(1, 10)}, $db);
			ok($small->wait_drained(30, $db), "round $round: $db has its turn beside the stuck $stuck");
		}
	}
	note sprintf '%.1f s in all', time - $start;
	kill 'CONT', $pid;
	$small->sql(q{SELECT outbox_enqueue('after', '{}')}, $stuck);
	ok($small->wait_drained(60, $stuck), 'and so has that one, when it can');
	$small->stop;
};

# --- the first address of a name answers nothing

subtest 'a name with two addresses' => sub {
	my $preload = OutboxTest::Preload->build;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $name = '127.0.0.2-and-127.0.0.1';

	foreach my $cert ([ 'good', $name ], [ 'other', 'elsewhere.example' ])
	{
		system('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '7',
			'-subj', "/CN=$cert->[1]", '-addext', "subjectAltName=DNS:$cert->[1]",
			'-keyout', "$dir/key.pem", '-out', "$dir/$cert->[0].pem") == 0
		  or die 'no certificate';
		append_to_file("$dir/$cert->[0].pem", slurp_file("$dir/key.pem"));
	}
	my %front = map {
		$_ => OutboxTest::LineTool->start_tool('tls-front', '--to', $fake->port,
			'--cert', "$dir/$_.pem")
	} qw(good other);
	my %hole = map { $_ => black_hole('127.0.0.2', $_) }
	  ($fake->port, map { $_->port } values %front);
	my $server = OutboxTest::Node->create(name => 'addresses', broker => $fake, extension => 0, start => 0);
	$preload->start($server);
	$server->sql('CREATE EXTENSION outbox');
	$server->wait_sql($state, 'idle');
	$server->set('outbox.tls_ca_file', "$dir/good.pem");

	foreach my $uri ("amqp://guest\@$name:" . $fake->port,
		"amqps://guest\@$name:" . $front{good}->port)
	{
		my $offset = $server->log_end;
		my $mark = () = $fake->published;
		my $start = time;
		$server->set('outbox.broker_uri', $uri);
		$server->sql(q{SELECT outbox_enqueue('two', '{}')});
		wait_until('the message arrives', sub { (() = $fake->published) > $mark }, 20);
		my $took = time - $start;
		cmp_ok($took, '<', 5, sprintf '%s: the next address is tried after 2 s (%.1f s)', $uri, $took);
		unlike($server->log_text($offset), qr/could not connect/, 'and nothing has failed');
		# the address that works is the first one next time
		my $connections = $fake->stats->{connections};
		$fake->do('now fin');
		$start = time;
		wait_until('it is back', sub { $fake->stats->{connections} > $connections }, 20);
		$took = time - $start;
		cmp_ok($took, '<', 1.9, sprintf 'and is the first one from then on (%.1f s)', $took);
	}
	is($front{good}->wait_event(qr/^name/), "name $name", 'the server is told the name, not the address');
	$server->wait_sql($state, 'idle');

	# Nor does it make verification lax.
	$server->set('outbox.tls_ca_file', "$dir/other.pem");
	$server->set('outbox.broker_uri', "amqps://guest\@$name:" . $front{other}->port);
	$server->wait_sql('SELECT last_error FROM outbox_status',
		qq{could not connect to "$name:@{[ $front{other}->port ]}": server certificate was not accepted: it is for another host name});
	$server->set('outbox.broker_uri', 'amqps://guest@127.0.0.1:' . $front{other}->port);
	$server->wait_sql(q{SELECT last_error ~ 'server certificate was not accepted: IP address mismatch' FROM outbox_status});
	$server->stop;
};

done_testing();
