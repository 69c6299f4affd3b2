# Routes with relay = 'cdc': what the server's own plug-in reads out of the log is what
# was committed on them, in the order of the commits, each once, and nothing else: no
# rollback, no other route, no DELETE; however it was enqueued.  Nothing stays in the
# table, and no worker hears of it.  Where nobody could read a message enqueue refuses.
#
# suite: test
# takes: 9 s

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::States;
use OutboxTest::Util;

# As the page says it.
my ($route, $publication, $slot) = split /;\n/, (slurp_file('doc/cdc.md') =~ /^## Set up.*?```sql\n(.*?)```/ms)[0];
my ($advance) = slurp_file('doc/cdc.md') =~ /^(SELECT pg_replication_slot_advance.*?CHECKPOINT);/ms;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	allows_streaming => 'logical',
	conf => "max_prepared_transactions = 5\nwal_level = replica");

# What pgoutput has sent: a list of [id, event_type, payload] for each transaction.
sub decode
{
	my @transactions;
	my ($columns, @rows);
	foreach my $hex (@_)
	{
		my $data = pack 'H*', $hex;
		my $kind = substr $data, 0, 1;
		@rows = () if $kind eq 'B';
		push @transactions, [@rows] if $kind eq 'C' && @rows;
		$columns = relation($data) if $kind eq 'R';
		push @rows, row($data, $columns) if $kind eq 'I';
		fail("a message of kind $kind") if $kind =~ /[UDT]/;
	}
	return @transactions;
}

sub relation
{
	my ($data) = @_;
	my ($schema, $name, $identity, $n, $rest) = unpack 'x5 Z* Z* a n a*', $data;
	my @columns;
	foreach (1 .. $n)
	{
		(my ($flags, $column), $rest) = unpack 'C Z* x8 a*', $rest;
		push @columns, $column;
	}
	is("$schema.$name", 'public.outbox', 'of the table outbox');
	return \@columns;
}

sub row
{
	my ($data, $columns) = @_;
	my ($n, $rest) = unpack 'x6 n a*', $data;
	my %row;
	foreach my $column (@$columns)
	{
		(my $kind, $rest) = unpack 'a a*', $rest;
		next unless $kind eq 't';
		($row{$column}, $rest) = unpack 'N/a a*', $rest;
	}
	return \%row;
}

# What is new in the slot.
sub captured
{
	return decode(map { $_->[0] } $node->rows(
		q{SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('outbox_cdc', NULL, NULL,
			'proto_version', '1', 'publication_names', 'outbox_cdc')}));
}

sub types
{
	return join ' ', map { join ',', map { $_->{event_type} } @$_ } captured();
}

sub refused
{
	my ($statement, $expected, $name) = @_;
	like($node->sql_fails($statement), $expected, $name);
	return;
}

sub problem
{
	my ($problem, $severity, $detail) = @_;
	$node->wait_sql("SELECT DISTINCT severity FROM outbox_problems WHERE problem = '$problem'", $severity);
	like($node->sql("SELECT detail FROM outbox_problems WHERE problem = '$problem'"), $detail, $problem);
	return;
}

sub over
{
	my ($problem) = @_;
	$node->wait_sql("SELECT count(*) FROM outbox_problems WHERE problem = '$problem'", 0);
	return;
}

# --- nobody could read it

