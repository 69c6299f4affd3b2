# doc/checklist.md on a server that is ready: TLS, a login of its own, a password file, the
# environment's name, a schema of its own, a synchronous standby.  Each command of
# the page runs as the role operator of doc/security.md, and its answer is what the page calls a good
# one; the first two return no rows.
#
# suite: test
# takes: 12 s

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use OutboxTest::Ca;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $page = slurp_file('doc/checklist.md');
my $rabbit = OutboxTest::Rabbit->start;
my $ca = OutboxTest::Ca->create;
my $certificate = $ca->issue(alt => 'DNS:localhost,IP:127.0.0.1');
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $passfile = $ca->dir . '/outbox.pass';

$rabbit->erlang(qq(begin {ok, _} = application:ensure_all_started(ssl),
	ok = rabbit_networking:start_ssl_listener({"127.0.0.1", $port, auto}, [{cacertfile, "@{[ $ca->file ]}"},
		{certfile, "$certificate->{cert}"}, {keyfile, "$certificate->{key}"}], 1) end));
$rabbit->ctl('add_user', 'relay', 's3cret');
$rabbit->ctl('set_permissions', '-p', '/', 'relay', '^outbox(-identity\..*)?$', '^outbox$', '');
append_to_file($passfile, "*:*:*:relay:s3cret\n");
chmod 0600, $passfile or die "$passfile: $!";
$rabbit->amqp('exchange', 'outbox', 'topic', ',', 'queue', 'bills', ',', 'bind', 'bills', 'outbox', 'invoice.#');
$ENV{OUTBOX_ENVIRONMENT} = 'production';

my $node = OutboxTest::Node->create(broker => $rabbit, extension => 0, conf => <<"END");
outbox.broker_uri = 'amqps://relay\@localhost:$port'
outbox.passfile = '$passfile'
outbox.tls_ca_file = '@{[ $ca->file ]}'
idle_in_transaction_session_timeout = '1min'
END
$node->sql(<<'SQL');
CREATE SCHEMA messages;
ALTER DATABASE postgres SET search_path = messages, public;
CREATE ROLE app;
CREATE ROLE orm;
CREATE ROLE monitor;
CREATE ROLE operator;
CREATE ROLE forwarder;
GRANT USAGE ON SCHEMA messages TO operator, app, orm;
SQL
my ($grants) = slurp_file('doc/security.md') =~ /^```sql\n(-- an application: .*?)^```$/ms;
$node->sql("CREATE EXTENSION outbox SCHEMA messages; $grants");
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange_type, routing_key) VALUES ('billing', 'topic', 'invoice');
UPDATE outbox_route SET on_failed = 'block';
SQL
$node->wait_sql('SELECT state FROM outbox_status', 'idle');
$node->backup('for_standby');
my $standby = OutboxTest::Node->new('standby');
$standby->init_from_backup($node, 'for_standby', has_streaming => 1);
$standby->start;
$node->set('synchronous_standby_names', 'standby');
$node->wait_sql(q{SELECT sync_state FROM pg_stat_replication}, 'sync');
$node->wait_sql('SELECT ahead FROM outbox_archive_status', 2);

# --- what is wrong or could be better: nothing

my ($first) = $page =~ /^```sql\n(.*?)^```$/ms;
sub as_operator { return $node->sql("SET SESSION AUTHORIZATION operator; $_[0]") }

foreach my $query (split /(?<=;)\n/, $first)
{
	is(as_operator($query), '', $query);
}

# --- each command

my %answer;
while ($page =~ /`((?:SELECT|SHOW) [^`]*)`/g)
{
	my $sql = $1;
	next if exists $answer{$sql};
	# three are for superusers
	$answer{$sql} = $sql =~ /SHOW|sourcefile|LIKE 'outbox/ ? $node->sql($sql) : as_operator($sql);
	unlike($answer{$sql}, qr/\|f\|/, "$sql: no false") if $sql =~ /outbox_preflight/;
	note "$sql\n$answer{$sql}";
}

# The one that begins so, and what it prints.
sub good
{
	my ($sql, $expected, $what) = @_;
	my @found = grep { index($_, $sql) >= 0 } keys %answer;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar @found, 1, "$sql is one command of the page") or return;
	like($answer{ $found[0] }, $expected, "$what: $sql");
	return;
}
good('\'preload\'', qr/^preload\|t\|.*\nlauncher\|t\|[^\n]*$/, 'library and launcher');
good('\'processes\'', qr/^processes\|t\|.*leaves \d+ to .*\nworkers\|t\|[^\n]*$/, 'processes');
good('extnamespace::regnamespace', qr/^messages\|/, 'schema');
good('\'schema\'', qr/^$/, 'other roles in the schema');
good('%transaction%timeout', qr/^idle_in_transaction_session_timeout\|60000$/m, 'forgotten transactions');
good('"check" = \'environment\'', qr/^environment\|t\|outbox\.environment is "production"\.\|$/, 'name');
good('SELECT setting, sourcefile', qr/^production\|$/, 'where the name is from');
good('SELECT environment, adopted_at', qr/^production\|/, 'recorded');
good('"check" = \'TLS\'', qr/^TLS\|t\|[^\n]*is valid until [^\n]*\|$/, 'certificate');
good('SHOW outbox.tls_ca_file', qr/\S/, 'CA');
good('"check" = \'password file\'', qr/^password file\|t\|.*mode 0600.*\|$/, 'password file');
good('\'login\'', qr/^login\|t\|.*"relay".*\nvirtual host\|t\|[^\n]*$/, 'login');
good('\'exchange\'', qr/^exchange\|t\|[^\n]*\nwrite\|t\|[^\n]*$/, 'exchanges');
good('publish => true', qr/^binding\|t\|/m, 'a queue is bound');
good('\'twin\'', qr/^$/, 'no twin');
good('"check" = \'grants\'', qr/^grants\|t\|May enqueue beside the owner: app, orm\.\|$/, 'grants');
good('SELECT partitions, ahead', qr/^\d+\|2\|[^|]*\|$/, 'archive');
good('"check" = \'replication\'', qr/synchronous_standby_names = 'standby'; missing: 0\./, 'standby');
good('"check" = \'version\'', qr/^version\|t\|.*\|$/, 'version');

# --- the standby

my $there = $standby->sql('SELECT "check", ok, detail FROM outbox_preflight()');
like($there, qr/^replication\|t\|This server is a standby\.$/m, 'the standby says that it is one');
unlike($there, qr/\|f\|/, 'and nothing is missing there');
my ($settings) = grep { /pg_settings WHERE name LIKE 'outbox/ } keys %answer;
is($standby->sql($settings), $answer{$settings}, 'its settings are the same');

$standby->stop;
done_testing();
