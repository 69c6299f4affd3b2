# What is wrong, as a kind: each reason of outbox_workers produced and seen there,
# in the words of the broker; who has a row or a table locked; a clock that jumps.
#
# suite: test
# takes: 40 s

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $preload = OutboxTest::Preload->build;
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake, extension => 0, start => 0,
	conf => <<'END');
outbox.retry_initial = 50ms
outbox.retry_max = 200ms
max_prepared_transactions = 2
END
$preload->start($node);
$node->sql('CREATE EXTENSION outbox');
my $state = 'SELECT state FROM outbox_status';
my $reason = 'SELECT reason FROM outbox_workers';
my $port = $fake->port;
my %seen;

# Not seen here: those of retry.pl, tls.pl, link_slow.pl, lifecycle.pl, external.pl and copies_environment.pl, and
# some that no server has shown yet.
my @ELSEWHERE = (
	'host unreachable', 'out of resources', 'private key not private', 'key passphrase wrong', 'TLS version too old',
	'mechanism not offered', 'takes no data', 'protocol error', 'broker error', 'twin', 'URI unusable', 'plain text not allowed',
	'mechanism unusable', 'password file unreadable', 'environment unusable', 'statement timeout', 'message unreadable', "another relay's route",
	'unroutable', 'queue refuses', 'message refused', 'external nack');

sub all_is_well
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$fake->do('forget');
	$node->unset('outbox.broker_uri');
	return $node->wait_sql("SELECT state, reason IS NULL, reason_text IS NULL, reason_since IS NULL FROM outbox_workers",
		'idle|t|t|t');
}

