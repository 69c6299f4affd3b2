# States of a bad night: each is staged, must be named in outbox_problems within 3 s, and
# its command is pasted as an operator would: SQL into a session, the others into a shell,
# where rabbitmqctl and its like speak to a RabbitMQ of the test's own.  The command ends
# the state ("fixes"), or shows what decides it ("shows"), after which the test ends it.
# OUTBOX_TEST_FULL=1: those that take a timeout, too.  make states-doc writes
# what was seen into doc/dev/states.md.  The slow ones and those of the server itself:
# problems.pl.
#
# suite: test
# takes: 80 s

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $LIMIT = 3;
my $fake = OutboxTest::FakeBroker->start;
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.retry_initial = 50ms
outbox.retry_max = 500ms
autovacuum = off
max_prepared_transactions = 5
END
my ($port, $real) = ($fake->port, '127.0.0.1:' . $rabbit->port);
my $dir = PostgreSQL::Test::Utils::tempdir();
my (@seen, %output, @sessions, $undo);

# --- the shell of the operator

$rabbit->ctl('list_vhosts');    # it ends with this test
mkdir "$dir/bin" or die $!;
foreach my $name (qw(rabbitmqctl rabbitmq-diagnostics rabbitmq-plugins))
{
	append_to_file("$dir/bin/$name", "#!/bin/sh\nexec rabbitmq-node tool '" . $rabbit->dir . "' $name \"\$@\"\n");
	chmod 0755, "$dir/bin/$name" or die $!;
}

# Status and output; the same command twice shows the same.
sub in_shell
{
	my ($command) = @_;
	local $ENV{PATH} = "$dir/bin:$ENV{PATH}";
	my $out = qx{( $command ) 2>&1 </dev/null};

	return ($? >> 8, $out);
}

sub paste
{
	my ($command) = @_;

	if ($command =~ /^ALTER SYSTEM/)
	{
		$node->sql($command);
		return (0, $node->sql('SELECT pg_reload_conf()'));    # as its hint says
	}
	return (0, $node->sql($command)) if $command =~ /^(?:SELECT|SHOW|ALTER|UPDATE|INSERT|REINDEX|ROLLBACK|COMMIT|VACUUM)\b/;
	return in_shell($command) if $command =~ /set_|add_|chmod/;
	$output{$command} //= [ in_shell($command) ];
	return @{ $output{$command} };
}

# --- how a state is staged

my $FORGET = sub { $fake->do('forget'); $node->unset('outbox.broker_uri'); };

sub uri
{
	my ($uri) = @_;
	return sub { $node->set('outbox.broker_uri', $uri); return $FORGET };
}

# The broker answers each connect so.
sub stage
{
	my @commands = @_;
	return sub { $fake->do(@commands, 'now fin'); return $FORGET };
}

sub fake_does
{
	my @commands = @_;
	return sub { $fake->do(@commands); return $FORGET };
}

sub statements
{
	my ($sql, $end) = @_;
	return sub { $node->sql($sql); return sub { $node->sql($end) if $end } };
}

sub setting
{
	my ($name, $value) = @_;
	return sub { $node->set($name, $value); return sub { $node->unset($name) } };
}

sub in_session
{
	my (@statements) = @_;
	return sub {
		my $session = $node->session;
		push @sessions, $session;
		$session->query_safe($_) foreach @statements;
		return sub { eval { $session->query('ROLLBACK') } };
	};
}

# An error of the relay's own statement.
sub relay_error
{
	my ($code) = @_;
	return statements("UPDATE refuse SET code = '$code'; SELECT outbox_enqueue('refused', '{}')", "UPDATE refuse SET code = ''");
}

sub exchange_answer
{
	my ($answer) = @_;
	return sub {
		$fake->do("stage declare exchange=asked : $answer", 'now fin');
		$node->sql(q{SELECT outbox_enqueue('asked', '{}', route => 'asked')});
		return sub { $fake->do('forget') };
	};
}

