# The way to the broker, watched: what is sent to whom, with TLS and without, and
# what is said when a certificate, a file or a setting stands in the way.
#
# The broker is a real one with a listener for each kind of certificate.
#
# suite: test
# takes: 25 s

use strict;
use warnings;

use IO::Socket::INET;
use POSIX ();
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Ca;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $STOP = 5;
my $rabbit = OutboxTest::Rabbit->begin_start(plugins => ['rabbitmq_auth_mechanism_ssl']);
my $preload = OutboxTest::Preload->build;
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake, extension => 0, start => 0,
	conf => <<'END');
outbox.retry_initial = 50ms
outbox.retry_max = 200ms
END
$preload->start($node);
$node->sql('CREATE EXTENSION outbox');
my $port = $fake->port;

sub is_well
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_sql('SELECT state, reason IS NULL FROM outbox_workers', 'idle|t');
}

sub is_refused
{
	my ($uri, $reason, $text, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->set('outbox.broker_uri', $uri) if defined $uri;
	# one row of a fault that may change from one attempt to the next
	my $told = '';
	wait_until(
		"$reason: $what",
		sub {
			$told = $node->sql(q{SELECT w.reason, p.detail FROM outbox_workers w
				JOIN outbox_problems p ON p.problem = w.reason});
			return $told =~ /^\Q$reason\E\|/ && $told =~ $text;
		}) or return diag "$told does not tell $text";
	return pass("$reason: $what");
}

is_well();

# --- amqp://

subtest 'plain text stays on this host' => sub {
	my $foreign = qr/is not a loopback address, and without TLS nothing is sent/;

	is_refused("amqp://guest\@0.0.0.0:$port", 'plain text not allowed', qr/0\.0\.0\.0 $foreign/,
		'no address of anybody, which the kernel takes for this host');
	is($node->sql('SELECT state FROM outbox_status'), 'config error', 'the state');
	like($node->sql('SELECT hint FROM outbox_status'), qr/amqps:\/\/.*outbox\.allow_plaintext/, 'and its hint');
	$node->sql(q{SELECT outbox_enqueue('one', '{}')});
	my $connections = $fake->stats->{connections};
	is_refused("amqp://guest\@192.0.2.1-and-192.0.2.2:$port", 'plain text not allowed',
		qr/192\.0\.2\.2 $foreign/, 'a name of foreign addresses');
	is_refused("amqp://guest\@[::ffff:192.0.2.1]:$port", 'plain text not allowed', $foreign, 'IPv6');
	like($node->sql(q{SELECT string_agg(concat_ws(' ', "check", ok, hint), E'\n') FROM outbox_preflight() WHERE "check" IN ('name', 'TCP', 'TLS')}),
		qr/^name t\nTCP f .*amqps.*\nTLS$/, 'outbox_preflight() says the same');
	is($fake->stats->{connections}, $connections, 'nobody was connected to');

	# Each address and host for itself.
	foreach my $uri ("192.0.2.1-and-127.0.0.1:$port", "192.0.2.1,127.0.0.1:$port", "127.1:$port")
	{
		$node->set('outbox.broker_uri', 'amqp://guest@0.0.0.0');
		$node->wait_sql('SELECT reason FROM outbox_workers', 'plain text not allowed');
		$node->set('outbox.broker_uri', "amqp://guest\@$uri");
		ok(is_well(), $uri);
	}
	is_refused("amqp://guest\@0.0.0.0:$port", 'plain text not allowed', $foreign, 'once more');
	$node->set('outbox.allow_plaintext', 'on');
	ok(is_well(), 'outbox.allow_plaintext is on');
	like($node->sql(q{SELECT hint FROM outbox_preflight() WHERE "check" = 'TLS'}),
		qr/who reads the network/, 'of which outbox_preflight() warns');
	$node->unset('outbox.allow_plaintext');
	is_refused(undef, 'plain text not allowed', $foreign, 'off again: the connection that there is ends');
	$node->unset('outbox.broker_uri');
	$node->wait_drained;
	ok(is_well(), 'and what waited was sent');
};

# --- amqps://

$rabbit->end_start;
my $ca = OutboxTest::Ca->create;
my $other_ca = OutboxTest::Ca->create('Other CA');
my $server = $ca->issue(alt => 'DNS:localhost,IP:127.0.0.1');
my $client = $ca->issue(name => 'app', for => 'client');
my $passfile = $ca->dir . '/outbox.pass';

# Another port of the same broker, with options of Erlang's.
sub listen_with
{
	my ($certificate, @options) = @_;
	my $listener = PostgreSQL::Test::Cluster::get_free_port();
	my $options = join ', ', map { "{$_}" } @options, qq(cacertfile, "@{[ $ca->file ]}"),
	  qq(certfile, "$certificate->{cert}"), qq(keyfile, "$certificate->{key}");

	$rabbit->erlang(qq(begin {ok, _} = application:ensure_all_started(ssl),
		ok = rabbit_networking:start_ssl_listener({"127.0.0.1", $listener, auto}, [$options], 1) end));
	return $listener;
}

sub listen_as
{
	my (%certificate) = @_;
	return listen_with($ca->issue(%certificate), 'verify, verify_none');
}

sub is_accepted
{
	my ($uri, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# from a state that is known
	$node->set('outbox.broker_uri', 'amqp://guest@127.0.0.1:1');
	$node->wait_sql('SELECT reason FROM outbox_workers', 'connection refused');
	$node->set('outbox.broker_uri', $uri);
	return ok(is_well(), $what);
}

# Overwrites it as it is, so that who has it open sees the change, too.
sub write_file
{
	my ($file, $content, $mode) = @_;
	open my $fh, '>', $file or die "$file: $!";
	print $fh $content;
	close $fh or die "$file: $!";
	chmod $mode // 0600, $file or die "$file: $!";
	return $file;
}

my $good = listen_with($server, 'verify, verify_none');
my @versions = map { listen_with($server, 'verify, verify_none', "versions, [$_]") } qw('tlsv1.2' 'tlsv1.3');
$node->set('outbox.tls_ca_file', $ca->file);

subtest 'who is let in' => sub {
	is_accepted("amqps://guest\@localhost:$good", 'a name');
	is_accepted("amqps://guest\@localhost.:$good", 'a name with a dot at its end');
	like($node->sql('SELECT tls_not_after FROM outbox_workers'), qr/^2099-12-31/, 'until when it is valid');
	is_accepted("amqps://guest\@127.0.0.1:$good", 'an address');
	is_accepted("amqps://guest\@localhost:$versions[0]", 'TLS 1.2');
	is_accepted("amqps://guest\@localhost:$versions[1]", 'TLS 1.3');
	is_accepted('amqps://guest@localhost:' . listen_as(), 'a common name, where there is no other');

	# The preloaded library knows addresses by such names, of seven labels.
	my $name = '127.0.0.1-and-127.0.0.1';
	my $wildcard = listen_as(alt => 'DNS:*.0.0.1-and-127.0.0.1');
	is_accepted("amqps://guest\@$name:$wildcard", 'a wildcard');
	my $refused = qr/server certificate was not accepted/;
	is_refused("amqps://guest\@localhost:$wildcard", 'certificate of another host',
		qr/$refused: it is for another host name/, 'a wildcard for others, and this name as the common one');
	foreach my $wrong ('*.0.1-and-127.0.0.1', '1*.0.0.1-and-127.0.0.1', '*')
	{
		# what the case before was refused for is no answer to this one
		is_accepted("amqps://guest\@$name:$wildcard", 'a wildcard');
		is_refused("amqps://guest\@$name:" . listen_as(alt => "DNS:$wrong"),
			'certificate of another host', $refused, "DNS:$wrong");
	}

	my $address = listen_as(name => 'elsewhere.example', alt => 'IP:127.0.0.1');
	is_accepted("amqps://guest\@127.0.0.1:$address", 'of an address alone: that');
	is_refused("amqps://guest\@localhost:$address", 'certificate of another host', $refused, 'and no name');
	is_refused("amqps://guest\@127.0.0.2-and-127.0.0.1:$address", 'certificate of another host',
		$refused, 'nor one that leads to it');
	is_refused('amqps://guest@127.0.0.1:' . listen_as(name => '127.0.0.1', alt => 'DNS:127.0.0.1'),
		'certificate of another host', qr/IP address mismatch/, 'an address as if it were a name');
	is_refused('amqps://guest@127.0.0.1:' . listen_as(alt => 'IP:127.0.0.2,IP:::1'),
		'certificate of another host', qr/IP address mismatch/, 'other addresses');

	is_refused('amqps://guest@localhost:' . listen_as(from => '20200101000000Z', until => '20200201000000Z'),
		'certificate expired', qr/$refused: certificate has expired/, 'of 2020');
	is_refused('amqps://guest@localhost:' . listen_as(from => '20990101000000Z'),
		'certificate not yet valid', qr/$refused: certificate is not yet valid/, 'of 2099');
	is_refused('amqps://guest@localhost:' . listen_as(for => 'client', alt => 'DNS:localhost'),
		'certificate not trusted', qr/$refused: .*purpose/, 'one for clients');
	is_refused('amqps://guest@localhost:' . listen_with($other_ca->issue, 'verify, verify_none'),
		'certificate not trusted', qr/$refused: unable to get local issuer/, 'of another authority');
	# as RabbitMQ has no authority for it, it shows this one alone
	is_refused('amqps://guest@localhost:' . listen_with($other_ca->issue(self_signed => 1), 'verify, verify_none'),
		'certificate not trusted', qr/$refused: self.signed certificate/, 'its own authority');
	$node->unset('outbox.tls_ca_file');
	is_refused("amqps://guest\@localhost:$good", 'certificate not trusted', $refused,
		'one that the system does not know');
	$node->set('outbox.tls_ca_file', $ca->file);
};

subtest 'no TLS as it should be' => sub {
	# Newer releases of Erlang and OpenSSL may not have them any more.
	foreach my $old (qw('tlsv1.1' 'tlsv1'))
	{
	  SKIP:
		{
			my $listener = eval { listen_with($server, 'verify, verify_none', "versions, [$old]") }
			  or skip "the broker does not listen with $old: $@", 1;
			is_refused("amqps://guest\@localhost:$listener", 'TLS version too old', qr/./, $old);
		}
	}
	is_refused('amqps://guest@localhost:' . $rabbit->port, 'no TLS there', qr/does not speak TLS/, 'a port for plain AMQP');
	is_refused("amqp://guest\@localhost:$good", 'closed at login', qr/./, 'and the other way round');
	my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 10) or die $!;
	is_refused('amqps://guest@127.0.0.1:' . $silent->sockport, 'TLS handshake timed out', qr/timed out/, 'a port that says nothing');
};

subtest 'our certificate' => sub {
	my @asking = map { listen_with($server, 'verify, verify_peer', 'fail_if_no_peer_cert, true', "versions, [$_]") }
	  qw('tlsv1.2' 'tlsv1.3');
	my $stranger = $other_ca->issue(name => 'stranger', for => 'client');

	foreach my $listener (@asking)
	{
		is_refused("amqps://guest\@localhost:$listener", 'client certificate required',
			qr/wants a certificate of ours, and outbox\.tls_cert_file is not set/, 'there is none');
		$node->set('outbox.tls_cert_file', $stranger->{cert});
		$node->set('outbox.tls_key_file', $stranger->{key});
		is_refused(undef, 'client certificate refused', qr/unknown CA|bad certificate/i, 'of another authority');
		$node->set('outbox.tls_cert_file', $client->{cert});
		$node->set('outbox.tls_key_file', $client->{key});
		ok(is_well(), 'the right one');
		$node->unset("outbox.tls_$_") foreach qw(cert_file key_file);
	}

	# Both in one file, as the setting of the key is empty; renewed in place.
	my $both = write_file($ca->dir . '/both.pem', slurp_file($stranger->{cert}) . slurp_file($stranger->{key}));
	$node->set('outbox.tls_cert_file', $both);
	is_refused(undef, 'client certificate refused', qr/./, 'in one file with its key');
	write_file($both, slurp_file($client->{cert}) . slurp_file($client->{key}));
	ok(is_well(), 'renewed: the next attempt reads it');
	my $before = $node->sql('SELECT reconnects FROM outbox_workers');
	append_to_file($both, "\n");
	$node->reload;
	$node->wait_sql("SELECT reconnects > $before FROM outbox_workers");
	ok(is_well(), 'and a reload, where there is a connection and the file is another');
	$node->unset('outbox.tls_cert_file');
};

subtest 'files' => sub {
	my $asking = listen_with($server, 'verify, verify_peer', 'fail_if_no_peer_cert, true');
	my $locked = $ca->issue(name => 'app', for => 'client', passphrase => 'two words');
	my $phrase = $ca->dir . '/passphrase';
	my $key = write_file($ca->dir . '/app.key', slurp_file($client->{key}));
	my $fifo = $ca->dir . '/fifo';
	POSIX::mkfifo($fifo, 0600) or die $!;

	$node->set('outbox.broker_uri', "amqps://guest\@localhost:$asking");
	$node->set('outbox.tls_cert_file', $client->{cert});
	is_refused(undef, 'TLS files unusable', qr/has no private key: outbox\.tls_key_file is not set/, 'no key');
	$node->set('outbox.tls_key_file', $key);
	ok(is_well(), 'its key');
	foreach my $mode (0640, 0604, 0620)
	{
		chmod $mode, $key or die $!;
		$node->reload;
		is_refused(undef, 'private key not private', qr/app\.key" of outbox\.tls_key_file: it has group or world access/,
			sprintf 'a key of mode %04o', $mode);
		chmod 0400, $key or die $!;
		ok(is_well(), 'without a reload, when that is mended');
	}
	$node->set('outbox.tls_key_file', $other_ca->{key});
	is_refused(undef, 'TLS files unusable', qr/could not use the client certificate with its key: key values mismatch/, 'the key of another');
	foreach my $setting (qw(tls_ca_file tls_cert_file tls_key_file))
	{
		my $was = $node->sql("SHOW outbox.$setting");
		foreach my $case ([ $fifo, qr/it is not a plain file/ ], [ $ca->dir, qr/it is not a plain file/ ],
			[ "$fifo.not", qr/No such file/ ], [ write_file($ca->dir . '/empty', ''), qr/could not load the (?:CA file|client certificate|private key of the client certificate): \S/ ],
			[ write_file($ca->dir . '/nonsense', "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), qr/./ ])
		{
			$node->set("outbox.$setting", $case->[0]);
			is_refused(undef, 'TLS files unusable', $case->[1], "$setting = $case->[0]");
		}
		$node->set("outbox.$setting", $was);
	}

	$node->set('outbox.tls_cert_file', $locked->{cert});
	$node->set('outbox.tls_key_file', $locked->{key});
	is_refused(undef, 'key passphrase wrong', qr/outbox\.tls_key_passfile is not set/, 'an encrypted key');
	like(${ \slurp_file($node->logfile) }, qr/^(?!.*Enter PEM)/s, 'nobody is asked for it on the terminal');
	foreach my $wrong ('other words', 'two words ', 'Two words', 'x' x 1024)
	{
		$node->set('outbox.tls_key_passfile', write_file($phrase, "$wrong\n"));
		is_refused(undef, 'key passphrase wrong', qr/in the file of outbox\.tls_key_passfile is wrong/, 'another passphrase');
	}
	foreach my $content ("two words", "two words\n", "two words\r\n", "two words\nnot this\n")
	{
		write_file($phrase, 'wrong');
		$node->reload;
		is_refused(undef, 'key passphrase wrong', qr/is wrong/, 'to see the next one');
		write_file($phrase, $content);
		ok(is_well(), 'the right one');
	}
	write_file($phrase, 'two words', 0644);
	$node->reload;
	is_refused(undef, 'private key not private', qr/outbox\.tls_key_passfile: it has group or world access/, 'of mode 0644');
	write_file($phrase, "\ntwo words");
	is_refused(undef, 'TLS files unusable', qr/its first line is empty/, 'an empty line');
	write_file($phrase, 'x' x 1025);
	is_refused(undef, 'TLS files unusable', qr/longer than 1024 bytes/, 'a long one');
	write_file($phrase, 'x' x 70000);
	is_refused(undef, 'TLS files unusable', qr/it is too large/, 'a very long one');
	$node->set('outbox.tls_key_passfile', $fifo);
	is_refused(undef, 'TLS files unusable', qr/it is not a plain file/, 'a pipe');
	unlike($node->sql('SELECT string_agg(concat(reason_text, last_error), $$ $$) FROM outbox_workers') . $node->log_text,
		qr/two words/, 'the passphrase is told nowhere');
	$node->unset("outbox.tls_$_") foreach qw(cert_file key_file key_passfile);
};

subtest 'the login by a certificate' => sub {
	my $asking = listen_with($server, 'verify, verify_peer', 'fail_if_no_peer_cert, false');
	my $uri = "amqps://localhost:$asking";
	my $nobody = $ca->issue(name => 'nobody', for => 'client');

	# The plugin looks whether the broker checks certificates, in the settings.
	$rabbit->erlang(q(begin application:set_env(rabbit, ssl_cert_login_from, common_name),
		application:set_env(rabbit, ssl_options, [{verify, verify_peer}]),
		ok = rabbit_auth_backend_internal:add_user(<<"app">>, <<"other">>, <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<"app">>, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>) end));
	$node->set('outbox.passfile', '/nowhere');
	$node->set('outbox.broker_uri', 'amqp://guest@127.0.0.1:' . $rabbit->port);
	$node->set('outbox.auth_mechanism', 'external');
	is_refused(undef, 'mechanism unusable', qr/which needs TLS/, 'amqp://');
	is($node->sql('SELECT state FROM outbox_status'), 'config error', 'the state');
	is_refused($uri, 'mechanism unusable', qr/outbox\.tls_cert_file is not set/, 'no certificate');
	like($node->sql(q{SELECT string_agg(concat_ws(' ', "check", ok, detail), E'\n') FROM outbox_preflight() WHERE "check" = 'password file'}),
		qr/^password file f outbox\.auth_mechanism is external/, 'outbox_preflight() says so');
	$node->set('outbox.tls_cert_file', $client->{cert});
	$node->set('outbox.tls_key_file', $client->{key});
	is_refused(undef, 'mechanism not offered', qr/does not offer the mechanism/, 'it is not among auth_mechanisms');
	$rabbit->erlang(q(application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'EXTERNAL'])));
	ok(is_well(), 'with one; the password file is not read');
	# There may be connections that have no user yet, or end.
	my $users = '[U || [{user, U}] <- rabbit_networking:connection_info_all([user])]';
	ok(wait_until('a connection of the user "app"', sub { (eval { $rabbit->erlang("lists:member(<<\"app\">>, $users)") } // '') eq 'true' }),
		'the broker knows who we are');
	like($node->sql(q{SELECT string_agg(concat_ws(' ', "check", ok), ', ') FROM outbox_preflight() WHERE "check" IN ('password file', 'TLS', 'login', 'virtual host')}),
		qr/^password file, TLS t, login t, virtual host t$/, 'and lets outbox_preflight() in');
	$node->sql(q{SELECT outbox_enqueue('external', '{}')});
	$node->wait_drained;
	$node->set('outbox.tls_cert_file', $nobody->{cert});
	$node->set('outbox.tls_key_file', $nobody->{key});
	is_refused(undef, 'login refused', qr/ACCESS_REFUSED/, 'a certificate whose user is not there');
	is_refused("amqps://localhost:$good", 'login refused', qr/ACCESS_REFUSED/, 'a port that asks for none');
	$node->unset('outbox.auth_mechanism');
	is_refused(undef, 'password file missing', qr/nowhere/, 'plain again');
	$node->unset("outbox.$_") foreach qw(tls_cert_file tls_key_file passfile);
};

subtest 'the password' => sub {
	# All that somebody gets who is not the broker, by a process of its own.
	my $seen = $ca->dir . '/seen';
	my $recorder = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 10) or die $!;
	my $pid = fork // die $!;
	if (!$pid)
	{
		while (my $peer = $recorder->accept)
		{
			sysread $peer, my $bytes, 65536;
			append_to_file($seen, $bytes . "\n--\n");
		}
		POSIX::_exit(0);
	}
	my $front = OutboxTest::LineTool->start_tool('tls-front', '--to', $recorder->sockport,
		'--cert', write_file($ca->dir . '/front.pem', join '', map { slurp_file($_) } values %{ $other_ca->issue }));
	$node->set('outbox.passfile', write_file($passfile, "*:*:*:*:m4rker\n"));

	is_refused('amqps://m4rker_user@localhost:' . $recorder->sockport, 'TLS handshake failed', qr/./, 'it records, and hangs up');
	is_refused('amqps://m4rker_user@localhost:' . $front->port, 'certificate not trusted', qr/./, 'it shows another certificate');
	is_refused('amqp://m4rker_user@0.0.0.0:' . $recorder->sockport, 'plain text not allowed', qr/./, 'without TLS');
	my @records = split /\n--\n/, slurp_file($seen);
	is_deeply([ grep { $_ ne '' && !/^\x16\x03/ } @records ], [],
		'all that it got, beside connections, is the beginning of TLS');
	unlike(slurp_file($seen), qr/m4rker/, 'and has neither password nor user');

	# What it would have got.
	$node->set('outbox.tls_verify', 'off');
	$node->set('outbox.broker_uri', 'amqps://m4rker_user@localhost:' . $front->port);
	wait_until('the recorder gets something else', sub { slurp_file($seen) =~ /^AMQP/m });
	$node->unset("outbox.$_") foreach qw(tls_verify passfile);
	kill 'KILL', $pid;
	waitpid $pid, 0;
	$front->stop;
};

# --- a burst that takes longer than the watchdog allows: the connection is lost, and no more

subtest 'a slow burst' => sub {
	is_accepted("amqps://guest\@localhost:$good", 'a connection');
	$node->test_point('mid_publish wait 1');
	my $offset = -s $node->logfile;
	$node->sql(q{SELECT outbox_enqueue('slow', '{}')});
	$node->wait_test_point('mid_publish');
	# The watchdog shuts the socket down, and then takes its place.
	$node->sql('SELECT pg_sleep(6)');
	$node->test_point_over;
	$node->wait_drained;
	like($node->log_text($offset), qr/timed out/, 'the link is lost');
	ok(is_well(), 'and what waited was sent');
};

# --- a stop of the server does not wait for the broker

sub stops_in_time
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $start = time;

	$node->stop('fast');
	my $took = time - $start;
	cmp_ok($took, '<', $STOP, sprintf '%s: fast stop in %.1f s', $what, $took);
	return;
}

subtest 'stops' => sub {
	is_accepted("amqps://guest\@localhost:$good", 'a connection');
	$rabbit->memory_alarm(1);
	$node->sql(q{SELECT outbox_enqueue('alarm', '{}')});
	$node->wait_sql('SELECT state FROM outbox_status', 'blocked');
	stops_in_time('an alarm');
	$rabbit->memory_alarm(0);
	$preload->start($node);
	$node->wait_drained;

	# More than all buffers between take.
	$rabbit->pause;
	$node->sql(q{SELECT count(outbox_enqueue('large', to_jsonb(repeat('x', 1000000)))) FROM generate_series(1, 30)});
	$node->wait_sql(q{SELECT in_flight > 0 FROM outbox_status});
	stops_in_time('a broker that does not read');
	$preload->start($node);
	$node->wait_sql(q{SELECT reason FROM outbox_workers}, 'TLS handshake timed out');
	stops_in_time('a handshake that does not go on');
	$rabbit->resume;
	$preload->start($node);
	$node->wait_drained;
	ok(is_well(), 'and all was published');
};

done_testing();
