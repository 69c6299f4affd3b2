# Debezium Server, as examples/debezium has it, publishes a route out of the write-ahead log
# while our workers publish another: what is on the wire of both; crashes of each server
# under load; how the slot follows when only other tables change; a route that changes hands.
#
# builds: test/clients/debezium/server
# takes: 150 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Clients;
use OutboxTest::Consumer;
use OutboxTest::Debezium;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $missing = OutboxTest::Debezium->missing;
plan skip_all => $missing if $missing;

# An exchange with a topic for each event type for both, bound to a queue each.
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, conf => $OutboxTest::Debezium::CONF);
my $checker = OutboxTest::Checker->install($node);
my @COMMA = (',');
$rabbit->amqp(exchange => 'workers', 'topic', @COMMA, exchange => 'outbox', 'topic', @COMMA,
	exchange => 'debezium-heartbeat.outbox', 'fanout', @COMMA,
	queue => 'workers', @COMMA, bind => 'workers', 'workers', @COMMA,
	queue => 'outbox', @COMMA, bind => 'outbox', 'outbox');
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('workers', 'workers')});
OutboxTest::Debezium->setup($node);

# What is committed before it has ever run is not lost.
$node->sql(q{SELECT outbox_enqueue('order.early', '{"id": 1}', 'order', '41', route => 'cdc')});
is($node->sql('SELECT count(*) FROM outbox'), 0, 'no row is left, and nobody has read it yet');
my $debezium = OutboxTest::Debezium->start($node, $rabbit, env => { DEBEZIUM_SOURCE_HEARTBEAT_INTERVAL_MS => 1000 });

sub taken
{
	my ($queue, $count) = @_;
	wait_until("$count messages in $queue", sub { $rabbit->depth($queue) >= $count });
	return $rabbit->get($queue, $count + 1);
}

my ($early) = taken('outbox', 1);
is($early->{body}, '{"id": 1}', 'what was there before it was');

# --- on the wire

# Arguments of outbox_enqueue(), without the route.
my @MESSAGES = (
	[ object => q{'order.created', '{"id": 42, "total": 99.90}', 'order', '42', '{"tenant": "eu", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}', properties => '{"priority": 5}'} ],
	[ numbers => q{'order.numbers', '[1e400, 12345678901234567890.123456789, -0.0, 9007199254740993, 1.50]', 'order', '42'} ],
	[ unicode => q{'order.unicode', '{"Größe": "\u20ac \ud83d\ude00 \t\" \\\\ \u00e9", "nichts": null}', 'Bestellung', 'Ä/1 "x"'} ],
	[ string => q{'order.string', '"plain"'} ],
	[ null => q{'order.null', 'null', 'order', '43'} ],
	[ 'no key' => q{'order.nokey', '{}'} ],
	[ large => q{'order.large', jsonb_build_object('pad', repeat('€', 1000000)), 'order', '44'} ]);

sub on_the_wire
{
	my ($queue, $route) = @_;
	my @ids = map { $node->sql("SELECT outbox_enqueue($_->[1], route => '$route')") } @MESSAGES;
	my @got = taken($queue, scalar @MESSAGES);

	is(scalar @got, scalar @MESSAGES, "$queue: as many as were enqueued");
	return { ids => \@ids, got => \@got };
}

