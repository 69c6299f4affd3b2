# outbox_preflight(): each of its checks in the state that it is there to find, on a
# broker and on one that misbehaves; that it leaves no message behind, ends in time
# whatever the broker does, can be cancelled meanwhile, and leaves nothing open.
#
# OUTBOX_TEST_FULL=1: more kinds of silence, and each is cancelled, too.
#
# suite: test faults
# takes: 55 s

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::LineTool;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};

# What it promises; and what is still less than if it had not heard of the cancel.
my $WHOLE = 10;
my $CANCEL = 2;

my $passfile = "$PostgreSQL::Test::Utils::tmp_check/preflight_passfile";
my $rabbit = OutboxTest::Rabbit->start;
# So few files that a descriptor which is not given back is soon missed.
my $node = OutboxTest::Node->create(broker => $rabbit, conf => 'max_files_per_process = 200');
my $state = 'SELECT state FROM outbox_status';
my $uri = $rabbit->uri;

# Rows as a list of [check, ok, detail, hint], and the seconds it took.
sub preflight
{
	my ($arguments) = @_;
	my $start = time;
	my @rows = $node->rows("SELECT * FROM outbox_preflight($arguments)");
	return (time - $start, @rows);
}

# The rows of one check, as "ok detail".
sub of
{
	my ($check, @rows) = @_;
	return join "\n", map { ($_->[1] eq '' ? '-' : $_->[1]) . " $_->[2]" } grep { $_->[0] eq $check } @rows;
}

# What is wrong, by name.
sub wrong
{
	my (@rows) = @_;
	my %seen;
	return join ',', grep { !$seen{$_}++ } map { $_->[0] } grep { $_->[1] eq 'f' } @rows;
}

sub diag_rows
{
	diag join ' | ', @$_ foreach @_;
	return;
}

# The settings that its session sees, which change a moment after the reload.
sub set
{
	my (%settings) = @_;
	foreach my $name (sort keys %settings)
	{
		$node->set($name, $settings{$name});
		$node->wait_sql("SELECT current_setting('$name')", $settings{$name});
	}
	return;
}

sub sets_uri
{
	my ($value) = @_;
	set('outbox.broker_uri', $value);
	return;
}

# --- all is well

$node->wait_sql($state, 'idle');
$node->sql(q{SELECT outbox_enqueue('first', '{}')});
$rabbit->amqp('queue', 'q', ',', 'bind', 'q', 'outbox', '#');
$node->sql('SELECT outbox_worker_restart()');
$node->wait_drained;
$node->wait_sql($state, 'idle');
$node->wait_sql(q{SELECT count(*) FROM outbox_internal.outbox_preflight_database() WHERE "check" = 'archive' AND ok}, 2);
my $depth = $rabbit->depth('q');
my ($seconds, @rows) = preflight('');
is(wrong(@rows), '', 'nothing is wrong') or diag_rows(@rows);
my %seen;
is( join(',', grep { !$seen{$_}++ } map { $_->[0] } @rows),
	'preload,launcher,processes,workers,environment,settings,password file,name,TCP,TLS,login,virtual host,exchange,write,binding,grants,order,archive,replication,version',
	'the checks come in the order of what depends on what');
like(of('TCP', @rows), qr/^t "127\.0\.0\.1:\d+" answers at 127\.0\.0\.1\./, 'with the address');
like(of('write', @rows), qr/^t .*rolled back/, 'the right to publish is tried');
like(of('binding', @rows), qr/^- Not tried: it takes a real message/, 'a message is sent to nobody who has not asked');
is($rabbit->depth('q'), $depth, 'and nobody got one');
note sprintf 'all of it took %.2f s', $seconds;

# --- a real message