$node->sql("$route; INSERT INTO outbox_route (name, exchange, relay) VALUES ('other', '', 'cdc');
	UPDATE outbox_route SET sequence = 'seq' WHERE name = 'orders'");
refused(q{SELECT outbox_enqueue('lost', '{}', route => 'orders')},
	qr/no replication slot would keep a message of route "orders".*HINT:\s+Set "wal_level" to logical/s,
	'refused without logical decoding');
problem('cdc slot missing', 'critical', qr/wal_level is replica/);
paste_problem($node, 'cdc slot missing');
is($node->sql(q{SELECT setting FROM pg_file_settings WHERE name = 'wal_level' AND sourcefile ~ 'auto'}), 'logical', 'which sets it');
$node->restart;
refused(q{SELECT outbox_enqueue('lost', '{}', route => 'orders')},
	qr/HINT:\s+Create the reader's publication, then its slot/, 'refused without a slot');
$node->sql(q{SELECT pg_create_physical_replication_slot('physical', true)});
$node->sql(q{CREATE DATABASE elsewhere});
$node->safe_psql('elsewhere', q{SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')});
refused(q{SELECT pg_create_logical_replication_slot('temporary', 'pgoutput', true)\; SELECT outbox_enqueue('lost', '{}', route => 'other')},
	qr/no replication slot would keep/, 'nor is a slot of another kind, of another database, or of a session one');
$node->sql(q{SELECT pg_drop_replication_slot('physical'), pg_drop_replication_slot('elsewhere')});
$node->sql(q{SELECT pg_create_logical_replication_slot('another', 'pgoutput')});
refused(q{SELECT outbox_enqueue('lost', '{}', route => 'orders')}, qr/without the logical replication slot "outbox_cdc"/,
	'nor one that the route does not name');
is($node->sql(q{SELECT outbox_enqueue('any', '{}', route => 'other') IS NOT NULL}), 't', 'one that names none takes any');
$node->sql('ALTER TABLE outbox SET UNLOGGED');
refused(q{SELECT outbox_enqueue('lost', '{}', route => 'other')}, qr/table "outbox" must be logged.*HINT:\s+Run ALTER TABLE public.outbox SET LOGGED/s,
	'nothing of an unlogged table is in the log');
$node->sql('ALTER TABLE outbox SET LOGGED');
problem('cdc slot missing', 'critical', qr/is called "outbox_cdc"/);
is($node->sql(q{SELECT subject FROM outbox_problems WHERE problem = 'cdc slot missing'}), 'route "orders"', 'of the one route');
paste_problem($node, 'cdc slot missing');
is($node->sql('SELECT pubname FROM pg_publication'), 'outbox_cdc', 'the publication first');
paste_problem($node, 'cdc slot missing');
over('cdc slot missing');
$node->sql('DROP PUBLICATION outbox_cdc');
is($node->sql(q{SELECT plugin FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'}), $slot =~ s/.*'(\w+)'.*/$1/sr, 'the slot of the page');
$node->sql(q{SELECT pg_drop_replication_slot('another')});
problem('cdc publication missing', 'critical', qr/no publication has its messages/);
$node->sql(q{CREATE PUBLICATION one FOR TABLE outbox WHERE (route = 'orders') WITH (publish = 'insert')});
refused(q{UPDATE outbox_route SET slot = 'x' WHERE name = 'default'}, qr/slot is not allowed for route "default"/, 'a slot is for such a route only');
is($node->sql(q{SELECT subject FROM outbox_problems WHERE problem = 'cdc publication missing'}),
	'route "other"', 'a filter that lets only the other route through is seen');
$node->sql('DROP PUBLICATION one; CREATE PUBLICATION one FOR TABLE outbox (id, event_type)');
problem('cdc publication missing', 'critical', qr/no publication has its messages/);
is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'cdc publication missing'}), 2, 'nor has one the messages that leaves their bodies out');
$node->sql('DROP PUBLICATION one');
paste_problem($node, 'cdc publication missing');
over('cdc publication missing');
$node->sql("DROP PUBLICATION outbox_cdc");
$node->sql(q{SELECT outbox_enqueue('older', '{}', route => 'orders')});
$node->sql($publication);
refused(q{SELECT count(*) FROM pg_logical_slot_peek_binary_changes('outbox_cdc', NULL, NULL, 'proto_version', '1', 'publication_names', 'outbox_cdc')},
	qr/publication "outbox_cdc" does not exist/, 'a slot that is older than its publication cannot be read')
	if $node->sql('SHOW server_version_num') < 180000;
$node->sql($advance);
is(types(), '', 'until it is advanced, which passes over what was committed before');
problem('cdc slot idle', 'warning', qr/nobody reads it/);
like(paste_problem($node, 'cdc slot idle'), qr/^outbox_cdc\|/, 'which shows the slot');
over('cdc publication incomplete');
# The command shows what else the publication has; the owner decides.  One has other tables, and one filters by a column that was added.
$node->sql('CREATE TABLE sales (id integer PRIMARY KEY); ALTER TABLE outbox ADD tenant text');
foreach my $case ([ "FOR TABLE outbox WHERE (outlet = 'cdc') WITH (publish = 'update, delete')", qr/does not publish inserts/ ],
	[ "FOR TABLE sales, outbox WITH (publish = 'update, delete')", qr/does not publish inserts/ ],
	[ "FOR TABLE outbox WHERE (outlet = 'external') WITH (publish = 'insert')", qr/row filter \(outlet = 'external'::text\)/ ],
	[ "FOR TABLE outbox WHERE (outlet = 'cdc' AND event_type = 'x') WITH (publish = 'insert')", qr/row filter/ ],
	[ "FOR TABLE sales, outbox WHERE (outlet = 'cdc' AND tenant = 'a') WITH (publish = 'insert')", qr/row filter/ ],
	[ "FOR TABLE outbox (id, event_type) WITH (publish = 'insert')", qr/its columns have neither payload nor body/ ])
{
	my $what = q{SELECT pubinsert, pubupdate, pubdelete, string_agg(concat_ws(' ', tablename, rowfilter, attnames), ', ')
		FROM pg_publication_tables JOIN pg_publication USING (pubname) WHERE pubname = 'wrong' GROUP BY 1, 2, 3};
	$node->sql("CREATE PUBLICATION wrong $case->[0]");
	my $was = $node->sql($what);
	problem('cdc publication incomplete', 'warning', $case->[1]);
	like(paste_problem($node, 'cdc publication incomplete'), qr/^wrong\|public\|outbox\|/m, 'which shows its tables');
	is($node->sql($what), $was, 'and changes nothing');
	is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'cdc publication missing'}), 0, 'the other publication has the messages');
	$node->sql('DROP PUBLICATION wrong');
	over('cdc publication incomplete');
}
$node->sql('ALTER TABLE outbox DROP tenant');

# --- whatever way it comes

$node->sql(q{INSERT INTO outbox_route (name) VALUES ('given'); SELECT outbox_pause()});
$node->wait_sql('SELECT state FROM outbox_status', 'paused');
my $id = $node->sql(q{SELECT outbox_enqueue('function', '{"a": 1}', 'order', '7', '{"h": "x"}', 'orders')});
my ($first) = captured();
is(scalar @$first, 1, 'one message');
is("$first->[0]{id} $first->[0]{route} $first->[0]{aggregate_id} $first->[0]{payload} $first->[0]{outlet}",
	qq($id orders 7 {"a": 1} cdc), 'with its values');
like($first->[0]{headers}, qr/"h": "x".*"x-outbox-seq": \d+|"x-outbox-seq": \d+.*"h": "x"/, 'its headers and number');
is($node->sql(q{INSERT INTO outbox (route, event_type, body) VALUES ('orders', 'insert', 'x') RETURNING event_type}),
	'insert', 'RETURNING');
$node->sql(<<'SQL');
SELECT count(outbox_enqueue_bytes('bytes', 'x', route => 'orders'));
SELECT count(outbox_enqueue_text('text', '{}', route => 'orders'));
SELECT count(e) FROM outbox_enqueue_batch('[{"event_type": "b1", "payload": 1, "route": "orders"},
	{"event_type": "inner", "payload": 1}, {"event_type": "b2", "payload": 2, "route": "orders"}]') e;
SELECT outbox_enqueue_once('k', 'once', '{}', route => 'orders') = outbox_enqueue_once('k', 'once', '{}', route => 'orders');
INSERT INTO outbox_new (route, event_type, payload) VALUES ('orders', 'new', '{}');
INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload) VALUES ('orders', '7', 'event', '{}');
COPY outbox (route, event_type, payload) FROM stdin;
orders	copy1	{}
default	inner	{}
other	copy2	{}
\.
CREATE TABLE thing (id integer PRIMARY KEY);
CREATE TRIGGER capture AFTER INSERT ON thing FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=orders', 'event_type=captured');
INSERT INTO thing VALUES (1), (2);
BEGIN;
SELECT outbox_enqueue('kept', '{}', route => 'orders') IS NOT NULL;
SAVEPOINT s;
SELECT outbox_enqueue('gone', '{}', route => 'orders') IS NOT NULL;
ROLLBACK TO s;
SELECT outbox_enqueue('kept too', '{}', route => 'orders') IS NOT NULL;
COMMIT;
BEGIN;
SELECT outbox_enqueue('gone', '{}', route => 'orders') IS NOT NULL;
ROLLBACK;
SQL
is(types(), 'insert bytes text b1,b2 once new event copy1,copy2 captured,captured kept,kept too',
	'all of them, of these routes, as they committed');
