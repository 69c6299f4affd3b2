# The way to the broker, watched: what is sent to whom, with TLS and without, and
# what is said when a certificate, a file or a setting stands in the way.
#
# suite: test
# takes: 5 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Preload;
use OutboxTest::Util;

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

done_testing();
