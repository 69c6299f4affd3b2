package OutboxTest::RabbitCluster;

=pod

=head1 NAME

OutboxTest::RabbitCluster - several RabbitMQ nodes that form a cluster

=head1 SYNOPSIS

  my $cluster = OutboxTest::RabbitCluster->start;	# three nodes, about 20 s
  my $node = OutboxTest::Node->create(broker => $cluster);
  my $consumer = OutboxTest::Consumer->start($cluster, queue_type => 'quorum',
	  exchange => 'outbox');
  my $leader = $cluster->wait_leader('q');
  $leader->kill9;
  $cluster->wait_leader('q', $leader);
  $leader->restart;
  $cluster->wait_members('q');

Its nodes are OutboxTest::Rabbit: stop, kill9, restart, pause, resume, ctl ...
A node that has been paused for longer than 6 to 10 s is dead for the others, and
forms a partition when it goes on (cluster_partition_handling is ignore), until it
is restarted.

=cut

use strict;
use warnings;

use Test::More;
use OutboxTest::Rabbit;
use OutboxTest::Util;

=pod

=over

=item OutboxTest::RabbitCluster->start($count)

Starts so many nodes (default 3): one, and the others together.

=item $cluster->nodes, ports, uri, port

All nodes, in the order of the URI; their ports; amqp:// with all of them; the
port of one that is up.

=item $cluster->up

Those that are neither down nor paused.

=item $cluster->at($address), named($name)

The node that listens at host:port; the one with that Erlang name.

=cut

sub start
{
	my ($class, $count) = @_;
	my $first = OutboxTest::Rabbit->start(name => 'a', cluster => 1);
	my @others = map {
		OutboxTest::Rabbit->begin_start(
			name => chr(ord('a') + $_),
			join => $first)
	} 1 .. ($count // 3) - 1;

	$_->end_start foreach @others;
	return bless { nodes => [ $first, @others ] }, $class;
}

sub nodes { return @{ $_[0]{nodes} } }
sub ports { return map { $_->port } $_[0]->nodes }
sub host { return '127.0.0.1' }

sub uri
{
	my ($self) = @_;
	return 'amqp://guest@' . join ',', map { "127.0.0.1:$_" } $self->ports;
}

sub up
{
	my ($self) = @_;
	return grep { $_->state eq 'up' } $self->nodes;
}

sub port
{
	my ($self) = @_;
	return ($self->up)[0]->port;
}

sub at
{
	my ($self, $address) = @_;
	my ($node) = grep { $address eq '127.0.0.1:' . $_->port } $self->nodes;
	return $node;
}

sub named
{
	my ($self, $name) = @_;
	my ($node) = grep { $_->node eq $name } $self->nodes;
	return $node;
}

=pod

=item $cluster->amqp(@words), depth($queue)

As of an OutboxTest::Rabbit, by one that is up.

=item $cluster->restart(@nodes)

Starts nodes that are down, all at a time.

=cut

sub amqp
{
	my ($self, @words) = @_;
	return ($self->up)[0]->amqp(@words);
}

sub depth
{
	my ($self, $queue) = @_;
	return ($self->up)[0]->depth($queue);
}

sub restart
{
	my ($self, @nodes) = @_;
	$_->begin_restart foreach @nodes;
	$_->end_start foreach @nodes;
	return;
}

=pod

=item $cluster->leader($queue)

The node that leads a quorum queue, as those know it that are up; undef if it is
not up or they do not agree.

=item $cluster->wait_leader($queue, $not)

Waits until there is one, other than $not; returns it.

=item $cluster->wait_members($queue)

Waits until the queue has its process on each node that is up, and a leader.

=item $cluster->transfer($queue, $node)

Makes a node the leader.

=cut

# The name of the queue's process on each node.
sub _process
{
	my ($queue) = @_;
	return "'%2F_$queue'";
}

sub leader
{
	my ($self, $queue) = @_;
	my $process = _process($queue);
	my %leaders;

	foreach my $node ($self->up)
	{
		my $answer = eval {
			$node->erlang(
				"case ra:members({$process, node()}, 2000) of {ok, _, {_, N}} -> N; _ -> none end"
			);
		} // 'none';
		$leaders{ $answer =~ s/'//gr }++;
	}
	my ($name, $more) = keys %leaders;
	my $leader = defined $name && !$more && $self->named($name);
	return $leader && $leader->state eq 'up' ? $leader : undef;
}

sub wait_leader
{
	my ($self, $queue, $not) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until(
		"a leader of queue $queue",
		sub {
			my $leader = $self->leader($queue);
			return $leader && (!$not || $leader != $not) ? $leader : undef;
		},
		60);
}

sub wait_members
{
	my ($self, @queues) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until(
		"members of queues @queues",
		sub {
			foreach my $queue (@queues)
			{
				my $process = _process($queue);
				foreach my $node ($self->up)
				{
					return 0
					  unless eval { $node->erlang("whereis($process)") =~ /^<|pid/i };
				}
				return 0 unless $self->leader($queue);
			}
			return 1;
		},
		60);
}

sub transfer
{
	my ($self, $queue, $node) = @_;
	my $process = _process($queue);
	my $name = $node->node;

	return wait_until(
		"$name leads queue $queue",
		sub {
			my $leader = $self->leader($queue) or return 0;
			return 1 if $leader == $node;
			eval {
				$leader->erlang(
					"ra:transfer_leadership({$process, node()}, {$process, '$name'})"
				);
			};
			return 0;
		},
		60);
}

=pod

=item $cluster->wait_quorum_queues

As that of an OutboxTest::Rabbit, for all nodes.

=item $cluster->wait_whole

Waits until each node that is up sees all of those, and is ready for clients.

=back

=cut

sub wait_quorum_queues
{
	my ($self) = @_;
	$_->wait_quorum_queues foreach $self->up;
	return;
}

sub wait_whole
{
	my ($self, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until(
		'the cluster is whole',
		sub {
			my @up = $self->up;
			foreach my $node (@up)
			{
				my $n = eval {
					$node->erlang(
						'case rabbit:is_running() of true -> length(rabbit_nodes:all_running()); _ -> 0 end'
					);
				} // 0;
				return 0 unless $n eq scalar @up;
			}
			return 1;
		},
		$seconds // 60);
}

1;