# What the broker says to messages of that type.
sub message_answer
{
	my ($answer) = @_;
	return sub {
		$fake->do("when type=bad : $answer");
		$node->sql(q{SELECT outbox_enqueue('bad', '{}', 'order', '7', route => 'asked')});
		return sub { $fake->do('forget') };
	};
}

sub failed
{
	my ($answer) = @_;
	return sub {
		$node->sql(q{UPDATE outbox_route SET max_attempts = 1, on_failed = 'block' WHERE name = 'asked'});
		message_answer($answer)->();
		$node->wait_sql(q{SELECT count(*) FROM outbox_failed}, 1);
		$node->sql(q{UPDATE outbox_route SET max_attempts = 100 WHERE name = 'asked'});
		$fake->do('forget');
		return sub { $node->sql(q{SELECT outbox_requeue(id) FROM outbox_failed}) };
	};
}

sub passfile
{
	my ($text, $mode) = @_;
	return sub {
		my $file = "$dir/pass" . scalar @seen;
		append_to_file($file, $text) if defined $text;
		chmod $mode, $file if defined $mode;
		$node->set('outbox.passfile', $file);
		return sub { $node->unset('outbox.passfile') };
	};
}

sub certificate
{
	my ($name, $names, @more) = @_;
	system('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', @more, '-days', '20', '-subj', "/CN=$name",
		'-addext', "subjectAltName=$names", '-keyout', "$dir/$name.key", '-out', "$dir/$name.crt") == 0 or die 'no certificate';
	append_to_file("$dir/$name.pem", slurp_file("$dir/$name.crt") . slurp_file("$dir/$name.key"));
	chmod 0600, "$dir/$name.key" or die $!;
	return;
}

certificate('good', 'DNS:localhost,IP:127.0.0.1', '-nodes');
certificate('other', 'DNS:elsewhere.example', '-nodes');
certificate('locked', 'DNS:localhost', '-passout', 'pass:right');
my ($good, $other, $asks) = map { OutboxTest::LineTool->start_tool('tls-front', '--to', $port, @$_) }
  ([ '--cert', "$dir/good.pem" ], [ '--cert', "$dir/other.pem" ], [ '--cert', "$dir/good.pem", '--client-ca', "$dir/other.crt" ]);

sub tls
{
	my ($front, %settings) = @_;
	return sub {
		my @set = map { "outbox.tls_$_" } sort keys %settings;
		$node->set("outbox.tls_$_", "$dir/$settings{$_}") foreach sort keys %settings;
		$node->set('outbox.broker_uri', 'amqps://guest@localhost:' . (ref $front ? $front->port : $front));
		return sub { $node->unset($_) foreach @set; $FORGET->() };
	};
}

# A port that takes no connection and refuses none; one that takes each and says nothing.
my $hole = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die $!;
my @clients = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $hole->sockport, Blocking => 0) } 1 .. 4;
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 10) or die $!;

# The real one: a user who may do little, with the password file that a password needs.
$rabbit->ctl('add_user', 'app', 'right');
append_to_file("$dir/app.pass", "*:*:*:app:right\n*:*:*:guest:guest\n");
append_to_file("$dir/wrong.pass", "*:*:*:app:wrong\n*:*:*:guest:guest\n");
chmod 0600, "$dir/app.pass", "$dir/wrong.pass";

