package OutboxTest::Node;

=pod

=head1 NAME

OutboxTest::Node - a PostgreSQL cluster with outbox, for one test file

=head1 SYNOPSIS

  my $rabbit = OutboxTest::Rabbit->start;
  my $node = OutboxTest::Node->create(broker => $rabbit);
  $node->sql(q{SELECT outbox_enqueue('order.created', '{"id": 1}')});
  $node->wait_sql('SELECT count(*) = 0 FROM outbox');

A subclass of PostgreSQL::Test::Cluster: everything of that class works too
(start, stop($mode), restart, kill9, reload, safe_psql, psql, background_psql,
poll_query_until, adjust_conf, append_conf, log_contains, init_from_backup ...).

=cut

use strict;
use warnings;

use parent 'PostgreSQL::Test::Cluster';

use IPC::Run ();
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Client;
use OutboxTest::Util;

# Whether this file has initialised a server.
my $initialised = 0;

# All of this process, for the look at their logs in the end.
my @nodes;

sub new
{
	my ($class, @params) = @_;
	my $self = $class->SUPER::new(@params);

	push @nodes, $self;
	$self->{creator} = $$;
	return $self;
}

# The sweep finds whatever the relay has lost sight of, if a test only waits long
# enough; so each such row fails the test, whatever it has looked at itself.
END
{
	my $status = $?;
	foreach my $node (grep { $_->{creator} == $$ && !$_->{forgets} } @nodes)
	{
		next unless -e $node->logfile;
		my @lines = grep { /outbox sweep found a forgotten/ } split /\n/, $node->log_text;
		next unless @lines;
		diag $node->name . ': the sweep would find ' . @lines . " that were forgotten, first:\n$lines[0]";
		$status ||= 1;
	}
	$? = $status;
}

=pod

=over

=item OutboxTest::Node->create(%params)

new, init, start, and CREATE EXTENSION outbox. Parameters, all optional:

  name      => 'main'
  broker    => an OutboxTest::Rabbit; without it outbox.broker_uri names a port
               where nothing listens
  conf      => text for the end of postgresql.conf
  preload   => 1; 0 leaves shared_preload_libraries empty
  extension => 1; 0 creates no extension
  start     => 1; 0 only initialises
  allows_streaming, has_archiving, extra: as for init; install_path: as for new

=item $node->forgets

The sweep may find rows here, because the test brings some that nobody announces.
Without it a row that the sweep finds fails the test, in the end.

=cut

sub create
{
	my ($class, %params) = @_;
	my $self = $class->new($params{name} // 'main',
		map { defined $params{$_} ? ($_ => $params{$_}) : () } qw(install_path));

	$self->init(%params);
	return $self if defined $params{start} && !$params{start};
	$self->start;
	$self->sql('CREATE EXTENSION outbox')
	  if $params{extension} // 1;
	return $self;
}

sub forgets
{
	my ($self) = @_;
	$self->{forgets} = 1;
	return;
}

