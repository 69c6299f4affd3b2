# States of a bad night: the way to the broker, settings, the database, routes and messages.
# Each is named in outbox_problems within 3 s (timeouts of the network: within theirs), with
# a command that ends it or shows what decides it, pasted into a session with an empty
# search_path; the extension's schema has a name that must be quoted.  States of servers,
# copies and tables: problems.pl.  make states-doc writes what was seen into doc/dev/states.md.
#
# suite: test
# takes: 120 s

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Ca;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::States;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $fake, extension => 0,
	conf => <<'END');
outbox.retry_initial = 50ms
outbox.retry_max = 500ms
autovacuum = off
max_prepared_transactions = 5
END
$node->sql(<<'SQL');
CREATE SCHEMA "Odd Schema";
CREATE EXTENSION outbox SCHEMA "Odd Schema";
ALTER DATABASE postgres SET search_path = public, "Odd Schema";
SQL
my ($port, $real) = ($fake->port, '127.0.0.1:' . $rabbit->port);
my $dir = PostgreSQL::Test::Utils::tempdir();
my $states = OutboxTest::States->new($node, $rabbit);
my (@sessions, $files);

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

sub broker_alarm
{
	my ($words) = @_;
	return sub { $fake->do("now blocked $words"); return sub { $fake->do('now unblocked') } }, 'shows', detail => qr/^\Q$words\E$/,
	  also => sub { is($node->sql('SELECT state FROM outbox_status'), 'blocked', 'the state') };
}

sub both
{
	my @hows = @_;
	return sub { my @ends = map { $_->() } @hows; return sub { $_->() foreach reverse @ends } };
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
	my ($reason, $code) = @_;
	return $reason, statements("UPDATE refuse SET code = '$code'; SELECT outbox_enqueue('refused', '{}')", "UPDATE refuse SET code = ''"),
	  'shows', detail => qr/^refused$/, also => sub { is($node->sql('SELECT sqlstate FROM outbox_workers'), $code, 'its SQLSTATE') };
}

sub exchange_answer
{
	my ($reason, $answer) = @_;
	my ($words) = $answer =~ /"(.*)"/;
	my $waits = q{SELECT reason, waits_because, waits_since <= now(), retry_at > waits_since FROM outbox_routes_status WHERE route = 'asked'};
	return $reason, sub {
		# A new connection asks for the exchange again.
		$fake->do("stage declare exchange=asked : $answer", 'now fin');
		$node->sql(q{SELECT outbox_enqueue('asked', '{}', route => 'asked')});
		return sub {
			$fake->do('forget');
			$node->wait_drained;
			ok($node->wait_sql($waits, '|||'), 'its status is well when one has gone out');
		};
	}, 'shows', severity => 'critical', subject => qr/^route "asked"$/, detail => qr/\Q$words\E.*; 1 message waits, next attempt at/,
	  also => sub { like($node->sql($waits), qr/^\Q$reason\E\|.*\Q$words\E\|t\|t$/, 'and its status: since when, and the next try') };
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
		my $file = "$dir/pass" . ++$files;
		append_to_file($file, $text) if defined $text;
		chmod $mode, $file if defined $mode;
		$node->set('outbox.passfile', $file);
		return sub { $node->unset('outbox.passfile') };
	};
}

