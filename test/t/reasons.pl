# What is wrong, as a kind, where that is more than one state (states.pl): since when a fault
# lasts, what goes on beside it, and what proves that it is over; who has a row or a table
# locked; a clock that jumps.
#
# suite: test
# takes: 20 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::States;
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

	ok(all_is_well(), 'it is over with the fault');
};

subtest 'no confirms' => sub {
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

	system('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '20', '-subj', '/CN=good',
		'-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', "$dir/good.key", '-out', "$dir/good.crt") == 0
	  or die 'no certificate';
	append_to_file("$dir/good.pem", slurp_file("$dir/good.crt") . slurp_file("$dir/good.key"));
	my $good = OutboxTest::LineTool->start_tool('tls-front', '--to', $port, '--cert', "$dir/good.pem");

	is($node->sql('SELECT tls_not_after FROM outbox_workers'), '', 'no certificate without TLS');
	$node->set('outbox.tls_ca_file', "$dir/good.crt");
	$node->set('outbox.broker_uri', 'amqps://guest@localhost:' . $good->port);
	my $ends = qr/^(?:19|20) days/;
	$node->wait_sql(q{SELECT state, reason IS NULL, tls_not_after IS NOT NULL FROM outbox_workers}, 'idle|t|t');
	like($node->sql(q{SELECT tls_not_after - now() FROM outbox_workers}), $ends,
		'until when the certificate is valid');

	$node->set('outbox.broker_uri', 'amqps://guest@127.1:' . $good->port);
	has_reason('certificate of another host', qr/another host name/, 'another name');
	like($node->sql(q{SELECT tls_not_after - now() FROM outbox_workers}), $ends,
		'of one that is not accepted, too');
	$node->set('outbox.tls_verify', 'off');
	$node->wait_sql(q{SELECT state, reason IS NULL FROM outbox_workers}, 'idle|t');
	like($node->sql(q{SELECT tls_not_after - now() FROM outbox_workers}), $ends,
		'and where nothing is verified');
	$node->unset('outbox.tls_verify');

	# The clock is the server's alone, and its jump is told.
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
	paste_problem($node, 'clock jumped');
	$preload->set_clock(0);
	$node->wait_log(qr/the server's clock was set forward by \d+ ms/, $offset);
	$node->wait_log(qr/the server's clock was set back by \d+ ms/, $offset);
	$node->wait_sql($state, 'idle');

	all_is_well();
	$node->unset('outbox.tls_ca_file');
	ok(all_is_well(), 'it is over with the fault');
	$node->wait_sql('SELECT tls_not_after FROM outbox_workers', '');
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

subtest 'tables that somebody has locked' => sub {
	my $session = $node->session;
	$session->query_safe('BEGIN; LOCK TABLE outbox IN EXCLUSIVE MODE');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	# a poll looks for rows where a transaction has ended
	$node->sql('SELECT pg_current_xact_id()');
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

subtest 'reasons and hints' => sub {
	like($node->sql_fails(q{SELECT outbox_reason_hint('nonsense')}),
		qr/unknown reason "nonsense"/, 'a name that is none');
	is($node->sql('SELECT severity FROM outbox_reason_hint(NULL)'), '', 'NULL for NULL');
	is( $node->sql(q{SELECT severity, command FROM outbox_reason_hint('low on memory')
			WHERE false UNION ALL SELECT severity, command FROM outbox_reason_hint('memory alarm')}),
		'critical|rabbitmq-diagnostics alarms', 'severity and command');
};

done_testing();
