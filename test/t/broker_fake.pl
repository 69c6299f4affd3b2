# A broker that delays, lies and breaks off, which no real one does on demand:
# confirms in any order settle exactly their messages, a violation of the
# protocol costs the connection and nothing else, and of a channel error one
# message at most is to blame.  doc/dev/fault-cases.md A6, F9, F16 to F18, F24, F31, F32.
#
# OUTBOX_TEST_FULL=1: more rounds, and every stage of the handshake.
#
# suite: test faults
# takes: 92 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $STOP_LIMIT = 5;
my $MB = 1024 * 1024;
my $seed = seed();

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
outbox.confirm_timeout = 20s
END
my $checker = OutboxTest::Checker->install($node);
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange) VALUES ('gone', 'gone');
INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('strict', 'strict', 3);
UPDATE outbox_route SET max_attempts = 1000 WHERE name = 'default';
CREATE FUNCTION test_bytes(size int) RETURNS uuid LANGUAGE sql AS $$
	INSERT INTO test_sent
		SELECT nextval('test_sent_n'),
			outbox_enqueue_bytes('test.bytes', convert_to(repeat('x', size), 'UTF8'))
		RETURNING id
$$;
SQL
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

my $log_mark = 0;

# A case of its own: nothing is left of the one before.
sub begin
{
	my ($what) = @_;

	note "--- $what";
	$fake->do('forget');
	$node->wait_drained;
	$node->sql(
		'DELETE FROM outbox; TRUNCATE test_sent, outbox_archive');
	$fake->begin_case;
	$log_mark = $node->log_end;
	$fake->mark_connections;
	return;
}

# Every case ends here.  Only what was acked and not returned counts as
# received, so that anything settled without that is lost; the order is that of
# all copies.
sub finish
{
	my ($what, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$fake->do('answer ack') unless $params{as_is};
	$node->wait_drained;
	my @all = $fake->of_case;
	# the fake broker does not know of acks that were given as bytes
	$params{acked} = \@all if delete $params{raw_acks};
	return $checker->check_copies($what, \@all,
		case => $what =~ s/^(answer mix) .*/$1/r,
		window => $WINDOW, %params);
}

sub nobody_paid
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $node->sql(
			'SELECT (SELECT count(*) FROM outbox_archive WHERE attempts > 0)
				+ (SELECT count(*) FROM outbox WHERE attempts > 0)'),
		'0',
		"$what: no attempt is counted");
	return;
}

# Leaves what comes on the present connection unanswered, and only that.
sub hold_here
{
	$fake->do('when conn=' . $fake->stats->{connections} . ' : silent');
	return;
}

# The relay's link is up and at rest.
sub settled_down
{
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	return;
}

# --- F16: confirms in any order

begin('confirms by hand');
$fake->do('answer hold');
$checker->enqueue(20);
$fake->wait_case(20);
my %tag = map { $_->{id} => $_->{tag} } $fake->of_case;
my ($base) = sort { $a <=> $b } values %tag;

# Numbers, from 1, of the messages with that many attempts that are left
# (undef: of those that have gone).
sub numbers
{
	my ($attempts) = @_;
	my %left = map { $_->[0] => $_->[1] }
	  $node->rows('SELECT id, attempts FROM outbox');
	return join ' ', sort { $a <=> $b } map { $tag{$_} - $base + 1 } grep {
		defined $attempts
		  ? defined $left{$_} && $left{$_} == $attempts
		  : !defined $left{$_}
	} keys %tag;
}

