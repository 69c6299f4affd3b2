package OutboxTest::Debezium;

=pod

=head1 NAME

OutboxTest::Debezium - Debezium Server with the configuration of examples/debezium

=head1 SYNOPSIS

  # builds: test/clients/debezium/server
  my $why = OutboxTest::Debezium->missing;
  plan skip_all => $why if $why;
  my $node = OutboxTest::Node->create(conf => $OutboxTest::Debezium::CONF, ...);
  OutboxTest::Debezium->setup($node);
  my $debezium = OutboxTest::Debezium->start($node, $rabbit);
  $debezium->kill9; $debezium->start_again; $debezium->stop;

The database is prepared by examples/debezium/setup.sql; the file application.properties
is that of the example, byte for byte, and the environment says what differs.

=cut

use strict;
use warnings;

use File::Copy ();
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use OutboxTest::Clients;
use OutboxTest::Util;

our $CONF = "$OutboxTest::Clients::CONF\nwal_level = logical\n";

use constant SERVER => 'test/clients/debezium/server';
use constant EXAMPLE => 'examples/debezium';

# A Java program that shares two processors with others may take this long to begin.
use constant START => 120;

my $count = 0;

=pod

=over

=item OutboxTest::Debezium->missing

Why there is no such server here, undef if there is one.

=item OutboxTest::Debezium->setup($node)

Runs setup.sql.

=item OutboxTest::Debezium->start($node, $rabbit, %params)

Starts it, and waits until it reads its slot. env: more of the environment, a hash; slot:
which one it reads (outbox_cdc).

=cut

sub missing
{
	return OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();
	return OutboxTest::Clients::missing(SERVER);
}

sub setup
{
	my ($class, $node) = @_;
	$node->sql(slurp_file(EXAMPLE . '/setup.sql'));
	return;
}

sub start
{
	my ($class, $node, $rabbit, %params) = @_;
	my $self = bless {
		node => $node,
		slot => $params{slot} // 'outbox_cdc',
		dir => $node->basedir . '/debezium' . ++$count,
		env => {
			PGUSER => 'debezium',
			RABBITMQ_PORT => $rabbit->port,
			DEBEZIUM_HTTP_PORT => PostgreSQL::Test::Cluster::get_free_port(),
			%{ $params{env} // {} } }
	}, $class;

	mkdir $_ or die "$_: $!\n" foreach $self->{dir}, "$self->{dir}/config";
	File::Copy::copy(EXAMPLE . '/application.properties', "$self->{dir}/config") or die "$!\n";
	$self->start_again;
	$self->wait_reading;
	return $self;
}

=pod

=item $debezium->start_again

Starts it where it is not running. Nothing of before is left but the slot.

=item $debezium->wait_reading

Waits until it reads its slot; starts it again when it has ended, as whoever runs it would.

=cut

sub start_again
{
	my ($self) = @_;
	$self->{process} = OutboxTest::Clients::start($self->{node}, SERVER,
		args => [ $self->{dir} ], env => $self->{env});
	return;
}

sub wait_reading
{
	my ($self) = @_;
	my $is = "SELECT active FROM pg_replication_slots WHERE slot_name = '$self->{slot}'";
	my $read = wait_until("Debezium reads $self->{slot}", sub {
			$self->keep;
			(eval { $self->{node}->sql($is) } // '') eq 't';
		}, START);
	diag $self->{process}->output unless $read;
	return $read;
}

=pod

=item $debezium->keep

Starts it if it has ended; returns how often that was.

=item $debezium->kill9, stop

Ends it, as a crash would or by SIGTERM. stop returns its exit status.

=item $debezium->pid, output

=back

=cut

sub keep
{
	my ($self) = @_;
	unless ($self->{process}->running)
	{
		$self->{ended}++;
		$self->start_again;
	}
	return $self->{ended} // 0;
}

sub kill9
{
	my ($self) = @_;
	$self->{process}->signal('KILL');
	return $self->{process}->end;
}

sub stop
{
	my ($self) = @_;
	$self->{process}->signal('TERM');
	return $self->{process}->end(START);
}

sub pid { return $_[0]->{process}->pid }
sub output { return $_[0]->{process}->output }

1;