sub has_reason
{
	my ($expected, $text, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$seen{$expected} = 1;
	$node->wait_sql($reason, $expected, 20);
	my ($told, $since, $hint);
	# A peer that resets the connection behind its alert says it on another try.
	wait_until("$expected: $what", sub {
		($told, $since, $hint) = @{
			($node->rows(q{SELECT reason_text, reason_since IS NOT NULL,
				(SELECT hint IS NOT NULL FROM outbox_reason_hint(w.reason))
				FROM outbox_workers w}))[0]};
		return ($told // '') =~ $text;
	}, 20);
	like($told // '', $text, "$expected: $what");
	ok($since && $hint, "$expected: since when, and what to do");
	ok($node->wait_sql(qq{SELECT count(*) FROM outbox_workers w JOIN outbox_problems p ON p.problem = w.reason
			WHERE w.reason = '$expected'}, 1), "$expected: is in outbox_problems");
	return;
}

# The broker answers each connect so.
sub stage_has_reason
{
	my ($stage, $expected, $text, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	all_is_well();
	$fake->do($stage, 'now fin');
	has_reason($expected, $text, $what);
	return;
}

sub uri_has_reason
{
	my ($uri, $expected, $text, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set('outbox.broker_uri', $uri);
	has_reason($expected, $text, $what);
	return;
}

all_is_well();

subtest 'no way to the broker' => sub {
	uri_has_reason('amqp://guest@127.0.0.1:1', 'connection refused',
		qr/Connection refused/, 'nobody listens');
	$node->wait_sql($state, 'broker down');
	like($node->sql('SELECT hint FROM outbox_status'),
		qr/start RabbitMQ/, 'and the hint of outbox_status is that of the reason');
	my $since = $node->sql('SELECT reason_since FROM outbox_workers');
	uri_has_reason('amqp://guest@no-such-host.invalid', 'host unknown',
		qr/could not resolve host "no-such-host.invalid"/, 'a name that nobody knows');
	is($node->sql('SELECT reason_since FROM outbox_workers'), $since,
		'it is the same fault since then, with another reason');

	my $hole = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die $!;
	my @clients = map {
		IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $hole->sockport, Blocking => 0)
	} 1 .. 4;
	uri_has_reason('amqp://guest@127.0.0.1:' . $hole->sockport,
		'connection timed out', qr/timed out/, 'a host that does not answer');
	ok(all_is_well(), 'it is over with the fault');
};

subtest 'turned away' => sub {
	stage_has_reason('stage connect : fin', 'closed at login', qr/closed the connection/,
		'a port that closes each connection');
	stage_has_reason('stage connect : raw ' . unpack('H*', "HTTP/1.1 400 Bad Request\r\n\r\n"),
		'not RabbitMQ', qr/does not speak AMQP/, 'a web server');
	stage_has_reason('stage start-ok : connection-close 403 "ACCESS_REFUSED - Login was refused"',
		'login refused', qr/Login was refused/, 'a wrong password');
	like($node->sql('SELECT hint FROM outbox_status'),
		qr/outbox\.passfile/, 'login refused: the hint names the password file');
	stage_has_reason('stage open : connection-close 530 "NOT_ALLOWED - vhost shop not found"',
		'virtual host missing', qr/vhost shop not found/, 'no such virtual host');
	stage_has_reason(
		'stage open : connection-close 530 "NOT_ALLOWED - access to vhost / refused for user guest"',
		'virtual host not allowed', qr/refused for user/, 'no right on it');
	stage_has_reason(
		'stage open : connection-close 530 "NOT_ALLOWED - access to vhost / refused for user guest: connection limit (1) is reached"',
		'connection limit', qr/limit \(1\)/, 'too many connections');
	stage_has_reason(
		'stage open : connection-close 541 "INTERNAL_ERROR - access to vhost / refused for user guest: vhost / is down"',
		'virtual host down', qr/is down/, 'a virtual host that did not start');
	stage_has_reason('stage connect : silent', 'login timed out', qr/timed out/,
		'a broker that hangs');
	ok(all_is_well(), 'it is over with the fault');
};

subtest 'it was connected' => sub {
	foreach my $alarm ([ 'low on memory', 'memory alarm' ], [ 'low on disk', 'disk alarm' ],
		[ 'low on memory & disk', 'broker alarm' ])
	{
		$fake->do("now blocked $alarm->[0]");
		has_reason($alarm->[1], qr/^$alarm->[0]$/, 'the alarm in its own words');
		$node->wait_sql($state, 'blocked');
		$fake->do('now unblocked');
		ok(all_is_well(), "$alarm->[1]: and is over with it");
	}

	# To be seen before the next connection is there.
	$fake->do('stage connect times=1 : silent', 'now connection-close 320 "CONNECTION_FORCED - shutdown"');
	has_reason('closed by the broker', qr/CONNECTION_FORCED - shutdown/, 'the broker is stopped');
	all_is_well();
	$fake->do('stage connect times=1 : silent', 'now rst');
	has_reason('connection reset', qr/reset|closed/, 'the connection breaks');
	all_is_well();

	$node->set('outbox.heartbeat', '1s');
	$node->wait_sql($state, 'idle');
	$fake->do('stage connect : silent', 'now mute');
	has_reason('heartbeats missing', qr/heartbeats/, 'a broker that says nothing any more');
	$node->unset('outbox.heartbeat');
	all_is_well();

	$node->set('outbox.confirm_timeout', '1s');
	$fake->do('answer none');
	$node->sql(q{SELECT outbox_enqueue('late', '{}')});
	has_reason('no confirms', qr/outbox\.confirm_timeout/, 'a broker that confirms nothing');
	$node->wait_sql($state, 'publishing');
	is($node->sql($reason), 'no confirms', 'the next connection proves nothing');
	is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'no confirms' AND hint ~ '^Publishing goes on'}), 0,
		'and it is none of a setting');
	$fake->do('answer ack', 'now ack');
	$node->wait_drained;
	ok(all_is_well(), 'a confirm does');
	$node->unset('outbox.confirm_timeout');
};

subtest 'TLS' => sub {
	my $dir = PostgreSQL::Test::Utils::tempdir();

	foreach my $cert ([ 'good', 'DNS:localhost,IP:127.0.0.1' ], [ 'other', 'DNS:elsewhere.example' ])
	{
		system('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '20',
			'-subj', "/CN=$cert->[0]", '-addext', "subjectAltName=$cert->[1]",
			'-keyout', "$dir/$cert->[0].key", '-out', "$dir/$cert->[0].crt") == 0
		  or die 'no certificate';
		append_to_file("$dir/$cert->[0].pem",
			slurp_file("$dir/$cert->[0].crt") . slurp_file("$dir/$cert->[0].key"));
	}
	my ($good, $other, $asks) = map {
		OutboxTest::LineTool->start_tool('tls-front', '--to', $port, @$_)
	} ([ '--cert', "$dir/good.pem" ], [ '--cert', "$dir/other.pem" ],
		[ '--cert', "$dir/good.pem", '--client-ca', "$dir/other.crt" ]);

	is($node->sql('SELECT tls_not_after FROM outbox_workers'), '', 'no certificate without TLS');
	$node->set('outbox.tls_ca_file', "$dir/good.crt");
	$node->set('outbox.broker_uri', 'amqps://guest@localhost:' . $good->port);
	my $ends = qr/^(?:19|20) days/;
	$node->wait_sql(q{SELECT state, reason IS NULL, tls_not_after IS NOT NULL FROM outbox_workers}, 'idle|t|t');
	like($node->sql(q{SELECT tls_not_after - now() FROM outbox_workers}), $ends,
		'until when the certificate is valid');

	uri_has_reason('amqps://guest@localhost:' . $other->port, 'certificate not trusted',
		qr/certificate was not accepted/, 'a CA that we do not know');
	$node->set('outbox.tls_ca_file', "$dir/other.crt");
	has_reason('certificate of another host', qr/another host name/, 'another name');
	like($node->sql(q{SELECT tls_not_after - now() FROM outbox_workers}), $ends,
		'of one that is not accepted, too');
	$node->set('outbox.tls_verify', 'off');
	$node->wait_sql(q{SELECT state, reason IS NULL FROM outbox_workers}, 'idle|t');
	like($node->sql(q{SELECT tls_not_after - now() FROM outbox_workers}), $ends,
		'and where nothing is verified');
	$node->unset('outbox.tls_verify');

	# The clock is the server's alone, and its jump is told.
	$node->set('outbox.tls_ca_file', "$dir/good.crt");
	$node->set('outbox.broker_uri', 'amqps://guest@localhost:' . $good->port);
	$node->wait_sql($state, 'idle');
	my $offset = $node->log_end;
	$preload->set_clock(40 * 86400);
	# Idle may have been that of the settings before: then there is no connection to cut.
	wait_until('the next connect', sub {
		eval { $fake->do('now fin') };
		return $node->sql($state) ne 'idle';
	});
	has_reason('certificate expired', qr/has expired/, 'a certificate of yesterday');
	like($node->sql('SELECT clock_jump, clock_jumped_at > now() - interval $$1 day$$ FROM outbox_workers'),
		qr/^9\d\d:\d\d:\d\d.*\|t$/, 'the clock was set forward');
	$preload->set_clock(-86400);
	has_reason('certificate not yet valid', qr/not yet valid/, 'and one of tomorrow');
	like($node->sql('SELECT clock_jump FROM outbox_workers'), qr/^-9/, 'and back');
	is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'clock jumped'}), 1, 'which is a problem');
	$preload->set_clock(0);
	$node->wait_log(qr/the server's clock was set forward by \d+ ms/, $offset);
	$node->wait_log(qr/the server's clock was set back by \d+ ms/, $offset);
	$node->wait_sql($state, 'idle');

	uri_has_reason('amqps://guest@localhost:' . $asks->port, 'client certificate required',
		qr/certificate/, 'the broker wants ours');
	$node->set('outbox.tls_cert_file', "$dir/other.crt");
	has_reason('TLS files unusable', qr/has no private key/, 'without the key');
	$node->set('outbox.tls_key_file', "$dir/other.key");
	$node->wait_sql(q{SELECT state, reason IS NULL FROM outbox_workers}, 'idle|t');
	$node->set('outbox.tls_cert_file', "$dir/good.crt");
	$node->set('outbox.tls_key_file', "$dir/good.key");
	has_reason('client certificate refused', qr/unknown CA/i, 'ours is of another CA');
	$node->unset("outbox.tls_$_") foreach qw(cert_file key_file);

	uri_has_reason("amqps://guest\@localhost:$port", 'TLS handshake failed',
		qr/closed the connection/, 'a port that hangs up');
	$fake->do('stage connect : silent');
	my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 10) or die $!;
	uri_has_reason('amqps://guest@127.0.0.1:' . $silent->sockport, 'TLS handshake timed out',
		qr/timed out/, 'a port that says nothing');
	$node->unset('outbox.tls_ca_file');
	ok(all_is_well(), 'it is over with the fault');
	is($node->sql('SELECT tls_not_after FROM outbox_workers'), '', 'and the certificate with TLS');
};

