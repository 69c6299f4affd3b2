# What README.md and the pages of doc/ for users tell people to run, run as it stands by
# the role that it is for: with a relay, without the library preloaded, and without
# a launcher.  The table of settings against the server.  And what outbox_status says of
# several workers, of which one is in trouble.
#
# suite: test

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

# In the order in which somebody would read them.
my @PAGES = ('README.md', map { "doc/$_.md" } qw(install checklist sql capture delivery consumers formats configuration
	  monitoring operations maintenance copies security external-relays));

# A block is known by its heading and its first words. Every block has to be here,
# with who runs it: the superuser ('admin'), an application ('app', 'orm'), or one of
# the roles of doc/security.md. 'shape' are signatures, 'elsewhere' is for another
# server. An array has it run by each, with the same result.
my @MONITORS = qw(monitor watcher operator);
my %ROLE_OF = (
	'outbox: BEGIN' => 'admin',
	'Create the extension: CREATE SCHEMA messages' => 'elsewhere',
	'Create the extension: ALTER DATABASE shop' => 'admin',
	'Production checklist: SELECT "check"' => 'operator',
	'Managed services: CREATE SUBSCRIPTION' => 'elsewhere',
	'Enqueue: outbox_enqueue(event_type' => 'shape',
	'Examples: CREATE FUNCTION order_changed' => 'admin',
	'Examples: INSERT INTO outbox' => 'orm',
	'Examples: SELECT outbox_enqueue' => 'app',
	'`outbox_new`: INSERT INTO outbox_new' => 'orm',
	'`outboxevent`: GRANT INSERT' => 'admin',
	'Strings for all arguments: SELECT outbox_enqueue_text' => 'app',
	'Once for each key: SELECT outbox_enqueue_once' => 'app',
	'Waiting for a message: SELECT outbox_wait' => 'app',
	'Examples: CREATE TABLE customers' => 'admin',
	'Examples: INSERT INTO outbox_new' => 'admin',
	'Examples: CREATE TABLE invoices' => 'admin',
	'Examples: CREATE TABLE stock' => 'admin',
	'Rights: GRANT EXECUTE' => 'admin',
	'`outbox_enqueue_batch`: SELECT' => 'app',
	'Routes: INSERT INTO outbox_route' => 'admin',
	'Bodies of published messages: UPDATE outbox_route' => 'admin',
	'Dead letters: INSERT INTO outbox_route' => 'admin',
	'Numbers: UPDATE outbox_route' => 'admin',
	'Numbers that were set back: UPDATE outbox_key_number' => 'admin',
	'Numbers that were set back: DELETE FROM' => 'admin',
	'Each event once: CREATE TABLE processed_messages' => 'admin',
	'Test it with a duplicate: SELECT outbox_replay' => 'operator',
	'Install: CREATE SCHEMA inbox' => 'admin',
	'Functions: BEGIN' => 'admin',
	'In the order of the key: SELECT inbox' => 'admin',
	'What it keeps: WITH ahead' => 'admin',
	'Choose a format: INSERT INTO outbox_route' => 'admin',
	'Choose a format: SELECT outbox_enqueue' => 'app',
	'The headers of the message: SELECT outbox_enqueue' => 'app',
	'The setting: BEGIN' => 'app',
	'`outbox_spans`: SELECT name' => 'tracing',
	'`outbox_spans`: CREATE INDEX' => 'admin',
	'Alerts in SQL: -- 1. Wake' => \@MONITORS,
	'Alerts in SQL: SELECT route, last_error' => 'operator',
	'Operations: a runbook: SELECT * FROM outbox_problems' => \@MONITORS,
	'Server: SELECT backend_type' => 'operator',
	'`disabled`, `version mismatch`: SELECT setting' => 'operator',
	'Routes: SELECT paused_by' => 'operator',
	'Routes: SELECT route' => 'admin',
	'Change data capture: SELECT slot_name' => 'operator',
	'Archive: SELECT * FROM outbox_archive_status' => 'operator',
	'Vacuum: SELECT pid' => 'operator',
	'`no process free`: SELECT backend_type' => 'admin',
	'`clock jumped`: SELECT worker' => \@MONITORS,
	'Link: SELECT worker' => 'operator',
	'TLS: SELECT worker' => 'operator',
	'Settings: SELECT name' => 'admin',
	'Database: SELECT worker' => \@MONITORS,
	'`table locked`: SELECT relation' => 'operator',
	'`not adopted`: SELECT route' => 'operator',
	'Exchanges: SELECT route' => 'admin',
	'A limit for a route: UPDATE outbox_route' => 'admin',
	'`backlog old`: SELECT route' => 'operator',
	'`route full`: SELECT route' => 'admin',
	'`another relay\'s route`: UPDATE outbox' => 'admin',
	'`unroutable`: SELECT route' => 'operator',
	'`queue refuses`: SELECT outbox_pause' => 'operator',
	'`failed messages`: SELECT id, event_type' => 'operator',
	'`message unreadable`: SELECT subject' => 'admin',
	'`key held`: SELECT * FROM outbox_held_keys' => 'operator',
	'`row locked`: SELECT * FROM outbox_locked_rows' => 'operator',
	'`outbox_preflight`: SELECT * FROM outbox_preflight' => 'operator',
	'Edit: SELECT outbox_edit' => 'operator',
	'Erasure: SELECT' => 'operator',
	'Replay: SELECT outbox_replay' => 'operator',
	# with a date; sql/retention runs it
	'Set up: INSERT INTO outbox_route' => 'admin',
	'A round: BEGIN' => 'forwarder',
	'What is claimed: SELECT' => 'operator',
	'Roles: -- an application' => 'admin',
	'Roles: UPDATE outbox_route' => 'admin');
