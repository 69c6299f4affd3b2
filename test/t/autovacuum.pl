# Autovacuum evaluates expressions of other roles' indexes as a superuser's process: functions
# of ours that are called there are the call of the table's owner, and claim, acknowledge or
# publish nothing of a route that is not that role's.  doc/dev/fault-cases.md L3.  (ANALYZE and
# the like by a superuser's session: sql/callers.)
#
# suite: test
# takes: 5 s

use strict;
use warnings;

use Test::More;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => "autovacuum = on\nautovacuum_naptime = 1s\nautovacuum_analyze_threshold = 10\nautovacuum_analyze_scale_factor = 0");

$node->sql(<<'SQL');
CREATE ROLE thief;
CREATE ROLE tenant;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_claim, outbox_ack, outbox_nack, outbox_extend, outbox_release TO thief, tenant;
INSERT INTO outbox_route (name, relay, enqueue_roles, relay_roles) VALUES ('leased', 'external', '{tenant}', '{tenant}');
CREATE SCHEMA thief AUTHORIZATION thief;
SQL
my $token = $node->sql(<<'SQL');
SELECT set_config('role', 'tenant', false) || outbox_enqueue('e', to_jsonb(i), route => 'leased') FROM generate_series(1, 4) i \g /dev/null
SELECT min(token) FROM outbox_claim('leased', 2, '1 hour');
SQL

# A token is a secret; here the thief knows it.
my @calls = (
	q{count(*) FROM public.outbox_claim('leased')}, "public.outbox_extend($token)", "public.outbox_ack($token)",
	"public.outbox_nack($token, (SELECT '00000000-0000-7000-8000-000000000001'::uuid), 'no')", "public.outbox_release($token)",
	q{public.outbox_enqueue('stolen', '{}', route => 'leased')});
my $calls = join ', ', map { "\$q\$$_\$q\$" } @calls;
$node->sql(<<"SQL");
SET ROLE thief;
CREATE TABLE thief.outcomes (backend text, who name, call text, outcome text);
CREATE FUNCTION thief.try() RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE
	call text;
	/* pg_stat_activity does not show it to the thief. */
	backend text := CASE WHEN pg_catalog.current_query() IS NULL THEN 'autovacuum worker' ELSE 'session' END;
BEGIN
	FOREACH call IN ARRAY ARRAY[$calls] LOOP
		BEGIN
			EXECUTE 'SELECT ' || call;
			INSERT INTO thief.outcomes VALUES (backend, current_user, call, 'went');
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO thief.outcomes VALUES (backend, current_user, call, SQLSTATE);
		END;
	END LOOP;
END
\$\$;
CREATE FUNCTION thief.steal(n integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM thief.try(); RETURN n; END';
CREATE TABLE thief.bait (n integer);
CREATE INDEX ON thief.bait (thief.steal(n));
INSERT INTO thief.bait SELECT i FROM generate_series(1, 20) i;
SQL
ok($node->wait_sql(q{SELECT count(DISTINCT call) FROM thief.outcomes WHERE backend = 'autovacuum worker'}, scalar @calls, 60),
	'autovacuum evaluates the index and calls our functions');
is($node->sql(q{SELECT DISTINCT who, outcome FROM thief.outcomes WHERE backend = 'autovacuum worker'}), 'thief|42501',
	'each call is that of the owner of the table, and refused');
is($node->sql(q{SELECT count(*), count(*) FILTER (WHERE event_type = 'stolen') FROM outbox}), '4|0', 'no message is gone, and none is there');
is($node->sql('SELECT messages, expired FROM outbox_leases'), '2|f', 'the lease is as it was');
is(scalar(() = $fake->published), 0, 'nothing was published');
$node->stop;
done_testing();