sub settles
{
	my ($action, $gone, $paid) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$action =~ s/\bT(\d+)/$base + $1 - 1/e;
	$fake->do("now $action");
	wait_until("$action is settled",
		sub { numbers(undef) eq $gone && numbers(1) eq $paid }, 5);
	is(numbers(undef) . ' | ' . numbers(1),
		"$gone | $paid", "$action settles exactly its messages");
	return;
}
settles('ack T12', '12', '');
settles('ack T4 multiple', '1 2 3 4 12', '');
settles('ack T20', '1 2 3 4 12 20', '');
settles('nack T7', '1 2 3 4 12 20', '7');
settles('nack T9 multiple', '1 2 3 4 12 20', '5 6 7 8 9');
settles('ack T8 multiple', '1 2 3 4 12 20', '5 6 7 8 9');
settles('ack T14 multiple', '1 2 3 4 10 11 12 13 14 20', '5 6 7 8 9');
is($fake->reconnects, 0, 'none of it was a reason to reconnect');
$fake->do('answer ack', 'now ack ' . $fake->stats->{tag} . ' multiple');
my $v = finish('confirms by hand');
is($v->{duplicates}, 0, 'and nothing was published twice');

foreach my $answer (
	'reverse 50', 'multiple 37', 'middle 25', "mix 30 $seed",
	'delay 40', ($FULL ? map { "mix $_ $seed" } 2 .. 40 : ()))
{
	begin("answer $answer");
	$fake->do("answer $answer");
	$checker->enqueue(200, keys => 40);
	$checker->enqueue(200);
	$v = finish("answer $answer", as_is => 1);
	# a message that is nacked twice is a reason to reconnect
	is($v->{duplicates} + ($answer =~ /mix/ ? 0 : $fake->reconnects),
		0, "answer $answer: no duplicate, no reconnect");
	nobody_paid("answer $answer") unless $answer =~ /mix/;
}