# In the order of the text, but the grants come first, and what makes the table of
# the other examples (the quick start).
my @FIRST = ('Roles: -- an application');

my %text_of = map { $_ => scalar slurp_file($_) } @PAGES;
my @blocks;
foreach my $page (@PAGES)
{
	my $heading = '';
	my $text = $text_of{$page};

	while ($text =~ /(?:\A# |^##+ )(?<heading>[^\n]+)$|^```sql\n(?<sql>.*?)^```$|^[^\n]*\bpsql\b[^\n]*<<'END'\n(?<here>.*?)^END$/gms)
	{
		if (defined $+{heading}) { $heading = $+{heading}; next; }
		push @blocks, { heading => $heading, sql => $+{sql} // $+{here}, here => defined $+{here} };
	}
}

sub role_of
{
	my ($block) = @_;
	my ($key) = grep {
		my ($h, $start) = /^(.*): (.*)$/;
		$block->{heading} eq $h && index($block->{sql}, $start) == 0
	} sort { length $b <=> length $a } keys %ROLE_OF;	# the one that says most
	return $key;
}

# --- signatures

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake);

sub arguments
{
	my ($function) = @_;
	my $args = $node->sql(
		"SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = '$function'");
	$args =~ s/::(timestamp with time zone|\w+)//g;
	$args =~ s/timestamp with time zone/timestamptz/g;
	return $args;
}

sub told_arguments
{
	my ($function) = @_;
	my ($args) = $text_of{'doc/sql.md'} =~ /^\Q$function\E\((\w+ text.*?)\) RETURNS/ms;
	$args =~ s/\s+/ /g;
	return $args;
}
foreach my $function (qw(outbox_enqueue outbox_enqueue_bytes outbox_enqueue_text outbox_enqueue_once))
{
	is(told_arguments($function), arguments($function), "arguments of $function()");
}

# --- settings: names, defaults, ranges

# What the server would show of a value, in its largest unit; as it is where a session may not set it.
sub shown
{
	my ($name, $value, $context) = @_;
	return $value if $context eq 'sighup';
	return $node->sql("SELECT set_config('$name', '$value', true)");
}

my @settings = $text_of{'doc/configuration.md'} =~ /^\| `(outbox\.\w+)` (\|[^\n]*)/gm;
my %told;
while (my ($name, $cells) = splice @settings, 0, 2)
{
	$told{$name} = [ map { s/^ +| +$//gr } split /\|/, $cells ];
}
my @real = $node->rows(q{SELECT name, boot_val, min_val, max_val, vartype, context FROM pg_settings
	WHERE name LIKE 'outbox.%' AND name <> 'outbox.as_owner' ORDER BY 1});
is_deeply([ sort keys %told ], [ map { $_->[0] } @real ], 'every setting is in doc/configuration.md');
foreach my $setting (@real)
{
	my ($name, $boot, $min, $max, $type, $context) = @$setting;
	my (undef, $default, $range) = @{ $told{$name} // [] };

	$default =~ s/^`(.*)`$/$1/ or $default =~ s/^empty$//;
	is($default, shown($name, $boot, $context), "default of $name");
	next if $type ne 'integer';
	is($range =~ s/(\d) (ms|s|h|d|kB|MB)\b/$1$2/gr,
		shown($name, $min, $context) . ' to ' . shown($name, $max, $context), "range of $name");
}

# --- every block of SQL, on three servers

sub run_as
{
	my ($server, $role, $sql, $what) = @_;
	my ($out, $err) = ('', '');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$sql =~ s/FROM STDIN;/FROM STDIN;\n\\./g;
	$sql = "SET SESSION AUTHORIZATION $role;\n$sql" if $role ne 'admin';
	my $ok = IPC::Run::run(
		[
			$server->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1',
			'-d', $server->connstr('shop')
		],
		'<', \$sql, '>', \$out, '2>', \$err);
	ok($ok, $what) or diag $err;
	return $out;
}

my %seen;

sub run_pages
{
	my ($server, $name) = @_;

	$server->sql('CREATE DATABASE shop');
	$server->sql(<<'SQL', 'shop');
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE ROLE app;
CREATE ROLE orm;
CREATE ROLE billing_app;
CREATE ROLE monitor;
CREATE ROLE watcher IN ROLE pg_monitor;
CREATE ROLE operator;
CREATE ROLE tracing;
CREATE ROLE forwarder;
INSERT INTO outbox (event_type, payload, status) SELECT 'old', '{}', 'failed' FROM generate_series(1, 3);
SQL
	$server->sql(slurp_file("examples/tracing/spans.sql") . '; GRANT SELECT ON outbox_spans TO tracing', 'shop');
	my @order = (
		(grep { my $key = role_of($_) // ''; grep { $_ eq $key } @FIRST } @blocks),
		(grep { $_->{here} } @blocks),
		(grep { my $key = role_of($_) // ''; !$_->{here} && !grep { $_ eq $key } @FIRST } @blocks));
	foreach my $block (@order)
	{
		my ($first) = $block->{sql} =~ /^(.{0,40})/;
		my $key = role_of($block);
		my $roles = $block->{here} ? 'admin' : $ROLE_OF{ $key // '' };

		if (!defined $roles)
		{
			fail("a role for \"$block->{heading}: $first\"");
			next;
		}
		$seen{$key} = 1 if defined $key;
		next if $roles eq 'shape' || $roles eq 'elsewhere';
		run_as($server, $_, $block->{sql}, "$name, $_: $block->{heading}: $first")
		  foreach ref $roles ? @$roles : $roles;
		# what other examples are about, and no broker of theirs
		$server->sql(q{ALTER TABLE IF EXISTS orders ADD IF NOT EXISTS status text DEFAULT 'created'}, 'shop');
		$server->sql('ALTER DATABASE shop RESET outbox.broker_uri');
		$server->sql('ALTER SYSTEM RESET ALL');
	}
	# as an ORM does it: what is not set is NULL, JSON null if it was None
	like(
		run_as($server, 'orm', <<'SQL', "$name, orm: all columns that it may set"),
INSERT INTO outbox (route, event_type, aggregate_type, aggregate_id, payload, body, headers, properties, routing_key, available_at)
VALUES ('default', 'order.created', 'order', '7', '{"order_id": 7}', NULL, 'null', NULL, NULL, NULL) RETURNING outbox.seq, outbox.id;
SQL
		qr/^\d+\|[0-9a-f-]{36}$/m, "$name, orm: gets number and id");
	like(
		run_as($server, 'orm', <<'SQL', "$name, orm: outbox_new"),
INSERT INTO outbox_new (id, route, event_type, aggregate_type, aggregate_id, payload, body, headers, properties, routing_key, available_at)
VALUES (outbox_uuid7(), 'default', 'order.created', 'order', 7, '{"order_id": 7}'::json, NULL, 'null', NULL, NULL, NULL)
RETURNING id, route, created_at > now() - interval '1 minute';
SQL
		qr/^[0-9a-f-]{36}\|default\|t$/m, "$name, orm: gets id, route and time");
	# and what stands in the text; that of the checklist is for a server that is ready: checklist.pl
	# (\watch would go on for ever)
	my %text = map { s/ *\\watch.*//r => 1 } map { /`((?:SELECT|TRUNCATE|VACUUM) [^`]*)`/g }
	  map { $text_of{$_} } grep { $_ ne 'doc/checklist.md' } sort keys %text_of;
	cmp_ok(scalar(keys %text), '>', 6, "$name: statements in the text");
	foreach my $sql (sort keys %text)
	{
		run_as($server, $sql =~ /adopt|reload|TRUNCATE|VACUUM/ ? 'admin' : 'operator', "$sql;", "$name: $sql");
	}
	return;
}

run_pages($node, 'preloaded');
is_deeply([ grep { !$seen{$_} } sort keys %ROLE_OF ], [], 'every block that this test knows is there');

# --- the program of doc/clients.md that no test of test/clients runs, with the quick start's table

my ($program) = slurp_file('doc/clients.md') =~ /^```python\n(import psycopg2\n.*?)^```$/ms;
{
	local ($ENV{PGHOST}, $ENV{PGPORT}) = ($node->host, $node->port);
	run_log([ $ENV{PYTHON}, '-c', $program ]);
}
is($node->sql(q{SELECT count(*) > 0 FROM orders o JOIN outbox_messages m ON m.aggregate_id = o.id::text WHERE o.id = 8 AND m.payload->>'amount' = '4200'}, 'shop'), 't', 'psycopg2: an order and its message');

# --- commands of outbox_problems, as an operator

$node->sql(<<'SQL', 'shop');
INSERT INTO outbox (event_type, payload, available_at, attempts, last_error, last_error_reason)
	SELECT 'e', '{}', now() + interval '1 hour', 1, 'access to topic ''e''', r
	FROM unnest('{unroutable,queue refuses,message refused}'::text[]) r;
UPDATE outbox SET available_at = now() + interval '1 hour', attempts = 1, last_error = 'access to topic ''e''', last_error_reason = 'message refused'
	WHERE event_type = 'e';
SELECT outbox_pause('default');
SQL
my @commands = split /\n/, run_as($node, 'operator', 'SELECT DISTINCT command FROM outbox_problems WHERE command IS NOT NULL', 'problems, operator');
cmp_ok(scalar(grep { /^rabbitmqctl .* -p / } @commands), '>', 0, 'a command of RabbitMQ has the virtual host') or diag join "\n", @commands;
is_deeply([ grep { /<[A-Z_]+>/ } @commands ], [], 'nothing is left to fill in for an operator');
run_as($node, 'operator', "$_;", "operator: $_") foreach grep { /^SELECT/ } @commands;
my @told = split /\n/, run_as($node, 'monitor', 'SELECT DISTINCT command FROM outbox_problems WHERE command IS NOT NULL', 'problems, monitor');
is_deeply([ grep { / -p (?!<VHOST>)/ } @told ], [], 'for a role that may not see it, the virtual host is no word that a shell takes');

my $alerts = (grep { $_->{heading} eq 'Alerts in SQL' } @blocks)[0]->{sql};

sub alerts
{
	my ($server, $dbname) = @_;
	my @rows;

	foreach my $alert (split /(?<=;)\n/, $alerts)
	{
		my ($n) = $alert =~ /^-- (\d)\./m or next;
		push @rows, $n
		  if $server->sql("SET SESSION AUTHORIZATION watcher; $alert", $dbname) ne '';
	}
	return join ',', @rows;
}
$node->sql('SELECT outbox_discard(id) FROM outbox_failed; DELETE FROM outbox', 'shop');
$node->wait_sql(q{SELECT state = 'idle' AND workers = 1 FROM outbox_status}, 't', undef, 'shop');
is(alerts($node, 'shop'), '', 'no alert when nothing is wrong');

# --- nothing is published for messages of a paused route, and of a late one

$node->sql(<<'SQL', 'shop');
INSERT INTO outbox_route (name) VALUES ('held');
SELECT outbox_pause('held', 'for a test');
INSERT INTO outbox (event_type, payload, route, created_at)
	SELECT 'e', '{}', 'held', now() - interval '20 minutes' FROM generate_series(1, 2);
UPDATE outbox SET available_at = now() - interval '1 minute';
SQL
is(alerts($node, 'shop'), '', 'a scheduled message is not late as soon as it is due');
like($node->sql('SELECT state, hint FROM outbox_status', 'shop'),
	qr/^idle\|Messages wait on a paused route: "held" \(2\)/, 'the hint names the route');
$node->sql(q{UPDATE outbox SET available_at = NULL}, 'shop');
is(alerts($node, 'shop'), '2', 'late messages of a paused route raise the alert');
$node->sql(q{UPDATE outbox SET created_at = now() - interval '1 day'}, 'shop');
is(alerts($node, 'shop'), '1,2', 'and wake somebody when they are much later');
$node->sql(q{UPDATE outbox_route SET paused_at = now() - interval '1 hour' WHERE name = 'held'}, 'shop');
is(alerts($node, 'shop'), '1,2,6', 'a pause that lasts is told apart');
$node->sql('DELETE FROM outbox; SET client_min_messages = error; DROP EXTENSION outbox CASCADE', 'shop');

# --- two workers, of which the second has a route that cannot be published on

$fake->do('when exchange=gone : channel-close 404 "NOT_FOUND - no exchange gone"',
	'stage declare exchange=gone : channel-close 404 "NOT_FOUND - no exchange gone"');
$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('gone', 'gone')});
$node->set('outbox.workers', 2);
my $both = q{SELECT string_agg(worker || ' ' || state, ',' ORDER BY worker) FROM outbox_workers};
$node->wait_sql($both, '0 idle,1 idle');
foreach my $worker (1, 0)
{
	my $key = $node->sql(<<"SQL");
SELECT outbox_enqueue('e', '{}', aggregate_id => k::text, route => 'gone') IS NULL OR k > 0
FROM (SELECT k FROM generate_series(1, 100) k
	  WHERE (outbox_internal.outbox_key_hash('gone', NULL, k::text) & 9223372036854775807) % 2 = $worker LIMIT 1) k
SQL
	$node->wait_sql(<<"SQL");
SELECT s.state = 'idle' AND s.hint ~ 'route cannot be published to' AND s.last_error ~ 'route "gone".*NOT_FOUND'
	AND s.last_error_at = w.last_error_at
FROM outbox_status s, outbox_workers w WHERE w.worker = $worker
SQL
	# its error stays when it is over
	$node->sql('DELETE FROM outbox');
	$node->sql('SELECT outbox_worker_restart()');
	$node->wait_sql(q{SELECT state = 'idle' AND workers = 2 AND hint IS NULL FROM outbox_status});
	is($node->sql("SELECT last_error ~ 'NOT_FOUND' FROM outbox_workers WHERE worker = $worker"), 't', "worker $worker");
}
$node->unset('outbox.workers');
$node->stop('fast');

# --- without the library, and without a launcher

my $plain = OutboxTest::Node->create(name => 'plain', preload => 0);
run_pages($plain, 'not preloaded');
is(alerts($plain, 'shop') =~ s/,3//r, '1', 'not preloaded: the first alert says so');
like($plain->sql('SELECT state, hint FROM outbox_status', 'shop'),
	qr/^not preloaded\|Add outbox to shared_preload_libraries/, 'not preloaded: and the hint');
$plain->stop('fast');

$plain->append_conf('postgresql.conf', "shared_preload_libraries = 'outbox'\nmax_worker_processes = 0");
$plain->start;
like($plain->sql('SELECT state, hint FROM outbox_status'),
	qr/^stopped\|The outbox launcher does not run/, 'no launcher: the hint does not promise workers');
is(alerts($plain, 'shop') =~ s/,3//r, '1,5', 'no launcher: alerts');
$plain->stop('fast');
done_testing();
