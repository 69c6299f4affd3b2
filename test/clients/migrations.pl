# Databases that other products' own code has filled, and goes on filling through the cut-over: each
# message that they have not sent arrives once, in order (doc/migrations.md). The relay of each
# product sends the first ones before.
#
# builds: test/clients/migrations/django test/clients/migrations/node test/clients/migrations/go test/clients/migrations/rust
# takes: 20 s

use strict;
use warnings;

use IPC::Run ();
use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Clients;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, extension => 0, conf => $OutboxTest::Clients::CONF);

sub program
{
	my ($db, $language, @args) = @_;
	return OutboxTest::Clients::run($node, "test/clients/migrations/$language", args => \@args, dbname => $db);
}

sub script
{
	my ($db, $file, %variables) = @_;
	my ($out, $err) = ('', '');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ok = IPC::Run::run(
		[
			$node->installed_command('psql'), '-XAtq', '-d', $node->connstr($db),
			(map { ('-v', "$_=$variables{$_}") } sort keys %variables), '-f', "examples/migrations/$file.sql"
		],
		'<', \undef, '>', \$out, '2>', \$err);

	ok($ok, "$db: $file.sql") or diag $err;
	chomp $out;
	return $out;
}

# product => [ program, how it is told to the scripts, its queue ]
my %products = (
	django => [
		'django', 'polling',
		{
			old_table => 'published', id_type => 'uuid', ready => 'status IN (1, -1)', sent => 'status = 2', unsent => 'status = 1',
			position => 'added', created_at => 'added', type => "regexp_replace(destination, '^.*/', '')", payload => 'body',
			headers => 'headers', aggregate_type => "'shop'", aggregate_id => "'one'"
		}
	],
	pg_transactional_outbox => [
		'node', 'polling',
		{
			old_table => 'transactional_outbox', id_type => 'uuid', ready => 'processed_at IS NULL AND abandoned_at IS NULL',
			position => 'created_at', type => 'message_type', headers => 'metadata'
		}
	],
	# what was sent is an offset of a consumer
	watermill => [
		'go', 'polling',
		{
			# [watermill]
			old_table => 'watermill_orders', id => 'offset', deletes => 1, type => "'order.created'", headers => 'metadata',
			ready => q{NOT EXISTS (SELECT FROM watermill_offsets_orders f WHERE f.consumer_group = ''
				AND (f.last_processed_transaction_id, f.offset_acked) >= (o.transaction_id, o."offset"))},
			position => 'ARRAY[o.transaction_id::text::bigint, o."offset"]', aggregate_type => "'shop'", aggregate_id => "'one'"
			# [/watermill]
		}
	],
	pgmq => [ 'rust', 'pgmq', { queue => 'orders', aggregate_type => "'shop'", aggregate_id => "'one'" } ]);
my %queue_of = (pgmq => 'orders');

foreach my $product (sort keys %products)
{
	my ($language, $script, $variables) = @{ $products{$product} };
	my $queue = $queue_of{$product} // $product;
	my $migration = "outbox_from_$script";

	$node->sql("CREATE DATABASE $product");
	program($product, $language, 'write', 1, 40);
	my %sent = map { $_ => 1 } program($product, $language, 'relay', 10) =~ /^sent (-?\d+)$/gm;
	cmp_ok(scalar(keys %sent), '>=', 10, "$product: its own relay has sent some");

	$node->sql('CREATE EXTENSION outbox', $product);
	$rabbit->amqp('exchange', 'outbox', 'topic', ',', 'queue', $queue, ',', 'bind', $queue, 'outbox', '#');
	script($product, $script, %$variables);
	is($node->sql("SELECT count(*) FROM $migration.pending", $product), 40 - keys %sent, "$product: the others are to be sent");
	is($node->sql("SELECT * FROM $migration.refused()", $product), '', "$product: none of them is refused");
	script($product, 'move', migration => $migration, chunk => 7);
	program($product, $language, 'write', 41, 45);
	script($product, 'cut-over', migration => $migration);
	program($product, $language, 'write', 46, 60);
	program($product, $language, 'later', 61) if $product eq 'pgmq';
	like(script($product, 'check', migration => $migration), qr/^0\|\d+\|.*\|0$/, "$product: nothing left, nothing missing");
	is($node->sql('SELECT count(*) FROM outbox WHERE available_at > now()', $product), $product eq 'pgmq' ? 1 : 0, "$product: what is due later");
	$node->wait_sql('SELECT count(*) = 0 FROM outbox WHERE available_at IS NULL', 't', undef, $product);
	my @messages = $rabbit->get($queue, 1000);
	my @numbers = map { JSON::PP::decode_json($_->{body})->{n} } @messages;
	my @due = grep { !$sent{$_} } 1 .. 60;

	# Node's events have three keys.
	@numbers = sort { $a <=> $b } @numbers if $product eq 'pg_transactional_outbox';
	is("@numbers", "@due", "$product: each once, in order");
	is($node->sql("SELECT count(*) FROM $migration.moved WHERE message_id::text NOT IN ('" . join("', '", map { $_->{message_id} } @messages) . "')", $product),
		$product eq 'pgmq' ? 1 : 0, "$product: with their ids");
	$rabbit->amqp('unbind', $queue, 'outbox', '#');
}

# pgmq's own functions on the way out
$node->sql(q{SELECT outbox_pause(); SELECT outbox_enqueue('back', jsonb_build_object('n', n), 'order', '7') FROM generate_series(1, 5) n;
	DROP SCHEMA outbox_from_pgmq CASCADE}, 'pgmq');
script('pgmq', 'leave-pgmq', queue => 'orders');
is(join(' ', program('pgmq', 'rust', 'relay', 5) =~ /^sent (\d+)$/gm), '1 2 3 4 5', 'pgmq: out again, read by its client');

done_testing();