foreach my $answer ('nack', 'nack-multiple 20', 'nack-middle 20')
{
	begin("answer $answer");
	$fake->do("answer $answer");
	$checker->enqueue(50, keys => 10);
	$checker->enqueue(50);
	$node->wait_sql('SELECT coalesce(min(attempts), 1) > 0 FROM outbox
		WHERE aggregate_id IS NULL');
	$v = finish("answer $answer");
	is($v->{duplicates}, 0, "answer $answer: no duplicate");

	# each message has paid for each of its nacks, and no other
	my %nacks;
	$nacks{ $_->{id} } += $_->{fate} eq 'nack' foreach $fake->of_case;
	my @wrong = grep { $nacks{ $_->[0] } != $_->[1] }
	  $node->rows('SELECT id, attempts FROM outbox_archive');
	is(scalar @wrong, 0, "answer $answer: attempts are the nacks")
	  or diag join "\n", map { "@$_, $nacks{ $_->[0] } nacks" } @wrong;
}

# --- F20: a channel that refuses is replaced.  What is in flight on it is waited for
# while something is acked, however slowly; refusals may take seconds each.

begin('refused again, beside what is acked');
$fake->do('when type=bad : nack');
$checker->enqueue(10);
$node->sql(q{INSERT INTO test_sent SELECT nextval('test_sent_n'), outbox_enqueue('bad', '{}')});
wait_until('another channel', sub { $fake->reconnects > 0 }, 10);
$fake->do('forget');
$v = finish('refused again, beside what is acked');
is($v->{duplicates}, 0, 'refused again: no duplicate');

# Holds so many messages, refuses the first, and answers one of the others each so many
# seconds, until there is a new channel; returns how many have had no answer.
sub answer_slowly
{
	my ($n, $pause, $answer) = @_;

	$fake->do('now fin');
	wait_until('a channel without an ack', sub { $fake->reconnects > 0 });
	settled_down();
	$fake->mark_connections;
	hold_here();
	$checker->enqueue($n);
	$fake->wait_case($n);
	my ($first, @tags) = map { $_->{tag} } $fake->of_case;
	$fake->do("now nack $first");
	# its next attempt is held, too
	$fake->wait_case($n + 1);
	push @tags, map { $_->{tag} } ($fake->of_case)[$n];
	my $next = time + $pause;
	wait_until('another channel', sub {
		if (@tags && time >= $next)
		{
			$fake->do("now $answer " . shift @tags);
			$next = time + $pause;
		}
		return $fake->reconnects > 0;
	}, 25);
	return scalar @tags;
}

begin('refusals that take seconds');
cmp_ok(answer_slowly(10, 1, 'nack'), '>', 0, 'slow refusals: a new channel before all are answered');
finish('refusals that take seconds', interruptions => 1);
begin('another queue that is slow');
is(answer_slowly(3, 2, 'ack'), 0, 'slow acks: a new channel when all are answered');
$v = finish('another queue that is slow');
is($v->{duplicates}, 0, 'slow acks: no duplicate');

# --- F17 and worse: what no broker may say.  The connection is given up; what
# was not confirmed before is sent again.

foreach my $lie (
	'ack-unknown', 'ack-twice', 'nack-twice', 'ack-zero',
	'ack 18446744073709551615', 'ack 18446744073709551615 multiple',
	'return 312 NO_ROUTE id=00000000-0000-7000-8000-000000000000',
	'return 312 NO_ROUTE id=not-a-uuid-at-all-but-just-as-long-as',
	(map { "garbage $_" } qw(bytes end huge method channel body header
		short table)),
	'partial fin', 'partial rst', 'fin', 'rst',
	'raw 0100010000000c003c003c013800000000000000ce')
{
	begin($lie);
	settled_down();
	$fake->do('when total=' . ($fake->stats->{published} + 30)
		  . " times=1 : $lie");
	hold_here();
	$checker->enqueue(20, keys => 20);
	$checker->enqueue(40);
	wait_until("$lie: the connection is given up",
		sub { $fake->reconnects >= 1 && $fake->stats->{open} == 1 }, 10)
	  or diag $node->log_text($log_mark);
	finish($lie, interruptions => 1);
	is($fake->reconnects, 1, "$lie: one reconnect");
	nobody_paid($lie);
	note $node->sql('SELECT last_error FROM outbox_status');
}

# The same with nothing left to be sent: the next tag, and a basic.return
# without its content before an ack of everything.
foreach my $lie (
	[ 'ack-unknown 1' ], [ 'nack 0' ], [ 'ack T multiple', 'ack T' ],
	[ 'raw 01 0001 0000000d 003c 0032 0138 024e4f 0178 0179 ce',
		'ack-zero multiple' ])
{
	my $what = join ', ', @$lie;
	begin($what);
	settled_down();
	hold_here();
	$checker->enqueue(10);
	$fake->wait_case(10);
	my $last = $fake->stats->{tag};
	$fake->do(map { 'now ' . s/T/$last/r } @$lie);
	$fake->wait_reconnects(1, 5);
	finish($what, interruptions => 1);
	nobody_paid($what);
}

# A frame of no known type, and an ack of everything, in one segment: librabbitmq
# 0.11 passes the first over, 0.18 gives the connection up.
begin('garbage type');
settled_down();
hold_here();
$checker->enqueue(10);
$fake->wait_case(10);
$fake->do('now raw 63 0000 00000004 77686174 ce 01 0001 0000000d 003c 0050 '
	  . sprintf('%016x', $fake->stats->{tag}) . ' 01 ce');
finish('garbage type', interruptions => 1, raw_acks => 1);
nobody_paid('garbage type');

# --- F18: no confirm ever comes, heartbeats do

begin('no confirm ever comes');
$node->set('outbox.heartbeat', '1s');
$fake->wait_reconnects(1);
$node->set('outbox.confirm_timeout', '1s');
$fake->do('answer none');
$checker->enqueue(20, keys => 20);
$checker->enqueue(20);
$fake->wait_reconnects(2, 10);
like($node->log_text($log_mark), qr/was not confirmed within/,
	'the log tells why the connection is given up');
like($node->sql('SELECT last_error FROM outbox_status'),
	qr/confirm_timeout/, 'and so does outbox_status');
nobody_paid('no confirm ever comes');
cmp_ok($fake->reconnects, '<=', 5, 'there is no storm of reconnects');
finish('no confirm ever comes', interruptions => $fake->reconnects);
nobody_paid('no confirm ever comes, in the end');

# Time in which the broker blocks does not count.
begin('blocked for longer than the confirm timeout');
settled_down();
$fake->do('answer hold');
$checker->enqueue(20);
$fake->wait_case(20);
$fake->do('now blocked low on memory');
$node->wait_sql('SELECT state FROM outbox_status', 'blocked');
like($node->sql('SELECT last_error FROM outbox_status'),
	qr/low on memory/, 'the broker\'s words are shown');
my $start = time;
$checker->enqueue(30);
wait_until('blocked long enough', sub { time - $start > 2.5 });
is(scalar(() = $fake->of_case), 20, 'nothing is sent while blocked');
is($fake->reconnects, 0, 'and the connection is kept');
$fake->do('now unblocked');
wait_until('a moment later', sub { time - $start > 3 });
is($fake->reconnects, 0, 'nor is it given up when the broker no longer blocks');
$fake->do('answer ack', 'now ack ' . $fake->stats->{tag} . ' multiple');
finish('blocked for longer than the confirm timeout', interruptions => 0);
nobody_paid('blocked');
$node->unset('outbox.confirm_timeout');
$fake->mark_connections;
$node->unset('outbox.heartbeat');
$fake->wait_reconnects(1);

# --- F24: what the broker may ask for

my $before = $fake->stats->{violations};
foreach my $tune (
	'frame_max=0', 'frame_max=4096', 'frame_max=8192',
	'frame_max=2147483648', 'frame_max=4294967295', 'channel_max=0',
	'heartbeat=0', 'heartbeat=1', 'heartbeat=65535')
{
	my $frame = $tune =~ /frame_max=(4096|8192)/ ? $1 : 131072;

	begin("tune $tune");
	settled_down();
	$fake->do("tune $tune", 'now fin');
	$fake->wait_reconnects(1);
	my @sizes = (
		0, 1, $frame - 9, $frame - 8, $frame - 7, 3 * ($frame - 8), $MB);
	my %size;
	@size{ split /\n/, $node->sql(join '', map { "SELECT test_bytes($_);" } @sizes) } = @sizes;
	$checker->enqueue(20, keys => 5);
	finish("tune $tune", interruptions => 1, as_is => 1);
	is_deeply({ map { $_->{id} => $_->{size} }
			grep { exists $size{ $_->{id} } } $fake->of_case },
		\%size, "tune $tune: bodies around the frame size arrive whole");
	my $stats = $fake->stats;
	note "negotiated: frame_max $stats->{frame_max}, heartbeat $stats->{heartbeat}";
}
is($fake->stats->{violations}, $before, 'the relay keeps to what was agreed');

# Less than the protocol allows: refused, or (librabbitmq does so) not obeyed.
foreach my $tune ('frame_max=1', 'frame_max=7', 'channel_max=1')
{
	begin("tune $tune");
	settled_down();
	$fake->do("tune $tune", 'now fin');
	$checker->enqueue(5);
	$node->wait_sql(
		q{SELECT last_error ~ 'frames of only|number of channels'
				OR backlog = 0 FROM outbox_status});
	note $node->sql('SELECT state, last_error FROM outbox_status');
	$fake->do('tune frame_max=131072 channel_max=2047');
	finish("tune $tune", interruptions => 0);
	nobody_paid("tune $tune");
}

# --- A6: a handshake that stops at some stage.  The relay tries again, and a
# stop of the server does not wait for it.

foreach my $stage (qw(connect start-ok open channel confirm declare))
{
	next unless $FULL || $stage =~ /^(connect|open|declare)$/;
	begin("silent at $stage");
	settled_down();
	$fake->do("stage $stage : silent", 'now fin');
	$checker->enqueue(5);
	$fake->wait_event(qr/^stage \d+ $stage /);
	$start = time;
	$node->stop('fast');
	my $took = time - $start;
	cmp_ok($took, '<', $STOP_LIMIT, "stop while silent at $stage");
	note sprintf 'stopped in %.2f s', $took;
	$fake->do('forget');
	$node->start;
	finish("stop while silent at $stage");

	next unless $FULL || $stage eq 'connect';
	begin("silent at $stage, once");
	settled_down();
	$fake->do("stage $stage times=1 : silent", 'now fin');
	$checker->enqueue(5);
	$start = time;
	finish("silent at $stage, once", interruptions => 0);
	note sprintf 'delivered after %.2f s', time - $start;
	nobody_paid("silent at $stage");
	$fake->forget_events;
}

# --- the handshake is refused, or ends otherwise

foreach my $refusal (
	[ 'start-ok', 'connection-close 403 "ACCESS_REFUSED - no"', 'login was refused.*ACCESS_REFUSED' ],
	[ 'open', 'connection-close 530 "NOT_ALLOWED - vhost"', 'NOT_ALLOWED' ],
	[ 'channel', 'connection-close 530 "NOT_ALLOWED - channels"', 'NOT_ALLOWED' ],
	[ 'confirm', 'channel-close 540 NOT_IMPLEMENTED', 'NOT_IMPLEMENTED' ],
	[ 'connect', 'fin', '' ], [ 'start-ok', 'rst', '' ],
	[ 'open', 'garbage bytes', '' ], [ 'channel', 'partial fin', '' ],
	[ 'declare', 'rst', '' ])
{
	my ($stage, $action, $text) = @$refusal;
	begin("$stage: $action");
	settled_down();
	$fake->do("stage $stage : $action", 'now fin');
	$checker->enqueue(5);
	$node->wait_sql(qq{SELECT state IN ('broker down', 'connecting', 'publishing')
		AND last_error ~ '$text' FROM outbox_status});
	$fake->wait_reconnects(2);
	note $node->sql('SELECT last_error FROM outbox_status');
	$fake->do('forget');
	finish("$stage: $action", interruptions => 0);
	nobody_paid("$stage: $action");
}

# --- the broker closes the connection in the midst of it

foreach my $code ('320 CONNECTION_FORCED', '501 FRAME_ERROR',
	'505 UNEXPECTED_FRAME', '541 INTERNAL_ERROR')
{
	begin("connection.close $code");
	settled_down();
	$fake->do('answer multiple 10',
		'when total=' . ($fake->stats->{published} + 50)
		  . " times=1 : connection-close $code");
	$checker->enqueue(60, keys => 60);
	$checker->enqueue(60);
	$fake->wait_reconnects(1);
	finish("connection.close $code", interruptions => 1, as_is => 1);
	is($fake->reconnects, 1, "connection.close $code: one reconnect");
	like($node->log_text($log_mark), qr/closed the connection: \Q${\($code =~ s,\d+ ,,r)}\E/,
		"connection.close $code: the broker's words are in the log");
	nobody_paid("connection.close $code");
}

# --- a channel error names no culprit

begin('406 for one message');
settled_down();
$fake->do('answer multiple 10',
	'when type=poison : channel-close 406 "PRECONDITION_FAILED - too large"');
$checker->enqueue(60, keys => 60, route => 'strict');
$checker->enqueue(1, route => 'strict', event_type => 'poison');
$checker->enqueue(60, route => 'strict');
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'failed'}, '1');
finish('406 for one message', interruptions => $fake->reconnects, failed => 1);
is($node->sql('SELECT event_type, attempts FROM outbox'),
	'poison|3', 'the guilty one has used up its attempts');