is($node->sql('SELECT string_agg(event_type, \' \') FROM outbox'), 'inner inner', 'the table has the others only');
is($node->sql("SELECT outbox_wait('$id', '0')"), 'unknown', 'nobody here knows what became of it');
is($node->sql(q{SELECT coalesce(sum(backlog), 0) FROM outbox_routes_status WHERE route IN ('orders', 'other')}), 0,
	'it is no backlog');
captured();

# In the order of the commits, which is not that of seq.
my $late = $node->client;
$late->query('BEGIN');
$late->query(q{SELECT outbox_enqueue('late', '{}', route => 'orders')});
$node->sql(q{SELECT outbox_enqueue('early', '{}', route => 'orders')});
$late->query('COMMIT');
is(types(), 'early late', 'in the order of the commits');

# Back to the workers, by the steps of the page, while a transaction has enqueued.
my @back = split /;[^\n]*\n/, (slurp_file('doc/cdc.md') =~ /^And back, in order.*?```sql\n(.*?)```/ms)[0];
is(scalar @back, 5, 'the steps');
$late->query('BEGIN');
$late->query(q{SELECT outbox_enqueue('open', '{}', route => 'orders')});
$node->sql($back[0]);
refused($back[1], qr/route "orders" is in use/, 'the second step is refused');
$late->query('COMMIT');
$node->sql($back[1]);
my $position = $node->sql($back[2]);
$back[3] =~ s/'0[^']*'/'$position'/;
is($node->sql("CREATE TABLE later ()\\; $back[3]"), 'f', 'it is not read yet');
is(types(), 'open', 'the reader gets it');
is($node->sql($back[3]), 't', 'before producers go on');
$node->sql($back[4]);
$node->sql(q{UPDATE outbox_route SET relay = 'cdc', slot = 'outbox_cdc' WHERE name = 'orders'});

