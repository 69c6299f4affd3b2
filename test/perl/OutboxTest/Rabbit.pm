package OutboxTest::Rabbit;

=pod

=head1 NAME

OutboxTest::Rabbit - a private RabbitMQ node for one test file

=head1 SYNOPSIS

  my $rabbit = OutboxTest::Rabbit->start;	# about 6 s
  $rabbit->uri;								# for outbox.broker_uri
  $rabbit->amqp('queue', 'q', ',', 'bind', 'q', 'outbox', 'order.#');
  is($rabbit->depth('q'), 0);
  $rabbit->kill9; $rabbit->restart;
  $rabbit->ctl('list_queues', 'name', 'messages');

It ends with the test, however the test ends (rabbitmq-node has a guard), unless the
test leaves it as it was: then it is there for the next one that wants a broker
without parameters, with an empty virtual host. A node costs five seconds of
processor time to start, which was a third of the suite's.
Every method dies with the reason when it fails, unless it says otherwise.

=cut

use strict;
use warnings;

use IO::Handle;
use IPC::Open2 ();
use IPC::Run ();
use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Util;

my $count = 0;
my @all;

# Of test/tools/check: the nodes, and a file N.free for each that nobody has.
my $pool = $ENV{OUTBOX_TEST_BROKERS};

# All that publishing leaves in a node.
my $EMPTY = join ', ',
  'rabbit_vhost:delete(<<"/">>, <<"test">>)',
  'rabbit_vhost:add(<<"/">>, <<"test">>)',
  'rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)';

=pod

=over

=item OutboxTest::Rabbit->start(%params)

Starts a new node. name => 'b' tells several apart in file names; conf => text
is added to rabbitmq.conf; port => N chooses the port; plugins => [names] enables
plugins that the server brings. cluster => 1: others can
join it; join => $rabbit: joins that one (see OutboxTest::RabbitCluster).

=item OutboxTest::Rabbit->begin_start(%params), $rabbit->end_start

The same in two steps, so that several can start at a time.

=cut

sub start
{
	my ($class, %params) = @_;
	my $self = ($pool && !%params && $class->_take) || $class->begin_start(%params);
	$self->end_start if $self->{starting};
	return $self;
}

