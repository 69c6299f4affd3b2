# A password and the contents of messages are nowhere but where they belong, while
# the server logs all that it can and the broker repeats what it was told: H6, H7, D10,
# A22 and I8 of doc/dev/fault-cases.md.  One server goes through each way of a message and
# each fault of the link; in the end all logs, views, settings and titles of processes
# are searched.
#
# What a role says itself is its own affair: the sessions that write messages are not
# logged, and one that is shows that the search finds what is there.
#
# suite: test
# takes: 14 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $PASSWORD = 'Pa55wordMarker';
my $WRONG = 'Wr0ngMarker';
my $IN_URI = 'Ur1Marker';
my $CONTENT = 'C0ntentMarker';
my $CONTROL = 'C0ntrolMarker';

my $passfile = "$PostgreSQL::Test::Utils::tmp_check/secrets_passfile";
my $fake = OutboxTest::FakeBroker->start;
my $at = '127.0.0.1:' . $fake->port;

sub write_passfile
{
	my ($content, $mode) = @_;
	unlink $passfile;
	append_to_file($passfile, $content);
	chmod $mode // 0600, $passfile;
	return;
}

write_passfile("# relay\r\n*:*:*:relay:$PASSWORD\r\n");
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<"END");
shared_preload_libraries = 'outbox, pg_stat_statements, auto_explain'
logging_collector = on
log_destination = 'stderr, csvlog, jsonlog'
log_directory = 'log'
log_filename = 'server.log'
log_rotation_age = 0
log_rotation_size = 0
log_min_messages = debug5
log_min_error_statement = debug5
log_error_verbosity = verbose
log_statement = all
log_duration = on
log_min_duration_statement = 0
log_parameter_max_length = -1
log_parameter_max_length_on_error = -1
log_connections = on
log_disconnections = on
log_lock_waits = on
debug_print_parse = on
debug_print_rewritten = on
debug_print_plan = on
track_activity_query_size = 64kB
pg_stat_statements.track = all
pg_stat_statements.track_utility = on
auto_explain.log_min_duration = 0
auto_explain.log_nested_statements = on
auto_explain.log_analyze = on
auto_explain.log_verbose = on
auto_explain.log_settings = on
auto_explain.log_triggers = on
outbox.broker_uri = 'amqp://relay\@$at/v'
outbox.passfile = '$passfile'
outbox.retry_initial = 20ms
outbox.retry_max = 50ms
END
my $dir = $node->data_dir . '/log';

# Sessions that are not logged, and some whose statements are; plans of large views
# would only be long.
my $plans = '-c debug_print_parse=off -c debug_print_rewritten=off -c debug_print_plan=off';
my $quiet = "$plans -c log_statement=none -c log_duration=off -c log_min_duration_statement=-1"
  . ' -c log_min_error_statement=panic -c auto_explain.log_min_duration=-1';
$ENV{PGOPTIONS} = "$quiet -c log_min_messages=warning";

sub as
{
	my ($role, $options, $statements) = @_;
	local $ENV{PGOPTIONS} = "$options -c role=$role";
	my ($status, $out, $err) = $node->psql('postgres', $statements, on_error_stop => 0);
	return ($out, $err);
}

sub loud { return as($_[0], $plans, $_[1]) }

# All that has been written so far, of each kind of log.
sub logs { return map { slurp_file("$dir/server.$_") } qw(log csv json) }

# A line that is in the log, or comes.  The logs are large: nothing is read twice, and
# what an earlier call has gone through is not searched again.
my $searched = 0;

sub said
{
	my ($regexp, $what) = @_;
	my $text = '';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until(
		$what,
		sub {
			my $more = slurp_file("$dir/server.log", $searched);
			$searched += length $more;
			$text .= $more;
			return 1 if $text =~ $regexp;
			# a line that is not yet there as a whole
			$text =~ s/.*\n//s;
			return;
		});
}

# The secrets that are in a text, also as debug_print_plan shows bytes.
sub secrets_in
{
	my ($text) = @_;
	my @found;
	foreach my $secret ($PASSWORD, $WRONG, $IN_URI, $CONTENT)
	{
		my $bytes = join ' ', map { ord } split //, $secret;
		push @found, $secret if index($text, $secret) >= 0 || index($text, $bytes) >= 0;
	}
	return @found;
}

