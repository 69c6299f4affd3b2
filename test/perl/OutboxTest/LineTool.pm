package OutboxTest::LineTool;

=pod

=head1 NAME

OutboxTest::LineTool - a program that is told line by line what to do

=head1 DESCRIPTION

Base of OutboxTest::FakeBroker and OutboxTest::Proxy. Their programs
(test/tools/fake-broker, test/tools/tcp-proxy) print "ready PORT", take commands
on stdin, answer each with "ok ..." or "error ...", print "event ..." when
something happens, and end with their stdin: that is, with the test.

=cut

use strict;
use warnings;

use IO::Select;
use IPC::Open2 ();
use Scalar::Util qw(weaken);
use Test::More;
use Time::HiRes qw(time);
use OutboxTest::Util;

# Perl opens pipes close-on-exec, so no server that the test starts keeps the
# program alive.

# Those that the test has not stopped are stopped while what that needs still exists:
# when Perl destroys all objects, it does so in no order.
my @started;

END
{
	local ($?, $@, $!);
	$_->stop foreach grep { defined } @started;
}

=pod

=over

=item $class->start_tool(@command)

=cut

sub start_tool
{
	my ($class, @command) = @_;
	my $self = bless {
		name => $command[0],
		buffer => '',
		events => [],
		replies => []
	}, $class;

	$self->{pid} =
	  IPC::Open2::open2($self->{out}, $self->{in}, @command);
	$self->{in}->autoflush(1);
	$self->{select} = IO::Select->new($self->{out});
	my $ready = $self->_reply;
	$ready =~ /^ready (\d+)$/ or die "@command: $ready\n";
	$self->{port} = $1;
	push @started, $self;
	weaken($started[-1]);
	return $self;
}

=pod

=item $tool->port, host, pid

=cut

sub port { return $_[0]{port} }
sub host { return '127.0.0.1' }
sub pid { return $_[0]{pid} }

# Takes in what is there, waiting for at most $seconds; false at the end.
sub _read
{
	my ($self, $seconds) = @_;
	return 1 unless $self->{select}->can_read($seconds);
	my $n = sysread $self->{out}, $self->{buffer}, 65536,
	  length $self->{buffer};
	return 0 unless $n;
	while ($self->{buffer} =~ s/^(.*)\n//)
	{
		my $line = $1;
		if ($line =~ s/^event //)
		{
			push @{ $self->{events} }, $line;
		}
		else
		{
			push @{ $self->{replies} }, $line;
		}
	}
	return 1;
}

sub _reply
{
	my ($self) = @_;
	my $end = time + $OutboxTest::Util::TIMEOUT;

	while (!@{ $self->{replies} })
	{
		die "$self->{name} does not answer\n" if time > $end;
		$self->_read(1) or die "$self->{name} has ended\n";
	}
	return shift @{ $self->{replies} };
}

=pod

=item $tool->do(@commands)

Gives it commands (see the head of the program); returns what came after the
last "ok". Dies when one is refused.

=cut

sub do
{
	my ($self, @commands) = @_;
	my $reply;

	foreach my $command (@commands)
	{
		local $SIG{PIPE} = 'IGNORE';
		print { $self->{in} } "$command\n"
		  or die "$self->{name} has ended\n";
		$reply = $self->_reply;
		$reply =~ s/^ok ?// or die "$self->{name}: $command: $reply\n";
	}
	return $reply;
}

=pod

=item $tool->stats

What the command stats says, as a hash reference.

=item $tool->events($regexp)

All events so far, or those that match.

=item $tool->wait_event($regexp, $count, $seconds)

Waits until $count (default 1) events match. Returns the last of them, or fails
a test.

=item $tool->forget_events

=cut

sub stats
{
	my ($self) = @_;
	return { $self->do('stats') =~ /(\w+)=(\S+)/g };
}

=pod

=item $tool->mark_connections

=item $tool->reconnects, wait_reconnects($n, $seconds)

How many connections have been made since that, or since the start.

=cut

sub mark_connections
{
	my ($self) = @_;
	$self->{marked} = $self->stats->{connections};
	return;
}

sub reconnects
{
	my ($self) = @_;
	return $self->stats->{connections} - ($self->{marked} // 0);
}

sub wait_reconnects
{
	my ($self, $n, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("$n reconnects", sub { $self->reconnects >= $n }, $seconds);
}

sub events
{
	my ($self, $regexp) = @_;
	while ($self->{select}->can_read(0))
	{
		last unless $self->_read(0);
	}
	return grep { !defined $regexp || $_ =~ $regexp } @{ $self->{events} };
}

sub wait_event
{
	my ($self, $regexp, $count, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found;

	wait_until(
		"event of $self->{name} matching $regexp",
		sub { @found = $self->events($regexp); @found >= ($count // 1) },
		$seconds);
	return $found[-1];
}

sub forget_events
{
	my ($self) = @_;
	$self->events;
	$self->{events} = [];
	return;
}

=pod

=item $tool->stop

=back

=cut

sub stop
{
	my ($self) = @_;
	my $pid = delete $self->{pid} or return;
	local ($?, $!);

	close $self->{in};
	my $end = time + 5;
	while (waitpid($pid, 1) == 0)    # WNOHANG
	{
		kill 'KILL', $pid if time > $end;
		$self->{select}->can_read(0.01) && $self->_read(0);
	}
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@, $!);
	$self->stop;
	return;
}

1;