like($node->sql('SELECT last_error FROM outbox'),
	qr/PRECONDITION_FAILED - too large/, 'with the broker\'s words');
is($node->sql('SELECT count(*) FROM outbox_archive WHERE attempts > 0'),
	'0', 'and nobody else has paid');
cmp_ok($fake->reconnects, '<=', 6, 'two connections an attempt at most');
note $fake->reconnects . ' reconnects';

begin('406 for one message of a key');
settled_down();
$fake->do('when type=poison : channel-close 406 "PRECONDITION_FAILED - no"');
$checker->enqueue(30, keys => 1, route => 'strict');
$checker->enqueue(1, keys => 1, route => 'strict', event_type => 'poison');
$checker->enqueue(30, keys => 1, route => 'strict');
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'failed'}, '1');
finish('406 for one message of a key', interruptions => $fake->reconnects,
	failed => 1);

begin('541 once, and nobody is guilty');
settled_down();
$fake->do('when total=' . ($fake->stats->{published} + 30)
	  . ' times=1 : channel-close 541 INTERNAL_ERROR');
hold_here();
$checker->enqueue(60);
$fake->wait_reconnects(1);
finish('541 once', interruptions => 1);
nobody_paid('541 once');

foreach my $code ('404 "NOT_FOUND - no exchange gone"',
	'403 "ACCESS_REFUSED - gone"')
{
	foreach my $how ("when exchange=gone : channel-close $code",
		"stage declare exchange=gone : channel-close $code")
	{
		begin($how);
		settled_down();
		$fake->do($how, 'now fin');
		$checker->enqueue(30, keys => 5, prefix => 'gone', route => 'gone');
		$checker->enqueue(100, keys => 30);
		$checker->enqueue(100);
		wait_until('the other route flows',
			sub { 200 == grep { $_->{fate} eq 'ack' } $fake->of_case });
		$node->wait_sql(
			q{SELECT string_agg(DISTINCT route, ' ') FROM outbox}, 'gone');
		$node->wait_sql(q{SELECT last_error ~
			'route "gone".*(NOT_FOUND|ACCESS_REFUSED)' FROM outbox_status});
		nobody_paid($how);
		is($node->sql('SELECT count(*) FROM outbox'), '30',
			'all of its messages wait');
		my $n = $fake->reconnects;
		$fake->do('forget');
		finish($how, interruptions => $n + 1);
		nobody_paid("$how, in the end");
		note "$n reconnects";
	}
}