# --- what is refused

refused(q{SELECT outbox_enqueue('e', '{}', route => 'orders', available_at => now() + interval '1 h')},
	qr/a message on route "orders" cannot be scheduled/, 'no schedule');
refused(q{SELECT outbox_pause('orders')}, qr/cannot be paused.*Stop the reader/s, 'no pause');
$node->psql('postgres', 'BEGIN; SELECT outbox_pause(); ROLLBACK', stderr => \my $notice);
like($notice, qr/NOTICE:  change data capture goes on publishing\nDETAIL:  Routes with relay = 'cdc': orders, other\./,
	'a pause of the database names the routes that it does not stop');
refused(q{UPDATE outbox_route SET max_pending = 5 WHERE name = 'orders'}, qr/max_pending cannot be set/, 'no max_pending');
refused(q{UPDATE outbox_route SET failed_route = 'other' WHERE name = 'default'}, qr/route "other" in failed_route has relay = 'cdc'/,
	'no dead letters to it');
refused(q{UPDATE outbox_route SET failed_route = 'given' WHERE name = 'orders'}, qr/failed_route cannot be set/, 'nor from it');
refused(q{SELECT outbox_claim('orders')}, qr/route "orders" is read by change data capture/, 'no claims');
refused(q{UPDATE outbox SET route = 'orders'}, qr/a message cannot be moved to route "orders"/, 'no UPDATE of route');
refused(q{INSERT INTO outbox (route, event_type, payload, status) VALUES ('orders', 'e', '{}', 'failed')},
	qr/status must be 'pending'/, 'none that has failed');
$node->sql(q{UPDATE outbox_route SET failed_route = 'given' WHERE name = 'default'});
refused(q{UPDATE outbox_route SET relay = 'cdc' WHERE name = 'given'}, qr/is the failed_route of route "default"/,
	'nor one that dead letters go to already');
refused(q{UPDATE outbox_route SET relay = 'cdc', failed_route = NULL WHERE name = 'default'}, qr/route "default" still has messages/,
	'nor one that has messages');
$node->sql(q{CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
	CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION keep()});
refused(q{SELECT outbox_enqueue('kept', '{}', route => 'orders')}, qr/stays in the table "outbox"/, 'nor what would stay');
$node->sql('DROP TRIGGER keep ON outbox');
is(types(), '', 'and nothing of it is in the log');

# --- to and fro, and a replay

$node->sql('SELECT outbox_resume()');
$node->wait_drained;
is(join(' ', map { $_->{type} } $fake->published), 'inner inner', 'the workers publish the rest');
$node->sql(q{UPDATE outbox_route SET relay = 'cdc', failed_route = NULL WHERE name = 'default'});
$node->sql(q{SELECT outbox_replay(now() - interval '1 h', route => 'default')});
$node->wait_sql(q{SELECT state FROM outbox_job ORDER BY id DESC LIMIT 1}, 'done');
my $replayed = '';
ok(wait_until('the replay is on disk', sub { ($replayed .= types()) eq 'inner,inner' }),
	'a replay goes to whoever has the route now');
