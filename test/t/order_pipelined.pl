# Keys of a route with ordering = 'pipelined' (doc/delivery.md, Pipelined keys): in
# flight together, what a refusal stops and who pays for it, and what a lost connection
# or a crash sends again.
#
# suite: test core faults
# takes: 20 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $WINDOW = 20;
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 1s
outbox.retry_max = 1s
END
my $checker = OutboxTest::Checker->install($node);

$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange, ordering, max_attempts, on_failed) VALUES
	('default', 'outbox', 'pipelined', 10, 'skip'),
	('block', 'block', 'pipelined', 1, 'block'),
	('skip', 'skip', 'pipelined', 1, 'skip')
ON CONFLICT (name) DO UPDATE SET ordering = 'pipelined'
SQL
$node->wait_drained;

# Messages of one key, of these types, in one transaction.
sub enqueue
{
	my ($types, $route) = @_;

	$route //= 'default';
	return $node->sql(qq{SELECT count(outbox_enqueue(t, '{}', aggregate_type => 'case', aggregate_id => 'k', route => '$route'))
		FROM unnest(string_to_array('$types', ' ')) t});
}

sub types { return join ' ', $fake->types }

# --- together

$fake->begin_case('together');
$fake->do('answer hold');
enqueue('a1 a2 a3 a4 a5');
$fake->wait_case(5);
is(types(), 'a1 a2 a3 a4 a5', 'five messages of a key are in flight, and none is confirmed');
enqueue('a6');
$fake->wait_case(6);
is(types(), 'a1 a2 a3 a4 a5 a6', '... and the next one joins');
my @tags = map { $_->{tag} } $fake->of_case;
$fake->do("now ack $tags[1]", "now ack $tags[3]");
$node->wait_sql('SELECT in_flight FROM outbox_workers', 6);
is($node->sql('SELECT count(*) FROM outbox'),
	6, 'what is confirmed behind one that is not keeps its row');

# --- a lost connection

$fake->do('now rst');
$fake->wait_case(12);
is(types(), join(' ', ('a1 a2 a3 a4 a5 a6') x 2),
	'a lost connection: the key goes again from the first unconfirmed message on, confirmed ones behind it too');
$fake->release;
$node->wait_drained;

# --- a nack in the middle

$fake->begin_case('nack');
$fake->do('when type=b2 times=1 : nack', 'when type=b4 times=1 : nack');
enqueue('b1 b2 b3 b4 b5');
$node->wait_sql(q{SELECT attempts FROM outbox WHERE event_type = 'b2'}, 1);
is($node->sql(q{SELECT last_error ~ 'later messages of its key that were in flight: 3' FROM outbox WHERE event_type = 'b2'}),
	't', 'a nack: last_error has the number of those that were in flight behind it');
enqueue('b6');
$node->wait_drained;
is(types(), 'b1 b2 b3 b4 b5 b2 b4 b6', '... the key stops, and goes on in order behind it');
is($node->sql(q{SELECT string_agg(event_type || attempts, ' ' ORDER BY seq) FROM outbox_archive WHERE event_type LIKE 'b%'}),
	'b10 b21 b30 b40 b50 b60', '... what is refused behind it costs no attempt');

# --- a return in the middle, of a route that blocks

$fake->begin_case('return');
$fake->do('when type=c2 times=1 : return 312 NO_ROUTE');
enqueue('c1 c2 c3', 'block');
$node->wait_sql(q{SELECT status FROM outbox WHERE event_type = 'c2'}, 'failed');
enqueue('c4', 'block');
enqueue('else');
$fake->wait_type('else');
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE event_type <> 'c2'}, 1);
is(types(), 'c1 c2 c3 else', 'a return: what was in flight is settled, and the failed one holds the rest');
is($node->sql(q{SELECT behind FROM outbox_held_keys}), 1, '... as outbox_held_keys says');
$node->sql(q{SELECT outbox_requeue(id) FROM outbox WHERE status = 'failed'});
$node->wait_drained;
is(types(), 'c1 c2 c3 else c2 c4', '... until it is requeued');

# --- all are refused

$fake->begin_case('all');
$fake->do('when exchange=skip : return 312 NO_ROUTE');
$node->sql(q{SELECT count(outbox_enqueue('d', '{}', aggregate_type => 'case', aggregate_id => 'k', route => 'skip')) FROM generate_series(1, 40)});
$node->wait_sql(q{SELECT count(*) FROM outbox WHERE event_type = 'd' AND status = 'failed'}, 40);
my @refused = $fake->of_case;
cmp_ok(scalar @refused, '<=', 40 + 2 * $WINDOW,
	'when all are refused, each attempt does not send a window');
$node->sql(q{SELECT outbox_discard(id) FROM outbox});

# --- ordering = 'key', and back, under way

$fake->do('forget');
$fake->begin_case('change');
$fake->do('answer hold');
enqueue('e1 e2');
$fake->wait_case(2);
$node->sql(q{UPDATE outbox_route SET ordering = 'key' WHERE name = 'default'});
enqueue('e3 e4');
$node->sql(q{SELECT outbox_enqueue('other', '{}')});
$fake->wait_type('other');
is(types(), 'e1 e2 other', q{ordering = 'key': the next one waits for all that are in flight});
@tags = map { $_->{tag} } $fake->of_case;
$fake->do("now ack $tags[0]", "now ack $tags[1]");
$fake->wait_type('e3');
is(types(), 'e1 e2 other e3', '... and then they go one at a time');
$node->sql(q{UPDATE outbox_route SET ordering = 'pipelined' WHERE name = 'default'});
enqueue('e5');
@tags = map { $_->{tag} } $fake->of_case;
$fake->do("now ack $tags[3]");
$fake->wait_type('e5');
is(types(), 'e1 e2 other e3 e4 e5', q{ordering = 'pipelined': together again});
$fake->release;
$node->wait_drained;

# --- under load, with connections that are lost and a server that crashes

$fake->do('forget', 'answer mix 7 ' . seed());
$node->sql('TRUNCATE outbox');
my $INTERRUPTIONS = 4;
my $before = $fake->published;
my @breaks = map { $before + $_ * 300 } 1 .. 3;
$fake->do('answer reverse 7', map { "when total=$_ times=1 : rst" } @breaks);
my $load = $checker->load(2000, keys => 3, per_tx => 5);
wait_until('the last break', sub { $fake->published >= $breaks[-1] });
ok($load->wait, 'the producer has noticed nothing');
$checker->enqueue(500, keys => 3, per_tx => 50);
$node->crash;
$node->start;
$node->wait_drained;
my @all = $fake->published;
my %of_load = map { $_ => 1 } keys %{ $checker->committed };
my @published = grep { $of_load{ $_->{id} } } @all;
$checker->check('all copies: a key begins again, and has no gap', \@published,
	pipelined => 1, window => $WINDOW, interruptions => $INTERRUPTIONS,
	case => "ordering = 'pipelined'");
my $v = $checker->verdict([ grep { $_->{fate} eq 'ack' } @published ],
	skip_order => 1, pipelined => 1, window => $WINDOW, interruptions => $INTERRUPTIONS);
is_deeply([ map { @{ $v->{$_} } } qw(lost left ghosts) ], [], '... and each is confirmed');
$v = $checker->verdict([ @published[ 0 .. 9, 11 .. $#published ] ],
	pipelined => 1, window => $WINDOW, interruptions => $INTERRUPTIONS);
isnt(scalar @{ $v->{disorder} }, 0, '... a gap would be seen');

$node->stop;
$fake->stop;
done_testing();