sub nothing_in
{
	my ($text, $what, @known) = @_;
	my %known = map { ($_ => 1) } @known;
	my @found = grep { !$known{$_} } secrets_in($text);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ok = ok(length $text > 0 && !@found, "$what: nothing of what is secret");
	diag join "\n", 'found: ' . join(' ', @found),
	  map { substr $_, 0, 500 } grep { secrets_in($_) } split /\n/, $text
	  unless $ok;
	return $ok;
}

$node->sql(<<'END');
CREATE EXTENSION pg_stat_statements;
CREATE ROLE writer; CREATE ROLE monitor IN ROLE pg_monitor; CREATE ROLE operator; CREATE ROLE forwarder; CREATE ROLE nobody;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes, outbox_enqueue_text, outbox_enqueue_batch,
	outbox_enqueue_once, outbox_capture TO writer;
GRANT INSERT, SELECT ON outbox_new TO writer;
GRANT INSERT (event_type, payload, headers, route) ON outbox TO writer;
GRANT ALL ON ALL TABLES IN SCHEMA public TO operator;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public, outbox_internal TO operator;
GRANT EXECUTE ON FUNCTION outbox_claim, outbox_ack, outbox_nack, outbox_extend, outbox_release TO forwarder;
CREATE TABLE customer (id int PRIMARY KEY, name text);
ALTER TABLE customer OWNER TO writer;
CREATE TRIGGER events AFTER INSERT OR UPDATE OR DELETE ON customer FOR EACH ROW EXECUTE FUNCTION outbox_capture('event=customer');
INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts, failed_route, relay) VALUES
	('dead', 'dead', NULL, 1, NULL, 'internal'), ('give.up', 'refused', NULL, 1, 'dead', 'internal'),
	('nowhere', 'nowhere', NULL, 1, NULL, 'internal'), ('missing', 'missing', NULL, 1, NULL, 'internal'),
	('outside', 'none', NULL, 1, NULL, 'external');
END
$node->wait_sql('SELECT state FROM outbox_status', 'idle');

# All but what nobody outside has claimed.
sub drained
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->wait_sql(q{SELECT count(*) FROM outbox WHERE status = 'pending' AND route <> 'outside'}, 0);
}

