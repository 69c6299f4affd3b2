package OutboxTest::Preload;

=pod

=head1 NAME

OutboxTest::Preload - another time, and no memory, for a server

=head1 SYNOPSIS

  my $preload = OutboxTest::Preload->build;
  my $node = OutboxTest::Node->create(broker => $rabbit, start => 0);
  $preload->start($node);
  $preload->set_clock(-3600);           # an hour back; 0: the true time
  $preload->fail(3, callers => 'librabbitmq');
  $preload->fail(0);

Compiles test/tools/preload.c with cc. The wall clock of the server, and of
nothing else, can be set while it runs, and its allocations made to fail. A host
"127.0.0.2-and-127.0.0.1" has these two addresses.

=cut

use strict;
use warnings;

use File::Basename ();
use PostgreSQL::Test::Utils;

my %CALLERS = (librabbitmq => 1, openssl => 2, server => 4);
my $SIZE = 7 * 8;

=pod

=over

=item OutboxTest::Preload->build

=item $preload->start($node)

Starts the server with it; a server that restarts after a crash keeps it.

=cut

sub build
{
	my ($class) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $self = bless {
		library => "$dir/preload.so",
		file => "$dir/control"
	}, $class;
	my $source = File::Basename::dirname(__FILE__) . '/../../tools/preload.c';

	system($ENV{CC} // 'cc', qw(-std=gnu11 -O2 -Wall -Wextra -shared -fPIC),
		'-o', $self->{library}, $source, '-ldl') == 0
	  or die "could not compile $source\n";
	open my $fh, '>', $self->{file} or die "$self->{file}: $!\n";
	print $fh "\0" x $SIZE;
	close $fh or die "$self->{file}: $!\n";
	return $self;
}

sub start
{
	my ($self, $node) = @_;
	local $ENV{LD_PRELOAD} = $self->{library};
	local $ENV{OUTBOX_PRELOAD} = $self->{file};
	$node->start;
	return;
}

=pod

=item $preload->set_clock($seconds)

Sets the server's wall clock so far ahead of the true time (or behind it).

=item $preload->fail($nth, callers => $who, pid => $pid)

The $nth allocation from now on fails, and no other, counting those that are
made by code of librabbitmq, openssl or server (that is, by palloc), in the
process $pid (by default in any). 0: none.

=item $preload->slow_flush($ms)

Each fsync and fdatasync of the server takes so much longer.

=item $preload->counted, $preload->failed

How many such allocations there were, and how many failed (0 or 1).

=back

=cut

sub _put
{
	my ($self, $at, @values) = @_;
	open my $fh, '+<', $self->{file} or die "$self->{file}: $!\n";
	sysseek $fh, $at * 8, 0;
	syswrite $fh, pack 'q*', @values;
	close $fh;
	return;
}

sub _get
{
	my ($self, $at) = @_;
	open my $fh, '<', $self->{file} or die "$self->{file}: $!\n";
	sysread $fh, (my $bytes), $SIZE;
	close $fh;
	return (unpack 'q*', $bytes)[$at];
}

sub set_clock
{
	my ($self, $seconds) = @_;
	$self->_put(0, $seconds * 1_000_000);
	return;
}

sub fail
{
	my ($self, $nth, %params) = @_;

	$self->_put(1, 0);
	$self->_put(2, $params{pid} // 0, $CALLERS{ $params{callers} // 'server' },
		0, 0);
	$self->_put(1, $nth);
	return;
}

sub slow_flush
{
	my ($self, $ms) = @_;
	$self->_put(6, $ms * 1000);
	return;
}

sub counted { return $_[0]->_get(4) }
sub failed { return $_[0]->_get(5) }

1;
