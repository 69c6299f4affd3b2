package OutboxTest::FakeBroker;

=pod

=head1 NAME

OutboxTest::FakeBroker - a scripted broker that delays, lies and breaks off

=head1 SYNOPSIS

  my $fake = OutboxTest::FakeBroker->start;
  my $node = OutboxTest::Node->create(broker => $fake);
  $fake->do('answer reverse 50', 'when type=poison : channel-close 406 no');
  ... enqueue ...
  $node->wait_drained;
  $checker->check('out of order', [ $fake->records ]);

Runs test/tools/fake-broker, whose head has the commands. It ends with the test.
See OutboxTest::LineTool for do, stats, events, wait_event, port and stop.

=cut

use strict;
use warnings;

use parent 'OutboxTest::LineTool';

use File::Basename ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Util;

my $count = 0;

=pod

=over

=item OutboxTest::FakeBroker->start(%params)

port => N chooses the port, listen => ADDRESS another address than 127.0.0.1; lifetime => S
when it ends at the latest (900 s, in full runs 3600); do => [commands] are given before anybody can
connect.

=item $fake->uri

For outbox.broker_uri; Node->create(broker => $fake) works too.

=cut

sub start
{
	my ($class, %params) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/"
	  . File::Basename::basename($0, '.pl')
	  . '_fake'
	  . ++$count
	  . '.records';

	unlink $file;
	$params{lifetime} //= 3600 if $ENV{OUTBOX_TEST_FULL};
	my $self = $class->start_tool(
		'fake-broker', '--out', $file,
		(map { defined $params{$_} ? ("--$_", $params{$_}) : () }
			  qw(port listen lifetime)),
		map { ('--do', $_) } @{ $params{do} // [] });
	@$self{qw(file offset rest published listen)} =
	  ($file, 0, '', [], $params{listen});
	$self->{case_start} = 0;
	return $self;
}

sub uri { return 'amqp://guest@' . $_[0]->host . ':' . $_[0]->port }
sub host { return $_[0]{listen} // '127.0.0.1' }

=pod

=item $fake->published

Everything that has arrived so far, whatever became of it, in order: hash
references with the fields of OutboxTest::Consumer's records (us, redelivered,
id, type, key, aggregate_type, aggregate_id, body) and conn, tag, exchange, size
(of the body), traceparent (the header), digest (of all bytes of properties and body but the
message's own id and times, and the job that replays it), and fate: ack, nack, return, closed, or '' when no answer was
given, and fate_us: when.

=item $fake->records

Those that a consumer of a real broker would have got for sure: acked and not
returned. For the Checker: what the relay settles and is not among them is lost.

=item $fake->fates

Fates of all copies by message id: a hash reference of array references.

=item $fake->release

Acks what it has been told to hold, and from now on everything.

=item $fake->begin_case($name)

What is published from now on is of this case, whose name, if there is one, is noted.

=item $fake->of_case

Everything that has arrived in this case, as published has it.

=item $fake->wait_case($n, $seconds)

Until so many have come since then.

=item $fake->wait_type($type, $seconds)

Until one of this type has.

=item $fake->types

Types of it, in order.

=back

=cut

my %fields = (
	P => [
		qw(us conn tag id type key exchange aggregate_type aggregate_id size
		  body traceparent digest)
	],
	F => [qw(us conn tag fate)]);

sub published
{
	my ($self) = @_;

	$self->do('stats');    # whatever it has read is in the file now
	open my $fh, '<', $self->{file} or return;
	binmode $fh;
	seek $fh, $self->{offset}, 0;
	local $/ = undef;
	my $text = $self->{rest} . (<$fh> // '');
	$self->{offset} = tell $fh;
	close $fh;

	my $end = rindex $text, "\n";
	$self->{rest} = substr $text, $end + 1;
	foreach my $line (split /\n/, substr $text, 0, $end + 1)
	{
		my ($kind, @values) =
		  map { $_ eq '\N' ? undef : s/\\x(..)/chr hex $1/ger }
		  split /\t/, $line, -1;
		my %record;
		@record{ @{ $fields{$kind} } } = @values;
		my $place = \$self->{by_tag}{"$record{conn} $record{tag}"};
		if ($kind eq 'P')
		{
			@record{qw(redelivered fate)} = (0, '');
			push @{ $self->{published} }, \%record;
			$$place = \%record;
		}
		elsif ($$place && $$place->{fate} eq '')
		{
			@$$place{qw(fate fate_us)} = @record{qw(fate us)};
		}
	}
	return @{ $self->{published} };
}

sub records
{
	my ($self) = @_;
	return grep { $_->{fate} eq 'ack' } $self->published;
}

sub release
{
	my ($self) = @_;
	$self->do('answer ack', 'now ack ' . $self->stats->{tag} . ' multiple');
	return;
}

sub begin_case
{
	my ($self, $name) = @_;
	note "--- $name" if defined $name;
	$self->{case_start} = () = $self->published;
	return;
}

sub of_case
{
	my ($self) = @_;
	my @all = $self->published;
	return splice @all, $self->{case_start};
}

sub wait_case
{
	my ($self, $n, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("$n messages have arrived",
		sub { my @all = $self->of_case; @all >= $n }, $seconds);
}

sub wait_type
{
	my ($self, $type, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("\"$type\" is published", sub { grep { $_ eq $type } $self->types }, $seconds);
}

sub types
{
	my ($self) = @_;
	return map { $_->{type} } $self->of_case;
}

sub fates
{
	my ($self) = @_;
	my %fates;
	push @{ $fates{ $_->{id} } }, $_->{fate} foreach $self->published;
	return \%fates;
}

1;
