package OutboxTest::Checker;

=pod

=head1 NAME

OutboxTest::Checker - the history checker that every fault test ends with

=head1 SYNOPSIS

  my $checker = OutboxTest::Checker->install($node);
  $checker->enqueue(1000, keys => 50, per_tx => 10, rollback => 0.1);
  ... faults ...
  $node->wait_drained;
  $checker->check('after the crash', [ $consumer->stop ],
	  interruptions => 1, window => 1000);

=head1 WHAT IS TRUE

The database itself says what was committed: install creates a table test_sent
(n, id, key), and test_enqueue() writes to it in the transaction that enqueues.
So the two stand or fall together, and n is the order of enqueue. A key must be
written to by one session at a time, or that order means nothing.

=cut

use strict;
use warnings;

use File::Basename ();
use IPC::Run ();
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Util;

my $files = 0;    # of all checkers, as of() makes copies of one

=pod

=over

=item OutboxTest::Checker->install($node, %params)

Creates test_sent and test_enqueue() in the database (dbname => 'postgres').

=cut

sub install
{
	my ($class, $node, %params) = @_;
	my $self = bless {
		node => $node,
		dbname => $params{dbname} // 'postgres',
		file => 0,
		since => time
	}, $class;

	$node->sql(<<'SQL', $self->{dbname});
CREATE SEQUENCE test_sent_n;
CREATE TABLE test_sent (n bigint PRIMARY KEY, id uuid NOT NULL, key text);

/*
 * Enqueues count messages of the aggregates prefix1 .. prefixkeys in turn
 * (keys = 0: without an aggregate), and notes each.
 */
CREATE FUNCTION test_enqueue(count int, keys int DEFAULT 0,
							 prefix text DEFAULT 'k', size int DEFAULT 0,
							 route text DEFAULT 'default',
							 event_type text DEFAULT 'test.event')
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k text;
	sent bigint;
BEGIN
	FOR i IN 1 .. count LOOP
		k := CASE WHEN keys > 0 THEN prefix || (i % keys + 1) END;
		sent := nextval('test_sent_n');
		INSERT INTO test_sent VALUES (sent,
			outbox_enqueue(event_type,
				jsonb_build_object('n', sent, 'pad', repeat('x', size)),
				aggregate_id => k,
				aggregate_type => CASE WHEN keys > 0 THEN 'test' END,
				route => route),
			CASE WHEN route = 'default' THEN k ELSE k || ' ' || route END);
	END LOOP;
END
$$;
SQL
	return $self;
}

=pod

=item $checker->of($node, $dbname)

The checker of a copy (a restored dump, a promoted standby), which has test_sent
and test_enqueue() already.

=item $checker->enqueue($count, %params)

Enqueues about $count messages in one session, and waits for it: keys (default
0), prefix (default k), size (of padding), route, event_type, per_tx (messages a
transaction, default 100), rollback (share of transactions that are rolled back,
default 0; those come on top of $count), pause_ms (between transactions).

=item $checker->load($count, %params)

The same in the background. Returns an object with wait (true if it went
through), running, and stop. An error of the server (a crash, say) ends the
session; what it had committed counts. complaints is what was said of errors, but for those
of a session or a server that has ended.

=item $checker->stop_load($load, $what)

Ends it, and waits until its session is gone. That the producers have noticed nothing
until then is a test, named by $what.

=item $checker->run($statements, %params)

Statements of the test's own in the background, as load() does it; with keep_going
=> 1 a statement that fails does not end them. What psql says of errors is error,
once it has ended.

=cut

