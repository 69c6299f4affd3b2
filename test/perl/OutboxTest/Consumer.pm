package OutboxTest::Consumer;

=pod

=head1 NAME

OutboxTest::Consumer - a recording consumer in the background

=head1 SYNOPSIS

  my $consumer = OutboxTest::Consumer->start($rabbit, queue => 'q',
	  exchange => 'outbox', key => '#');
  ... enqueue ...
  $consumer->wait_count(1000);				# different messages so far
  my @records = $consumer->stop;

Runs test/tools/consume. start returns when the queue is bound and subscribed
to: what is published from then on will arrive.

=cut

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Util;
use Scalar::Util qw(weaken);

# Those that the test has not stopped end with it. When Perl destroys all objects, IPC::Run
# may be gone before them, and the program goes on: it comes back to its port for ever,
# and takes the messages of whichever test's broker is there next.
my @started;

END
{
	local ($?, $@, $!);
	$_->kill9 foreach grep { defined && $_->{owner} == $$ } @started;
}

my $count = 0;

=pod

=over

=item OutboxTest::Consumer->start($rabbit, %params)

Parameters are the options of the tool with '_' for '-': queue (default q),
exchange, exchange_type, key (a scalar or a list), queue_type, transient,
passive, prefetch, ack_every, no_ack, body, delay_us, count, idle, deadline,
reconnect (default 1), heartbeat, vhost, user, password. Flags take 1 or 0. port
is that of the broker, or those of a cluster in its order.

=cut

sub start
{
	my ($class, $rabbit, %params) = @_;
	$count++;
	my $file =
	  "$PostgreSQL::Test::Utils::tmp_check/"
	  . File::Basename::basename($0, '.pl')
	  . "_consumer$count.records";
	unlink $file;

	my %flag = map { $_ => 1 }
	  qw(transient passive no_ack reconnect declare_only);
	$params{queue} //= 'q';
	$params{reconnect} //= 1;
	$params{port} //= [ $rabbit->ports ];
	my @command = ('consume', '--out', $file);
	foreach my $name (sort keys %params)
	{
		my $option = '--' . ($name =~ s/_/-/gr);
		if ($flag{$name})
		{
			push @command, $option if $params{$name};
			next;
		}
		push @command, map { ($option, $_) }
		  ref $params{$name} ? @{ $params{$name} } : $params{$name};
	}

	my $self = bless {
		file => $file,
		out => '',
		err => '',
		offset => 0,
		rest => '',
		records => [],
		unique => {}
	}, $class;
	$self->{run} = IPC::Run::start(\@command, '<', \undef, '>', \$self->{out},
		'2>', \$self->{err});
	$self->{owner} = $$;
	push @started, $self;
	weaken($started[-1]);
	wait_until("consumer ready: @command",
		sub { $self->_pump; $self->{out} =~ /^ready$/m || !$self->running })
	  && $self->{out} =~ /^ready$/m
	  or die "consumer did not start: $self->{err}";
	$rabbit->wait_quorum_queues
	  if ($params{queue_type} // '') eq 'quorum';
	return $self;
}

sub _pump
{
	my ($self) = @_;
	eval { $self->{run}->pump_nb } if $self->{run};
	return;
}

=pod

=item $consumer->running

Whether the program still runs (it ends by count, idle or deadline).

=item $consumer->pid

=cut

sub running
{
	my ($self) = @_;
	return $self->{run} && $self->{run}->pumpable;
}

sub pid
{
	my ($self) = @_;
	return $self->{run} && $self->{run}{KIDS}[0]{PID};
}

=pod

=item $consumer->copies($id)

Those of one message.

=item $consumer->records

All deliveries recorded so far, in order: hash references with us (time of
arrival in microseconds of the epoch), redelivered (0 or 1), id, type, key
(routing key), aggregate_type, aggregate_id, body (its beginning). An absent
property is undef.

=cut

my @fields =
  qw(us redelivered id type key aggregate_type aggregate_id body);

sub copies
{
	my ($self, $id) = @_;
	return grep { $_->{id} eq $id } $self->records;
}

sub records
{
	my ($self) = @_;

	open my $fh, '<', $self->{file} or return @{ $self->{records} };
	binmode $fh;
	seek $fh, $self->{offset}, 0;
	local $/ = undef;
	my $text = $self->{rest} . (<$fh> // '');
	$self->{offset} = tell $fh;
	close $fh;

	# the last line may not be complete yet
	my $end = rindex $text, "\n";
	$self->{rest} = substr $text, $end + 1;
	foreach my $line (split /\n/, substr $text, 0, $end + 1)
	{
		my %record;
		@record{@fields} =
		  map { $_ eq '\N' ? undef : s/\\x(..)/chr hex $1/ger }
		  split /\t/, $line, -1;
		push @{ $self->{records} }, \%record;
		$self->{unique}{ $record{id} // "none $record{us}" }++;
	}
	return @{ $self->{records} };
}

=pod

=item $consumer->unique

Number of different message ids so far.

=item $consumer->wait_count($n, $seconds)

Waits until there are $n of them. True, or a failed test.

=cut

sub unique
{
	my ($self) = @_;
	my @records = $self->records;
	return scalar keys %{ $self->{unique} };
}

sub wait_count
{
	my ($self, $n, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $done = wait_until("$n different messages received",
		sub { $self->unique >= $n }, $seconds);
	diag 'received: ' . $self->unique unless $done;
	return $done;
}

=pod

=item $consumer->wait_flow($what, $n)

Waits until $n more of them have come than now.

=item $consumer->wait_end($seconds)

Waits until the program ends by itself. Returns its last line as a hash
reference (received, unique, repeated, redelivered, seconds, rate, reason).

=item $consumer->stop

Ends it (SIGTERM; everything recorded is acknowledged) and returns the records.

=item $consumer->kill9

Ends it as a crash would: what it had not acknowledged is delivered again.

=back

=cut

sub wait_flow
{
	my ($self, $what, $n) = @_;
	my $before = $self->unique;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("messages flow: $what", sub { $self->unique > $before + $n });
}

sub wait_end
{
	my ($self, $seconds) = @_;
	wait_until('consumer ends', sub { $self->_pump; !$self->running },
		$seconds);
	$self->_finish;
	return $self->{summary};
}

sub stop
{
	my ($self) = @_;
	if ($self->{run})
	{
		$self->{run}->signal('TERM') if $self->running;
		wait_until('consumer stops',
			sub { $self->_pump; !$self->running }, 15)
		  or $self->{run}->signal('KILL');
		$self->_finish;
	}
	return $self->records;
}

sub kill9
{
	my ($self) = @_;
	if ($self->{run})
	{
		$self->{run}->signal('KILL');
		$self->_finish;
	}
	return;
}

sub _finish
{
	my ($self) = @_;
	my $run = delete $self->{run} or return;
	eval { $run->finish };
	note "consumer: $1" if $self->{out} =~ /^(received .*)$/m;
	note "consumer: $self->{err}" if $self->{err} ne '';
	if ($self->{out} =~ /^(received .*)$/m)
	{
		my @words = split / /, $1;
		$self->{summary} = {@words};
	}
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@);
	$self->kill9 if $self->{run};
	return;
}

1;