# --- F9: many routes that nobody may write to, and one that works.  Each 403 closes the
# connection, and says which route it was.

my $BROKEN = 50;
my $DELAY_LIMIT = 10;

# As many routes of that name, to whose exchanges the broker does this, a message each.
sub enqueue_to_broken
{
	my ($name, $action) = @_;
	$node->sql(qq{INSERT INTO outbox_route (name, exchange)
		SELECT '$name' || i, '$name' || i FROM generate_series(1, $BROKEN) i});
	$fake->do(map { sprintf $action, "$name$_" } 1 .. $BROKEN);
	$fake->forget_events;
	$node->sql(qq{SELECT outbox_enqueue('$name', '{}', route => '$name' || i)
		FROM generate_series(1, $BROKEN) i});
	return;
}

begin('403 on many routes');
settled_down();
$node->set("outbox.retry_$_", '60s') foreach qw(initial max);
enqueue_to_broken('shut', 'when exchange=%s : channel-close 403 ACCESS_REFUSED');
$start = time;
$checker->enqueue(1);
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE route = 'default'}, 0, 60);
cmp_ok(time - $start, '<', $DELAY_LIMIT,
	'403 on many routes: a message of another route does not wait for them');
note sprintf '%.2f s, %d reconnects', time - $start, $fake->reconnects;
$fake->wait_reconnects($BROKEN, 60);
nobody_paid('403 on many routes');
# ... in company, and alone.
cmp_ok($fake->reconnects, '<=', 2 * $BROKEN,
	'403 on many routes: each is tried twice at most, and then has its own backoff');
