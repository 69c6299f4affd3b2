# A consumer with the inbox, in each language: killed in the middle of its work, cut off from
# the broker and from its database, handed everything a second time, and one message that it
# can not process.  The effect of each message is there once.
#
# builds: test/clients/consumers/pika test/clients/consumers/amqp091-go test/clients/consumers/lapin test/clients/consumers/amqplib test/clients/consumers/java test/clients/consumers/spring
# takes: 90 s

use strict;
use warnings;

use Test::More;
use OutboxTest::Clients;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

my @CLIENTS = qw(pika amqp091-go lapin amqplib java spring);
my $MESSAGES = 300;
my $KILLS = 2;

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, conf => $OutboxTest::Clients::CONF);

# The consumers' own database.  Nothing in it is unique, so that what happens twice shows; each
# effect takes its time, so that a kill comes in the middle.
$node->sql('CREATE DATABASE notifications');
$node->sql($_, 'notifications') foreach
  'CREATE SCHEMA inbox',
  'CREATE EXTENSION outbox_inbox SCHEMA inbox',
  'CREATE TABLE notifications (consumer text NOT NULL, message_id uuid NOT NULL, body jsonb NOT NULL)',
  q{CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$},
  'CREATE TRIGGER take_time BEFORE INSERT ON notifications FOR EACH ROW EXECUTE FUNCTION take_time()';
$rabbit->amqp('exchange', 'events', ',', 'exchange', 'headed', 'headers');

my %ENV_OF = (
	AMQP_URI => sprintf('amqp://guest:guest@127.0.0.1:%d/%%2f', $rabbit->port),
	JDBC_URL => sprintf('jdbc:postgresql://127.0.0.1:%d/notifications?user=%s&sslmode=disable', $node->port, scalar getpwuid $<));

sub effects
{
	my ($client) = @_;
	return $node->sql("SELECT count(*) FROM notifications WHERE consumer = '$client'", 'notifications');
}

sub consumer
{
	my ($client) = @_;
	return OutboxTest::Clients::start($node, "test/clients/consumers/$client",
		args => [ 'once', "$client.quorum" ], env => \%ENV_OF, dbname => 'notifications');
}

# Until it has done this many more, by those who work now.
sub wait_progress
{
	my ($client, $more) = @_;
	my $from = effects($client);
	return wait_until("$client goes on", sub { effects($client) >= $from + $more }, 60);
}

sub wait_done
{
	my ($client, $effects, $dead) = @_;
	wait_until("$client has done all of it", sub { effects($client) >= $effects }, 60);
	return wait_until("$client has put aside what it can not process", sub { $rabbit->depth("$client.dead") >= $dead }, 60);
}

foreach my $client (@CLIENTS)
{
	subtest $client => sub {
		my $all = $MESSAGES + 1;

		OutboxTest::Clients::run($node, "test/clients/consumers/$client", args => [ 'setup', $client ], env => \%ENV_OF);
		$rabbit->amqp('bind', "$client.quorum", 'events', "$client.#");
		$node->sql("UPDATE outbox_route SET exchange = 'events' WHERE name = 'default'");
		my $enqueue = sub {
			my ($from, $to) = @_;
			$node->sql(qq{SELECT count(outbox_enqueue('$client.created', jsonb_build_object('n', n), 'order', n::text)) FROM generate_series($from, $to) n});
		};

		$enqueue->(1, $MESSAGES / 2);
		$node->sql(qq{SELECT outbox_enqueue_bytes('$client.created', 'no JSON')});
		$enqueue->($MESSAGES / 2 + 1, $MESSAGES);
		$node->wait_drained;

		my $process = consumer($client);
		foreach my $kill (1 .. $KILLS)
		{
			wait_progress($client, 20);
			$process->signal('KILL');
			is($process->end, 137, "kill $kill: it is dead");
			cmp_ok(effects($client), '<', $MESSAGES, '... in the middle of its work');
			$process = consumer($client);
		}
		wait_progress($client, 20);
		$rabbit->ctl('close_all_connections', 'test');
		wait_progress($client, 20);
		$node->sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'notifications' AND pid <> pg_backend_pid()});
		wait_done($client, $MESSAGES, 1);
		is(effects($client), $MESSAGES, 'killed and cut off: every effect is there');

		# everything again, with the ids that it had, and one more, which comes last
		$node->sql(q{SELECT outbox_replay('-infinity')});
		$node->wait_sql(q{SELECT count(*) FROM outbox_job WHERE state <> 'done'}, 0);
		$node->wait_drained;
		$enqueue->($all, $all);
		wait_done($client, $all, 2);
		is($node->sql("SELECT count(*), count(DISTINCT message_id) FROM notifications WHERE consumer = '$client'", 'notifications'),
			"$all|$all", 'delivered twice: every effect is there once');
		is($rabbit->depth("$client.dead"), 2, 'what it can not process is put aside, each time');
		ok($process->running, 'it has survived all that');
		$process->signal('KILL');
		$node->sql('TRUNCATE outbox_archive');
		note $process->output;
	};
}
done_testing();
