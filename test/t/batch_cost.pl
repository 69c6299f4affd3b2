# What a row of outbox_enqueue_batch() costs, compared with what one would write by
# hand: INSERT ... SELECT from jsonb_to_recordset(), by the same role, of the same
# rows, in turn.
#
# suite: faults alone (times are compared)
# takes: 10 s

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Node;
use OutboxTest::Util;

my $ROWS = 1000;
my $ROUNDS = 40;
my $WARM = 5;
# Measured 1.0; the target is 1.3.
my $MAX = 1.3;

my $node = OutboxTest::Node->create(conf => <<'END');
outbox.enabled = off
autovacuum = off
END
$node->sql(<<"SQL");
CREATE ROLE app;
GRANT INSERT ON outbox TO app;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_batch TO app;
CREATE TABLE documents AS SELECT jsonb_agg(jsonb_build_object('event_type', 'order.created',
	'aggregate_type', 'order', 'aggregate_id', i::text,
	'payload', jsonb_build_object('order_id', i, 'text', repeat('x', 200)))) AS messages
FROM generate_series(1, $ROWS) i;
GRANT SELECT ON documents TO app;
SQL
my %statement = (
	batch => 'SELECT count(*) FROM outbox_enqueue_batch((SELECT messages FROM documents))',
	recordset => 'INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id)
		SELECT r.event_type, r.payload, r.aggregate_type, r.aggregate_id
		FROM jsonb_to_recordset((SELECT messages FROM documents))
			r(event_type text, payload jsonb, aggregate_type text, aggregate_id text)',
	single => q{SELECT count(outbox_enqueue(m->>'event_type', m->'payload', m->>'aggregate_type', m->>'aggregate_id'))
		FROM documents, jsonb_array_elements(messages) m});
my $session = $node->client;
$session->query('SET ROLE app');

my %seconds;
foreach my $round (1 .. $WARM + $ROUNDS)
{
	foreach my $way (sort keys %statement)
	{
		my $began = time;
		my $rows = $session->query($statement{$way});
		push @{ $seconds{$way} }, time - $began if $round > $WARM;
		die "$way: $rows rows\n" unless $way eq 'recordset' || $rows == $ROWS;
	}
	$node->sql('TRUNCATE outbox') if $round % 5 == 0;
}
my %us = map { $_ => 1e6 * median(@{ $seconds{$_} }) / $ROWS } keys %seconds;
note sprintf '%s: %.2f us a row', $_, $us{$_} foreach sort keys %us;
note sprintf 'batch / recordset %.3f, batch / single %.3f', $us{batch} / $us{recordset},
  $us{batch} / $us{single};
cmp_ok($us{batch} / $us{recordset}, '<=', $MAX, 'a batch costs what the INSERT by hand does');
cmp_ok($us{batch}, '<', $us{single}, 'and less than a call for each');
done_testing();