$node->sql(q{DELETE FROM outbox WHERE route ~ '^shut'});
$node->sql(q{DELETE FROM outbox_route WHERE name ~ '^shut'});
$node->unset("outbox.retry_$_") foreach qw(initial max);

# --- exchanges that are missing, many at once.  Each refusal closes the channel.

begin('many missing exchanges');
settled_down();
$node->set("outbox.retry_$_", '300ms') foreach qw(initial max);
enqueue_to_broken('lost', 'stage declare exchange=%s : channel-close 404 NOT_FOUND');
my $refusal = qr/^stage \d+ declare channel-close/;
$fake->wait_event($refusal, $BROKEN);
my $refused = () = $fake->events($refusal);
my $asked = () = $fake->events(qr/^declare /);
cmp_ok($asked, '<=', 17 * $refused,
	'a missing exchange costs 16 declarations more at most');
note "$asked declarations, $refused refused";

# On a new connection those that it has refused come last.
$node->sql('SELECT outbox_pause()');
$checker->enqueue(1);
$fake->do('now fin');
$fake->wait_reconnects(1);
$start = time;
wait_until('their backoff is over', sub { time - $start > 0.5 });
$fake->forget_events;
$node->sql('SELECT outbox_resume()');
$fake->wait_event($refusal);
like(($fake->events(qr/^declare /))[0], qr/^declare \d+ outbox$/,
	'an exchange that was refused is declared after those that were not');