# One that another test has left, empty; only one process can remove its file.
sub _take
{
	my ($class) = @_;

	foreach my $free (glob "$pool/*.free")
	{
		next unless unlink $free;
		my $self = bless { name => 'rabbit', dir => $free =~ s/\.free$//r, shared => 1 }, $class;
		$count++;
		push @all, $self;
		return $self
		  if eval { $self->_has_started($self->_node('env')); $self->_value($EMPTY); 1 };
		diag "broker in $self->{dir}: $@";
		$self->{changed} = 1;    # it ends with this test
		return;
	}
	return;
}

sub begin_start
{
	my ($class, %params) = @_;
	my $testname = File::Basename::basename($0);
	$testname =~ s/\.[^.]+$//;
	my $name = $params{name} // ($count++ ? "rabbit$count" : 'rabbit');

	# no longer than needed: it goes into the names of files and of the node
	my $shared = $pool && !%params;
	my $dir =
	  $shared ? "$pool/$$" . "_$count" : "$PostgreSQL::Test::Utils::tmp_check/t_${testname}_$name";
	mkdir $dir or die "could not create $dir: $!";
	my $self = bless {
		name => $name,
		dir => $dir,
		shared => $shared,
		port => $params{port},
		cluster => $params{cluster},
		join => $params{join},
		plugins => $params{plugins}
	}, $class;
	if (defined $params{conf})
	{
		$self->{conf} = "$dir/extra.conf";
		PostgreSQL::Test::Utils::append_to_file($self->{conf}, $params{conf});
	}
	push @all, $self;
	$self->begin_restart;
	return $self;
}

sub begin_restart
{
	my ($self) = @_;
	my @args = ('--owner', $self->{shared} ? $ENV{OUTBOX_CHECK_PID} : $$);
	push @args, '--port', $self->{port} if defined $self->{port};
	push @args, '--conf', $self->{conf} if defined $self->{conf};
	push @args, '--cluster' if $self->{cluster};
	push @args, '--join', $self->{join}->dir if $self->{join};
	push @args, '--plugins', join ',', @{ $self->{plugins} } if $self->{plugins};
	$self->{out} = $self->{err} = '';
	$self->{starting} = IPC::Run::start(
		[ 'rabbitmq-node', 'start', $self->{dir}, @args ],
		'<', \undef, '>', \$self->{out}, '2>', \$self->{err});
	return;
}

sub end_start
{
	my ($self) = @_;
	(delete $self->{starting})->finish
	  or die "rabbitmq-node start: $self->{err}$self->{out}\n";
	$self->_has_started($self->{out});
	return;
}

sub _has_started
{
	my ($self, $env) = @_;
	$self->{state} = 'up';
	while ($env =~ /^(\w+)='?(.*?)'?$/mg)
	{
		$self->{env}{$1} = $2;
	}
	$self->{port} = $self->{env}{AMQP_PORT};
	note "broker $self->{name}: port $self->{port}, pid $self->{env}{AMQP_PID}";
	return;
}

# rabbitmq-node COMMAND DIR ARGS
sub _node
{
	my ($self, $command, @args) = @_;
	my ($out, $err) = ('', '');

	$self->{changed} = 1 unless $command =~ /^(?:env|eval|start|stop|pause|resume)$/;
	IPC::Run::run([ 'rabbitmq-node', $command, $self->{dir}, @args ],
		'<', \undef, '>', \$out, '2>', \$err)
	  or die "rabbitmq-node $command @args: $err$out\n";
	return $out;
}

=pod

=item $rabbit->port, ports, uri, pid, node, log, dir, host

Where it is: port number; a list of that alone; URI for outbox.broker_uri; process id of the broker;
Erlang node name; log file; its directory; 127.0.0.1.

=cut

sub port { return $_[0]{port} }
sub ports { return $_[0]{port} }
sub uri { return $_[0]{env}{AMQP_URI} }
sub pid { $_[0]{changed} = 1; return $_[0]{env}{AMQP_PID} }
sub node { return $_[0]{env}{AMQP_NODE} }
sub log { return $_[0]{env}{AMQP_LOG} }
sub dir { return $_[0]{dir} }
sub host { return '127.0.0.1' }

=pod

=item $rabbit->stop, kill9, restart, pause, resume

stop is orderly; kill9 is a crash. restart starts it again after either, with
the same port and data, and waits until it takes connections. pause and resume
are SIGSTOP and SIGCONT. begin_restart and end_start are restart in two steps.

=item $rabbit->state

What of these was done last: up, down, or paused.

=cut

sub stop { $_[0]->_node('stop'); $_[0]{state} = 'down'; return }
sub kill9 { $_[0]->_node('kill'); $_[0]{state} = 'down'; return }
sub restart { $_[0]->begin_restart; $_[0]->end_start; return }
sub pause { $_[0]->_node('pause'); $_[0]{state} = 'paused'; return }
sub resume { $_[0]->_node('resume'); $_[0]{state} = 'up'; return }
sub state { return $_[0]{state} // 'down' }

=pod

=item $rabbit->ctl(@args)

rabbitmqctl; returns what it prints. Takes two seconds of processor time, but the
commands of %IN_NODE a hundredth of that, and those about permissions in the virtual host
/ do not keep the node from the next test.

=cut

my $INTERNAL = 'rabbit_auth_backend_internal';
my %IN_NODE = (
	add_user => sub { ("$INTERNAL:add_user", @_) },
	add_vhost => sub { ('rabbit_vhost:add', @_) },
	change_password => sub { ("$INTERNAL:change_password", @_) },
	set_permissions => sub { ("$INTERNAL:set_permissions", @_[ 2, 1, 3 .. $#_ ]) },
	clear_permissions => sub { ("$INTERNAL:clear_permissions", @_[ 2, 1 ]) },
	set_topic_permissions => sub { ("$INTERNAL:set_topic_permissions", @_[ 2, 1, 3 .. $#_ ]) },
	clear_topic_permissions => sub { ("$INTERNAL:clear_topic_permissions", @_[ 2, 1 ]) });

sub ctl
{
	my ($self, $command, @args) = @_;
	return $self->_node('ctl', $command, @args) unless $IN_NODE{$command};
	my ($function, @values) = $IN_NODE{$command}->(@args);
	$self->{changed} = 1 unless $command =~ /_permissions$/ && $args[1] eq '/';
	return $self->_value("$function(" . join(', ', map { "<<\"$_\">>" } @values, 'test') . ')');
}

=pod

=item $rabbit->erlang($expression)

The value of an expression in the node, as text. Takes a tenth of a second.

=cut

sub erlang
{
	my ($self, $expression) = @_;
	$self->{changed} = 1;
	return $self->_value($expression);
}

sub _value
{
	my ($self, $expression) = @_;
	my $value = $self->_node('eval', $expression);
	$value =~ s/^\{ok, (.*)\}$/$1/s or die "$expression: $value\n";
	return $value;
}

=pod

=item $rabbit->amqp(@words)

The tool test/tools/amqp, quick: exchange, queue, bind, unbind, delete-queue,
delete-exchange, purge, depth, get, inspect, publish; several separated by ','. Returns
what it prints. $params as a trailing hash reference: user, password, vhost.

=cut

sub amqp
{
	my ($self, @words) = @_;
	my %params = ref $words[-1] ? %{ pop @words } : ();
	my $tool = _amqp_tool();

	print { $tool->{in} } JSON::PP::encode_json(
		[ '--port', $self->port . '', (map { ("--$_", $params{$_}) } sort keys %params),
			map { "$_" } @words ]), "\n";
	my $line = readline($tool->{out}) // die "amqp @words: the tool has ended\n";
	my ($status, $out, $err) = @{ JSON::PP->new->utf8->decode($line) };
	die "amqp @words: $err\n" if $status;
	utf8::encode($out);
	return $out;
}

# One for this process; it ends with its input.
my $amqp_tool;

sub _amqp_tool
{
	return $amqp_tool if $amqp_tool && $amqp_tool->{owner} == $$;
	my $pid = IPC::Open2::open2(my $out, my $in, 'amqp', '--serve');
	$in->autoflush(1);
	return $amqp_tool = { in => $in, out => $out, pid => $pid, owner => $$ };
}

=pod

=item $rabbit->depth($queue)

Number of messages ready in a queue.

=item $rabbit->get($queue, $n)

Takes up to $n messages (default 1) and returns them as hash references with
all their properties, headers, exchange, routing_key, and body or body_hex.

=item $rabbit->inspect($queue, $n)

The same with $n = 0 for all of them (the default), for exact comparisons: see
the tool. OutboxTest::Content says what must arrive in this form.

=cut

sub depth
{
	my ($self, $queue) = @_;
	my $out = $self->amqp('depth', $queue);
	chomp $out;
	return $out;
}

sub get
{
	my ($self, $queue, $n) = @_;

	# decode_json takes bytes, as IPC::Run delivers them
	return map { JSON::PP::decode_json($_) }
	  split /\n/, $self->amqp('get', $queue, $n // 1);
}

sub inspect
{
	my ($self, $queue, $n) = @_;

	return map { JSON::PP::decode_json($_) }
	  split /\n/, $self->amqp('inspect', $queue, $n // 0);
}

=pod

=item $rabbit->wait_quorum_queues

Waits until every quorum queue would survive kill9. RabbitMQ 3.10 writes the
name of a new one to disk only half a second after it was declared; killed
before that, it comes back empty and without a leader, and confirms nothing any
more. Consumer->start calls this for its queue.

=item $rabbit->memory_alarm($on), disk_alarm($on)

Sets or clears a resource alarm: the broker stops reading from publishers.

=back

=cut

sub wait_quorum_queues
{
	my ($self) = @_;
	my ($dir) = glob "$self->{dir}/mnesia/*/quorum/*\@localhost";

	return wait_until(
		'names of quorum queues on disk',
		sub {
			my $names = -e "$dir/names.dets" ? slurp_file("$dir/names.dets") : '';
			return !grep { index($names, File::Basename::basename($_)) < 0 }
			  grep { -d $_ } glob "$dir/2F_*";
		});
}

sub memory_alarm
{
	my ($self, $on) = @_;
	$self->erlang('vm_memory_monitor:set_vm_memory_high_watermark(' . ($on ? '0.0' : '0.4') . ')');
	return;
}

sub disk_alarm
{
	my ($self, $on) = @_;
	$self->erlang('rabbit_disk_monitor:set_disk_free_limit(' . ($on ? '1000000000000000' : '10000000') . ')');
	return;
}

# To the next test, if this one has only stopped, paused and started the node.
sub _leave
{
	my ($self) = @_;
	return unless $self->{shared} && !$self->{changed} && $self->state eq 'up';
	PostgreSQL::Test::Utils::append_to_file("$self->{dir}.free", '');
	return 1;
}

END
{
	# take care not to change the script's exit value
	my $exit_code = $?;
	foreach my $self (@all)
	{
		next if $exit_code == 0 && $self->_leave;

		# a member of a cluster would take its time to leave in order
		eval { $self->kill9 } if $self->{cluster} || $self->{join};
		eval { $self->stop; 1 } or warn $@;
		if ($exit_code == 0 && !defined $ENV{PG_TEST_NOCLEAN}
			&& PostgreSQL::Test::Utils::all_tests_passing())
		{
			File::Path::rmtree($self->{dir});
		}
	}
	$? = $exit_code;
}

1;