($seconds, @rows) = preflight(q{'default', 'some.key', publish => true});
like(of('binding', @rows), qr/^t .*"some\.key" was published and confirmed/, 'on demand a message is published');
is($rabbit->depth('q'), $depth + 1, 'and arrives');
my ($message) = grep { ($_->{type} // '') eq 'outbox_preflight' } $rabbit->get('q', 10);
ok($message, 'it says what it is') and is($message->{expiration}, 60000, 'and goes after a minute');
$rabbit->amqp('purge', 'q');
$rabbit->amqp('unbind', 'q', 'outbox', '#');
($seconds, @rows) = preflight(q{'default', 'some.key', true});
like(of('binding', @rows), qr/^f .*reaches no queue: returned by the broker: 312 NO_ROUTE/, 'unroutable is told');

like($node->sql_fails(q{SELECT outbox_preflight('nobody')}), qr/route "nobody" does not exist/, 'an unknown route');
like($node->sql_fails(q{SELECT outbox_preflight(routing_key => 'k')}), qr/routing_key needs a route/, 'a routing key alone');
like($node->sql_fails(q{SELECT outbox_preflight('default', publish => true)}), qr/publish needs a route and a routing_key/, 'publish alone');

# --- routes: exchanges and rights

$rabbit->amqp('exchange', 'secret');
$rabbit->amqp('exchange', 'topics');
$rabbit->ctl('set_permissions', '-p', '/', 'guest', '.*', '^(?!secret).*', '.*');
$rabbit->ctl('set_topic_permissions', '-p', '/', 'guest', 'topics', '^allowed', '.*');
$node->sql('CREATE ROLE nobody_here');
$node->sql(q{INSERT INTO outbox_route (name, exchange, exchange_type, enqueue_roles) VALUES
	('secret', 'secret', NULL, NULL), ('missing', 'not.there', NULL, NULL),
	('made', 'made.later', 'topic', '{nobody_here}'), ('topics', 'topics', NULL, NULL)});
$node->sql('DROP ROLE nobody_here');
($seconds, @rows) = preflight('');
my ($exchange, $write) = (of('exchange', @rows), of('write', @rows));
like($exchange, qr/^f Exchange "not\.there", of route "missing": NOT_FOUND/m, 'a missing exchange');
like($exchange, qr/^- Exchange "made\.later" is not there; the relay declares it with type "topic"/m, 'one that the relay will make');
like($exchange, qr/^t Exchange "secret" is there/m, 'one that is there');
like($write, qr/^f Exchange "secret", of route "secret": ACCESS_REFUSED/m, 'may not be written to');
like($write, qr/^- Exchange "topics" may be written to, but rights for topics/m, 'rights that depend on the key');
like($write, qr/^t Exchange "outbox" takes/m, 'others are not affected by a refusal');
like(of('grants', @rows), qr/^f Route "made" names roles in enqueue_roles that do not exist: nobody_here/m, 'roles that are not there');
($seconds, @rows) = preflight(q{'topics', 'allowed.key'});
like(of('write', @rows), qr/^t Exchange "topics" takes messages with routing key "allowed\.key"/, 'a routing key that is allowed');
is(scalar(() = of('exchange', @rows) =~ /^/mg), 1, 'of one route only');
($seconds, @rows) = preflight(q{'topics', 'other.key'});
like(of('write', @rows), qr/^f Exchange "topics", of route "topics": ACCESS_REFUSED - .*access to topic 'other\.key'/, 'and one that is not');
$node->sql(q{DELETE FROM outbox_route WHERE name <> 'default'});

# --- login, virtual host, password file

(my $elsewhere = $uri) =~ s{(:\d+).*}{$1/nowhere};
sets_uri($elsewhere);
($seconds, @rows) = preflight('');
like(of('virtual host', @rows), qr/^f could not open virtual host "nowhere"/, 'a virtual host that is not there');
like(of('login', @rows), qr/^t /, 'behind a login that is right');
like(of('exchange', @rows), qr/^- Not tried.*no connection/, 'no exchange is asked for');
sets_uri($uri);

append_to_file($passfile, "*:*:*:*:Wr0ngMarker\n");
chmod 0600, $passfile;
set('outbox.passfile', $passfile);
($seconds, @rows) = preflight('');
like(of('password file', @rows), qr/^t Password file ".*" \(mode 0600, owner uid \d+\) has a line/, 'the password file');
like(of('login', @rows), qr/^f login was refused by the broker: ACCESS_REFUSED/, 'a wrong password');
unlike(join("\n", map { @$_ } @rows), qr/Wr0ngMarker/, 'which is not shown');
chmod 0644, $passfile;
($seconds, @rows) = preflight('');
like(of('password file', @rows), qr/^f .*group or world access/, 'a password file that others may read');
like(of('TCP', @rows), qr/^- Not tried/, 'keeps us from connecting');
unlink $passfile;
($seconds, @rows) = preflight('');
like(of('password file', @rows), qr/^f .*could not be opened/, 'one that is not there');
set('outbox.passfile', '');

# --- an alarm

$rabbit->amqp('bind', 'q', 'outbox', '#');
$rabbit->memory_alarm(1);
($seconds, @rows) = preflight('');
like(of('write', @rows), qr/^f The broker blocks who publishes: low on memory/, 'a memory alarm');
($seconds, @rows) = preflight(q{'default', 'some.key', true});
like(of('binding', @rows), qr/^- Not tried: the broker blocks/, 'in which no message is sent');
cmp_ok($seconds, '<', 5, 'it is noticed at once');
$rabbit->memory_alarm(0);
# what was sent before it would be there by then
$rabbit->amqp('publish', 'outbox', 'some.key', 'after');
is(join(' ', map { $_->{body} } $rabbit->get('q', 10)), 'after', 'nor later');
$rabbit->amqp('unbind', 'q', 'outbox', '#');

# --- names, ports

my $fake = OutboxTest::FakeBroker->start;
my $nobody = 1;
sets_uri("amqp://guest\@no.such.host.invalid,127.0.0.1:$nobody,127.0.0.1:" . $fake->port);
($seconds, @rows) = preflight('');
like(of('name', @rows), qr/^f could not resolve host "no\.such\.host\.invalid".*\nt .*\nt /, 'each of several hosts is tried: a name');
like(of('TCP', @rows), qr/^- .*\nf could not connect to "127\.0\.0\.1:$nobody": Connection refused\nt /, 'a port where nothing listens');
like(of('exchange', @rows), qr/^t /, 'and the one that works is asked for the exchanges');
# The relay connects, too: the number of the connection is either's.
like($fake->wait_event(qr/^tried/), qr/^tried \d+ outbox outbox_preflight$/, 'tried in a transaction');
is($fake->stats->{published}, 0, 'nothing is published');
sets_uri($fake->uri);
$node->wait_sql($state, 'idle');
$fake->forget_events;
wait_until('its connections are closed', sub { $fake->stats->{open} <= 1 });

# --- whatever the broker does, it ends in time, and when told to

# Files of tables come and go.
sub sockets
{
	my ($pid) = @_;
	return scalar grep { (readlink // '') =~ /^socket:/ } glob "/proc/$pid/fd/*";
}

# Others use the machine, too: the best of a few counts.
sub cancelled
{
	my ($what) = @_;
	my $late = best_of($CANCEL, sub { cancelled_once($what) });

	cmp_ok($late, '<', $CANCEL, sprintf '%s: and ends then (%.2f s later)', $what, $late);
	return;
}

# In a session of its own, which is told to stop after a while; how long it then took.
sub cancelled_once
{
	my ($what) = @_;
	my $client = $node->client;
	my $pid = $client->query('SELECT pg_backend_pid()');
	my $child = fork // die "fork: $!";

	if (!$child)
	{
		my $done = eval {
			my $watcher = $node->client;
			my $until = time + 20;
			while (time < $until)
			{
				my $active = $watcher->query("SELECT count(*) FROM pg_stat_activity
					WHERE pid = $pid AND state = 'active' AND clock_timestamp() - query_start > '700ms'");
				last if $active;
				select undef, undef, undef, 0.02;
			}
			open my $fh, '>', "$passfile.told" or die;
			print $fh time;
			close $fh;
			$watcher->query("SELECT pg_cancel_backend($pid)") eq 't';
		};
		diag $@ unless $done;
		require POSIX;
		POSIX::_exit($done ? 0 : 1);
	}
	my $before = sockets($pid);
	eval { $client->query('SELECT * FROM outbox_preflight()') };
	my $error = $@;
	my $end = time;
	waitpid $child, 0;
	is($?, 0, "$what: it was told to stop");
	my $late = $end - slurp_file("$passfile.told");
	like($error, qr/canceling statement due to user request/, "$what: it can be cancelled");
	is($client->query('SELECT 1'), 1, "$what: the session goes on");
	is(sockets($pid), $before, "$what: and has no connection that it had not");
	return $late;
}

sub times_out
{
	my ($what) = @_;
	my $client = $node->client;

	$client->query("SET statement_timeout = '700ms'");
	my $took = best_of(0.7 + $CANCEL, sub {
		my $start = time;
		eval { $client->query('SELECT * FROM outbox_preflight()') };
		like($@, qr/canceling statement due to statement timeout/, "$what: statement_timeout");
		return time - $start;
	});
	cmp_ok($took, '<', 0.7 + $CANCEL, "$what: is heard");
	return;
}

sub in_time
{
	my ($what, $check, $expected) = @_;
	my ($took, @found) = preflight('');

	like(of($check, @found), $expected, "$what: is told") or diag_rows(@found);
	cmp_ok($took, '<', $WHOLE, sprintf '%s: it ends (%.1f s)', $what, $took);
	return;
}

sub misbehaves
{
	my ($what, $order, $check, $expected) = @_;

	note "--- $what";
	$fake->do($order);
	in_time($what, $check, $expected);
	cancelled($what) if $order =~ /connect : silent|rollback : mute/ || $FULL && $order =~ /mute|silent/;
	times_out($what) if $order =~ /connect : silent/;
	$fake->do('forget');
	return;
}

# The relay is away, so that nothing is of its connections.
$node->set('outbox.enabled', 'off');
$node->wait_sql($state, 'disabled');
misbehaves('takes the connection and says nothing', 'stage connect : silent', 'login', qr/^f .*timed out/);
if ($FULL)
{
	misbehaves('says nothing to the login', 'stage start-ok : silent', 'login', qr/^f .*timed out/);
	misbehaves('says nothing to the channel', 'stage channel : mute', 'login', qr/^f .*timed out/);
	misbehaves('says nothing to the exchange', 'stage declare : mute', 'exchange', qr/^f .*(did not answer in time|timed out)/);
	misbehaves('says nothing to the transaction', 'stage channel channel=3 : mute', 'write', qr/^f .*(did not answer in time|timed out)/);
	misbehaves('says nothing to the goodbye', 'stage close : silent', 'write', qr/^t /);
}
misbehaves('says nothing to the rollback', 'stage rollback : mute', 'write', qr/^f .*(did not answer in time|timed out)/);
misbehaves('breaks off at the login', 'stage open : rst', 'login', qr/^f /);
misbehaves('breaks off at the trial', 'stage try : rst', 'write', qr/^f .*reset|^f .*closed/);
misbehaves('closes the connection at the trial', 'stage try : connection-close 541 INTERNAL_ERROR', 'write', qr/^f .*INTERNAL_ERROR/);
misbehaves('talks nonsense', 'stage open : garbage type', 'login', qr/^f /);
misbehaves('answers the trial by blocking', 'stage rollback : blocked low on disk', 'write', qr/^f The broker blocks who publishes: low/);
misbehaves('takes its time for each answer', 'stage connect : slow 1500', 'virtual host', qr/^t /);

# Its backlog is full: no connection comes about, and none is refused.
my $hole = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 1)
  or die "could not listen: $!";
my @fill = map {
	IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $hole->sockport, Blocking => 0)
} 1 .. 4;
my $hole_port = $hole->sockport;
sets_uri("amqp://guest\@127.0.0.1:$hole_port");
in_time('an address that answers nothing', 'TCP', qr/^f .*timed out/) if $FULL;
cancelled('an address that answers nothing');
if ($FULL)
{
	sets_uri('amqp://guest@' . join ',', map { "127.0.0.1:$hole_port" } 1 .. 5);
	in_time('five of them', 'TCP', qr/^f .*(timed out|did not answer)/);
}
sets_uri("amqp://guest\@127.0.0.1:$hole_port,127.0.0.1:" . $fake->port);
in_time('one of two', 'exchange', qr/^t /);

# --- again and again, and in a process that has SIGUSR2 for something else

my $client = $node->client;
my $pid = $client->query('SELECT pg_backend_pid()');
$client->query('SELECT count(*) FROM outbox_preflight()');
my $sockets = sockets($pid);
sets_uri("amqp://guest\@127.0.0.1:$nobody");
$client->query("SELECT set_config('outbox.broker_uri', 'amqp://guest\@127.0.0.1:$nobody', false)");
my $many = $FULL ? 1000 : 100;
is( $client->query(qq{SELECT count(*) FROM generate_series(1, $many) i, LATERAL outbox_preflight(CASE WHEN i > 0 THEN 'default' END) p
		WHERE p."check" = 'TCP' AND p.detail ~ 'Connection refused'}),
	$many, "$many times without an answer");
sets_uri($fake->uri);
$client->query("SELECT set_config('outbox.broker_uri', '@{[ $fake->uri ]}', false)");
is( $client->query(q{SELECT count(*) FROM generate_series(1, 20) i, LATERAL outbox_preflight(CASE WHEN i > 0 THEN 'default' END) p
		WHERE p."check" = 'write' AND ok}),
	20, '20 times with one');
is(sockets($pid), $sockets, 'leaves nothing open');
undef $client;
my ($out, $err) = ('', '');
IPC::Run::run([ 'psql', '-XAt', '-d', $node->connstr('postgres') . ' replication=database', '-c',
		q{SELECT ok FROM outbox_preflight() WHERE "check" = 'write'} ],
	'<', \undef, '>', \$out, '2>', \$err);
is("$out$err", "t\n", 'in a WAL sender');

# --- a table that somebody has locked

my $locker = $node->client;
$locker->query('BEGIN');
$locker->query('LOCK TABLE outbox_route, outbox_internal.outbox_archive_default');
($seconds, @rows) = preflight('');
is(scalar(() = of('locks', @rows) =~ /^f Somebody has locked/mg), 2, 'locks are told');
like(of('exchange', @rows), qr/^- Not tried: the routes could not be read/, 'and what is missing because of them');
like(of('virtual host', @rows), qr/^t /, 'all else is tried');
($seconds, @rows) = preflight(q{'default', 'some.key', true});
like(of('binding', @rows), qr/^- Not tried/, 'nothing is published where nobody knows to which exchange');
undef $locker;

# --- TLS

my $dir = PostgreSQL::Test::Utils::tempdir();
my %front;
foreach my $cert ([ 'good', 100 ], [ 'soon', 7 ], [ 'other', 100 ], [ 'expired', -1 ])
{
	my ($name, $days) = @$cert;
	my $host = $name eq 'other' ? 'elsewhere.example' : 'localhost';
	system('openssl', 'req', '-newkey', 'rsa:2048', '-nodes', '-subj', "/CN=$host",
		'-keyout', "$dir/key.pem", '-out', "$dir/request.pem") == 0
	  or die 'no request';
	append_to_file("$dir/$name.extensions", "subjectAltName=DNS:$host\n");
	system('openssl', 'x509', '-req', '-in', "$dir/request.pem", '-signkey', "$dir/key.pem",
		'-days', $days, '-extfile', "$dir/$name.extensions", '-out', "$dir/$name.pem") == 0
	  or die 'no certificate';
	append_to_file("$dir/$name.pem", slurp_file("$dir/key.pem"));
	$front{$name} = OutboxTest::LineTool->start_tool('tls-front', '--to', $fake->port, '--cert', "$dir/$name.pem");
}

sub tls
{
	my ($front, $ca, $expected, $hint, $what) = @_;
	set('outbox.tls_ca_file' => "$dir/$ca.pem",
		'outbox.broker_uri' => 'amqps://guest@localhost:' . $front{$front}->port);
	my ($took, @found) = preflight('');
	like(of('TLS', @found), $expected, "TLS: $what") or diag_rows(@found);
	my ($row) = grep { $_->[0] eq 'TLS' } @found;
	like($row->[3], $hint, "TLS: $what, the hint");
	return;
}

# A certificate of this second is good for the whole of its days.
tls('good', 'good', qr/^t .* for (99|100) days\.$/, qr/^$/, 'a certificate that is good for long');
tls('soon', 'soon', qr/^t .* for [67] days\.$/, qr/^Renew/, 'one that ends soon');
tls('good', 'soon', qr/^f .*not accepted/, qr/outbox\.tls_ca_file/, 'one that nobody trusts');
tls('other', 'other', qr/^f .*another host name/, qr/for another host name/, 'one of another host');
tls('expired', 'expired', qr/^f .*has expired/, qr/renew it/, 'one of yesterday');
set('outbox.tls_verify' => 'off');
tls('expired', 'good', qr/^f .*expired on .*was not verified/, qr/renew it/, 'which is told also if nothing is verified');
tls('other', 'good', qr/^t .*was not verified/, qr/^$/, 'nothing is verified');
set('outbox.tls_verify' => 'on');
is($fake->stats->{violations}, 0, 'nothing was against the protocol')
  or diag join "\n", $fake->events(qr/^violation/);
sets_uri('amqps://guest@localhost:' . $fake->port);
in_time('no TLS there', 'TLS', qr/^f /);
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 20);
sets_uri('amqps://guest@127.0.0.1:' . $silent->sockport);
in_time('TLS, takes the connection and says nothing', 'TLS', qr/^f .*timed out/);
cancelled('TLS, takes the connection and says nothing');

# --- not preloaded; a standby; settings that cannot be used

wait_until('no connection is left', sub { $fake->stats->{open} == 0 });
sets_uri($fake->uri);
$node->unset('outbox.enabled');
$node->backup('copy');
my $standby = OutboxTest::Node->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
@rows = $standby->rows('SELECT * FROM outbox_preflight()');
like(of('replication', @rows), qr/^t This server is a standby/m, 'on a standby');
like(of('write', @rows), qr/^t /, 'the broker can be tried there, too');
$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$standby->restart;
is($standby->sql('SELECT count(*) FROM outbox_problems'), 0, 'one without the library has no problems of its own');
$standby->stop;

$node->set('synchronous_standby_names', 'ANY 2 (a, b, c)');
$node->wait_sql(q{SELECT detail FROM outbox_preflight() WHERE "check" = 'replication' AND NOT ok},
	q{synchronous_standby_names = 'ANY 2 (a, b, c)'; missing: 2.});
$node->unset('synchronous_standby_names');

($seconds, @rows) = (0, map { [ split /\|/, $_, -1 ] } grep { /\|/ } split /\n/,
	$node->sql("SET outbox.broker_uri = 'amqp://guest\@127.0.0.1:1'; SELECT * FROM outbox_preflight()"));
like(of('settings', @rows), qr/^f outbox\.broker_uri is set for this session/m, 'a setting of the session is told');

$node->append_conf('postgresql.conf', "max_worker_processes = 2");
$node->restart;
$node->sql(q{SELECT outbox_enqueue('first', '{}')});
$node->wait_sql(q{SELECT count(*) FROM outbox_preflight() WHERE "check" IN ('processes', 'workers') AND NOT ok AND hint ~ 'max_worker_processes'}, 2);

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\noutbox.broker_uri = 'http://x'");
$node->restart;
@rows = $node->rows('SELECT * FROM outbox_preflight()');
like(of('preload', @rows), qr/^f The library is not in shared_preload_libraries/, 'not preloaded');
like(of('settings', @rows), qr/^[ft] /m, 'the rest is looked at');
unlike($node->log_text(0), qr/TRAP:|PANIC:|terminated by signal/, 'no process crashed');
$node->stop;

done_testing();
