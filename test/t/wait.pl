# outbox_wait(): what a relay tells those who wait.
#
# suite: test
# takes: 8 s

use strict;
use warnings;

use POSIX ();

use Test::More;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake,
	conf => <<'END');
max_connections = 150
max_prepared_transactions = 5
outbox.retention = 0
outbox.retry_initial = 10ms
outbox.retry_max = 20ms
END
$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts, failed_route, retention) VALUES
	('archived', 'outbox', 10, NULL, '1 day'), ('refused', 'refused', 2, NULL, NULL),
	('lost', 'refused', 1, 'held', NULL), ('held', 'outbox', 10, NULL, NULL)});
$fake->do('when exchange=refused : nack');

# Who is not told looks once more at the end of the timeout, which would hide that: so the
# statement ends before.
my $LONG = q{'1 hour'};
$node->sql("ALTER DATABASE postgres SET statement_timeout = '${TIMEOUT}s'");

sub enqueue
{
	my ($more) = @_;
	return $node->sql("SELECT outbox_enqueue('e', '{}'" . (defined $more ? ", $more" : '') . ')');
}

sub result { return $node->sql("SELECT outbox_wait('$_[0]', $LONG)") }

# A session that waits for a message, once it sleeps.
sub waiter
{
	my ($id) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_until(qr/^begun/m, "\\echo begun\nSELECT outbox_wait('$id', $LONG);\n");
	my $event = $node->sql('SELECT current_setting($$server_version_num$$)') < 170000 ? 'Extension' : 'OutboxWaitMessage';
	ok($node->wait_sql("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid AND state = 'active'", $event),
		"it sleeps: $event");
	return { session => $session, pid => $pid };
}

# What it was told.
sub told
{
	my ($waiter) = @_;
	my $out = $waiter->{session}->query_until(qr/^(published|failed|pending|unknown)$/m, '');
	$waiter->{session}->quit;
	return $out =~ /^(published|failed|pending|unknown)$/m ? $1 : $out;
}

# --- a commit, and then a wait: published, also when nothing is kept of it

my $session = $node->client;
foreach my $i (1 .. 20)
{
	my $id = $session->query(q{SELECT outbox_enqueue('e', '{}')});
	is($session->query("SELECT outbox_wait('$id', $LONG)"), 'published', "retention 0, $i") or last;
}
my $settled = enqueue();
$node->wait_drained;
is(result($settled), 'published', 'settled before the call, and nothing is kept');
is($node->sql('SELECT count(*) FROM outbox_archive'), 0, 'nothing is');
is(result(enqueue(q{route => 'archived'})), 'published', 'one that is archived');

# --- and that is told to those only who may enqueue to the route

$node->sql(q{CREATE ROLE tenant; CREATE ROLE other; GRANT EXECUTE ON FUNCTION outbox_wait TO tenant, other});
$node->sql(q{INSERT INTO outbox_route (name, enqueue_roles) VALUES ('tenant', '{tenant}')});
my $private = enqueue(q{route => 'tenant'});
$node->wait_drained;
foreach my $case (['tenant', 'published'], ['other', 'unknown'], ['postgres', 'published'])
{
	my ($role, $told) = @$case;
	is($node->sql("SET ROLE $role; SELECT outbox_wait('$private', $LONG)"), $told, "nothing is kept of it: $role");
	is($node->sql("SET ROLE $role; SELECT outbox_wait('$settled', $LONG)"), 'published', "$role, of everybody's route");
}
$node->sql(q{UPDATE outbox_route SET enqueue_roles = '{other}' WHERE name = 'tenant'});
is($node->sql("SET ROLE tenant; SELECT outbox_wait('$private', $LONG)"), 'unknown', 'by the rights of now');
$node->sql(q{DELETE FROM outbox_route WHERE name = 'tenant'});
is(result($private), 'unknown', 'of a route that is gone nobody knows');

# --- given up, and tried again

my $id = enqueue(q{route => 'refused'});
is(result($id), 'failed', 'given up');
is(result($id), 'failed', 'since a while');

# A dead letter is still the same message, for who waits since before it became one.
$fake->do('forget', 'when type=dies exchange=refused : silent');
$id = $node->sql(q{SELECT outbox_enqueue('dies', '{}', route => 'lost')});
$fake->wait_type('dies');
my $before = waiter($id);
$fake->do('when exchange=refused : nack', 'now nack');
is(told($before), 'published', 'on the route of dead letters');
$fake->do('when type=dead exchange=outbox : silent');
$id = $node->sql(q{SELECT outbox_enqueue('dead', '{}', route => 'lost')});
$node->wait_sql("SELECT route FROM outbox WHERE id = '$id'", 'held');
my $waiter = waiter($id);
$fake->wait_type('dead');
$fake->do('now ack');
is(told($waiter), 'published', 'a dead letter, when it is published');

# --- what it sleeps through: other messages, an attempt that failed, a change that rolled back

$fake->do('forget', 'when exchange=refused : nack', 'answer hold');
$id = enqueue();
$waiter = waiter($id);
my $other = $node->session;
$other->query_safe("BEGIN; UPDATE outbox SET status = 'failed'; ROLLBACK");
$node->sql(q{INSERT INTO outbox (event_type, payload, available_at) VALUES ('later', '{}', now() + interval '1 hour')});
$node->sql(q{DELETE FROM outbox WHERE event_type = 'later'});
is($node->sql("SELECT state FROM pg_stat_activity WHERE pid = $waiter->{pid}"), 'active', 'it goes on waiting');
$fake->release;
is(told($waiter), 'published', 'and hears of its own');

# --- those who are cancelled or ended leave nothing behind

$fake->do('answer hold');
$id = enqueue();
my @gone = (waiter($id), waiter($id));
$node->sql("SELECT pg_cancel_backend($gone[0]{pid})");
$node->sql("SELECT pg_terminate_backend($gone[1]{pid})");
ok($node->wait_sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $gone[1]{pid}", '0'), 'one has ended');
$fake->release;
$node->wait_drained;
like($gone[0]{session}->query_until(qr/^2$/m, "SELECT 2;\n"), qr/^2$/m, 'the other one goes on');
$gone[0]{session}{stderr} = '';
is($gone[0]{session}->query_safe("SELECT outbox_wait('$id')"), 'published', 'and may ask again');
$gone[1]{session}{run}->finish;
$gone[0]{session}->quit;

# --- many

$fake->do('answer hold');
$id = enqueue(q{route => 'archived'});
my $many = $ENV{OUTBOX_TEST_FULL} ? 100 : 20;
my @children = map {
	my $n = $_;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		my $said = eval { $node->client->query("SELECT outbox_wait('$id', $LONG)") } // '';
		POSIX::_exit($said eq 'published' ? 0 : 1);
	}
	$pid;
} 1 .. $many;
ok($node->wait_sql(q{SELECT count(*) FROM pg_stat_activity WHERE query ~ '^SELECT outbox_wait' AND wait_event_type = 'Extension'}, $many),
	"$many wait");
$fake->release;
is(scalar(grep { waitpid($_, 0) && $? } @children), 0, "all of $many are told");

# --- transactions that were prepared

$fake->do('answer ack');
$node->sql(qq{BEGIN; SELECT outbox_enqueue('e', '{}', message_id => '00000000-0000-7000-8000-000000000009'); PREPARE TRANSACTION 'p'});
is($node->sql(q{SELECT outbox_wait('00000000-0000-7000-8000-000000000009')}), 'unknown', 'prepared');
$node->sql(q{COMMIT PREPARED 'p'});
is(result('00000000-0000-7000-8000-000000000009'), 'published', 'and committed');

done_testing();