sub init
{
	my ($self, %params) = @_;
	my $uri =
	  $params{broker} ? $params{broker}->uri : 'amqp://guest@127.0.0.1:1';
	my $preload = $params{preload} // 1;
	my $system_or_bail = \&PostgreSQL::Test::Utils::system_or_bail;
	my $template = $ENV{OUTBOX_TEST_TEMPLATE};

	# What initdb makes is copied from test/tools/check, but for the first server of a
	# file only: a second one must have a system identifier of its own, as
	# otherwise outbox takes it for a copy of the first.
	undef $template
	  if $initialised++ || $params{extra} || $params{install_path} || !-d ($template // '');
	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub {
		return $system_or_bail->(@_) unless $template && $_[0] eq 'initdb';
		rmdir $self->data_dir;
		return $system_or_bail->('cp', '-a', $template, $self->data_dir);
	};
	$self->SUPER::init(%params,
		extra => [ '--no-locale', '-E', 'UTF8', @{ $params{extra} // [] } ]);

	# Cluster.pm chooses what is fast and what suits core's tests. These tests
	# are about durability, and about servers that restart after a crash.
	$self->append_conf('postgresql.conf', <<"END");
fsync = on
restart_after_crash = on
log_statement = none
log_replication_commands = off
log_min_messages = warning
log_line_prefix = '%m [%p] %b %q%a '
max_connections = 100
shared_buffers = 128MB
max_prepared_transactions = 20
wal_level = replica
max_wal_senders = 10
END
	$self->append_conf('postgresql.conf', 'wal_level = logical')
	  if ($params{allows_streaming} // '') eq 'logical';
	if ($preload)
	{
		$self->append_conf('postgresql.conf', <<"END");
shared_preload_libraries = 'outbox'
outbox.broker_uri = '$uri'
END
	}
	$self->append_conf('postgresql.conf', $params{conf})
	  if defined $params{conf};
	return;
}

=pod

=item $node->sql($query, $dbname)

Runs it, dies on an error, returns the output (psql -At: columns separated by
'|', rows by newlines). Database postgres unless named.

=item $node->client($dbname)

A session of one's own, see L<OutboxTest::Client>.

=item $node->sql_fails($query, $dbname)

Runs what should fail; returns the error text, or undef if it succeeded.

=item $node->script($sql, $dbname)

Runs it with psql, whose errors do not end it. Returns output, errors, and whether it
ended well.

=item $node->rows($query, $dbname)

The output as a list of array references.

=cut

sub sql
{
	my ($self, $query, $dbname) = @_;
	return $self->safe_psql($dbname // 'postgres', $query)
	  unless OutboxTest::Client::can_run($query);
	return $self->client($dbname)->query($query);
}

# Each statement has a session of its own, as with psql, unless one is kept.
sub client
{
	my ($self, $dbname) = @_;
	return OutboxTest::Client->connect($self->connstr($dbname // 'postgres'));
}

sub sql_fails
{
	my ($self, $query, $dbname) = @_;

	if (OutboxTest::Client::can_run($query))
	{
		return eval { $self->client($dbname)->query($query); 1 } ? undef : $@;
	}
	my ($out, $err, $ok) = $self->script("\\set ON_ERROR_STOP 1\n$query\n", $dbname);
	return $ok ? undef : $err;
}

# From a file: psql() throws when psql ends before it has read the query.
sub script
{
	my ($self, $sql, $dbname) = @_;
	my $file = $self->basedir . '/script.sql';
	my ($out, $err) = ('', '');

	unlink $file;
	PostgreSQL::Test::Utils::append_to_file($file, $sql);
	my $ok = IPC::Run::run(
		[
			$self->installed_command('psql'), '-XAtq',
			'-d', $self->connstr($dbname // 'postgres'), '-f', $file
		],
		'<', \undef, '>', \$out, '2>', \$err);
	return ($out, $err, $ok);
}

sub rows
{
	my ($self, $query, $dbname) = @_;
	return map { [ split /\|/, $_, -1 ] } split /\n/,
	  $self->sql($query, $dbname);
}

=pod

=item $node->wait_sql($query, $expected, $seconds, $dbname)

Runs the query until it prints $expected (default t), for at most $seconds
(default 30). True if it did; otherwise a failed test with the last output. An
error of the query counts as not yet.

=cut

sub wait_sql
{
	my ($self, $query, $expected, $seconds, $dbname) = @_;
	my $keeps = OutboxTest::Client::can_run($query);
	my ($client, $out, $err);
	$expected //= 't';
	$seconds //= $OutboxTest::Util::TIMEOUT;
	my $end = time + $seconds;
	my $start = time;

	while (1)
	{
		my $asked = time;
		($out, $err) = ('', '');
		eval {
			$client //= $self->client($dbname) if $keeps;
			$out = $client ? $client->query($query) : $self->sql($query, $dbname);
			1;
		} or do { $err = $@; undef $client; };
		return 1 if $err eq '' && $out eq $expected;
		last if time > $end;
		usleep(OutboxTest::Util::pause($start, $asked));
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fail("not \"$expected\" within $seconds s: $query");
	diag "last output: $out\n$err";
	return 0;
}

=pod

=item $node->wait_drained($seconds, $dbname)

Waits until no message is pending or being processed (failed ones may be left).

=cut

sub wait_drained
{
	my ($self, $seconds, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $self->wait_sql(
		q{SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'pending')},
		't', $seconds, $dbname);
}

=pod

=item $node->log_end

The present length of the server log, for the $offset of the next ones.

=item $node->log_text($offset)

The server log from there on.

=item $node->wait_log($regexp, $offset, $seconds)

Waits until the log matches from $offset on. True, or a failed test.

=cut

sub log_end
{
	my ($self) = @_;
	return -s $self->logfile // 0;
}

sub log_text
{
	my ($self, $offset) = @_;
	return PostgreSQL::Test::Utils::slurp_file($self->logfile, $offset // 0);
}

sub wait_log
{
	my ($self, $regexp, $offset, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("log line matching $regexp",
		sub { $self->log_text($offset) =~ $regexp }, $seconds);
}

=pod

=item $node->postmaster_pid

=item OutboxTest::Node::alive($pid)

Whether a process exists and is more than a zombie.

=item $node->backend_pids($type)

Process ids whose backend_type in pg_stat_activity is LIKE $type, by default
'outbox relay%'.

=item $node->worker

The first of those.

=item $node->kill_backends($signal, $type), kill_process($pid)

Sends a signal (default KILL) to them; returns their pids. kill_process sends KILL to one.
After KILL the server restarts all its processes; wait_restarted waits until it has, and
takes connections.

=cut

sub postmaster_pid
{
	my ($self) = @_;
	return $self->{_pid};
}

sub worker
{
	my ($self) = @_;
	return ($self->backend_pids)[0];
}

sub backend_pids
{
	my ($self, $type) = @_;
	$type //= 'outbox relay%';
	return split /\n/,
	  $self->sql(
		"SELECT pid FROM pg_stat_activity WHERE backend_type LIKE '$type' ORDER BY pid"
	  );
}

# A process that every crash of the server ends.
my $CHECKPOINTER = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'};

sub kill_backends
{
	my ($self, $signal, $type) = @_;
	my @pids = $self->backend_pids($type);

	$signal //= 'KILL';
	$self->_note_before_kill if @pids && $signal eq 'KILL';
	kill $signal, @pids if @pids;
	return @pids;
}

sub kill_process
{
	my ($self, $pid) = @_;
	$self->_note_before_kill;
	kill 'KILL', $pid;
	return;
}

# Until the postmaster has seen it, the server goes on as if nothing had happened.
sub _note_before_kill
{
	my ($self) = @_;
	$self->{_before_kill} = $self->sql($CHECKPOINTER);
	return;
}

sub wait_restarted
{
	my ($self, $seconds) = @_;
	my $before = delete $self->{_before_kill};

	return $self->wait_sql("SELECT ($CHECKPOINTER) <> $before", 't', $seconds) if $before;
	return $self->wait_sql('SELECT true', 't', $seconds);
}

=pod

=item $node->crash

Kills the postmaster and all of its children with SIGKILL, as a power cut would,
and waits until they are gone. start brings the cluster back. (kill9, inherited,
kills the postmaster alone and waits for nothing.)

=cut

sub crash
{
	my ($self) = @_;
	my $pid = $self->{_pid} or return;
	my @children;

	# stopped first, so that it cannot start another child
	kill 'STOP', $pid;
	@children = _children_of($pid);
	kill 'KILL', $pid, @children;
	$self->{_pid} = undef;
	wait_until('processes of the crashed server gone',
		sub { !grep { alive($_) } $pid, @children }) or return;

	# Where nobody reaps orphans (process 1 of a container), the dead postmaster
	# stays in the process table and looks alive to the next one.
	unlink $self->data_dir . '/postmaster.pid',
	  $self->host . '/.s.PGSQL.' . $self->port . '.lock'
	  if kill 0, $pid;
	return;
}

sub _children_of
{
	my ($parent) = @_;
	my @children;

	foreach my $file (glob '/proc/[0-9]*/stat')
	{
		open my $fh, '<', $file or next;
		my $stat = <$fh> // next;
		push @children, $1
		  if $stat =~ /^(\d+) \(.*\) \S (\d+) /s && $2 == $parent;
	}
	return @children;
}

sub alive
{
	my ($pid) = @_;
	open my $fh, '<', "/proc/$pid/stat" or return 0;
	my $stat = <$fh> // return 0;
	return $stat !~ /^\d+ \(.*\) [ZX] /s;
}

=pod

=item $node->test_point($order), wait_test_point($point, $meanwhile), test_point_over($next)

"POINT ACTION NTH" for src/base/test_point.h; waits until a process waits there, calling
$meanwhile again and again, and returns its pid; lets it go on, and puts another
order, or none, in the place of one that nobody has come by for.

=item $node->hold_relay, wait_turn

The relay waits at the start of a turn, its inbox not yet taken, until test_point_over.
wait_turn returns when it has gone through a whole turn since: everything that was
committed before is known to it.

=cut

sub test_point
{
	my ($self, $order) = @_;
	my $file = $self->data_dir . '/outbox_test_point';

	PostgreSQL::Test::Utils::append_to_file("$file.new", "$order\n");
	rename "$file.new", $file or die "$file: $!";
	return;
}

sub wait_test_point
{
	my ($self, $point, $meanwhile) = @_;
	my $hit = $self->data_dir . '/outbox_test_point.hit';

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("a process waits at $point",
		sub {
			$meanwhile->() if $meanwhile;
			return -e $hit
			  && PostgreSQL::Test::Utils::slurp_file($hit) =~ /^$point (\d+)$/ ? $1 : 0;
		});
}

sub test_point_over
{
	my ($self, $next) = @_;
	my $file = $self->data_dir . '/outbox_test_point';

	# First the order: no process is to come by in between.
	defined $next ? $self->test_point($next) : unlink $file;
	unlink "$file.hit";
	return;
}

sub hold_relay
{
	my ($self) = @_;

	$self->test_point('turn wait 1');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# The signal wakes it, also where commits do not.
	return $self->wait_test_point('turn', sub { $self->sql('SELECT pg_reload_conf()') });
}

sub wait_turn
{
	my ($self) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach (1, 2)
	{
		$self->hold_relay or return 0;
		$self->test_point_over;
	}
	return 1;
}

=pod

=item $node->session($dbname)

A psql of its own that stays connected: query($sql), query_safe($sql), quit (see
PostgreSQL::Test::BackgroundPsql). For open transactions and locks.

=cut

sub session
{
	my ($self, $dbname, %params) = @_;
	my $session = $self->background_psql($dbname // 'postgres', %params);

	# the time is that of a query, not of the session
	$session->set_query_timer_restart;
	return bless $session, 'OutboxTest::Node::Session';
}

=pod

=item $node->set($setting, $value), unset($setting)

ALTER SYSTEM and reload.

=item $node->workers($dbname), wait_workers($dbname, $n)

How many processes publish for a database.

=item $node->reconnects($dbname)

How often they had to connect anew.

=item $node->relay_lines($offset)

What relay and launcher have logged from there on: lines with LOG.

=item $node->nobody_paid($when)

A test: no attempt of a message was counted, and none has failed.

=item $node->stop_wal_writer

Nothing gets to the disk by itself any more: SIGSTOP, at a moment at which the WAL
writer holds no lock that others need.

=back

=cut

sub workers
{
	my ($self, $dbname) = @_;
	return $self->sql(
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND datname = '$dbname'"
	);
}

sub wait_workers
{
	my ($self, $dbname, $n) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("$n workers in $dbname", sub { $self->workers($dbname) == $n });
}

sub reconnects
{
	my ($self, $dbname) = @_;
	return $self->sql('SELECT coalesce(sum(reconnects), 0) FROM outbox_workers', $dbname);
}

sub relay_lines
{
	my ($self, $offset) = @_;
	return grep { /\] outbox (relay|launcher) LOG:/ } split /\n/, $self->log_text($offset);
}

sub nobody_paid
{
	my ($self, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $self->sql(
			q{SELECT count(*) FILTER (WHERE attempts > 0),
				count(*) FILTER (WHERE status = 'failed') FROM outbox_messages}),
		'0|0',
		"$when: no attempt is counted and no message has failed");
	return;
}

sub stop_wal_writer
{
	my ($self) = @_;
	my $query = q{SELECT pid, wait_event FROM pg_stat_activity WHERE backend_type = 'walwriter'};
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return wait_until('the WAL writer is stopped',
		sub {
			my ($pid) = map { $_->[0] } $self->rows($query) or return 0;
			kill 'STOP', $pid;
			return 1 if ($self->rows($query))[0][1] eq 'WalWriterMain';
			kill 'CONT', $pid;
			return 0;
		});
}

# Makes a trigger that refuses the settling of messages with the SQLSTATE in refuse.code,
# while that is not empty.
sub refuse_settling
{
	my ($self) = @_;

	$self->sql(<<'SQL');
CREATE TABLE refuse (code text);
INSERT INTO refuse VALUES ('');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	c constant text := (SELECT code FROM public.refuse);
BEGIN
	IF c <> '' THEN
		RAISE EXCEPTION 'refused' USING ERRCODE = c;
	END IF;
	RETURN OLD;
END
$$;
CREATE TRIGGER refuse BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse();
SQL
	return;
}

sub set
{
	my ($self, $setting, $value) = @_;
	$value =~ s/'/''/g;
	$self->sql("ALTER SYSTEM SET $setting = '$value'");
	$self->sql('SELECT pg_reload_conf()');
	return;
}

sub unset
{
	my ($self, $setting) = @_;
	$self->sql("ALTER SYSTEM RESET $setting");
	$self->sql('SELECT pg_reload_conf()');
	return;
}

package OutboxTest::Node::Session;

our @ISA = ('PostgreSQL::Test::BackgroundPsql');

# The first minor versions of 16 leave a newline at the end of an answer.
sub query
{
	my ($self, @query) = @_;
	my ($out, $ret) = $self->SUPER::query(@query);

	chomp $out;
	return wantarray ? ($out, $ret) : $out;
}

1;