sub real_alarm
{
	my ($kind) = @_;
	my $switch = "${kind}_alarm";
	return "$kind alarm", both(rabbit_as("amqp://guest\@$real"), sub {
			$node->wait_sql('SELECT broker, state FROM outbox_workers', "$real|idle");
			$rabbit->$switch(1);
			# The broker tells it to who publishes.
			$node->sql(q{SELECT outbox_enqueue('alarm', '{}')});
			return sub { $rabbit->$switch(0) };
		}), 'shows', within => 20, detail => qr/^low on $kind$/, out => qr/$kind/i;
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

sub certificate_of_time
{
	my ($name, @time) = @_;
	my $made = OutboxTest::Ca->create->issue(alt => 'DNS:localhost', self_signed => 1, @time);
	append_to_file("$dir/$name.crt", slurp_file($made->{cert}));
	append_to_file("$dir/$name.pem", slurp_file($made->{cert}) . slurp_file($made->{key}));
	return;
}

certificate_of_time('expired', until => '20200201000000Z');
certificate_of_time('early', from => '20980101000000Z');
certificate('good', 'DNS:localhost,IP:127.0.0.1', '-nodes');
certificate('other', 'DNS:elsewhere.example', '-nodes');
certificate('locked', 'DNS:localhost', '-passout', 'pass:right');
append_to_file("$dir/locked.crt", slurp_file("$dir/locked.key"));
chmod 0600, "$dir/locked.crt";
my ($good, $other, $expired, $early, $asks) = map { OutboxTest::LineTool->start_tool('tls-front', '--to', $port, @$_) }
  ([ '--cert', "$dir/good.pem" ], [ '--cert', "$dir/other.pem" ], [ '--cert', "$dir/expired.pem" ], [ '--cert', "$dir/early.pem" ],
	[ '--cert', "$dir/good.pem", '--client-ca', "$dir/other.crt" ]);

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
	[ 'no process listens at the port', 'connection refused', uri('amqp://guest@127.0.0.1:1'), 'shows', severity => 'critical', subject => qr/^worker 0$/, detail => qr/Connection refused/,
		also => sub { is($node->sql('SELECT problems > 0, worst_problem FROM outbox_status'), 't|connection refused: worker 0', 'the status names the worst') } ],
	[ 'a host name that DNS does not know', 'host unknown', uri('amqp://guest@no-such-host.invalid'), 'shows', detail => qr/could not resolve host "no-such-host.invalid"/ ],
	[ 'a firewall drops the packets', 'connection timed out', uri('amqp://guest@127.0.0.1:' . $hole->sockport), 'shows', detail => qr/timed out/, within => 15 ],
	[ 'a web server at the port', 'not RabbitMQ', stage('stage connect : raw ' . unpack('H*', "HTTP/1.1 400 Bad Request\r\n\r\n")), 'shows', detail => qr/does not speak AMQP/ ],
	[ 'a proxy without a broker behind it', 'closed at login', stage('stage connect : fin'), 'shows', detail => qr/closed the connection/ ],
	[ 'a broker that hangs at the login', 'login timed out', stage('stage connect : silent'), 'shows', detail => qr/timed out/, within => 20 ],
	[ 'a wrong password', 'login refused', rabbit_as("amqp://app\@$real", 'wrong.pass'), 'shows', detail => qr/ACCESS_REFUSED/, command => qr/authenticate_user app$/,
		also => sub { unlike($node->sql('SELECT reason_text || last_error FROM outbox_workers'), qr/wrong/, 'the password is not told') } ],
	[ 'no such virtual host', 'virtual host missing', rabbit_as("amqp://app\@$real/shop"), 'fixes', command => qr/add_vhost shop$/, detail => qr/vhost shop not found/ ],
	[ 'no permission in the virtual host', 'virtual host not allowed', rabbit_as("amqp://app\@$real/shop"), 'fixes', command => qr/-p shop app /, detail => qr/refused for user/ ],
	[ 'a virtual host with a quote in its name', 'virtual host missing', rabbit_as("amqp://guest\@$real/a%27b"), 'fixes' ],
	[ 'a virtual host that did not start', 'virtual host down',
		stage('stage open : connection-close 541 "INTERNAL_ERROR - access to vhost / refused for user guest: vhost / is down"'), 'shows', detail => qr/is down/ ],
	[ 'too many connections', 'connection limit',
		rabbit_as("amqp://app\@$real/shop", undef, 'rabbit_vhost_limit:parse_set(<<"shop">>, <<"{\"max-connections\": 0}">>, <<"test">>)'), 'shows', detail => qr/connection limit \(0\) is reached/ ],
	[ 'the broker is restarted', 'closed by the broker',
		fake_does('stage connect times=1 : silent', 'now connection-close 320 "CONNECTION_FORCED - shutdown"'), 'shows', detail => qr/CONNECTION_FORCED - shutdown/ ],
	[ 'a proxy cuts the connection', 'connection reset', fake_does('stage connect times=1 : silent', 'now rst'), 'shows', detail => qr/reset|closed/ ],
	[ 'a broker that says nothing any more', 'heartbeats missing',
		both(setting('outbox.heartbeat', '1s'), sub { $node->wait_sql('SELECT state FROM outbox_status', 'idle'); fake_does('stage connect : silent', 'now mute')->() }),
		'shows', within => 10, detail => qr/heartbeats/ ],
	[ 'a broker that confirms nothing', 'no confirms',
		both(setting('outbox.confirm_timeout', '1s'), sub {
				$fake->do('answer none');
				$node->sql(q{SELECT outbox_enqueue('late', '{}')});
				return sub { wait_until('it confirms', sub { eval { $fake->do('answer ack', 'now ack'); 1 } }) };
			}), 'shows', within => 10, detail => qr/outbox\.confirm_timeout/ ],
	[ 'a frame that no broker sends', 'protocol error', fake_does('stage connect times=1 : silent', 'now raw 0100010000000e0032000b01710000000000000000ce'), 'shows' ],
	[ 'the memory of the broker\'s machine', real_alarm('memory') ],
	[ 'the disk of the broker\'s machine', real_alarm('disk') ],
	[ 'another relay of the same database', 'twin',
		both(setting('outbox.heartbeat', '1s'), sub {
				$fake->do('stage queue : channel-close 405 "RESOURCE_LOCKED - cannot obtain exclusive access"');
				$node->sql('SELECT outbox_worker_restart()');
				return sub { $fake->do('forget'); $node->sql('SELECT outbox_worker_restart()') };
			}), 'shows', within => 10, detail => qr/another connection holds/ ],
	[ 'memory alarm', 'memory alarm', broker_alarm('low on memory') ],
	[ 'disk alarm', 'disk alarm', broker_alarm('low on disk') ],
	[ 'both alarms', 'broker alarm', broker_alarm('low on memory & disk') ],
	[ 'a certificate of an unknown CA', 'certificate not trusted', tls($good), 'shows', detail => qr/certificate was not accepted/, out => qr/CN = good/ ],
	[ 'a certificate of another host', 'certificate of another host', tls($other, ca_file => 'other.crt'), 'shows', detail => qr/another host name/, out => qr/elsewhere\.example/ ],
	[ 'a certificate that ends soon', 'certificate expires', tls($good, ca_file => 'good.crt'), 'shows', out => qr/notAfter/ ],
	[ 'a certificate of yesterday', 'certificate expired', tls($expired, ca_file => 'expired.crt'), 'shows', detail => qr/has expired/, out => qr/notAfter=Feb/ ],
	[ 'a certificate of tomorrow', 'certificate not yet valid', tls($early, ca_file => 'early.crt'), 'shows', detail => qr/not yet valid/, out => qr/notBefore=/ ],
	[ 'a broker that wants a client certificate', 'client certificate required', tls($asks, ca_file => 'good.crt'), 'shows', detail => qr/certificate/ ],
	[ 'a client certificate of another CA', 'client certificate refused',
		# With TLS 1.3 the alert comes behind the handshake: a reset can take it away, and only another try brings it.
		tls($asks, ca_file => 'good.crt', cert_file => 'good.crt', key_file => 'good.key'), 'shows', within => 20, detail => qr/unknown CA/i, out => qr/CN = good/ ],
	[ 'a certificate without its key', 'TLS files unusable', tls($good, ca_file => 'good.crt', cert_file => 'other.crt'), 'shows', detail => qr/has no private key/ ],
	[ 'a key that others may read', 'private key not private',
		sub { chmod 0644, "$dir/other.key"; tls($asks, ca_file => 'good.crt', cert_file => 'other.crt', key_file => 'other.key')->() }, 'fixes' ],
	[ 'an encrypted key without its passphrase', 'key passphrase wrong',
		tls($good, ca_file => 'good.crt', cert_file => 'locked.crt'), 'shows', out => qr/(?:read|load) key/ ],
	[ 'amqps:// to a port without TLS', 'no TLS there', tls($rabbit->port), 'shows' ],
	[ 'a TLS port that hangs up', 'TLS handshake failed', tls($port), 'shows', detail => qr/closed the connection/ ],
	[ 'a TLS port that says nothing', 'TLS handshake timed out', sub { $fake->do('stage connect : silent'); tls($silent->sockport)->() }, 'shows', detail => qr/timed out/, within => 20 ],
	[ 'no password file is set', 'no password', uri("amqp://app\@127.0.0.1:$port"), 'shows', detail => qr/outbox\.passfile is not set/ ],
	[ 'the password file is gone', 'password file missing', passfile(), 'shows', detail => qr/could not be opened/ ],
	[ 'a password file that others may read', 'password file not private', passfile("*:*:*:*:guest\n", 0644), 'fixes', severity => 'warning', detail => qr/group or world access/ ],
	[ 'a password file that is none', 'password file unreadable', passfile("a\0b\n", 0600), 'shows' ],
	[ 'EXTERNAL without TLS', 'mechanism unusable', setting('outbox.auth_mechanism', 'external'), 'shows' ],
	[ 'a broker without EXTERNAL', 'mechanism not offered',
		both(setting('outbox.auth_mechanism', 'external'), tls($good, ca_file => 'good.crt', cert_file => 'good.crt', key_file => 'good.key')), 'shows' ],
	[ 'amqp:// to another host', 'plain text not allowed', uri("amqp://guest\@0.0.0.0:$port"), 'shows', out => qr/^amqp:/ ],
	[ 'outbox.environment inside of the data directory', 'environment unusable', sub {
			$node->append_conf('postgresql.conf', "outbox.environment = 'test'");
			$node->reload;
			return sub { $node->adjust_conf('postgresql.conf', 'outbox.environment', undef); $node->reload };
		}, 'shows', out => qr/postgresql\.conf\|\d/ ],
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
	[ 'a trigger of the application refuses DELETE', relay_error('trigger or constraint', 'P0001') ],
	[ 'a full disk', relay_error('disk full', '53100') ],
	[ 'no memory left', relay_error('out of memory', '53200') ],
	[ 'a policy on the table', relay_error('permission denied', '42501') ],
	[ 'a damaged page', relay_error('data damaged', 'XX001') ],
	[ 'a statement that is cancelled', relay_error('statement timeout', '57014') ],
	[ 'another error of the server', relay_error('database error', 'XX000') ],
	[ 'a disabled trigger', 'trigger off', statements('ALTER TABLE outbox DISABLE TRIGGER outbox_row'), 'fixes' ],
	[ 'a trigger that misses replicated changes', 'trigger off', statements('ALTER TABLE outbox_route ENABLE TRIGGER outbox_route_changed'), 'fixes' ],
	[ 'an unlogged table', 'table unlogged', statements('ALTER TABLE outbox SET UNLOGGED'), 'fixes' ],
	[ 'a sequence with a cache', 'sequence changed', statements('ALTER SEQUENCE outbox_seq_seq CACHE 20'), 'fixes' ],
	[ 'a trigger that fires after outbox_row', 'trigger order', statements('CREATE TRIGGER tune BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()',
		'DROP TRIGGER a_tune ON outbox'), 'fixes' ],
	[ 'a renamed index', 'index missing', statements('ALTER INDEX outbox_failed_seq RENAME TO other', 'ALTER INDEX other RENAME TO outbox_failed_seq'),
		'shows', out => qr/\bother\|/m ],
	[ 'an index build that was cut off', 'index missing',
		statements(q{UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_failed_seq'::regclass}), 'fixes' ],
	[ 'a disabled capture trigger', 'capture broken', statements('ALTER TABLE captured DISABLE TRIGGER changes'), 'fixes' ],
	[ 'a renamed column that capture needs', 'capture broken',
		statements('ALTER TABLE captured RENAME id TO number', 'ALTER TABLE captured RENAME number TO id'), 'shows', out => qr/key=id/ ],
	[ 'a paused database', 'paused', statements(q{SELECT outbox_pause(reason => 'broker maintenance')}), 'fixes' ],
	[ 'a paused route', 'route paused', statements("SELECT outbox_pause('quiet', 'wrong amounts'); $enqueue"), 'fixes', detail => qr/; 1 message waits$/ ],
	[ 'a route that is gone', 'route missing',
		statements(q{SET session_replication_role = replica; DELETE FROM outbox_route WHERE name = 'topic'; INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'topic')},
			q{INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('topic', 'outbox', 100)}), 'shows', out => qr/\|pending\|e\|/ ],
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
	[ 'a message that an external relay could not publish', 'external nack',
		statements(q{SELECT outbox_enqueue('e', '{}', route => 'hooks'); SELECT outbox_nack(token, id, 'refused', '1 h') FROM outbox_claim('hooks')},
			q{SELECT outbox_discard_messages('test', 'pending', 'hooks')}),
		'shows', out => qr/\|refused$/m ],
	[ 'an exchange that is not there', exchange_answer('exchange missing', 'channel-close 404 "NOT_FOUND - no exchange"') ],
	[ 'no permission on the exchange', exchange_answer('exchange forbidden', 'channel-close 403 "ACCESS_REFUSED - access to exchange"') ],
	[ 'an exchange of another type', exchange_answer('exchange differs', 'channel-close 406 "PRECONDITION_FAILED - inequivalent arg"') ],
	[ 'a plugin of the broker is missing', exchange_answer('exchange type unknown', 'connection-close 503 "COMMAND_INVALID - unknown exchange type"') ],
	[ 'an exchange that the broker cannot use', exchange_answer('exchange error', 'channel-close 541 "INTERNAL_ERROR"') ],
	[ 'no queue is bound', 'unroutable', message_answer('return 312 NO_ROUTE'), 'shows' ],
	[ 'a full queue', 'queue refuses', message_answer('nack'), 'shows' ],
	[ 'no topic permission', 'message refused',
		both(rabbit_as("amqp://app\@$real", undef, 'rabbit_auth_backend_internal:set_permissions(<<"app">>, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)',
			'rabbit_auth_backend_internal:set_topic_permissions(<<"app">>, <<"/">>, <<"outbox">>, <<"^none$">>, <<"^$">>, <<"test">>)'),
			sub { $node->wait_sql('SELECT broker, state FROM outbox_workers', "$real|idle"); $node->sql(q{SELECT outbox_enqueue('e', '{}')}); sub { } }),
		'shows', command => qr/list_topic_permissions -p \/$/, out => qr/^app\b.*\^none\$/m ],
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

$states->between(sub {
	my ($problem) = @_;
	$node->wait_sql(q{SELECT bool_and(state = 'idle') FROM outbox_workers}, 't');
	$node->wait_drained unless $problem eq 'external nack';
});
$states->run(@states);

# What no test can stage, or only with a broker of its own.
paste_advice($node, 'host unreachable');
paste_advice($node, 'out of resources');
paste_advice($node, 'TLS version too old');
paste_advice($node, 'takes no data');
paste_advice($node, 'broker error');

note "doc: $_" foreach split /\n/, <<"END" . $states->table($dir);
# States that were staged

Written by `make states-doc` (test/t/states.pl and test/t/problems.pl), of commit ${\ ($ENV{OUTBOX_TEST_COMMIT} // 'unknown')}. Each state is staged, must be named in `outbox_problems` within 3 s
(timeouts: within theirs), and its command is pasted as an operator would, into a session with an empty `search_path`. *fixes*: the state is over by that.
*shows*: the first line of what decides it. Values that change with each run are words in capital letters.

| state | problem | severity | detail | command | pasted |
| --- | --- | --- | --- | --- | --- |
END
$_->quit foreach grep { eval { $_->query('SELECT 1'); 1 } } @sessions;
done_testing();