is($node->sql('SELECT count(*) FROM outbox'), 0, 'and leaves nothing');
$node->sql(q{UPDATE outbox_route SET relay = 'internal' WHERE name = 'default'; SELECT outbox_enqueue('back', '{}')});
$node->wait_drained;
is(($fake->published)[-1]{type}, 'back', 'and back to the workers');
is(types(), '', 'who have it alone');

# --- a crash

$node->sql(q{SELECT outbox_enqueue('before the crash', '{}', route => 'orders')});
$node->crash;
$node->start;
# Those before it once more, if the slot was not on disk.
like(types(), qr/\bbefore the crash$/, 'what was committed before a crash is in the log');
is($node->sql('SELECT count(*) FROM outbox'), 0, 'and not in the table');

# --- a slot that is dropped between the message and the commit

$node->sql(q{SELECT pg_create_logical_replication_slot('short', 'pgoutput');
	INSERT INTO outbox_route (name, exchange, relay, slot) VALUES ('short', '', 'cdc', 'short')});
refused(q{BEGIN\; SELECT outbox_enqueue('lost', '{}', route => 'short')\; SELECT pg_drop_replication_slot('short')\; COMMIT},
	qr/no replication slot would keep a message of route "short"/, 'the COMMIT asks for the slot again');
is($node->sql_fails(q{SELECT pg_create_logical_replication_slot('short', 'pgoutput');
	BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT outbox_enqueue('gone', '{}', route => 'short'); RELEASE b; ROLLBACK TO a;
	SELECT pg_drop_replication_slot('short'); COMMIT}), undef, 'which a savepoint that is rolled back does not need');
refused(q{SELECT pg_create_logical_replication_slot('short', 'pgoutput')\; BEGIN\; SAVEPOINT a\; SELECT outbox_enqueue('lost', '{}', route => 'short')\; RELEASE a
	\; SAVEPOINT b\; ROLLBACK TO b\; SELECT pg_drop_replication_slot('short')\; COMMIT},
	qr/no replication slot would keep a message of route "short"/, 'and one that is released does');
$node->sql(q{SELECT pg_create_logical_replication_slot('short', 'pgoutput')});
refused(q{BEGIN\; SELECT outbox_enqueue('lost', '{}', route => 'short')\; PREPARE TRANSACTION 'lost'},
	qr/cannot PREPARE a transaction that has enqueued on route "short"/, 'PREPARE TRANSACTION is refused, as the slot may go before its COMMIT');
is($node->sql_fails(q{BEGIN; SAVEPOINT a; SELECT outbox_enqueue('gone', '{}', route => 'short'); ROLLBACK TO a;
	SELECT outbox_enqueue('back too', '{}'); PREPARE TRANSACTION 'kept'; COMMIT PREPARED 'kept'}), undef, 'unless it was rolled back');
$node->sql(q{SELECT pg_drop_replication_slot('short')});
$node->sql(q{DELETE FROM outbox_route WHERE name = 'short'});

# --- a slot that the server has ended

$node->append_conf('postgresql.conf', 'max_slot_wal_keep_size = 1MB');
$node->reload;
# Again, as the checkpointer hears of the setting when it likes to.
ok( wait_until('the slot is ended', sub {
		$node->sql('CREATE TABLE filler (n integer)');
		$node->sql('DROP TABLE filler; SELECT pg_switch_wal()');
		$node->sql('CHECKPOINT');
		$node->sql(q{SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'outbox_cdc'}) eq 'lost';
	}), 'the server ends a slot that is too far behind');
problem('cdc slot lost', 'critical', qr/wal_status lost/);
is($node->sql(q{SELECT count(*) FROM outbox_problems WHERE problem = 'cdc slot remade'}), 0, 'no slot was made again');
$node->sql(q{SELECT pg_create_logical_replication_slot('twice', 'pgoutput');
	INSERT INTO outbox_route (name, exchange, relay, slot) VALUES ('twice', '', 'cdc', 'twice')});
$node->sql(q{SELECT outbox_enqueue('unread', '{}', route => 'twice')});
$node->sql(q{SELECT pg_drop_replication_slot('twice')});
$node->sql(q{SELECT pg_create_logical_replication_slot('twice', 'pgoutput')});
problem('cdc slot remade', 'critical', qr/dropped and created again/);
$node->sql(q{SELECT outbox_enqueue('read', '{}', route => 'twice')});
problem('cdc slot remade', 'critical', qr/dropped and created again/);
paste_problem($node, 'cdc slot remade');
over('cdc slot remade');

