# What a round claims, at its edges: rows that others have locked, very many of
# them, keys that have no room in memory, a round that fails while it reads a
# backlog.  The order of keys holds, nothing is forgotten, and the relay is idle
# when it can do nothing.
#
# suite: test core faults
# takes: 33 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time sleep);
use IPC::Run;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $WINDOW = 10;
# A claim lists so many rows beyond its own when it looks for locked ones.
my $LISTED = 1000 + 2 * $WINDOW;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.window = $WINDOW");
my $first;

# A case starts with the relay paused and an empty table.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$fake->do('forget');
	$node->wait_drained;
	$node->sql('SELECT outbox_pause()');
	$node->wait_sql('SELECT state FROM outbox_status', 'paused');
	$first = $fake->published;
	return;
}

# Messages of these keys, one each, whose type is $type.
sub enqueue
{
	my ($type, $keys) = @_;

	$node->sql(qq{SELECT count(outbox_enqueue('$type', '{}', aggregate_type => 'case', aggregate_id => k::text))
		FROM unnest($keys) WITH ORDINALITY u (k, i)});
	return;
}

# What was published in this case, as [type, key].
sub published
{
	my @all = $fake->published;
	return map { [ $_->{type}, $_->{aggregate_id} ] } @all[ $first .. $#all ];
}

# Published when everything before it was looked at, as it has no key.
sub wait_marker
{
	my ($seconds) = @_;

	$node->sql(q{SELECT outbox_enqueue('marker', '{}')});
	return wait_until('a marker is published',
		sub { grep { $_->[0] eq 'marker' } published() }, $seconds // 20);
}

sub relay_pid
{
	my ($pid) = $node->backend_pids('outbox relay%');
	return $pid;
}

# Share of a processor that the relay uses in the next two seconds.
sub cpu_share
{
	my $pid = relay_pid();
	my $ticks = sub {
		my @stat = split ' ', slurp_file("/proc/$pid/stat") =~ s/.*\) //sr;
		return $stat[11] + $stat[12];
	};
	my $before = $ticks->();
	my $at = time;
	sleep 2;
	return ($ticks->() - $before) / 100 / (time - $at);
}

# --- somebody has locked more rows than a claim lists

my $MANY = $LISTED + 200;
begin("$MANY locked rows");
enqueue('one', "ARRAY(SELECT generate_series(1, $MANY))");
my $session = $node->session;
$session->query_safe('BEGIN');
$session->query_safe('SELECT count(*) FROM (SELECT FROM outbox FOR UPDATE) o');
enqueue('two', "ARRAY(SELECT generate_series(1, $MANY))");
$node->sql('SELECT outbox_resume()');
wait_marker(40);
# Time to do it wrong.
$node->wait_turn foreach 1 .. 2;
is(scalar(grep { $_->[0] ne 'marker' } published()),
	0, 'locked rows: no message overtakes an older one of its key');
$session->query_safe('ROLLBACK');
$session->quit;
ok($node->wait_drained(90), 'locked rows: everything goes on');
my (%last, $wrong);
is(scalar(grep { $_->[0] ne 'marker' } published()), 2 * $MANY, 'locked rows: all of them');
foreach my $message (published())
{
	my ($type, $key) = @$message;
	next if $type eq 'marker';
	$wrong++ if $type ne ($last{$key} ? 'two' : 'one');
	$last{$key} = $type;
}
is($wrong // 0, 0, 'locked rows: in order');

# --- keys to be read again, and no room for their rows

begin('no room for waiting messages');
$fake->do('answer none');
# One key has its head in flight; the other one takes all the room.
enqueue('busy', 'ARRAY[1] || array_fill(2, ARRAY[30]) || ARRAY[1, 1]');
$node->sql('SELECT outbox_resume()');
wait_until('both heads are in flight', sub { published() == 2 }, 20);
sleep 1;
my $xid = $node->sql('SELECT pg_current_xact_id()');
sleep 2;
my $used = $node->sql('SELECT pg_current_xact_id()') - $xid;
note "the relay made $used transactions in two seconds while the broker was silent";
cmp_ok($used, '<', 40, 'no room: the relay waits, and does not claim in vain');
$fake->do('answer ack');
$fake->do('now rst');
ok($node->wait_drained(60), 'no room: everything goes on');
is_deeply(
	[ (grep { $_->[1] eq '1' } published())[ -2, -1 ] ],
	[ [ 'busy', '1' ], [ 'busy', '1' ] ],
	'no room: the other key, too');

# --- a round fails that has extended the backlog

begin('a failed round');
enqueue('old', 'array_fill(1, ARRAY[100])');
# It takes their numbers with each turn, also while it is paused.
$node->wait_turn;
enqueue('new', 'array_fill(1, ARRAY[3])');
$node->test_point('after_claim wait 1');
$node->sql('SELECT outbox_resume()');
$node->wait_test_point('after_claim');
my ($out, $err) = ('', '');
my $delete = IPC::Run::start(
	[
		$node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'),
		'-c', "DELETE FROM outbox WHERE event_type = 'new'"
	],
	'<', \undef, '>', \$out, '2>', \$err);
$node->wait_sql(q{SELECT count(*) > 0 FROM pg_stat_activity
	WHERE wait_event_type = 'Lock' AND query LIKE 'DELETE%'});
$node->sql('SELECT pg_cancel_backend(' . relay_pid() . ')');
$node->test_point_over;
ok($delete->finish, 'a failed round: rows that it had claimed are deleted');
ok($node->wait_drained(60), 'a failed round: the rest is published');
is(scalar(published()), 100, 'a failed round: all of it');
my $share = cpu_share();
note sprintf 'the relay then uses %.1f %% of a processor', 100 * $share;
cmp_ok($share, '<', 0.3, 'a failed round: the relay is idle afterwards');

# --- a lock is given up, and the poll is far away

begin('a lock is given up');
enqueue('locked', 'ARRAY[1, 1]');
$node->set('outbox.poll_interval', '60s');
$session = $node->session;
$session->query_safe('BEGIN');
$session->query_safe('SELECT FROM outbox ORDER BY seq LIMIT 1 FOR UPDATE');
$node->sql('SELECT outbox_resume()');
wait_marker();
is(scalar(published()), 1, 'a lock: its key waits');
$session->query_safe('ROLLBACK');
$session->quit;
my $at = time;
ok($node->wait_drained(30), 'a lock: its key goes on');
cmp_ok(time - $at, '<', 10, 'a lock: it does not wait for the poll');

$node->unset('outbox.poll_interval');

# --- new rows that fill a claim with their bytes

begin('large rows beside a backlog');
enqueue('small', 'array_fill(1, ARRAY[100])');
$node->wait_turn;
$node->sql(q{SELECT outbox_enqueue_bytes('large', convert_to(repeat('x', 2500000), 'UTF8'))
	FROM generate_series(1, 8)});
$node->sql('SELECT outbox_resume()');
ok($node->wait_drained(60), 'large rows: drained');
my @types = map { $_->[0] } published();
my ($small) = grep { $types[$_] eq 'small' } 0 .. $#types;
my ($large) = grep { $types[$_] eq 'large' } reverse 0 .. $#types;
cmp_ok($small, '<', $large, 'large rows: the backlog has its share of each claim');

# --- a transaction that commits late, inside of the backlog, with a key of its own

my $OLD = 3000;
begin('a late commit inside of a backlog');
enqueue('old', "ARRAY(SELECT generate_series(1, $OLD))");
$node->wait_turn;
$session = $node->session;
$session->query_safe('BEGIN');
$session->query_safe(q{SELECT outbox_enqueue('late', '{}', aggregate_type => 'case', aggregate_id => 'late')});
# This one must wait for the backlog, which now reaches over the other.
enqueue('new', "ARRAY[$OLD]");
$fake->do('answer delay 20');
$node->sql('SELECT outbox_resume()');
wait_until('the backlog is being read', sub { published() > 100 }, 30);
$session->query_safe('COMMIT');
$session->quit;
$fake->do('answer delay 5');
ok($node->wait_drained(90), 'late commit: drained');
@types = map { $_->[0] } published();
my ($late) = grep { $types[$_] eq 'late' } 0 .. $#types;
note "the late one came as number $late of $#types";
cmp_ok($late, '<', $OLD / 2, 'late commit: it does not wait for the backlog');
my ($new) = grep { $types[$_] eq 'new' } 0 .. $#types;
cmp_ok($new, '>', $OLD - 1, 'late commit: a key of the backlog does');

# --- very many keys are held by a failed message with another one behind it, and one of them is let go

my $HELD = 40_000;
begin('held keys');
$node->sql('SELECT outbox_resume()');
$node->sql(q{INSERT INTO outbox_route (name, exchange, on_failed) VALUES ('blocking', 'outbox', 'block')});
$node->sql(qq{INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, route, status)
	SELECT 'held', '{}', 'held', i::text, 'blocking', 'failed' FROM generate_series(1, $HELD) i});
$node->sql(qq{INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, route)
	SELECT 'behind', '{}', 'held', i::text, 'blocking' FROM generate_series(1, $HELD) i});
# Until each of them was claimed once, and given up.
$node->append_conf('postgresql.conf', 'outbox.window = 1000');
$node->sql('SELECT outbox_worker_restart()');
wait_marker(60);
my @let_go;
my $took = best_of(2, sub {
	my $key = $node->sql(q{DELETE FROM outbox WHERE seq = (SELECT min(seq) FROM outbox WHERE status = 'failed') RETURNING aggregate_id});
	$at = time;
	push @let_go, $key;
	wait_until("held keys: the message behind $key goes out", sub { grep { $_->[0] eq 'behind' && $_->[1] eq $key } published() }, 20);
	return time - $at;
});
is(join(' ', map { $_->[1] } grep { $_->[0] eq 'behind' } published()), "@let_go", 'held keys: what is behind others waits');
cmp_ok($took, '<', 2, sprintf 'held keys: looking at all of them does not take long (%.2f s)', $took);

$node->stop;
done_testing();
