# Applications that were written for Debezium write into the view outboxevent, unchanged: the
# Quarkus extension with its defaults, and Spring Data JPA with the entity of Debezium's
# examples. Our workers publish.
#
# builds: test/clients/debezium/quarkus test/clients/debezium/spring
# takes: 40 s

use strict;
use warnings;

use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Clients;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, conf => $OutboxTest::Clients::CONF);
$rabbit->amqp(queue => 'orders');
$node->sql($_) foreach
  q{UPDATE outbox_route SET exchange = '', exchange_type = NULL, routing_key = 'orders' WHERE name = 'default'},
  'CREATE ROLE shop LOGIN',
  'CREATE TABLE purchase_order (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL)',
  'GRANT SELECT, INSERT ON purchase_order TO shop',
  'GRANT INSERT, SELECT, UPDATE, DELETE ON outboxevent TO shop';



# What both programs do: see the head of Main.java.
sub orders
{
	my ($name, $folder) = @_;

	subtest $name => sub {
		my $why = OutboxTest::Clients::missing($folder);
		plan skip_all => $why if $why;

		$node->sql('TRUNCATE purchase_order');
		my $out = OutboxTest::Clients::run($node, $folder, env => { PGUSER => 'shop' });
		like($out, qr/^rolled back: the business says no$/m, 'a transaction that has fired events is rolled back');
		is($node->sql('SELECT count(*) FROM purchase_order'), 103, 'the others are committed');
		$node->wait_drained;
		my @got = $rabbit->get('orders', 200);
		is(scalar @got, 103, 'as many messages as orders');

		my %order = map { $_->[0] => $_->[1] } $node->rows('SELECT id, customer FROM purchase_order');
		my @wrong = grep {
			my $payload = eval { JSON::PP->new->decode($_->{body}) } // {};
			my $is = $order{ $payload->{id} // 0 } // '';

			utf8::decode($is) unless utf8::is_utf8($is);
			$payload->{customer} ne $is || $_->{type} ne 'order.created' || $_->{content_type} ne 'application/json'
			  || $_->{message_id} !~ /^[0-9a-f-]{36}$/ || $_->{headers}{aggregate_type} ne 'order'
			  || $_->{headers}{aggregate_id} ne $payload->{id};
		} @got;
		is(scalar @wrong, 0, 'each says what its order is') or diag explain $wrong[0];
		is(join(' ', map { JSON::PP->new->decode($_->{body})->{id} } @got), join(' ', sort { $a <=> $b } keys %order), 'in the order in which they were fired');
		my @traced = grep { ($_->{headers}{traceparent} // '') =~ /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/ } @got;
		is(scalar @traced, $name =~ /Quarkus/ ? 103 : 0, 'the trace context is a header, where there is one');
	
	
	};
	return;
}

orders('the Quarkus extension, with its defaults' => 'test/clients/debezium/quarkus');
orders('Spring Data JPA, with the entity of the examples' => 'test/clients/debezium/spring');
done_testing();
