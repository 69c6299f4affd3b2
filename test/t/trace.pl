# Trace context on the wire: as it is stored, or, with outbox.trace_spans, with the span
# that outbox_spans has.
#
# suite: test
# takes: 6 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
my $PARENT = '00f067aa0ba902b7';
my $ID = '01890a5d-ac96-774b-bcce-b302099a80';

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
outbox.trace_spans = on
outbox.retry_initial = 10ms
outbox.retry_max = 10ms
END
$node->sql("UPDATE outbox_route SET max_attempts = 2");

sub header { return "00-$TRACE-" . ($_[0] // $PARENT) . '-' . ($_[1] // '01') }

# Headers of a message by its type, of what is sent and of each copy on the wire.
my %sent = (
	sampled => header(),
	random => header(undef, '03'),
	later => 'cc' . substr(header(undef, 'ff'), 2) . '-more',
	quiet => header(undef, '00'),
	mine => 'mine',
	zero => "00-$TRACE-" . '0' x 16 . '-01',
	long => header() . '-01',
	returned => header());
my %number;
foreach my $type (sort keys %sent)
{
	$number{$type} = sprintf '%02x', scalar keys %number;
}
my %wire = (
	%sent,
	sampled => header("bcceb302099a80$number{sampled}"),
	random => header("bcceb302099a80$number{random}", '03'),
	later => header("bcceb302099a80$number{later}", '03'),
	returned => header("bcceb302099a80$number{returned}"));

sub enqueue
{
	my ($type, $traceparent, $id) = @_;

	$node->sql("SELECT outbox_enqueue('$type', '{}', headers => '{\"traceparent\": \"$traceparent\"}'"
		. ($id ? ", message_id => '$id'" : '') . ')');
	return;
}

sub wire
{
	my ($type) = @_;

	return join ' ', map { $_->{traceparent} // '-' } grep { $_->{type} eq $type } $fake->published;
}

$fake->do('when type=returned : return 312 NO_ROUTE');
enqueue($_, $sent{$_}, $ID . $number{$_}) foreach sort keys %sent;
$node->sql(q{SELECT outbox_enqueue('none', '{}'), outbox_enqueue('number', '{}', headers => '{"traceparent": 7}')});
$node->wait_drained;
is(wire($_), $_ eq 'returned' ? "$wire{$_} $wire{$_}" : $wire{$_}, "on the wire: $_") foreach sort keys %sent;
is(wire('none'), '-', 'on the wire: none');
is(wire('number'), '7', 'on the wire: a number');

# What a collector is told agrees with what consumers are told.
$node->sql(slurp_file('examples/tracing/spans.sql'));
my %spans = map { $_->[0] => $_ } $node->rows(<<'END');
SELECT attributes ->> 'messaging.rabbitmq.destination.routing_key', trace_id, span_id, parent_span_id,
	attributes ->> 'error.type', attributes ->> 'outbox.attempts', start_time < end_time FROM outbox_spans
END
is_deeply([ sort keys %spans ], [ sort qw(sampled random later returned) ], 'only what is sampled has a span');
foreach my $type (sort keys %spans)
{
	my (undef, @facts) = map { $_ // '' } @{ $spans{$type} };

	like($wire{$type}, qr/^00-$facts[0]-$facts[1]-/, "$type: the consumer's parent is the span");
	is_deeply([ @facts[ 2 .. 5 ] ], [ $PARENT, $type eq 'returned' ? ('unroutable', 2) : ('', 0), 't' ],
		"$type: its parent is the producer, and its facts");
}

# The row is as it was: off, it is sent as it is.
is($node->sql("SELECT DISTINCT headers ->> 'traceparent' FROM outbox_archive WHERE event_type = 'sampled'"),
	header(), 'the archive has what was enqueued');
$node->set('outbox.trace_spans', 'off');
my $tries = 0;
ok(wait_until(
		'the relay has read its settings',
		sub {
			my $type = 'off.' . ++$tries;

			enqueue($type, header());
			$node->wait_drained;
			return wire($type) eq header();
		}),
	'off: on the wire as enqueued');
done_testing();