subtest 'messages go each way' => sub {
	my $headers = qq{headers => '{"h": "$CONTENT", "n": {"a": ["$CONTENT"]}}'};
	my $payload = qq{'{"x": "$CONTENT"}'};

	$fake->do('when type=again times=2 : nack', 'when exchange=refused : nack',
		"when exchange=nowhere : return 312 NO_ROUTE body=100",
		'stage declare exchange=missing times=2 : channel-close 404 NOT_FOUND');
	my (undef, $error) = as('writer', $quiet, <<"END");
SELECT outbox_enqueue('e', $payload, $headers);
SELECT outbox_enqueue('again', $payload, 't', 'k', $headers);
SELECT outbox_enqueue('e', $payload, $headers, route => 'give.up') FROM generate_series(1, 2);
SELECT outbox_enqueue('e', $payload, 't', 'erase', $headers, route => 'nowhere') FROM generate_series(1, 2);
SELECT outbox_enqueue('e', $payload, $headers, route => 'nowhere') FROM generate_series(1, 3);
SELECT outbox_enqueue('e', $payload, $headers, route => 'missing');
SELECT outbox_enqueue('e', $payload, $headers, route => 'outside') FROM generate_series(1, 3);
SELECT outbox_enqueue_bytes('e', '$CONTENT', $headers);
SELECT outbox_enqueue_text('e', $payload, headers => '{"h": "$CONTENT"}');
SELECT outbox_enqueue_batch('[{"event_type": "e", "payload": {"x": "$CONTENT"}, "headers": {"h": "$CONTENT"}}]');
SELECT outbox_enqueue_once('once', 'e', $payload, $headers), outbox_enqueue_once('once', 'e', $payload, $headers);
INSERT INTO outbox (event_type, payload, headers) VALUES ('e', $payload, '{"h": "$CONTENT"}');
INSERT INTO outbox_new (event_type, payload, headers) VALUES ('e', $payload, '{"h": "$CONTENT"}') RETURNING id;
INSERT INTO customer VALUES (1, '$CONTENT');
UPDATE customer SET name = name || '2';
DELETE FROM customer;
BEGIN;
SELECT outbox_enqueue('e', $payload, $headers);
PREPARE TRANSACTION 'secrets';
END
	is($error, '', 'by each way of enqueue');
	$node->sql("COMMIT PREPARED 'secrets'");
	$node->wait_sql('SELECT count(*) FROM outbox_failed', 5);
	$node->wait_sql(q{SELECT count(*) FROM outbox_archive WHERE route = 'dead'}, 2);
	drained();

	# What is refused, and why, in the words of the error.
	my @bad = (
		"SELECT outbox_enqueue('', $payload)",
		"SELECT outbox_enqueue('e', $payload, headers => '[\"$CONTENT\"]')",
		"SELECT outbox_enqueue('e', $payload, headers => jsonb_build_object(repeat('x', 300), '$CONTENT'))",
		"SELECT outbox_enqueue('e', $payload, headers => jsonb_build_object('CC', '$CONTENT'))",
		"SELECT outbox_enqueue('e', $payload, headers => jsonb_build_object('h', repeat('$CONTENT', 20000)))",
		"SELECT outbox_enqueue('e', $payload, $headers, route => 'none.such')",
		"SELECT outbox_enqueue('e', $payload, $headers, properties => '{\"priority\": 999}')",
		"SELECT outbox_enqueue('e', jsonb_build_object('x', repeat('$CONTENT', 2000000)))",
		"SELECT outbox_enqueue_bytes('e', '$CONTENT', $headers, message_id => '00000000-0000-0000-0000-000000000000', content_type => repeat('x', 300))",
		"SELECT outbox_enqueue_batch('[{\"event_type\": \"\", \"payload\": \"$CONTENT\"}]')",
		"SELECT outbox_enqueue_batch('[{\"event_type\": \"e\", \"payload\": \"$CONTENT\", \"h\": \"$CONTENT\"}]')",
		"SELECT outbox_enqueue_once(repeat('k', 3000), '', $payload)",
		"INSERT INTO outbox_new (event_type, payload, route) VALUES ('e', $payload, 'none.such')");
	my $errors = (as('writer', $quiet, join ";\n", @bad))[1];
	is(scalar(() = $errors =~ /ERROR:/g), scalar @bad, 'what is wrong is refused') or diag $errors;
	nothing_in($errors, 'errors of enqueue');
};

subtest 'operators, relays outside and whoever looks, in sessions that are logged' => sub {
	# what it changes is a variable of the function, and in the plans of its statements
	my ($out, $error) = as('operator', $quiet, <<'END');
SELECT outbox_edit(id, clear => '{headers}', reason => 'r') FROM outbox_failed WHERE aggregate_id IS NULL ORDER BY seq LIMIT 1;
END
	is($out . $error, 't', 'a message is edited');
	($out, $error) = loud('operator', <<'END');
SELECT id FROM outbox_failed WHERE aggregate_id IS NULL ORDER BY seq LIMIT 1 \gset
SELECT id AS other FROM outbox_failed WHERE aggregate_id IS NULL ORDER BY seq OFFSET 1 LIMIT 1 \gset
SELECT outbox_requeue(:'id');
SELECT outbox_discard(:'other');
SELECT outbox_discard_messages(reason => 'r', status => 'failed', route => 'nowhere', max_messages => 1);
SELECT outbox_erase('t', 'erase', 'r');
SELECT outbox_requeue_failed(route => 'nowhere');
SELECT outbox_replay(now() - interval '1 hour', clock_timestamp(), 'default');
SELECT outbox_pause('nowhere', 'r'), outbox_resume('nowhere', 'r');
SELECT length(outbox_top()::text) FROM outbox_top() LIMIT 1;
END
	is($error, '', 'each repair');
	$node->wait_sql(q{SELECT string_agg(state, ' ') FROM outbox_job}, 'done');
	($out, $error) = loud('forwarder', <<'END');
SELECT token, id FROM outbox_claim('outside', 1, '1 minute', 'f') \gset a
SELECT outbox_extend(:atoken), outbox_nack(:atoken, :'aid', 'no', '1 second');
SELECT token, id FROM outbox_claim('outside', 1) \gset b
SELECT outbox_release(:btoken);
SELECT token, id FROM outbox_claim('outside', 1) \gset c
SELECT outbox_ack(:ctoken);
END
	is($error, '', 'claims from outside');
	# statistics hold values of columns
	$node->sql('ANALYZE outbox, outbox_archive');
};