subtest 'settings' => sub {
	my $file = PostgreSQL::Test::Utils::tempdir() . '/outbox.pass';

	append_to_file($file, "*:*:/:nobody:secret\n");
	$node->set('outbox.broker_uri', "amqp://app\@127.0.0.1:$port");
	has_reason('no password', qr/outbox\.passfile is not set/, 'no file is set');
	$node->set('outbox.passfile', "$file.not");
	has_reason('password file missing', qr/could not be opened/, 'no file is there');
	is($node->sql('SELECT DISTINCT w.state, p.severity FROM outbox_workers w, outbox_problems p'), 'idle|warning', 'the connection is there, and publishing goes on');
	$node->sql(q{SELECT outbox_enqueue('over the old connection', '{}')});
	$node->wait_drained;
	$fake->do('now fin');
	$node->wait_sql($state, 'config error');
	is($node->sql(q{SELECT severity FROM outbox_problems WHERE problem = 'password file missing'}), 'critical', 'until that ends');
	$node->set('outbox.passfile', $file);
	chmod 0644, $file or die $!;
	has_reason('password file not private', qr/group or world access/, 'others may read it');
	chmod 0600, $file or die $!;
	has_reason('no password', qr/has no line/, 'no line for the user');
	append_to_file($file, "*:*:*:app:secret\n");
	$node->wait_sql('SELECT state, reason IS NULL FROM outbox_workers', 'idle|t');
	$node->unset('outbox.passfile');
	all_is_well();
};

