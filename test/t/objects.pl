# What belongs to the extension is damaged, moved or replaced while messages flow: each is
# named where somebody has to act, and nothing is lost, doubled or out of order.
# doc/dev/fault-cases.md L2, M3.  (The rows of outbox_problems: problems.pl, sql/install,
# sql/capture.  Objects of others that would be called: sql/escalation, ways_in.pl.)
#
# suite: test faults
# takes: 30 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "outbox.retry_initial = 10ms\noutbox.retry_max = 100ms\nautovacuum = off");
my $checker = OutboxTest::Checker->install($node);

sub damaged
{
	my ($what, $problem, $detail, $damage, $repair) = @_;
	my $load = $checker->load(1000, keys => 20, per_tx => 5, pause_ms => 2);
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->sql($damage);
	ok($node->wait_sql("SELECT count(*) FROM outbox_problems WHERE problem = '$problem' AND detail = '$detail'", 1, 10),
		"$what: it is a problem");
	my $before = $node->sql('SELECT count(*) FROM test_sent');
	$node->wait_sql("SELECT count(*) > $before + 100 FROM test_sent", 't');
	$node->sql($repair);
	ok($node->wait_sql("SELECT count(*) FROM outbox_problems WHERE problem = '$problem'", 0), "$what: until it is repaired");
	ok($load->wait, "$what: producers notice nothing");
	ok($node->wait_drained, "$what: everything goes out");
	return;
}

# --- M3: indexes and triggers of ours, and what the planner knows

foreach my $index (qw(outbox_ready outbox_key outbox_waiting))
{
	my $made = $node->sql("SELECT pg_get_indexdef('$index'::regclass)");
	damaged("index $index is dropped", 'index missing', "index $index is missing", "DROP INDEX $index", $made);
}
damaged('an index is not valid', 'index missing', 'index outbox_ready is not valid',
	q{UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_ready'::regclass}, 'REINDEX INDEX outbox_ready');
damaged("trigger $_ is disabled", 'trigger off', "trigger $_ is disabled",
	"ALTER TABLE outbox DISABLE TRIGGER $_", "ALTER TABLE outbox ENABLE TRIGGER $_")
  foreach qw(outbox_removed outbox_cdc);
foreach my $trigger (qw(outbox_removed outbox_cdc))
{
	my $made = $node->sql("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = '$trigger' AND tgrelid = 'outbox'::regclass");
	damaged("trigger $trigger is dropped", 'trigger off', "trigger $trigger is missing", "DROP TRIGGER $trigger ON outbox", $made);
}
$node->sql(q{DELETE FROM pg_statistic WHERE starelid = 'outbox'::regclass; UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = 'outbox'::regclass});
$checker->enqueue(500, keys => 20);
ok($node->wait_drained, 'without statistics: everything goes out');

# Rows that the trigger has not seen are not told of, and found by the sweep at the latest.
$node->sql('ALTER TABLE outbox DISABLE TRIGGER outbox_row');
$checker->enqueue(100, keys => 20);
$node->sql('ALTER TABLE outbox ENABLE TRIGGER outbox_row');
$checker->enqueue(100, keys => 20);
ok($node->wait_drained(90), 'trigger outbox_row is disabled: everything goes out');

foreach my $table (qw(outbox outbox_route outbox_control outbox_archive))
{
	my $column = $node->sql("SELECT attname FROM pg_attribute WHERE attrelid = '$table'::regclass AND attnum = 3");
	like($node->sql_fails("ALTER TABLE $table DROP COLUMN $column"), qr/ERROR:  cannot drop .* because other objects depend on/,
		"a column of $table is not dropped unless CASCADE is said");
}

# --- L2: the schema is renamed and replaced, and owned by somebody else

$fake->do('now blocked low on memory');
$node->sql('CREATE ROLE tenant');
$checker->enqueue(300, keys => 20);
$node->sql(<<'SQL');
BEGIN;
ALTER SCHEMA public RENAME TO moved;
CREATE SCHEMA public AUTHORIZATION tenant;
SET LOCAL ROLE tenant;
CREATE TABLE public.ran (who text);
GRANT INSERT ON public.ran TO PUBLIC;
CREATE FUNCTION public.note() RETURNS bigint LANGUAGE plpgsql AS
	$$BEGIN INSERT INTO public.ran VALUES (current_user); RETURN 0; END$$;
DO $$
DECLARE
	name text;
BEGIN
	FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'moved'::regnamespace AND relkind IN ('r', 'p', 'v') LOOP
		EXECUTE format('CREATE VIEW public.%I AS SELECT public.note() AS seq', name);
	END LOOP;
	FOR name IN SELECT format('%I(%s)', proname, oidvectortypes(proargtypes)) FROM pg_proc
			WHERE pronamespace IN ('moved'::regnamespace, 'outbox_internal'::regnamespace) AND prokind = 'f' LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION public.%s RETURNS bigint LANGUAGE sql AS ''SELECT public.note()''', name);
		EXCEPTION WHEN duplicate_function OR insufficient_privilege THEN NULL;
		END;
	END LOOP;
END
$$;
COMMIT;
SQL
$fake->do('now unblocked');
ok($node->wait_sql('SELECT count(*) FROM moved.outbox', 0), 'the schema is renamed and replaced: the backlog goes out');
$node->sql('SELECT moved.outbox_worker_restart()');
$node->sql('SET search_path = moved; SELECT test_enqueue(100, 20)');
ok($node->wait_sql('SELECT count(*) FROM moved.outbox', 0), 'and so does what is enqueued there, by a new worker');
is($node->sql('SELECT state, problems FROM moved.outbox_status'), 'idle|0', 'the status is well');
is($node->sql('SELECT count(*) FROM public.ran'), 0, 'nothing of the other schema was called');
$node->sql('DROP SCHEMA public CASCADE; ALTER SCHEMA moved RENAME TO public; ALTER SCHEMA public OWNER TO tenant; SELECT public.outbox_worker_restart()');
$checker->enqueue(100, keys => 20);
ok($node->wait_drained, 'the schema belongs to somebody else: everything goes out');

$checker->check('L2, M3: damage, and another schema', [ $fake->published ], interruptions => 2, window => 1000);
$node->stop;
done_testing();