# What the broker says is told, and then it is well again.
sub tells
{
	my ($like, @commands) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$fake->do(@commands);
	$node->wait_sql("SELECT last_error LIKE '%$like%' FROM outbox_status", 't');
	$fake->do('forget');
	$fake->do('now unblocked') if $like =~ /^low/;
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
	return;
}

subtest 'a broker that repeats the password' => sub {
	my $fails = sub {
		my ($type, $like, $command) = @_;
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		$fake->do($command);
		as('writer', $quiet, "SELECT outbox_enqueue('$type', '{}', route => 'nowhere')");
		$node->wait_sql("SELECT last_error LIKE '%$like%' FROM outbox_failed WHERE event_type = '$type'", 't');
		$fake->do('forget');
	};

	$fake->do('forget');
	tells('low on ***', qq{now blocked "low on $PASSWORD"});
	$fails->('returned', '312 ***-NO_ROUTE', "when type=returned : return 312 $PASSWORD-NO_ROUTE");
	$fails->('closed', '******', "when type=closed : channel-close 406 $PASSWORD$PASSWORD");
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('missing too', 'missing.too')});
	$fake->do(qq{stage declare exchange=missing.too : channel-close 404 "no $PASSWORD"});
	as('writer', $quiet, q{SELECT outbox_enqueue('e', '{}', route => 'missing too')});
	$node->wait_sql(q{SELECT waits_because LIKE '%no ***%' FROM outbox_routes_status WHERE route = 'missing too'}, 't');
	$fake->do('forget');
	drained();
	tells('login was refused by the broker: relay:*** is refused',
		qq{stage start-ok : connection-close 403 "relay:$PASSWORD is refused"},
		qq{now connection-close 320 "CONNECTION_FORCED - $PASSWORD"});
	said(qr/CONNECTION_FORCED - \*\*\*/, 'a connection that is closed');
	tells('could not open virtual host "v": vhost *** not found',
		qq{stage open : connection-close 530 "vhost $PASSWORD not found"}, 'now fin');

	# in a session, as preflight asks for itself
	$fake->do("stage declare exchange=other times=1 : channel-close 404 \"no $PASSWORD\"",
		"stage try times=1 : channel-close 403 \"no $PASSWORD\"");
	$node->sql(q{INSERT INTO outbox_route (name, exchange) VALUES ('other', 'other')});
	my ($out) = loud('operator', q{SELECT * FROM outbox_preflight('default', 'k', true)});
	like($out, qr/no \*\*\*/, 'preflight');
	nothing_in($out, 'preflight');
	$fake->do('forget');
};

# A22: the file, as a link changes what it finds there.
subtest 'the password file' => sub {
	my $idle = sub {
		$node->reload;
		return $node->wait_sql('SELECT state FROM outbox_status', 'idle');
	};
	my $refused = sub {
		my ($regexp, $what) = @_;
		$node->reload;
		ok($node->wait_sql("SELECT hint IS NOT NULL AND last_error ~ '$regexp' FROM outbox_status", 't'), $what);
	};

	$idle->();
	$fake->mark_connections;
	write_passfile("*:*:*:relay:$PASSWORD\n");
	$node->reload;
	$node->wait_turn or return;
	$idle->();
	is($fake->reconnects, 0, 'the same password in another file: no new connection');
	write_passfile("*:*:*:relay:$WRONG\n");
	$node->reload;
	ok($fake->wait_reconnects(1), 'another password: a new connection, after a reload');
	write_passfile("*:*:*:relay:$WRONG\n", 0644);
	$refused->('group or world access', 'others may read it');
	write_passfile("*:*:*:relay:$WRONG\0\n");
	$refused->('zero byte', 'a zero byte in it');
	write_passfile("*:*:*:somebody:$WRONG\n");
	$refused->('no line', 'no line');
	unlink $passfile;
	require POSIX;
	POSIX::mkfifo($passfile, 0600) or die $!;
	$refused->('not a plain file', 'a pipe, on which nobody waits');
	unlink $passfile;
	symlink '/dev/zero', $passfile or die $!;
	$refused->('not a plain file', 'a device that never ends');
	unlink $passfile;
	mkdir $passfile or die $!;
	$refused->('not a plain file', 'a directory');
	rmdir $passfile;
	append_to_file("$passfile.target", "*:*:*:relay:$WRONG\n");
	chmod 0600, "$passfile.target";
	symlink "$passfile.target", $passfile or die $!;
	ok($idle->(), 'a symbolic link');
	tells('ACCESS_REFUSED - Login', 'stage start-ok : connection-close 403 "ACCESS_REFUSED - Login was refused"', 'now fin');
	unlink $passfile;
	write_passfile("*:*:*:relay:$PASSWORD\n");
	$idle->();
};