my ($workers, $log) = (on_the_wire('workers', 'workers'), on_the_wire('outbox', 'cdc'));
foreach my $i (0 .. $#MESSAGES)
{
	my ($name, $ours, $theirs) = ($MESSAGES[$i][0], $workers->{got}[$i], $log->{got}[$i]);
	my %headers = %{ $theirs->{headers} };

	ok($theirs->{body} eq $ours->{body}, "$name: the same body") or diag explain [ $ours, $theirs ];
	is($theirs->{routing_key}, $ours->{routing_key}, "$name: the same routing key");
	is(delete $headers{id}, $log->{ids}[$i], "$name: the id is a header");
	is(delete $headers{event_type}, $ours->{type}, "$name: ... the event type, too");
	delete $headers{headers};
	is_deeply(\%headers, { map { $_ => $ours->{headers}{$_} } grep { exists $ours->{headers}{$_} } qw(aggregate_type aggregate_id) },
		"$name: ... and the aggregate") or diag explain $ours;
}
is($log->{got}[0]{headers}{headers}, '{"tenant": "eu", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
	'its own headers are one, in JSON');

# One line each of what a consumer sees of the first of them.
sub wire_table
{
	my %of = (workers => $workers->{got}[0], log => $log->{got}[0]);
	my %flat = map { my $m = $of{$_}; $_ => { %$m, headers => undef, map { ("header `$_`" => $m->{headers}{$_}) } keys %{ $m->{headers} } } } keys %of;
	my %seen = map { $_ => 1 } map { my $f = $_; grep { defined $f->{$_} } keys %$f } values %flat;
	delete @seen{qw(exchange redelivered headers)};
	my @lines = map { my $what = $_; [ $what, map { value($flat{$_}{$what}, $_) } qw(workers log) ] }
	  sort { ($a =~ /^header/ ? 1 : 0) <=> ($b =~ /^header/ ? 1 : 0) || $a cmp $b } keys %seen;
	return join '', map { '| ' . join(' | ', @$_) . " |\n" } [ '', 'our workers', 'Debezium Server' ], [ ('---') x 3 ], @lines;
}

sub value
{
	my ($value, $who) = @_;
	my $id = ($who eq 'workers' ? $workers : $log)->{ids}[0];

	return '-' unless defined $value;
	return 'the id' if $value eq $id;
	return 'seconds of `created_at`' if $value =~ /^1\d{9}$/;
	return "`$value`";
}

page(wire => wire_table());

# --- what it does with what does not suit

subtest 'a body, and a message that no queue wants' => sub {
	$node->sql(q{INSERT INTO outbox (event_type, body, route) VALUES ('order.bytes', '\x00ff', 'cdc')});
	my ($message) = taken('outbox', 1);
	is($message->{body}, 'default', 'a body is not in the column of the payload: a word of its own is published instead');

	# It does not publish as mandatory, and the broker confirms what it throws away.
	$rabbit->amqp(unbind => 'outbox', 'outbox', @COMMA, bind => 'outbox', 'outbox', 'order.after');
	$node->sql("SELECT outbox_enqueue('order.$_', '{}', route => 'cdc')") foreach qw(unroutable after);
	my @got = taken('outbox', 1);
	$rabbit->amqp(unbind => 'outbox', 'outbox', 'order.after', @COMMA, bind => 'outbox', 'outbox');
	$node->sql(q{SELECT outbox_enqueue('order.next', '{}', route => 'cdc')});
	push @got, taken('outbox', 1);
	is(join(' ', map { $_->{routing_key} } @got), 'order.after order.next', 'a message that no queue wants is lost');
};

# --- crashes under load

my @loads;
my $round = 0;

# Two producers for each of them, with keys of their own, and one transaction in ten rolled back.
sub begin_loads
{
	$round++;
	@loads = map {
		my $route = $_;
		map { $checker->load(100_000, keys => $_, prefix => "$route-$round-$_-", route => $route, per_tx => 3,
				rollback => 0.1, pause_ms => 10) } 0, 7
	} qw(cdc workers);
	return;
}

sub end_loads
{
	$_->stop foreach splice @loads;
	return;
}

subtest 'crashes' => sub {
	my %consumer = map { $_ => OutboxTest::Consumer->start($rabbit, queue => $_, passive => 1, id_header => 'id') } qw(workers outbox);
	my $flows = sub { $consumer{outbox}->wait_flow($_[0], 200) };

	begin_loads();
	$flows->('at first');
	foreach my $i (1 .. 2)
	{
		is($debezium->kill9, 137, "kill -9 of Debezium, $i");
		$debezium->start_again;
		$debezium->wait_reading;
		$flows->("kill $i");
	}
	end_loads();

	begin_loads();
	$flows->('before the crash of the server');
	$node->stop('immediate');
	end_loads();
	$node->start;
	begin_loads();
	$debezium->wait_reading;
	$flows->('after the crash of the server');
	note 'Debezium ended by itself: ' . $debezium->keep;

	$rabbit->kill9;
	$rabbit->restart;
	$debezium->wait_reading;
	$flows->('after the crash of the broker');
	note 'Debezium ended by itself: ' . $debezium->keep;
	end_loads();

	$node->wait_drained(60);
	my $count = $node->sql(q{SELECT count(*) FROM test_sent});
	wait_until('everything has come', sub { $consumer{workers}->unique + $consumer{outbox}->unique >= $count }, 60);
	my %records = map { $_ => [ $consumer{$_}->stop ] } keys %consumer;
	my $v = $checker->verdict([ @{ $records{workers} }, @{ $records{outbox} } ], late_copies => 1);

	is(join('; ', @{ $v->{$_} }[0 .. ($#{ $v->{$_} } > 5 ? 5 : $#{ $v->{$_} })]), '', $_) foreach qw(lost left ghosts disorder);
	my %again;
	foreach my $queue (sort keys %records)
	{
		my $route = $queue eq 'workers' ? 'workers' : 'cdc';
		is(scalar(grep { defined $_->{aggregate_id} && $_->{aggregate_id} !~ /^$route-/ } @{ $records{$queue} }), 0,
			"$queue: nothing of the other route");
		my %seen;
		$again{$queue} = grep { !$_->{redelivered} && $seen{ $_->{id} }++ } @{ $records{$queue} };
	}
	my $said = sprintf 'committed %d, delivered %d; again: workers %d, Debezium %d', $v->{committed}, $v->{deliveries}, @again{qw(workers outbox)};
	note $said;
	OutboxTest::Clients::result('debezium', "$said\n");
};

# --- the log of others

subtest 'the slot follows when only other tables change' => sub {
	my $slot = q{FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'};

	$node->sql('CREATE TABLE other (t text)');
	my $begin = $node->sql('SELECT pg_current_wal_lsn()');
	foreach my $round (1 .. 3)
	{
		my $goal = $node->sql('SELECT pg_current_wal_lsn()');
		wait_until("the log may be removed up to $goal", sub {
				$node->sql('INSERT INTO other SELECT repeat(md5(i::text), 20) FROM generate_series(1, 2000) i');
				$node->sql('CHECKPOINT');
				$node->sql("SELECT restart_lsn >= '$goal' $slot") eq 't';
			}, 60) or diag $node->sql("SELECT restart_lsn, confirmed_flush_lsn $slot");
	}
	note 'log written meanwhile, and kept: ' . $node->sql("SELECT pg_current_wal_lsn() - '$begin', pg_current_wal_lsn() - restart_lsn $slot");
	is($rabbit->depth('outbox'), 0, 'and no heartbeat is among the messages');
};

# --- a route changes hands

subtest 'from our workers to Debezium, and back' => sub {
	my %consumer = map { $_ => OutboxTest::Consumer->start($rabbit, queue => $_, passive => 1, id_header => 'id') } qw(workers outbox);
	$node->sql(q{TRUNCATE test_sent});
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('moving', 'workers')});
	my @producers = map {
		$checker->run($checker->_script(100_000, keys => 5, prefix => "moving$_-", route => 'moving', per_tx => 2, rollback => 0.1, pause_ms => 5),
			keep_going => 1)
	} 1 .. 3;

	$consumer{workers}->wait_flow('by our workers', 200);
	$node->sql(q{UPDATE outbox_route SET enqueue_roles = '{}' WHERE name = 'moving'});
	$node->wait_sql(q{SELECT backlog + scheduled + failed FROM outbox_routes_status WHERE route = 'moving'}, 0);
	$node->sql(q{UPDATE outbox_route SET relay = 'cdc', slot = 'outbox_cdc', enqueue_roles = NULL WHERE name = 'moving'});
	$consumer{outbox}->wait_flow('by Debezium', 200);

	$node->sql(q{UPDATE outbox_route SET enqueue_roles = '{}' WHERE name = 'moving'});
	my $end = $node->sql('SELECT pg_current_wal_lsn()');
	$node->wait_sql("SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'", 't', 60);
	my $there = $consumer{outbox}->unique;
	$node->sql(q{UPDATE outbox_route SET relay = 'internal', slot = NULL, enqueue_roles = NULL WHERE name = 'moving'});
	$consumer{workers}->wait_flow('by our workers again', 200);
	$_->stop foreach @producers;
	$node->wait_drained(60);
	my $count = $node->sql('SELECT count(*) FROM test_sent');
	wait_until('everything has come', sub { $consumer{workers}->unique + $consumer{outbox}->unique >= $count }, 60);
	is($consumer{outbox}->unique, $there, 'what Debezium had to publish was out before the workers began');

	# As they came, from both.
	my @records = sort { $a->{us} <=> $b->{us} } map { $_->stop } values %consumer;
	my $v = $checker->verdict(\@records);
	is(join('; ', @{ $v->{$_} }), '', $_) foreach qw(lost left ghosts disorder);
	is($v->{duplicates}, 0, "none of $v->{committed} twice");
};

# --- bodies

subtest 'a second one for bodies' => sub {
	is($debezium->stop, 143, 'it ends by SIGTERM');
	$node->sql($_) foreach q{CREATE PUBLICATION outbox_cdc_bytes FOR TABLE outbox (id, event_type, aggregate_type, aggregate_id, body, headers)
		WHERE (route = 'cdc-bytes') WITH (publish = 'insert')},
	  q{SELECT pg_create_logical_replication_slot('outbox_cdc_bytes', 'pgoutput')},
	  q{INSERT INTO outbox_route (name, exchange, relay, slot) VALUES ('cdc-bytes', '', 'cdc', 'outbox_cdc_bytes')};
	my $bytes = OutboxTest::Debezium->start($node, $rabbit,
		slot => 'outbox_cdc_bytes',
		env => {
			DEBEZIUM_SOURCE_SLOT_NAME => 'outbox_cdc_bytes',
			DEBEZIUM_SOURCE_PUBLICATION_NAME => 'outbox_cdc_bytes',
			DEBEZIUM_TRANSFORMS_OUTBOX_TABLE_FIELD_EVENT_PAYLOAD => 'body',
			DEBEZIUM_FORMAT_VALUE => 'binary' });
	$node->sql(q{INSERT INTO outbox (event_type, body, route) VALUES ('order.bytes', '\x00ff0a', 'cdc-bytes')});
	my ($message) = taken('outbox', 1);
	is($message->{body_hex} // $message->{body}, '00ff0a', 'bytes are bytes');
	is($bytes->stop, 143, 'it ends');

	$node->sql(q{ALTER TABLE outbox ADD CONSTRAINT cdc_has_payload CHECK (outlet IS DISTINCT FROM 'cdc' OR payload IS NOT NULL)});
	like($node->sql_fails(q{INSERT INTO outbox (event_type, body, route) VALUES ('order.bytes', '\x00', 'cdc')}),
		qr/cdc_has_payload/, 'a constraint keeps them off the other route');
	$node->sql(q{SELECT outbox_enqueue('order.created', '{}', route => 'cdc')});
	$node->sql(q{INSERT INTO outbox (event_type, body, route) VALUES ('order.bytes', '\x00', 'workers')});
};

# The whole page as it should be is left where it can be taken from.
sub page
{
	my ($name, $table) = @_;
	my $page = slurp_file('doc/cdc.md');
	my $is = $page;

	$is =~ s/(?<=<!-- by make test-clients: debezium $name -->\n\n).*?(?=\n<!-- end -->)/$table/s
	  or die "doc/cdc.md has no place for $name\n";
	OutboxTest::Clients::result("cdc.md-$name", $is);
	is($is, $page, "doc/cdc.md: $name");
	return;
}

done_testing();
