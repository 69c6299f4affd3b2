# Debezium Server and our workers under the same load, in turns on the same machine: rate, time
# from the commit to the consumer, processor time, memory, losses.  OUTBOX_TEST_FULL=1: ten
# minutes of each; else so short that the figures say nothing.
#
# builds: test/clients/debezium/server
# takes: 60 s

use strict;
use warnings;

use IPC::Run ();
use POSIX ();
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Clients;
use OutboxTest::Consumer;
use OutboxTest::Debezium;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $missing = OutboxTest::Debezium->missing;
plan skip_all => $missing if $missing;

my ($RATE, $TURNS, $SECONDS) = $ENV{OUTBOX_TEST_FULL} ? (500, 5, 120) : (200, 1, 10);
my %QUEUE = (workers => 'workers', cdc => 'outbox');

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, conf => $OutboxTest::Debezium::CONF);
my @COMMA = (',');
$rabbit->amqp(exchange => 'workers', 'topic', @COMMA, exchange => 'outbox', 'topic', @COMMA,
	exchange => 'debezium-heartbeat.outbox', 'fanout', @COMMA,
	queue => 'workers', @COMMA, bind => 'workers', 'workers', @COMMA,
	queue => 'outbox', @COMMA, bind => 'outbox', 'outbox');
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('workers', 'workers')});
OutboxTest::Debezium->setup($node);
my $debezium = OutboxTest::Debezium->start($node, $rabbit);
my %consumer = map { $_ => OutboxTest::Consumer->start($rabbit, queue => $QUEUE{$_}, passive => 1, id_header => 'id', body => 1) } keys %QUEUE;

# --- what processes have used

# Seconds of processor time of a process, and of its children that have ended.
sub processor
{
	my ($pid) = @_;
	my @fields = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;
	my $ticks = 0;

	$ticks += $_ foreach @fields[ 11 .. 14 ];
	return $ticks / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# All of the server: the postmaster, who has inherited what has ended, and who is there.
sub server_processor
{
	my $sum = processor($node->postmaster_pid);
	my $children = slurp_file(sprintf '/proc/%d/task/%d/children', ($node->postmaster_pid) x 2);

	$sum += eval { processor($_) } // 0 foreach split / /, $children;
	return $sum;
}

sub kilobytes
{
	my ($pid, $what) = @_;
	my ($kilobytes) = slurp_file("/proc/$pid/status") =~ /^$what:\s+(\d+) kB/m;
	return $kilobytes;
}

my $worker = $node->worker;
my $sender = $node->sql(q{SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'});

sub used
{
	return { server => server_processor(), worker => processor($worker), sender => processor($sender), java => processor($debezium->pid) };
}

# --- turns

my %sum = map { $_ => { committed => 0, seconds => 0, lags => [], lost => 0 } } keys %QUEUE;
my $file = $node->basedir . '/committed';

sub turn
{
	my ($route, $seconds) = @_;
	my ($out, $before, $begin) = ('', used(), time);
	my $seen = $consumer{$route}->unique;

	unlink $file;
	IPC::Run::run([ 'test/clients/debezium/load', $node->connstr('postgres'), $route, $RATE, $seconds, $file ], '<', \undef, '>&', \$out)
	  or die "load: $out\n";
	my %committed = map { split / / } split /\n/, slurp_file($file);
	$consumer{$route}->wait_count($seen + keys %committed, 120);
	my $elapsed = time - $begin;
	my $after = used();
	return { committed => \%committed, seconds => $elapsed, used => { map { $_ => $after->{$_} - $before->{$_} } keys %$after } };
}

sub add
{
	my ($route, $turn) = @_;
	my %came;
	my $sum = $sum{$route};

	$came{ $_->{id} } //= $_->{us} foreach $consumer{$route}->records;
	foreach my $id (keys %{ $turn->{committed} })
	{
		if (defined $came{$id}) { push @{ $sum->{lags} }, ($came{$id} - $turn->{committed}{$id}) / 1000 }
		else { $sum->{lost}++ }
	}
	$sum->{committed} += keys %{ $turn->{committed} };
	$sum->{seconds} += $turn->{seconds};
	$sum->{used}{$_} += $turn->{used}{$_} foreach keys %{ $turn->{used} };
	return;
}

# Java compiles what it uses often.
turn($_, 5) foreach qw(cdc workers);
foreach my $i (1 .. $TURNS)
{
	add($_, turn($_, $SECONDS)) foreach $i % 2 ? qw(cdc workers) : qw(workers cdc);
}

# --- figures

foreach my $route (sort keys %sum)
{
	is($sum{$route}{lost}, 0, "$route: none of $sum{$route}{committed} is lost");
}

sub microseconds
{
	my ($route, @who) = @_;
	my $seconds = 0;

	$seconds += $sum{$route}{used}{$_} foreach @who;
	return sprintf '%.0f us', 1e6 * $seconds / $sum{$route}{committed};
}

my %lags = map { $_ => [ sort { $a <=> $b } @{ $sum{$_}{lags} } ] } keys %sum;
my @lines = (
	[ '', 'our workers', 'Debezium Server' ],
	[ ('---') x 3 ],
	[ 'messages', map { $sum{$_}{committed} } qw(workers cdc) ],
	[ 'messages/s, as offered', map { sprintf '%.0f', $sum{$_}{committed} / $sum{$_}{seconds} } qw(workers cdc) ],
	[ 'commit to consumer, median', map { sprintf '%.1f ms', percentile(50, @{ $lags{$_} }) } qw(workers cdc) ],
	[ '... 99 %', map { sprintf '%.1f ms', percentile(99, @{ $lags{$_} }) } qw(workers cdc) ],
	[ '... longest', map { sprintf '%.0f ms', $lags{$_}[-1] } qw(workers cdc) ],
	[ 'lost', map { $sum{$_}{lost} } qw(workers cdc) ],
	[ 'processor time a message: who publishes', microseconds('workers', 'worker'), microseconds('cdc', 'sender', 'java') ],
	[ '... and all of PostgreSQL with it, the producers\' sessions, too', microseconds('workers', 'server'), microseconds('cdc', 'server', 'java') ],
	[ 'memory of its own (anonymous)', map { sprintf '%.0f MB', kilobytes($_, 'RssAnon') / 1024 } $worker, $debezium->pid ],
	[ 'of one processor, in the other\'s turn', map { sprintf '%.1f %%', 100 * $_ }
		$sum{cdc}{used}{worker} / $sum{cdc}{seconds}, ($sum{workers}{used}{java} + $sum{workers}{used}{sender}) / $sum{workers}{seconds} ]);
my $table = join '', map { '| ' . join(' | ', @$_) . " |\n" } @lines;
OutboxTest::Clients::result('debezium_load', "$TURNS turns of $SECONDS s each at $RATE messages/s\n$table");
note $table;
done_testing();