sub rabbit_as
{
	my ($uri, $file, @erlang) = @_;
	return sub {
		$rabbit->erlang($_) foreach @erlang;
		$node->set('outbox.passfile', "$dir/" . ($file // 'app.pass'));
		$node->set('outbox.broker_uri', $uri);
		return sub { $node->unset($_) foreach qw(outbox.broker_uri outbox.passfile) };
	};
}

$node->refuse_settling;
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('asked', 'asked', 100), ('quiet', 'asked', 100), ('topic', 'outbox', 100);
INSERT INTO outbox_route (name, exchange, relay) VALUES ('hooks', '', 'external');
UPDATE outbox_route SET max_attempts = 100 WHERE name = 'default';
CREATE TABLE captured (id integer PRIMARY KEY);
CREATE TRIGGER changes AFTER INSERT ON captured FOR EACH ROW EXECUTE FUNCTION outbox_capture('key=id');
CREATE ROLE shop;
SQL
my $enqueue = q{SELECT outbox_enqueue('e', '{}', route => 'quiet')};

# state, problem, how it is staged, what its command does, and what else: within, detail.
my @states = (
	[ 'no process listens at the port', 'connection refused', uri('amqp://guest@127.0.0.1:1'), 'shows' ],
	[ 'a host name that DNS does not know', 'host unknown', uri('amqp://guest@no-such-host.invalid'), 'shows' ],
	[ 'a firewall drops the packets', 'connection timed out', uri('amqp://guest@127.0.0.1:' . $hole->sockport), 'shows', within => 15 ],
	[ 'a web server at the port', 'not RabbitMQ', stage('stage connect : raw ' . unpack('H*', "HTTP/1.1 400 Bad Request\r\n\r\n")), 'shows' ],
	[ 'a proxy without a broker behind it', 'closed at login', stage('stage connect : fin'), 'shows' ],
	[ 'a broker that hangs at the login', 'login timed out', stage('stage connect : silent'), 'shows', within => 20 ],
	[ 'a wrong password', 'login refused', rabbit_as("amqp://app\@$real", 'wrong.pass'), 'shows', command => qr/authenticate_user app$/ ],
	[ 'no such virtual host', 'virtual host missing', rabbit_as("amqp://app\@$real/shop"), 'fixes', command => qr/add_vhost shop$/ ],
	[ 'no permission in the virtual host', 'virtual host not allowed', rabbit_as("amqp://app\@$real/shop"), 'fixes', command => qr/-p shop app / ],
	[ 'a virtual host with a quote in its name', 'virtual host missing', rabbit_as("amqp://guest\@$real/a%27b"), 'fixes' ],
	[ 'a virtual host that did not start', 'virtual host down',
		stage('stage open : connection-close 541 "INTERNAL_ERROR - access to vhost / refused for user guest: vhost / is down"'), 'shows' ],
	[ 'too many connections', 'connection limit',
		rabbit_as("amqp://app\@$real/shop", undef, 'rabbit_vhost_limit:parse_set(<<"shop">>, <<"{\"max-connections\": 0}">>, <<"test">>)'), 'shows' ],
	[ 'the broker is restarted', 'closed by the broker',
		fake_does('stage connect times=1 : silent', 'now connection-close 320 "CONNECTION_FORCED - shutdown"'), 'shows' ],
	[ 'a proxy cuts the connection', 'connection reset', fake_does('stage connect times=1 : silent', 'now rst'), 'shows' ],
	[ 'memory alarm', 'memory alarm', fake_does('now blocked low on memory'), 'shows', over => 'now unblocked' ],
	[ 'disk alarm', 'disk alarm', fake_does('now blocked low on disk'), 'shows', over => 'now unblocked' ],
	[ 'both alarms', 'broker alarm', fake_does('now blocked low on memory & disk'), 'shows', over => 'now unblocked' ],
	[ 'a certificate of an unknown CA', 'certificate not trusted', tls($good), 'shows', out => qr/CN = good/ ],
	[ 'a certificate of another host', 'certificate of another host', tls($other, ca_file => 'other.crt'), 'shows', out => qr/elsewhere\.example/ ],
	[ 'a certificate that ends soon', 'certificate expires', tls($good, ca_file => 'good.crt'), 'shows', out => qr/notAfter/ ],
	[ 'a broker that wants a client certificate', 'client certificate required', tls($asks, ca_file => 'good.crt'), 'shows' ],
	[ 'a client certificate of another CA', 'client certificate refused',
		tls($asks, ca_file => 'good.crt', cert_file => 'good.crt', key_file => 'good.key'), 'shows', out => qr/CN = good/ ],
	[ 'a certificate without its key', 'TLS files unusable', tls($good, ca_file => 'good.crt', cert_file => 'other.crt'), 'shows' ],
	[ 'a key that others may read', 'private key not private',
		sub { chmod 0644, "$dir/other.key"; tls($asks, ca_file => 'good.crt', cert_file => 'other.crt', key_file => 'other.key')->() }, 'fixes' ],
	[ 'an encrypted key without its passphrase', 'key passphrase wrong',
		tls($good, ca_file => 'good.crt', cert_file => 'locked.crt', key_file => 'locked.key'), 'shows' ],
	[ 'amqps:// to a port without TLS', 'no TLS there', tls($rabbit->port), 'shows' ],
	[ 'a TLS port that hangs up', 'TLS handshake failed', tls($port), 'shows' ],
	[ 'a TLS port that says nothing', 'TLS handshake timed out', sub { $fake->do('stage connect : silent'); tls($silent->sockport)->() }, 'shows', within => 20 ],
	[ 'no password file is set', 'no password', uri("amqp://app\@127.0.0.1:$port"), 'shows' ],
	[ 'the password file is gone', 'password file missing', passfile(), 'shows' ],
	[ 'a password file that others may read', 'password file not private', passfile("*:*:*:*:guest\n", 0644), 'fixes', severity => 'warning' ],
	[ 'a password file that is none', 'password file unreadable', passfile("a\0b\n", 0600), 'shows' ],
	[ 'EXTERNAL without TLS', 'mechanism unusable', setting('outbox.auth_mechanism', 'external'), 'shows' ],
	[ 'outbox.enabled is off in a file', 'disabled', setting('outbox.enabled', 'off'), 'fixes' ],
	[ 'outbox.enabled is off for the database', 'disabled',
		statements('ALTER DATABASE postgres SET outbox.enabled = off; SELECT outbox_worker_restart()', 'ALTER DATABASE postgres RESET outbox.enabled'), 'fixes' ],
	[ 'outbox.enabled is off for the workers\' role', 'disabled',
		statements('ALTER ROLE postgres SET outbox.enabled = off; SELECT outbox_worker_restart()', 'ALTER ROLE postgres RESET outbox.enabled'), 'fixes' ],
	[ 'an extension newer than the library', 'version mismatch',
		statements(q{UPDATE pg_extension SET extversion = '2.0' WHERE extname = 'outbox'; SELECT outbox_worker_restart()},
			q{UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'outbox'; SELECT outbox_worker_restart()}), 'shows', out => qr/^1\.0\|/m ],
	[ 'a migration has the table locked', 'table locked', in_session('BEGIN', 'LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE'), 'fixes' ],
	[ 'a prepared transaction has the table locked', 'table locked',
		statements(q{BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'it''s locked'}, q{ROLLBACK PREPARED 'it''s locked'}), 'shows', detail => qr/held by prepared transaction "it's locked"/ ],
	[ 'LOCK TABLE outbox IN EXCLUSIVE MODE', 'lock timeout',
		sub { my $end = in_session('BEGIN', 'LOCK TABLE outbox IN EXCLUSIVE MODE')->(); $node->sql('SELECT outbox_worker_restart()'); return $end }, 'shows' ],
	[ 'a trigger of the application refuses DELETE', 'trigger or constraint', relay_error('P0001'), 'shows' ],
	[ 'a full disk', 'disk full', relay_error('53100'), 'shows' ],
	[ 'no memory left', 'out of memory', relay_error('53200'), 'shows' ],
	[ 'a policy on the table', 'permission denied', relay_error('42501'), 'shows' ],
	[ 'a damaged page', 'data damaged', relay_error('XX001'), 'shows' ],
	[ 'another error of the server', 'database error', relay_error('XX000'), 'shows' ],
	[ 'a disabled trigger', 'trigger off', statements('ALTER TABLE outbox DISABLE TRIGGER outbox_row'), 'fixes' ],
	[ 'a trigger that misses replicated changes', 'trigger off', statements('ALTER TABLE outbox_route ENABLE TRIGGER outbox_route_changed'), 'fixes' ],
	[ 'a renamed index', 'index missing', statements('ALTER INDEX outbox_failed_seq RENAME TO other', 'ALTER INDEX other RENAME TO outbox_failed_seq'),
		'shows', out => qr/^other\|/m ],
	[ 'an index build that was cut off', 'index missing',
		statements(q{UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_failed_seq'::regclass}), 'fixes' ],
	[ 'a disabled capture trigger', 'capture broken', statements('ALTER TABLE captured DISABLE TRIGGER changes'), 'fixes' ],
	[ 'a renamed column that capture needs', 'capture broken',
		statements('ALTER TABLE captured RENAME id TO number', 'ALTER TABLE captured RENAME number TO id'), 'shows', out => qr/key=id/ ],
	[ 'a paused database', 'paused', statements(q{SELECT outbox_pause(reason => 'broker maintenance')}), 'fixes' ],
	[ 'a paused route', 'route paused', statements("SELECT outbox_pause('quiet', 'wrong amounts'); $enqueue"), 'fixes', detail => qr/; 1 message waits$/ ],
	[ 'a route that is gone', 'route missing',
		statements(q{SET session_replication_role = replica; DELETE FROM outbox_route WHERE name = 'topic'; INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'topic')}),
		'fixes' ],
	[ 'a renamed role', 'role changed',
		statements(q{UPDATE outbox_route SET enqueue_roles = '{shop}' WHERE name = 'quiet'; DROP ROLE shop; CREATE ROLE shop}), 'fixes' ],
	[ 'a route at its limit', 'route full',
		statements("SELECT outbox_pause('quiet'); UPDATE outbox_route SET max_pending = 1 WHERE name = 'quiet'; $enqueue",
			q{SELECT outbox_resume('quiet'); UPDATE outbox_route SET max_pending = NULL WHERE name = 'quiet'}), 'shows' ],
	[ 'a backlog that is too old', 'backlog old',
		statements("SELECT outbox_pause('quiet'); $enqueue; UPDATE outbox SET created_at = now() - interval '1 day'", q{SELECT outbox_resume('quiet')}), 'shows' ],
	[ 'an external relay that does not run', 'external relay missing',
		statements(q{SELECT outbox_enqueue('e', '{}', route => 'hooks'); UPDATE outbox SET created_at = now() - interval '1 day'},
			q{SELECT outbox_ack((SELECT max(token) FROM outbox_claim('hooks')))}), 'shows' ],
	[ 'an exchange that is not there', 'exchange missing', exchange_answer('channel-close 404 "NOT_FOUND - no exchange"'), 'shows' ],
	[ 'no permission on the exchange', 'exchange forbidden', exchange_answer('channel-close 403 "ACCESS_REFUSED - access to exchange"'), 'shows' ],
	[ 'an exchange of another type', 'exchange differs', exchange_answer('channel-close 406 "PRECONDITION_FAILED - inequivalent arg"'), 'shows' ],
	[ 'a plugin of the broker is missing', 'exchange type unknown', exchange_answer('connection-close 503 "COMMAND_INVALID - unknown exchange type"'), 'shows' ],
	[ 'an exchange that the broker cannot use', 'exchange error', exchange_answer('channel-close 541 "INTERNAL_ERROR"'), 'shows' ],
	[ 'no queue is bound', 'unroutable', message_answer('return 312 NO_ROUTE'), 'shows' ],
	[ 'a full queue', 'queue refuses', message_answer('nack'), 'shows' ],
	[ 'no topic permission', 'message refused',
		rabbit_as("amqp://app\@$real", undef, 'rabbit_auth_backend_internal:set_permissions(<<"app">>, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)',
			'rabbit_auth_backend_internal:set_topic_permissions(<<"app">>, <<"/">>, <<"outbox">>, <<"^none$">>, <<"^$">>, <<"test">>)'),
		'shows', then => q{SELECT outbox_enqueue('e', '{}')}, command => qr/list_topic_permissions -p \/$/, out => qr/^app\b.*\^none\$/m ],
	[ 'a message that the broker refuses', 'message refused', message_answer('channel-close 406 "PRECONDITION_FAILED - expiration"'), 'shows' ],
	[ 'messages that have failed', 'failed messages', failed('nack'), 'fixes' ],
	[ 'a key behind a failed message', 'key held', failed('nack'), 'fixes' ],
	[ 'a key behind a retry', 'key held',
		sub {
			my $end = message_answer('nack')->();
			$node->sql(q{SELECT outbox_enqueue('behind', '{}', 'order', '7', route => 'asked')});
			return $end;
		}, 'shows', severity => 'info' ],
	[ 'a forgotten session has a row', 'row locked',
		sub {
			$node->sql('SELECT outbox_pause()');
			$node->sql(q{SELECT outbox_enqueue('locked', '{}', 'order', '8')});
			my $end = in_session('BEGIN', 'SELECT FROM outbox FOR UPDATE')->();
			$node->sql('SELECT outbox_resume()');
			return $end;
		}, 'fixes' ],
	[ 'a prepared transaction has a row', 'row locked',
		statements(q{SELECT outbox_pause(); SELECT outbox_enqueue('locked', '{}', 'order', '8');
			BEGIN; SELECT FROM outbox FOR UPDATE; PREPARE TRANSACTION 'row'; SELECT outbox_resume()}, q{COMMIT PREPARED 'row'}), 'shows', out => qr/\|row\|/ ],
	[ 'a replay that has failed', 'job failed',
		statements(q{INSERT INTO outbox_job (kind, state, arguments, created_by, total, last_error, ended_at)
			VALUES ('replay', 'failed', '{}', 'postgres', 0, 'permission denied', now())}, 'DELETE FROM outbox_job'), 'fixes' ],
	[ 'a day that nothing drops', 'archive behind',
		statements(q{CREATE TABLE kept AS SELECT max(relname) AS name FROM pg_class WHERE relname ~ '^outbox_archive_p[0-9]{8}$';
			UPDATE pg_class SET relname = 'outbox_archive_p20200101' WHERE relname = (SELECT name FROM kept)},
			q{UPDATE pg_class SET relname = (SELECT name FROM kept) WHERE relname = 'outbox_archive_p20200101'; DROP TABLE kept}), 'shows' ],
	[ 'a standby is missing', 'standby missing', sub { $node->set('synchronous_standby_names', 'berlin'); return sub { $node->unset('synchronous_standby_names') } }, 'shows' ],
	[ 'a worker ends with an error', 'crashed',
		sub { $node->test_point('connecting fatal 1'); $fake->do('now fin'); return sub { $node->test_point_over } }, 'shows', stays => 1,
		out => qr/outbox relay/ ],
);

sub rows_of
{
	my ($problem) = @_;
	return $node->sql("SELECT count(*) FROM outbox_problems WHERE problem = '$problem'");
}

foreach my $state (@states)
{
	my ($name, $problem, $how, $effect, %more) = @$state;
	# Their timeouts take long.
	next if $more{within} && !$ENV{OUTBOX_TEST_FULL};
	my $from = time;
	my ($row, $status, $out);

	subtest "$name: $problem" => sub {
		my $end = $how->();
		if ($more{then})
		{
			$node->wait_sql('SELECT broker, state FROM outbox_workers', "$real|idle");
			$node->sql($more{then});
		}
		my $named = wait_until($problem, sub { rows_of($problem) > 0 }, $more{within} // 30);
		my $took = time - $from;
		cmp_ok($took, '<', $more{within} // $LIMIT, 'it is named in time');
		my ($severity, $subject, $detail, $command);
		# Of a peer that resets the connection another reason may be seen in between.
		wait_until('its row', sub {
			($severity, $subject, $detail, $command) = split /\x1f/, $node->sql(
				"SELECT concat_ws(chr(31), severity, subject, coalesce(detail, ''), command) FROM outbox_problems WHERE problem = '$problem' ORDER BY severity, subject LIMIT 1");
			return defined $command;
		});
		is($severity, $more{severity}, 'its severity') if $more{severity};
		like($detail, $more{detail}, 'its words') if $more{detail};
		like($command, $more{command} // qr/./, 'its command');
		unlike($command, qr/\b(?:USER|VHOST|HOST|PORT|PASSFILE|KEY_FILE|CERT_FILE|ROUTE|EXCHANGE)\b/, 'nothing is left to fill in');
		($status, $out) = eval { paste($command =~ s/LOGFILE$/$node->logfile/er) };
		$out //= '';
		is($@, '', "pasted: $command");
		isnt($status, 127, 'there is such a command');
		like($out, $more{out}, 'what it shows') if $more{out};
		if ($effect eq 'fixes')
		{
			ok(wait_until("$problem is over", sub { rows_of($problem) == 0 }, 20), 'and the state is over');
		}
		else
		{
			# No row is an answer to a query: no lease, no standby, no file.
			ok($status || $out ne '' || $command =~ /^(?:SELECT|SHOW)/, 'it shows something');
		}
		$end->() if ref $end;
		$fake->do($more{over}) if $more{over};
		ok($more{stays} || wait_until('the end', sub { rows_of($problem) == 0 }, 20), 'over')
		  or diag join "\n", map { join '|', @$_ } $node->rows('SELECT problem, subject, detail FROM outbox_problems');
		my ($shown) = grep { /\S/ } split /\n/, $out =~ s/\|/\\|/gr;
		push @seen, [ $name, $problem, $severity, $detail, $command, $effect, $effect eq 'fixes' ? 'the state is over' : substr($shown // ($status ? "exit status $status" : 'no row'), 0, 80) ];
		$node->wait_sql(q{SELECT bool_and(state = 'idle') FROM outbox_workers}, 't');
		$node->wait_drained unless $problem eq 'row locked';
	};
}

# What changes with each run is not of the table.
sub table
{
	my @lines = ('| state | problem | severity | detail | command | pasted |', '| --- | --- | --- | --- | --- | --- |');
	foreach my $line (@seen)
	{
		my ($name, $problem, $severity, $detail, $command, $does, $out) = map {
			s/\Q$dir\E\/?//gr =~ s/\b(?:127\.0\.0\.1|localhost):\d{4,5}\b/HOST:PORT/gr =~ s/(process |backend\()\d+/${1}N/gr
			  =~ s/[0-9a-f]{8}-[0-9a-f-]{27}/ID/gr =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:\+00| UTC| GMT)/TIME/gr =~ s/(?<!\\)\|/\\|/gr =~ s/\n/ /gr =~ s/\boutbox\d+\@localhost\b/NODE/gr
		} @$line;
		push @lines, "| $name | `$problem` | $severity | $detail | `$command` | $does: $out |";
	}
	return join '', map { "$_\n" } @lines;
}

note "doc: $_" foreach split /\n/, <<"END" . table();
# States that were staged

Written by `make states-doc` (test/t/states.pl with OUTBOX_TEST_FULL=1), of commit ${\ ($ENV{OUTBOX_TEST_COMMIT} // 'unknown')}. Each state is staged, must be named in `outbox_problems` within $LIMIT s
(timeouts of the network: within theirs), and its command is pasted as an operator would. *fixes*: the state is over by that. *shows*: the first line of
what decides it. Values that change with each run are words in capital letters. States of the server itself, and the slow ones: test/t/problems.pl.

END
$_->quit foreach grep { eval { $_->query('SELECT 1'); 1 } } @sessions;
done_testing();
