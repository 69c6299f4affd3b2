# What is for operators runs as the owner of the extension. From an owner who is not superuser
# (any more) the server keeps some of what it knows: what that owner's extension says is
# compared with what a superuser's says.
#
# suite: test
# takes: 12 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, allows_streaming => 1,
	conf => "synchronous_commit = local\nautovacuum = off");
$node->sql(<<'SQL');
CREATE ROLE keeper SUPERUSER;
CREATE DATABASE kept OWNER keeper;
SQL
$node->sql('SET ROLE keeper; CREATE EXTENSION outbox; RESET ROLE; ALTER ROLE keeper NOSUPERUSER', 'kept');
$node->wait_sql('SELECT state FROM outbox_status', 'idle', undef, $_) foreach qw(postgres kept);

sub both_say
{
	my ($what, $query, $expected) = @_;

	$node->wait_sql($query, $expected, undef, $_) or diag "in $_" foreach qw(postgres kept);
	is($node->sql($query, $_), $expected, "$what, in $_") foreach qw(postgres kept);
	return;
}

# --- a standby that is missing, and one that is there

my $problem = q{SELECT detail FROM outbox_problems WHERE problem = 'standby missing'};
my $check = q{SELECT ok, detail FROM outbox_preflight() WHERE "check" = 'replication' AND detail ~ 'synchronous'};
$node->set('synchronous_standby_names', 'berlin');
both_say('a missing standby is a problem', $problem, q{synchronous_standby_names = 'berlin'; missing: 1});
both_say('and outbox_preflight() finds it', $check, q{f|synchronous_standby_names = 'berlin'; missing: 1.});
my ($out, $err) = ('', '');
my $receiver = IPC::Run::start([ $node->config_data('--bindir') . '/pg_receivewal', '--synchronous', '-D', PostgreSQL::Test::Utils::tempdir(),
		'-d', $node->connstr . ' application_name=berlin' ], '>', \$out, '2>', \$err);
both_say('one that is there is not missing', $check, q{t|synchronous_standby_names = 'berlin'; missing: 0.});
both_say('nor a problem', $problem, '');
$receiver->kill_kill;
$node->unset('synchronous_standby_names');

# --- what the session has, and the relay has not

foreach my $db (qw(postgres kept))
{
	is($node->sql(q{SET outbox.broker_uri = 'amqp://guest@127.0.0.1:1'; SELECT detail FROM outbox_preflight() WHERE "check" = 'settings' AND NOT ok}, $db),
		'outbox.broker_uri is set for this session or its role, and the relay does not have that.', "a session's own setting is told, in $db");
}

# --- locks that the relay has are nobody's to end

$node->sql(<<'SQL', 'kept');
CREATE FUNCTION stand_still() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	LOCK TABLE public.outbox_archive IN EXCLUSIVE MODE;
	PERFORM pg_catalog.pg_advisory_lock_shared(1);
	RETURN NULL;
END
$$;
ALTER FUNCTION stand_still() OWNER TO keeper;
CREATE TRIGGER stand_still AFTER DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION stand_still();
SQL
my $holder = $node->client('kept');
$holder->query('SELECT pg_advisory_lock(1)');
$node->sql(q{SELECT outbox_enqueue('e', '{}')}, 'kept');
$node->wait_sql(q{SELECT count(*) FROM pg_locks WHERE relation = 'outbox_archive'::regclass AND mode = 'ExclusiveLock' AND granted}, 1, undef, 'kept');
is($node->sql('SELECT count(*) FROM outbox_table_lockers()', 'kept'), 0, 'a lock of the relay is not in outbox_table_lockers()');
undef $holder;
$node->wait_drained(undef, 'kept');
$node->sql('DROP TRIGGER stand_still ON outbox', 'kept');

# --- rights that were taken from the owner hold without a statement, too

foreach my $right ('DELETE ON outbox', 'INSERT ON outbox_archive')
{
	my ($table) = $right =~ /(\w+)$/;

	$node->sql("REVOKE $right FROM keeper; SELECT outbox_enqueue('e', '{}')", 'kept');
	ok($node->wait_sql('SELECT state, last_error FROM outbox_workers', "database error|permission denied for table $table", undef, 'kept'), "without $right");
	$node->sql("GRANT $right TO keeper", 'kept');
	ok($node->wait_drained(undef, 'kept'), 'and with it again');
}

# --- a session without a name that holds vacuum back

my $snapshot = $node->session('kept');
$snapshot->query_safe(q{SET application_name = ''; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1});
$node->sql(<<'SQL', 'kept');
BEGIN;
INSERT INTO outbox (event_type, payload) SELECT 'e', '{}' FROM generate_series(1, 100001);
ROLLBACK;
CREATE TABLE t (i int);
DO $$
BEGIN
	FOR i IN 1 .. 10001 LOOP
		BEGIN
			INSERT INTO t VALUES (i);
		EXCEPTION WHEN unique_violation THEN
		END;
	END LOOP;
END
$$;
SQL
$node->wait_sql(q{SELECT detail ~ '^of \w+; table outbox has' FROM outbox_problems WHERE problem = 'vacuum held back'}, 't', undef, 'kept');
undef $snapshot;

# --- the environment's name where each copy has it

$node->append_conf('postgresql.conf', q{outbox.environment = 'production'});
$node->reload;
both_say('a name inside of the data directory is not believed', 'SELECT state FROM outbox_status', 'config error');
both_say('and outbox_preflight() says so',
	q{SELECT ok, detail FROM outbox_preflight() WHERE "check" = 'environment'},
	q{f|"outbox.environment" is not set outside of the data directory, so that each copy of it has the same});
$node->adjust_conf('postgresql.conf', 'outbox.environment', undef);

# --- not preloaded

$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{''});
$node->restart;
is($node->sql('SELECT problem, command FROM outbox_problems'),
	'not preloaded|ALTER SYSTEM SET shared_preload_libraries = \'outbox\'', 'not preloaded, of a superuser: how to add it');
is($node->sql('SELECT problem, command FROM outbox_problems', 'kept'),
	'not preloaded|SHOW shared_preload_libraries', 'of another owner: where to look');
done_testing();