subtest 'the database' => sub {
	$node->refuse_settling;
	foreach my $case ([ P0001 => 'trigger or constraint' ], [ 53100 => 'disk full' ],
		[ 53200 => 'out of memory' ], [ 42501 => 'permission denied' ],
		[ XX001 => 'data damaged' ], [ XX000 => 'database error' ])
	{
		my ($code, $name) = @$case;
		$node->sql("DELETE FROM refuse");
		$node->sql("INSERT INTO refuse VALUES ('$code')");
		$node->sql(q{SELECT outbox_enqueue('refused', '{}')});
		has_reason($name, qr/^refused$/, 'an error of the database');
		is($node->sql('SELECT sqlstate FROM outbox_workers'), $code, "$name: its SQLSTATE");
		$node->sql('DELETE FROM refuse');
		$node->wait_drained;
		$node->wait_sql('SELECT reason IS NULL AND sqlstate IS NULL FROM outbox_workers', 't');
	}
	$node->sql('DROP TRIGGER refuse ON outbox');

	my $session = $node->session;
	$session->query_safe('BEGIN; LOCK TABLE outbox IN EXCLUSIVE MODE');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	has_reason('lock timeout', qr/lock timeout/, 'a table that somebody has locked');
	is( $node->sql(q{SELECT relation, mode, granted, pid, since IS NOT NULL, blocked_by IS NULL
			FROM outbox_table_lockers()}),
		"outbox|ExclusiveLock|t|$pid|t|t", 'and who it is');
	$session->query_safe('COMMIT');
	all_is_well();

	$session->query_safe(q{BEGIN; LOCK TABLE outbox_archive IN SHARE MODE; PREPARE TRANSACTION 'holds'});
	is( $node->sql(q{SELECT relation, granted, pid IS NULL, since IS NOT NULL FROM outbox_table_lockers()
			WHERE relation = 'outbox_archive'::regclass}),
		'outbox_archive|t|t|t', 'a prepared transaction has no process');
	$session->query_safe(q{ROLLBACK PREPARED 'holds'});
	is($node->sql('SELECT count(*) FROM outbox_table_lockers()'), 0, 'nobody has a table locked');
	$session->quit;
	all_is_well();
};

