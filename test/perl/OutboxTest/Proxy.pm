package OutboxTest::Proxy;

=pod

=head1 NAME

OutboxTest::Proxy - a bad network between the relay and its broker

=head1 SYNOPSIS

  my $rabbit = OutboxTest::Rabbit->start;
  my $proxy = OutboxTest::Proxy->start($rabbit);
  my $node = OutboxTest::Node->create(broker => $proxy);
  my $consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');
  $proxy->do('delay both 100', 'rate up 64000');
  $proxy->half_open;
  $proxy->do('forward');

Runs test/tools/tcp-proxy, whose head has the commands (delay, rate, stall,
swallow, cut, rst, close, refuse, silent, blackhole, accept, forward). It ends
with the test. See OutboxTest::LineTool for do, stats, port and stop.

=cut

use strict;
use warnings;

use parent 'OutboxTest::LineTool';

=pod

=over

=item OutboxTest::Proxy->start($broker, %params)

$broker is an OutboxTest::Rabbit or OutboxTest::FakeBroker. port => N chooses
the port, lifetime => S when it ends at the latest (900 s, in
full runs 3600).

=item $proxy->uri

That of the broker, through the proxy.

=cut

sub start
{
	my ($class, $broker, %params) = @_;
	$params{lifetime} //= 3600 if $ENV{OUTBOX_TEST_FULL};
	my $self = $class->start_tool('tcp-proxy', '--to', $broker->port,
		map { defined $params{$_} ? ("--$_", $params{$_}) : () }
		  qw(port lifetime));
	my $port = $self->port;
	$self->{uri} = $broker->uri =~ s/127\.0\.0\.1:\d+/127.0.0.1:$port/r;
	return $self;
}

sub uri { return $_[0]{uri} }

=pod

=item $proxy->half_open

The connections that there are swallow everything in both directions and stay;
new ones work.

=item $proxy->cut_once($direction, $bytes, $how)

The next connection, or the one there is, ends when $bytes more have passed in
the direction up or down; $how is fin (default) or rst. Only one.

=item $proxy->sent($direction)

Bytes that have come from that side so far.

=back

=cut

sub half_open
{
	my ($self) = @_;
	$self->do('swallow both', 'forward');
	return;
}

sub cut_once
{
	my ($self, $direction, $bytes, $how) = @_;
	# in this order: so few bytes may have passed before the second command comes
	$self->do('once', "cut $direction $bytes " . ($how // 'fin'));
	return;
}

sub sent
{
	my ($self, $direction) = @_;
	return $self->stats->{$direction};
}

1;