# What else is written, in outbox_route or by a transaction that fails, is no such answer.
sub remake
{
	my ($slot) = @_;
	$node->sql("SELECT pg_drop_replication_slot('$slot')");
	$node->sql("SELECT pg_create_logical_replication_slot('$slot', 'pgoutput')");
	return;
}

my $writer = $node->client;
$writer->query('BEGIN');
$writer->query(q{SELECT outbox_enqueue('unread', '{}', route => 'twice')});
my $others = q{UPDATE outbox_route SET max_attempts = max_attempts WHERE name = 'default';
	UPDATE outbox_route SET enqueue_roles = NULL WHERE name = 'twice'};
$node->sql($others);
$node->sql(q{BEGIN; UPDATE outbox_route SET slot = slot WHERE name = 'twice'; ROLLBACK;
	BEGIN; SAVEPOINT s; UPDATE outbox_route SET slot = slot WHERE name = 'twice'; ROLLBACK TO s; COMMIT});
$writer->query('COMMIT');
$node->sql($others);
remake('twice');
problem('cdc slot remade', 'critical', qr/dropped and created again/);
paste_problem($node, 'cdc slot remade');
over('cdc slot remade');
# Nor is an answer one for what is committed later.
$writer->query('BEGIN');
$writer->query(q{SELECT outbox_enqueue('unread', '{}', route => 'twice')});
$node->sql(q{UPDATE outbox_route SET slot = slot WHERE name = 'twice'});
$writer->query('COMMIT');
remake('twice');
problem('cdc slot remade', 'critical', qr/dropped and created again/);
$node->sql(q{DELETE FROM outbox_route WHERE name = 'twice'; SELECT pg_drop_replication_slot('twice')});
over('cdc slot remade');
# What is known of slots has 16 entries: that of a route that is gone is free again, and of the others the oldest goes.
foreach my $n (1 .. 34)
{
	my $name = $n <= 17 ? 'gone' : "slot$n";
	$node->sql("SELECT pg_create_logical_replication_slot('$name', 'pgoutput')");
	$node->sql("INSERT INTO outbox_route (name, exchange, relay, slot) VALUES ('$name', '', 'cdc', '$name');
		SELECT outbox_enqueue('unread', '{}', route => '$name')");
	remake($name) if $n == 34;
	$node->sql("DELETE FROM outbox_route WHERE name = 'gone'") if $n <= 17;
	$node->sql("SELECT pg_drop_replication_slot('$name')") if $n < 34;
}
problem('cdc slot remade', 'critical', qr/dropped and created again/);
is($node->sql(q{SELECT string_agg(subject, ' ') FROM outbox_problems WHERE problem = 'cdc slot remade'}),
	'replication slot "slot34"', 'the last of more slots than there are entries');
$node->sql(q{DELETE FROM outbox_route WHERE name LIKE 'slot%'; SELECT pg_drop_replication_slot('slot34')});
over('cdc slot remade');
refused(q{SELECT outbox_enqueue('lost', '{}', route => 'orders')}, qr/no replication slot would keep/,
	'a slot without its WAL is none');
problem('cdc slot missing', 'critical', qr/is called "outbox_cdc"/);
paste_problem($node, 'cdc slot lost');
over('cdc slot lost');

# --- a reader that does not keep up

paste_problem($node, 'cdc slot missing');
my $reader = IPC::Run::start([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '--slot', 'outbox_cdc', '--start', '-f', '/dev/null',
		'-o', 'proto_version=1', '-o', 'publication_names=outbox_cdc' ], '<', \undef, '>', '/dev/null', '2>', '/dev/null');
over('cdc slot idle');
my $end = server_tells($node, 'pg_wal_lsn_diff', 'pg_lsn, pg_lsn', 'numeric', '2000000000');
problem('cdc slot behind', 'warning', qr/^active, wal_status reserved, 1907 MB behind/);
like(paste_problem($node, 'cdc slot behind'), qr/^outbox_cdc\|/, 'which shows the slot');
$end->();
$reader->kill_kill;

# What the log has without a mark is shown: no mark helps it now.
$node->sql(q{BEGIN; ALTER TABLE outbox DISABLE TRIGGER USER; INSERT INTO outbox (event_type, payload, route) VALUES ('unmarked', '{}', 'orders');
	ALTER TABLE outbox ENABLE TRIGGER USER; SELECT outbox_enqueue('ours', '{}'); COMMIT});
like(paste_problem($node, "another relay's route"), qr/\|unmarked\|/, 'messages that change data capture does not see');

done_testing();