$node->sql(q{DELETE FROM outbox WHERE route ~ '^lost'});
$node->wait_drained;
$node->sql(q{DELETE FROM outbox_route WHERE name ~ '^lost'});
$node->set('outbox.retry_initial', '20ms');
$node->set('outbox.retry_max', '100ms');

# --- the connection is lost while many are declared

begin('lost while declaring');
settled_down();
enqueue_to_broken('slow', 'stage declare exchange=%s : slow 400');
$fake->wait_event(qr/^declare \d+ slow/, 16);
$fake->do('now rst');
$fake->wait_reconnects(1);
$start = time;
$checker->enqueue(1);
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE route = 'default'}, 0);
$node->wait_sql(q{SELECT count(*) FROM outbox}, 0);
cmp_ok(time - $start, '<', $DELAY_LIMIT,
	'one exchange goes alone after a connection was lost, and not all that were asked');
note sprintf '%.2f s', time - $start;
nobody_paid('lost while declaring');
$node->sql(q{DELETE FROM outbox_route WHERE name ~ '^slow'});

# --- F31: our own close is not answered

begin('close-ok never comes');
settled_down();
$fake->do('stage close : silent');
$checker->enqueue(5);
settled_down();
$start = time;
$node->set('outbox.heartbeat', '5s');
$fake->wait_reconnects(1);
cmp_ok(time - $start, '<', 4, 'a close that is not answered is bounded');
$start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', $STOP_LIMIT, 'also when the server stops');
$node->start;
$fake->do('when total=' . ($fake->stats->{published} + 10)
	  . ' times=1 : channel-close 406 no');
hold_here();
$checker->enqueue(20);
$fake->wait_reconnects(3, 10);
finish('close-ok never comes', interruptions => 1);
nobody_paid('close-ok never comes');
$fake->mark_connections;
$node->unset('outbox.heartbeat');
$fake->wait_reconnects(1);

# --- F32: a large returned body in small frames, with others between

sub resident_kb
{
	my ($pid) = $node->backend_pids;
	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : 0;
}

my $resident;
foreach my $options (
	'', 'body=8388608', 'body=8388608 frame=4096 split',
	'body=8388608 frame=65536 split between=heartbeat',
	'body=8388608 frame=65536 split between=ack',
	'body=2000000 frame=20000 between=blocked',
	'body=0 split', 'then=nack')
{
	begin("return $options");
	settled_down();
	$fake->do('answer delay 300', 'when type=unroutable times=1 : '
		. "return 312 NO_ROUTE $options");
	$checker->enqueue(20, keys => 20);
	$checker->enqueue(1, event_type => 'unroutable');
	$checker->enqueue(20);
	$v = finish("return $options", as_is => 1);
	is($v->{duplicates} + $fake->reconnects, 0,
		"return $options: no duplicate, no reconnect");
	is($node->sql(
			"SELECT string_agg(event_type || ' ' || attempts, ', ')
				FROM outbox_archive WHERE attempts > 0"),
		'unroutable 1', "return $options: it was an attempt of that message");
	$resident //= resident_kb() if $options =~ /8388608/;
}
cmp_ok(resident_kb() - $resident, '<', 16 * 1024,
	'the memory for returned bodies is not kept');
note "$resident kB after the first, " . resident_kb() . ' kB in the end';

# ---

unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:/,
	'the server survives all of it');
done_testing();
