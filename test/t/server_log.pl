# The server log: a line for a change of state, with names of any kind; csvlog and
# jsonlog can be read by programs. (Contents and passwords in them: secrets.pl.)
#
# suite: test
# takes: 10 s

use strict;
use warnings;
use utf8;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $passfile = "$PostgreSQL::Test::Utils::tmp_check/server_log_passfile";
unlink $passfile;
append_to_file($passfile, "*:*:*:relay:secret\n");
chmod 0600, $passfile;

my $fake = OutboxTest::FakeBroker->start;
my $uri = 'amqp://relay@127.0.0.1:' . $fake->port;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
logging_collector = on
log_destination = 'stderr, csvlog, jsonlog'
log_directory = 'log'
log_filename = 'server.log'
log_rotation_age = 0
log_rotation_size = 0
outbox.broker_uri = '$uri'
outbox.passfile = '$passfile'
outbox.retry_initial = 20ms
outbox.retry_max = 50ms
END
my $dir = $node->data_dir . '/log';

sub said
{
	my ($regexp, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_until($what, sub { slurp_file("$dir/server.log") =~ $regexp });
	return;
}

# Names in which all that may break a line or a field is.
my $odd = qq{a "b", 'c';\n{"d": \\e}\tä€, LOG:  f};
my $quoted = $odd =~ s/'/''/gr;
utf8::encode($quoted);
my $client = $node->client;

# --- several states, one after the other

said(qr/outbox relay is connected/, 'connected');
$client->query("INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts) VALUES ('$quoted', 'given.up', NULL, 1), ('$quoted 2', 'missing', NULL, 1)");
$fake->do('when exchange=given.up : nack', 'stage declare exchange=missing times=2 : channel-close 404 NOT_FOUND');
$client->query("SELECT outbox_enqueue('$quoted', '{\"x\": \"odd\"}', '$quoted', '$quoted', headers => '{\"h\": \"odd\"}', route => '$quoted')")
  foreach 1 .. 3;
$node->wait_sql("SELECT count(*) FROM outbox_failed", '3');
said(qr/has given up a message of route/, 'given up');
my ($id) = $node->rows('SELECT id, attempts FROM outbox_failed ORDER BY seq LIMIT 1');
$client->query("SELECT outbox_enqueue('e', '{\"x\": \"odd\"}', route => '$quoted 2')");
said(qr/cannot publish on route/, 'a route without its exchange');
said(qr/publishes on route/, 'and with it');
$node->wait_drained;

# An error of the database with the row in it.
$client->query("ALTER TABLE outbox_archive ADD CONSTRAINT test_no_x CHECK (payload ->> 'x' <> 'odd') NOT VALID");
$client->query("SELECT outbox_enqueue('e', '{\"x\": \"odd\"}')");
said(qr/test_no_x/, 'an error of the database');
$client->query('ALTER TABLE outbox_archive DROP CONSTRAINT test_no_x');
said(qr/can use the database again/, 'and its end');
$node->wait_drained;
# or only a value of it, in the message
$client->query("CREATE INDEX test_card ON outbox_archive (((payload ->> 'card')::bigint))");
$client->query("SELECT outbox_enqueue('e', '{\"card\": \"4111-card\"}')");
$node->wait_sql("SELECT last_error FROM outbox_workers WHERE state = 'database error'", 'a value of a row is not valid (SQLSTATE 22P02)');
$client->query('DROP INDEX test_card');
$node->wait_drained;

$fake->do(qq{now blocked low on "disk", 'really'});
said(qr/is blocked by the broker/, 'blocked');
$fake->do('now unblocked');
said(qr/no longer blocked/, 'and unblocked');
$fake->do('now connection-close 320 CONNECTION_FORCED');
said(qr/lost its connection/, 'connection lost');
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

chmod 0644, $passfile;
$node->reload;
said(qr/cannot use its settings/, 'a password file that others may read');
chmod 0600, $passfile;
$node->reload;
said(qr/can use its settings again/, 'and one that is right');
$node->append_conf('postgresql.conf', "outbox.broker_uri = 'amqp://relay:secret\@127.0.0.1:1'");
$node->reload;
said(qr/outbox\.broker_uri/, 'a URI with a password');
$node->append_conf('postgresql.conf', "outbox.broker_uri = '$uri'");
$node->reload;
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

# --- what is in the log

$node->stop;
my $stderr = slurp_file("$dir/server.log");
is(scalar(() = $stderr =~ /LOG:  outbox relay has given up/g), 1, 'one line for three messages of a route that are given up');
like($stderr, qr/DETAIL:  Message $id->[0], key ".*", attempt $id->[1]: the broker refused the message/s,
	'given up: id, key, attempt and reason');
is(scalar(() = $stderr =~ /LOG:  outbox relay cannot publish on route/g), 1, 'one line for two tries of a route');
like($stderr, qr/ERROR: .*test_no_x.*\n[^\n]*DETAIL:  The row is not shown/, 'no row in an error of the relay');
unlike($stderr =~ s/^.*client backend.*$//gmr, qr/4111-card/, 'nor a value of one');

my $reader = "$PostgreSQL::Test::Utils::tmp_check/server_log_reader.py";
append_to_file($reader, <<'END');
import csv, json, sys
with open(sys.argv[1] + "/server.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.reader(file, strict=True))
with open(sys.argv[1] + "/server.json", encoding="utf-8") as file:
    entries = [json.loads(line) for line in file]
print("columns", *sorted({len(row) for row in rows}))
# message, detail, hint
one = [(row[13], row[14], row[15]) for row in rows if row[13].startswith("outbox")]
other = [(e["message"], e.get("detail", ""), e.get("hint", "")) for e in entries
         if e.get("message", "").startswith("outbox")]
print("same" if one == other else "different")
print("odd", sum(sys.argv[2] in row[0] for row in one))
print("relays", sum(row[22].startswith("outbox relay 0") for row in rows if row[13].startswith("outbox relay has given")))
END
utf8::encode(my $argument = $odd);
my ($out, $err) = run_command([ '/usr/bin/python3', $reader, $dir, $argument ]);
is($out, "columns 26\nsame\nodd 3\nrelays 1", 'csvlog and jsonlog are read, and agree, with odd names');
is($err, '', 'without an error');

done_testing();
