package OutboxTest::LossyLink;

=pod

=head1 NAME

OutboxTest::LossyLink - a network whose packets are late, lost, out of order

=head1 SYNOPSIS

  use OutboxTest::LossyLink;
  OutboxTest::LossyLink->own_network;      # first of all: begins the test anew
  my $link = OutboxTest::LossyLink->start;
  my $fake = OutboxTest::FakeBroker->start(listen => $link->broker_address);
  my $node = OutboxTest::Node->create(broker => $link->in_front_of($fake));
  $link->do('delay 100', 'loss 10', 'rate 1000000');

Real TCP over a real network, where the proxy only imitates one: the test runs in
a network namespace of its own, in which test/tools/lossy-link (its head has the
commands) makes an interface. It needs no root, but a kernel that lets everybody
have such a namespace; elsewhere the test is skipped with the reason.

=cut

use strict;
use warnings;

use parent 'OutboxTest::LineTool';

use Test::More;

my @UNSHARE = qw(unshare --user --map-current-user --keep-caps --net);

=pod

=over

=item OutboxTest::LossyLink->own_network

Starts the test again in a namespace of its own, or skips it.

=item OutboxTest::LossyLink->start

=item $link->broker_address

Where a broker has to listen.

=item $link->in_front_of($broker)

The broker as it is reached by way of the link, for Node->create.

=back

=cut

sub own_network
{
	return if $ENV{OUTBOX_OWN_NETWORK};
	my $said = `@UNSHARE ip link add outbox0 type veth peer name outbox1 2>&1`;
	plan skip_all =>
	  "no network namespace with interfaces of its own: " . ($said // $!)
	  if $? != 0;
	local $ENV{OUTBOX_OWN_NETWORK} = 1;
	exec @UNSHARE, $^X, $0, @ARGV or die "unshare: $!\n";
}

sub start
{
	my ($class) = @_;
	return $class->start_tool('lossy-link', '--lifetime', 3600);
}

sub broker_address { return '10.99.0.1' }
sub host { return '10.99.0.2' }

sub in_front_of
{
	my ($self, $broker) = @_;
	$self->{uri} = $broker->uri =~ s/\@[^:]+:/'@' . $self->host . ':'/er;
	return $self;
}

sub uri { return $_[0]{uri} }

1;