subtest 'rows that somebody has locked' => sub {
	my @sessions = map { $node->session } 1 .. 2;
	my @pids = sort { $a <=> $b } map { $_->query_safe('SELECT pg_backend_pid()') } @sessions;
	my $pids = join ',', @pids;

	$node->sql('SELECT outbox_pause()');
	$node->wait_sql($state, 'paused');
	my @ids = map {
		$node->sql(qq{SELECT outbox_enqueue('locked', '{}', aggregate_type => 'order', aggregate_id => '$_')})
	} 1 .. 4;

	# one by two in share mode, one in a savepoint, one by a prepared transaction
	foreach my $session (@sessions)
	{
		$session->query_safe("BEGIN; SELECT FROM outbox WHERE id = '$ids[0]' FOR KEY SHARE");
	}
	$sessions[0]->query_safe("SAVEPOINT s; SELECT FROM outbox WHERE id = '$ids[1]' FOR UPDATE");
	$node->sql("BEGIN; SELECT FROM outbox WHERE id = '$ids[2]' FOR UPDATE; PREPARE TRANSACTION 'row'");
	$node->sql('SELECT outbox_resume()');
	my $rows = q{SELECT aggregate_type || aggregate_id, array_to_string(pids, ','), array_to_string(prepared, ',')
		FROM outbox_locked_rows() ORDER BY 1};
	my $first = $sessions[0]->query_safe('SELECT pg_backend_pid()');
	ok($node->wait_sql($rows, "order1|$pids|\norder2|$first|\norder3||row"),
		'who has them: two, a savepoint\'s transaction, a prepared one');
	$node->wait_sql('SELECT count(*) FROM outbox', 3);
	is($node->sql('SELECT count(*) FROM outbox_locked_rows() WHERE since > now() OR since IS NULL'),
		0, 'since when');
	$_->query_safe('COMMIT') foreach @sessions;
	$node->sql(q{ROLLBACK PREPARED 'row'});
	$node->wait_drained;
	is($node->sql('SELECT count(*) FROM outbox_locked_rows()'), 0, 'and nobody when they are gone');
	$_->quit foreach @sessions;
};

subtest 'routes' => sub {
	$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts)
		VALUES ('asked', 'asked', NULL, 3)});
	my $waits = q{SELECT reason, waits_because, waits_since <= now(), retry_at > waits_since
		FROM outbox_internal.outbox_route_stats() WHERE route = 'asked'};
	$node->sql(q{SELECT outbox_enqueue('asked', '{}', route => 'asked')});
	$node->wait_drained;
	is($node->sql($waits), '|||', 'a route that works has no reason');
	foreach my $case ([ 'channel-close 404 "NOT_FOUND - no exchange"', 'exchange missing' ],
		[ 'channel-close 403 "ACCESS_REFUSED - access to exchange"', 'exchange forbidden' ],
		[ 'channel-close 406 "PRECONDITION_FAILED - inequivalent arg"', 'exchange differs' ],
		[ 'connection-close 503 "COMMAND_INVALID - unknown exchange type"', 'exchange type unknown' ],
		[ 'channel-close 541 "INTERNAL_ERROR - who knows"', 'exchange error' ])
	{
		my ($close, $name) = @$case;
		my ($words) = $close =~ /"(.*)"/;

		$seen{$name} = 1;
		all_is_well();
		# A new connection asks for the exchange again.
		$fake->do("stage declare exchange=asked : $close", 'now fin');
		$node->sql(q{SELECT outbox_enqueue('asked', '{}', route => 'asked')});
		$node->wait_sql(q{SELECT reason FROM outbox_internal.outbox_route_stats() WHERE route = 'asked'}, $name);
		like($node->sql($waits), qr/^\Q$name\E\|.*\Q$words\E\|t\|t$/, "$name: the broker's words, since when, and the next try");
		is($node->sql(qq{SELECT severity FROM outbox_reason_hint('$name')}), 'critical', "$name: has a hint");
		$fake->do('forget');
		$node->wait_drained;
		ok($node->wait_sql($waits, '|||'), "$name: it is over when one has gone out");
	}
};

