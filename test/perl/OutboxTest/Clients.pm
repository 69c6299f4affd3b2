package OutboxTest::Clients;

=pod

=head1 NAME

OutboxTest::Clients - programs in other languages, as test/clients/build makes them

=head1 SYNOPSIS

  # builds: test/clients/bindings/go
  plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();
  my $node = OutboxTest::Node->create(broker => $rabbit, conf => $OutboxTest::Clients::CONF);
  my $out = OutboxTest::Clients::run($node, 'test/clients/bindings/go', args => ['pgx'], in => $cases);
  my $relay = OutboxTest::Clients::start($node, 'examples/relays/go', args => ['orders']);
  $relay->pid; $relay->running; $relay->signal('KILL'); $relay->output; $relay->end;

The programs are built before any test starts, by make test-clients; here they only
run. They find the server by PGHOST, PGPORT, PGUSER and PGDATABASE, which every driver
or a line of a program can read, and by DATABASE_URL.

=cut

use strict;
use warnings;

use IPC::Run ();
use POSIX ':sys_wait_h';
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Util;

use constant MISSING => 'the programs are not built (make test-clients)';

# Not every driver can use a Unix socket.
our $CONF = "listen_addresses = '127.0.0.1'\n";

my $count = 0;

=pod

=over

=item built()

Whether this is make test-clients.

=item missing($folder)

Why it could not be built on this machine, undef if it was: a reason to skip the test.

=item command($folder)

The program of the folder as a list of words.

=item environment($node, $dbname)

What a program gets, as a list of names and values.

=item result($name, $text)

Leaves a file in tmp_check/clients/results.

=cut

sub built
{
	return defined $ENV{OUTBOX_TEST_CLIENTS};
}

sub _file
{
	my ($folder, $file) = @_;
	(my $name = $folder) =~ s|/|-|g;
	return "$ENV{OUTBOX_TEST_CLIENTS}/$name/$file";
}

sub missing
{
	my ($folder) = @_;
	my $file = _file($folder, 'missing');
	return unless -e $file;
	chomp(my $why = slurp_file($file));
	return "$folder: $why";
}

sub command
{
	my ($folder) = @_;
	my $run = _file($folder, 'run');

	die "$folder is not built: is it in the line \"# builds:\" of this test?\n" unless -x $run;
	return $run;
}

sub environment
{
	my ($node, $dbname) = @_;
	my $user = getpwuid $<;

	$dbname //= 'postgres';
	return (
		PGHOST => '127.0.0.1',
		PGPORT => $node->port,
		PGUSER => $user,
		PGDATABASE => $dbname,
		PGSSLMODE => 'disable',
		DATABASE_URL => "postgres://$user\@127.0.0.1:" . $node->port . "/$dbname?sslmode=disable");
}

sub result
{
	my ($name, $text) = @_;
	(my $dir = $ENV{OUTBOX_TEST_SUMMARY}) =~ s|/[^/]*$|/clients|;

	mkdir $dir;
	append_to_file("$dir/$name", $text);
	return;
}

=pod

=item run($node, $folder, %params)

Runs it to its end and returns its output; dies, with all that it said, if it fails or takes
longer than the deadline. Parameters: args, in (text for its standard input), env (a hash),
dbname, seconds (120).

=cut

sub run
{
	my ($node, $folder, %params) = @_;
	my ($out, $err) = ('', '');
	my $done = _environed($node, \%params, sub {
			IPC::Run::run([ command($folder), @{ $params{args} // [] } ], '<', \($params{in} // ''), '>', \$out, '2>', \$err,
				IPC::Run::timeout($params{seconds} // 120, exception => "$folder: no end within its deadline\n"));
		});

	die "$folder failed:\n$err\n$out\n" unless $done;
	note $err if $err ne '';
	return $out;
}

=pod

=item start($node, $folder, %params)

Runs it in the background; parameters as for run() but for in and seconds. The program ends with
the test. Methods: pid, running, signal($name), output (both streams, so far),
wait_output($re, $s), end($s) (waits for its end, its exit status; SIGKILL is one of 137).

=back

=cut

sub start
{
	my ($node, $folder, %params) = @_;
	(my $name = $folder) =~ s|/|-|g;
	my $self = bless {
		name => $folder,
		file => "$PostgreSQL::Test::Utils::log_path/$name-" . ++$count . '.log',
		creator => $$
	}, __PACKAGE__;

	_environed($node, \%params, sub {
			$self->{pid} = fork // die "fork: $!\n";
			return if $self->{pid};
			open STDIN, '<', '/dev/null' or die;
			open STDOUT, '>', $self->{file} or die "$self->{file}: $!\n";
			open STDERR, '>&', \*STDOUT or die;
			exec command($folder), @{ $params{args} // [] } or POSIX::_exit(127);
		});
	return $self;
}

sub pid { return $_[0]->{pid} }

sub running
{
	my ($self) = @_;
	return 0 if defined $self->{status};
	return 1 if waitpid($self->{pid}, WNOHANG) == 0;
	$self->{status} = $? & 127 ? 128 + ($? & 127) : $? >> 8;
	return 0;
}

sub signal
{
	my ($self, $signal) = @_;
	return $self->running && kill $signal, $self->{pid};
}

sub output
{
	my ($self) = @_;
	return -e $self->{file} ? slurp_file($self->{file}) : '';
}

sub wait_output
{
	my ($self, $re, $seconds) = @_;
	return wait_until("$self->{name} says $re", sub { $self->output =~ $re }, $seconds);
}

sub end
{
	my ($self, $seconds) = @_;
	wait_until("$self->{name} ends", sub { !$self->running }, $seconds);
	return $self->{status};
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@, $!);
	return unless $self->{creator} == $$ && $self->signal('KILL');
	waitpid $self->{pid}, 0;
	return;
}

sub _environed
{
	my ($node, $params, $code) = @_;
	local %ENV = (%ENV, environment($node, $params->{dbname}), %{ $params->{env} // {} });
	return $code->();
}

1;