sub of
{
	my ($self, $node, $dbname) = @_;
	return bless { %$self, node => $node, dbname => $dbname // 'postgres' },
	  ref $self;
}

sub enqueue
{
	my ($self, $count, %params) = @_;
	my $script = $self->_script($count, %params);
	$self->{node}->sql($script, $self->{dbname});
	return;
}

sub load
{
	my ($self, $count, %params) = @_;
	return $self->run($self->_script($count, %params));
}

sub stop_load
{
	my ($self, $load, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$load->running;
	is($load->error, '', "$what: producers notice nothing");
	$load->stop;
	$self->{node}->wait_sql(
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'},
		1);
	return;
}

sub run
{
	my ($self, $statements, %params) = @_;
	my $load = { out => '' };

	# From a file: nobody would feed a pipe while the test is busy elsewhere.
	my $file =
	    $self->{node}->basedir
	  . "/load_$self->{dbname}_"
	  . ++$files . '.sql';
	PostgreSQL::Test::Utils::append_to_file($file, $statements);
	$load->{file} = $file;
	# A pipe that nobody reads would stop it after some hundred errors.
	$load->{err} = "$file.err";
	$load->{run} = IPC::Run::start(
		[
			$self->{node}->installed_command('psql'), '-XAtq', '-v',
			'ON_ERROR_STOP=' . ($params{keep_going} ? 0 : 1), '-d',
			$self->{node}->connstr($self->{dbname}), '-f', $file
		],
		'<', \undef, '>', \$load->{out}, '2>', $load->{err});
	return bless $load, 'OutboxTest::Checker::Load';
}

sub _script
{
	my ($self, $count, %params) = @_;
	my $per_tx = $params{per_tx} // 100;
	my $rollback = $params{rollback} // 0;
	my $script = "SET client_min_messages = warning;\n";

	while ($count > 0)
	{
		my $n = $count < $per_tx ? $count : $per_tx;
		my $end = rand() < $rollback ? 'ROLLBACK' : 'COMMIT';
		my $args = sprintf "%d, %d, '%s', %d, '%s', '%s'", $n,
		  $params{keys} // 0, $params{prefix} // 'k', $params{size} // 0,
		  $params{route} // 'default', $params{event_type} // 'test.event';

		$script .= sprintf "DO \$\$BEGIN PERFORM pg_sleep(%f); END\$\$;\n",
		  $params{pause_ms} / 1000
		  if $params{pause_ms};
		$script .= "BEGIN;\nDO \$\$BEGIN PERFORM test_enqueue($args); END\$\$;\n"
		  . "$end;\n";
		$count -= $n if $end eq 'COMMIT';
	}
	return $script;
}

=pod

=item $checker->committed

Ids of the committed messages, a hash reference to [n, key].

=cut

sub committed
{
	my ($self) = @_;
	my %sent = map { $_->[1] => [ $_->[0], $_->[2] ] }
	  $self->{node}->rows('SELECT n, id, key FROM test_sent ORDER BY n',
		$self->{dbname});
	return \%sent;
}

=pod

=item $checker->check($name, $records, %params)

One subtest with the invariants of an outbox over the records of a consumer:

  no loss      every committed message was received, or is failed, or is still
               pending (drained => 1, the default: then none may be pending)
  no ghost     every received message was committed
  order        per key, first deliveries ascend, and no message comes after a
               later one of its key; copies that the broker itself delivered
               again (flag redelivered) are no business of ours
  duplicates   copies published beyond the first: at most window (default 1000)
               x interruptions (default 0) in all, and at most one a key (a
               message without a key) and interruption; with rounds => [ends],
               the number of records at each interruption, no more of each round
               came again than window
  failed       at most failed (default 0) messages have that status
  nothing      something was committed

skip_order => 1 leaves the order out (route with ordering 'none'). pipelined => 1 (a route
with that ordering, of which the broker refuses nothing): a key may begin again at any of its messages, at most
once an interruption, and goes on from there without a gap; copies of a key are at most window x
interruptions. late_copies =>
1 allows further copies after later messages of their key: when a broker was
frozen that had bytes of a connection that has been replaced since, it publishes
them when it goes on. Returns what verdict returns.

Where OUTBOX_TEST_SUMMARY names a file, the result is a line in it, for
test/tools/fault-report: checks with the same case (by default $name) are runs
of it, and seconds is by default the time since the check before.

=item $checker->finish($name, $consumer, wait => $seconds, %params)

Waits until the backlog is empty and the consumer has what was committed and has not
failed, stops the consumer, and checks.

=item $checker->check_copies($name, \@published, %params)

check, where the fake broker tells what it did with each copy: only what it acked
counts as received (acked => [...] where it cannot know), and of all copies, answered or not, order and number
have to be right.

=item $checker->verdict($records, %params)

The same without a test: a hash reference with the counts committed, received
(different ids), deliveries, duplicates, redelivered, failed, pending, and a
list of those that break each rule, empty if none does; late counts copies after
a later message of their key, and most is the number of copies of the message that
has the most. The rules: nothing (was committed), lost, left, ghosts, disorder, excess (of duplicates in all), repeated (keys with too many),
too_many_failed.

=back

=cut

sub verdict
{
	my ($self, $records, %params) = @_;
	my $sent = $self->committed;
	my $interruptions = $params{interruptions} // 0;
	my $allowed = $interruptions * ($params{window} // 1000);
	my %status = map { $_->[0] => $_->[1] }
	  $self->{node}->rows('SELECT id, status FROM outbox', $self->{dbname});
	my @failed = grep { $status{$_} eq 'failed' } sort keys %status;
	my %v = (
		committed => scalar keys %$sent,
		deliveries => scalar @$records,
		duplicates => 0,
		redelivered => 0,
		late => 0,
		failed => scalar @failed,
		map { $_ => [] }
		  qw(nothing lost left ghosts disorder excess repeated too_many_failed));
	my (%copies, %newest, %extra_of, %begun_of);
	my %next = $params{pipelined} ? _successors($sent, \@failed) : ();
	my %last;    # of the key
	my (%round_of, @again);    # where a message came last; how many came again
	my @ends = @{ $params{rounds} // [] };
	my $round = 0;

	foreach my $i (0 .. $#$records)
	{
		my $record = $records->[$i];
		$round++ while $round < @ends && $i >= $ends[$round];
		my $id = $record->{id} // '(none)';
		if (!$sent->{$id})
		{
			push @{ $v{ghosts} }, $id;
			next;
		}
		my ($n, $key) = @{ $sent->{$id} };
		if ($record->{redelivered})
		{
			# a copy that the broker had sent before: to us, or to a connection
			# that died with it
			$v{redelivered}++;
			next if exists $copies{$id};
			$copies{$id} = 0;
		}
		elsif ($copies{$id}++)
		{
			$v{duplicates}++;
			$extra_of{ $key ne '' ? "key $key" : "message $n" }++;
			$again[ $round_of{$id} ]++ if defined $round_of{$id};
		}
		$round_of{$id} = $round unless $record->{redelivered};
		next if $key eq '';
		if ($params{pipelined})
		{
			my $last = $last{$key};

			$last{$key} = $id;
			next if ($next{ $last // "first of $key" } // '') eq $id;
			if ($copies{$id} > 1)
			{
				$begun_of{"key $key begun again"}++;
			}
			else
			{
				push @{ $v{disorder} },
				  "key $key: message $n after " . ($last ? $sent->{$last}[0] : 'none');
			}
		}
		elsif (defined $newest{$key} && $n < $newest{$key})
		{
			$v{late}++ if $copies{$id} > 1;
			push @{ $v{disorder} }, "key $key: message $n after $newest{$key}"
			  unless $params{late_copies} && $copies{$id} > 1;
		}
		next if $params{pipelined};
		$newest{$key} = $n
		  if !defined $newest{$key} || $n > $newest{$key};
	}
	$v{received} = keys %copies;
	$v{most} = max(0, values %copies);
	$v{pending} = 0;
	foreach my $id (sort { $sent->{$a}[0] <=> $sent->{$b}[0] } keys %$sent)
	{
		next if exists $copies{$id};
		my $left = $status{$id} // '';
		next if $left eq 'failed';
		$v{pending}++ if $left eq 'pending';
		push @{ $v{ $left eq 'pending' ? 'left' : 'lost' } },
		  "message $sent->{$id}[0] (key '$sent->{$id}[1]', $id)";
	}
	push @{ $v{nothing} }, 'none was committed' unless %$sent;
	$v{left} = [] unless $params{drained} // 1;
	$v{disorder} = [] if $params{skip_order};
	push @{ $v{excess} }, "$v{duplicates}, and $allowed are allowed"
	  if $v{duplicates} > $allowed;
	push @{ $v{excess} }, map { "$again[$_] of round $_, and $params{window} are allowed" }
	  grep { ($again[$_] // 0) > $params{window} } 0 .. $#again
	  if @ends;
	my $each = $params{pipelined} ? $allowed : $interruptions;
	push @{ $v{repeated} }, map { "$_: $extra_of{$_}" }
	  grep { $extra_of{$_} > $each } sort keys %extra_of;
	push @{ $v{repeated} }, map { "$_: $begun_of{$_}" }
	  grep { $begun_of{$_} > $interruptions } sort keys %begun_of;
	push @{ $v{too_many_failed} }, @failed
	  if @failed > ($params{failed} // 0);
	return \%v;
}

# Which message of its key comes after which one.
sub _successors
{
	my ($sent, $failed) = @_;
	my %left_out = map { $_ => 1 } @$failed;
	my (%next, %last);

	foreach my $id (sort { $sent->{$a}[0] <=> $sent->{$b}[0] } keys %$sent)
	{
		my $key = $sent->{$id}[1];
		next if $left_out{$id};
		$next{ $last{$key} // "first of $key" } = $id;
		$last{$key} = $id;
	}
	return %next;
}

sub check
{
	my ($self, $name, $records, %params) = @_;
	my $v = $self->verdict($records, %params);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	subtest $name => sub {
		_none('no message is lost', $v->{lost});
		_none('no message is left pending', $v->{left});
		_none('no message that was not committed', $v->{ghosts});
		_none('order per key', $v->{disorder});
		_none('few duplicates', $v->{excess});
		_none('at most one duplicate a key and interruption',
			$v->{repeated});
		_none('failed messages', $v->{too_many_failed});
		_none('there were messages', $v->{nothing});
		note join ', ', map { "$_ $v->{$_}" }
		  grep { !ref $v->{$_} } sort keys %$v;
	};
	$self->_summarize($params{case} // $name, $v, $params{seconds});
	return $v;
}

sub finish
{
	my ($self, $name, $consumer, %params) = @_;
	my $node = $self->{node};
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->wait_drained(delete $params{wait} // 60);
	$consumer->wait_count(
		$node->sql(q{SELECT count(*) FROM test_sent s WHERE NOT EXISTS
			(SELECT FROM outbox o WHERE o.id = s.id AND status = 'failed')}));
	return $self->check($name, [ $consumer->stop ], case => $name, %params);
}

sub check_copies
{
	my ($self, $name, $published, %params) = @_;
	my $acked = delete $params{acked} // [ grep { $_->{fate} eq 'ack' } @$published ];
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $v = $self->check($name, $acked, %params);
	my $of_all = $self->verdict($published, %params);
	my @rules = qw(disorder ghosts);

	# What the broker refuses is sent again as often as it does so.
	push @rules, qw(excess repeated) unless grep { $_->{fate} =~ /^(nack|return)$/ } @$published;
	is_deeply([ map { @{ $of_all->{$_} } } @rules ],
		[], "$name: order and number of all copies, answered or not");
	return $v;
}

sub _summarize
{
	my ($self, $case, $v, $seconds) = @_;
	$seconds //= time - $self->{since};
	$self->{since} = time;
	return unless $ENV{OUTBOX_TEST_SUMMARY};

	my @counts = ($v->{committed}, @{ $v->{lost} } + @{ $v->{left} },
		scalar @{ $v->{ghosts} }, $v->{duplicates},
		scalar @{ $v->{disorder} }, sprintf '%.1f', $seconds);
	PostgreSQL::Test::Utils::append_to_file($ENV{OUTBOX_TEST_SUMMARY},
		join("\t", File::Basename::basename($0), $case, @counts) . "\n");
	return;
}

sub _none
{
	my ($name, $offenders) = @_;
	my @offenders = @$offenders;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	if (!ok(!@offenders, $name))
	{
		diag scalar(@offenders) . " of them: "
		  . join '; ',
		  @offenders > 5 ? (@offenders[ 0 .. 4 ], '...') : @offenders;
	}
	return;
}

package OutboxTest::Checker::Load;

use OutboxTest::Util;

sub running
{
	my ($self) = @_;
	# IPC::Run would start again what has finished.
	return 0 if $self->{ended};
	eval { $self->{run}->pump_nb };
	return $self->{run}->pumpable;
}

sub wait
{
	my ($self, $seconds) = @_;
	wait_until('load ends', sub { !$self->running }, $seconds // 120);
	eval { $self->{run}->finish };
	$self->{ended} = 1;
	unlink $self->{file};
	return ($self->{run}->result // 1) == 0;
}

sub error { return -e $_[0]{err} ? PostgreSQL::Test::Utils::slurp_file($_[0]{err}) : '' }

sub complaints
{
	my ($self) = @_;
	my $end = qr/terminating connection|the database system is|connection to server/;
	return join "\n", grep { /\b(?:ERROR|FATAL|PANIC):/ && !/$end/ } split /\n/, $self->error;
}

sub stop
{
	my ($self) = @_;
	$self->{run}->kill_kill(grace => 2);
	$self->{ended} = 1;
	unlink $self->{file};
	return;
}

1;