# The words of RabbitMQ itself, which test_broker_reason.c has from several versions.
subtest 'RabbitMQ' => sub {
	my $rabbit = OutboxTest::Rabbit->start;
	my $at = '127.0.0.1:' . $rabbit->port;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/outbox.pass';

	append_to_file($file, "*:*:*:app:right\n*:*:*:guest:guest\n");
	chmod 0600, $file or die $!;
	$rabbit->erlang(q{rabbit_auth_backend_internal:add_user(<<"app">>, <<"right">>, <<"test">>),
		rabbit_vhost:add(<<"shop">>, <<"test">>), rabbit_vhost:add(<<"full">>, <<"test">>),
		rabbit_vhost_limit:parse_set(<<"full">>, <<"{\"max-connections\": 0}">>, <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<"app">>, <<"full">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)});
	$node->set('outbox.passfile', $file);

	uri_has_reason("amqp://app\@$at/full", 'connection limit', qr/connection limit \(0\) is reached/, 'no connection is left');
	uri_has_reason("amqp://app\@$at/shop", 'virtual host not allowed', qr/refused for user/, 'no permission on it');
	uri_has_reason("amqp://app\@$at/none", 'virtual host missing', qr/none.* not found/, 'it is not there');
	append_to_file($file, '');
	unlink $file or die $!;
	append_to_file($file, "*:*:*:app:wrong\n*:*:*:guest:guest\n");
	chmod 0600, $file or die $!;
	uri_has_reason("amqp://app\@$at/shop", 'login refused', qr/ACCESS_REFUSED/, 'a wrong password');
	unlike($node->sql('SELECT reason_text || last_error FROM outbox_workers'), qr/wrong/, 'which is not told');
	uri_has_reason("amqps://guest\@$at", 'no TLS there', qr/./, 'TLS where there is none');
	$node->set('outbox.broker_uri', "amqp://guest\@$at");
	$node->wait_sql($state, 'idle');
	foreach my $alarm ('memory', 'disk')
	{
		my $switch = "${alarm}_alarm";
		$rabbit->$switch(1);
		# The broker tells it to who publishes.
		$node->sql(q{SELECT outbox_enqueue('alarm', '{}')});
		has_reason("$alarm alarm", qr/^low on $alarm$/, 'in its own words');
		$rabbit->$switch(0);
		$node->wait_sql('SELECT reason IS NULL FROM outbox_workers', 't');
	}
	$rabbit->stop;
	has_reason('connection refused', qr/Connection refused/, 'it is stopped');
	$node->unset('outbox.passfile');
	all_is_well();
};

subtest 'reasons and hints' => sub {
	like($node->sql_fails(q{SELECT outbox_reason_hint('nonsense')}),
		qr/unknown reason "nonsense"/, 'a name that is none');
	is($node->sql('SELECT severity FROM outbox_reason_hint(NULL)'), '', 'NULL for NULL');
	is( $node->sql(q{SELECT severity, command FROM outbox_reason_hint('low on memory')
			WHERE false UNION ALL SELECT severity, command FROM outbox_reason_hint('memory alarm')}),
		'critical|rabbitmq-diagnostics alarms', 'severity and command');
	my @all = slurp_file('src/base/reason_codes.h') =~ /\breason\(\w+, "([^"]+)"\)/g;
	cmp_ok(scalar @all, '>', 30, 'reasons');
	is_deeply([ grep { !$seen{$_} } @all ], [@ELSEWHERE], 'each of them was seen, but for those of other tests');
};

done_testing();