# Statements that say it are logged in the words of their author, so these are not.
subtest 'a password in the URI' => sub {
	my $uri = "amqp://relay:$IN_URI\@$at/v";
	my $errors = '';

	foreach my $statement (
		"SET outbox.broker_uri = '$uri'",
		"ALTER SYSTEM SET outbox.broker_uri = '$uri'",
		"ALTER DATABASE postgres SET outbox.broker_uri = '$uri'",
		"ALTER ROLE writer SET outbox.broker_uri = '$uri'",
		"ALTER ROLE ALL SET outbox.broker_uri = '$uri'",
		"ALTER ROLE writer IN DATABASE postgres SET outbox.broker_uri = '$uri'",
		"SELECT set_config('outbox.broker_uri', '$uri', false)",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql SET outbox.broker_uri = '$uri' RETURN 1")
	{
		my ($status, $out, $err) = $node->psql('postgres', $statement, on_error_stop => 0);
		like($err, qr/ERROR:.*must not contain a password/s, $statement =~ s/ *'?outbox.*//r . ': refused');
		$errors .= $err;
	}
	nothing_in($errors, 'errors');

	my $file = $node->data_dir . '/postgresql.conf';
	my $conf = slurp_file($file);
	$node->append_conf('postgresql.conf', "outbox.broker_uri = '$uri'");
	$node->reload;
	said(qr/must not contain a password/, 'in the configuration file, and a reload');
	is($node->sql('SELECT state FROM outbox_status'), 'idle', 'the relay keeps the one that it had');

	# at the server's start the relay must not take the default instead
	my ($out, $err);
	$node->restart;
	$node->wait_sql(q{SELECT state, last_error ~ 'must not contain a password' FROM outbox_status}, 'config error|t');
	my $query = "SELECT s::text FROM pg_settings s WHERE name LIKE 'outbox.%'";
	nothing_in((loud('monitor', $query))[0], 'pg_settings after a start with it');
	($out, $err) = loud('nobody', <<'END');
SET force_parallel_mode = on;
SET debug_parallel_query = on;
SET parallel_setup_cost = 0;
SELECT count(*) > 0 FROM pg_class;
END
	like($out, qr/^t$/m, 'a parallel query, whose worker gets all settings');
	nothing_in("$out$err", 'and what it says');
	unlink $file;
	append_to_file($file, $conf);
	$node->reload;
	$node->wait_sql('SELECT state FROM outbox_status', 'idle');
};

subtest 'a worker that crashes, and errors of the database' => sub {
	$node->sql("ALTER TABLE outbox_archive ADD CONSTRAINT test_no_x CHECK (event_type <> 'odd') NOT VALID");
	as('writer', $quiet, qq{SELECT outbox_enqueue('odd', '{"x": "$CONTENT"}', headers => '{"h": "$CONTENT"}')});
	said(qr/ERROR: .*test_no_x/, 'a row that may not be archived');
	$node->sql('ALTER TABLE outbox_archive DROP CONSTRAINT test_no_x');
	drained();
	as('writer', $quiet, qq{SELECT outbox_enqueue('e', '{"x": "$CONTENT"}')});
	is(scalar($node->kill_backends('KILL')), 1, 'the worker is killed');
	$node->wait_restarted;
	as('writer', $quiet, q{SELECT outbox_enqueue('goes on', '{}')});
	ok(wait_until('the next message', sub { grep { $_->{type} eq 'goes on' } $fake->records }), 'and another one goes on');
	drained();
};

# Each relation and each function without arguments that a role may use.
sub all_that_may_be_read
{
	my ($role) = @_;
	my $text = '';

	my ($statements) = as($role, $quiet, <<'END');
SELECT format('SELECT %L, x::text FROM %s x;', c.oid::regclass, c.oid::regclass)
FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
WHERE c.relkind IN ('r', 'v', 'p') AND has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(c.relnamespace, 'USAGE') ORDER BY 1;
SELECT format('SELECT %L, x::text FROM %s() x;', p.oid::regproc, p.oid::regproc)
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'outbox'
WHERE p.pronargs = p.pronargdefaults AND p.prorettype <> 'trigger'::regtype AND p.prokind = 'f'
	AND p.proname NOT IN ('outbox_adopt', 'outbox_worker_restart', 'outbox_pause', 'outbox_resume', 'outbox_preflight')
	AND has_function_privilege(p.oid, 'EXECUTE') AND has_schema_privilege(p.pronamespace, 'USAGE') ORDER BY 1;
END
	cmp_ok(scalar(() = $statements =~ /;/g), '>', $role eq 'operator' ? 29 : 0, "$role: relations and functions");
	$statements .= <<'END';
SELECT s::text FROM pg_settings s;
SHOW ALL;
SELECT s::text FROM pg_stat_activity s WHERE pid <> pg_backend_pid();
SELECT s::text FROM pg_stat_statements s;
SELECT s::text FROM pg_stats s;
SELECT s::text FROM pg_db_role_setting s;
SELECT s::text FROM pg_prepared_statements s;
SELECT s::text FROM pg_locks s;
SELECT s::text FROM pg_description s;
END
	my ($out, $err) = loud($role, $statements);
	note "$role: " . scalar(() = $statements =~ /;/g) . " statements, " . length($out) . ' bytes';
	unlike($err, qr/ERROR/, "$role: may read what it has the right for");
	return $out . $err;
}

subtest 'what may be read' => sub {
	nothing_in(all_that_may_be_read('nobody'), 'anybody');
	nothing_in(all_that_may_be_read('writer'), 'whoever may enqueue');
	nothing_in(all_that_may_be_read('monitor'), 'pg_monitor');
	# messages are for operators; the password is not
	nothing_in(all_that_may_be_read('operator'), 'operators', $CONTENT);
	my $superuser = $node->sql('SELECT current_user');
	nothing_in(all_that_may_be_read($superuser), 'the superuser', $CONTENT);
	nothing_in(scalar $node->sql('SELECT s::text FROM pg_file_settings s'), 'pg_file_settings');
	nothing_in(scalar $node->sql('SELECT s::text FROM pg_stat_statements s'), 'pg_stat_statements');
	nothing_in(scalar $node->sql("SELECT s::text FROM pg_stat_activity s WHERE backend_type <> 'client backend'"),
		'pg_stat_activity of the relay');
};

subtest 'processes' => sub {
	my @pids = ($node->postmaster_pid, $node->backend_pids('%'));
	my $text = '';

	foreach my $pid (@pids)
	{
		foreach my $file ("/proc/$pid/cmdline", "/proc/$pid/environ")
		{
			open my $fh, '<', $file or next;
			local $/;
			$text .= <$fh> // '';
		}
	}
	like($text, qr/outbox relay/, 'their titles are there');
	nothing_in($text, 'titles and environment of ' . @pids . ' processes');
};

subtest 'logs' => sub {
	# that there is something to be found
	as('writer', $plans, qq{SELECT outbox_enqueue('e', '{"x": "$CONTROL"}')});
	drained();
	$node->stop;
	my %text = map { ($_ => slurp_file("$dir/server.$_")) } qw(log csv json);
	like($text{log}, qr/outbox relay 0.*Query Text: /s, 'statements of the worker are logged');
	foreach my $kind (sort keys %text)
	{
		like($text{$kind}, qr/$CONTROL/, "$kind: a statement that is logged is found");
		nothing_in($text{$kind}, "$kind of " . length($text{$kind}) . ' bytes');
	}
	nothing_in(slurp_file($node->logfile), 'what the server prints');
};

done_testing();
