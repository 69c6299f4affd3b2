# A column of a message is added in one place: in a copy of the sources a line is added
# to src/message/columns.def, and another one to the arguments of outbox_enqueue_batch(),
# which sets it.  What is built of that enqueues, claims, archives and replays the column.
#
# suite: test
# takes: 30 s

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;

plan skip_all => 'what it builds has no sanitizers' if $ENV{SANITIZER};

my $top = abs_path(dirname(__FILE__) . '/../..');
my $dir = PostgreSQL::Test::Utils::tempdir();
my $copy = "$dir/copy";

sub run_or_bail { PostgreSQL::Test::Utils::system_or_bail('sh', '-c', $_[0]); return }

# A line behind the one that begins so.
sub add_line
{
	my ($file, $after, $line) = @_;
	my $text = slurp_file("$copy/$file");
	($text =~ s/^(\t*\Q$after\E.*\n)/$1$line\n/mg) == 1 or die "$file has no line $after";
	open my $out, '>', "$copy/$file" or die $!;
	print {$out} $text;
	close $out or die $!;
	return;
}

# ------------------------------------------------------------------ the column

run_or_bail("mkdir -p '$copy/test/tools' && cd '$top' && cp -r src inbox Makefile outbox.control outbox--*.sql '$copy/'"
	  . " && cp test/tools/private-install '$copy/test/tools/'"
	  . " && find '$copy' '(' -name '*.o' -o -name '*.bc' ')' -exec rm '{}' +");
add_line('src/message/columns.def', 'COLUMN(ROUTING_KEY,',
	"\tCOLUMN(TENANT, tenant, TEXT, text, NULLABLE, \"\", CONTENT, KEPT, READ) \\");
add_line('src/enqueue/arguments.c', '{"content_type", ', "\t{\"tenant\", NULL, COL_TENANT},");

# The hint that names the keys is a text for people, and can wait.
my $changed = `cd '$copy' && diff -rq -x '*.o' -x '*.bc' '$top/src' src | sed 's/.* and //; s/ differ//' | sort`;
is($changed, "src/enqueue/arguments.c\nsrc/message/columns.def\n",
	'files that had to change: the list, and the argument that sets the column');

my ($out, $err);
my $built;
{
	# Built in half the time.
	local @ENV{qw(ASSERT COPT PG_CONFIG)} =
	  ('', '-O0 -Wno-cpp -DUSE_ASSERT_CHECKING -DOUTBOX_TEST_POINTS', $ENV{OUTBOX_TEST_PG_CONFIG});
	$built = IPC::Run::run([ "$copy/test/tools/private-install", "$dir/pg" ], '>', \$out, '2>', \$err);
}
ok($built, 'library and script are built of it') or BAIL_OUT($err);
chomp $out;

# ------------------------------------------------------------------- its way

my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(
	broker => $fake, install_path => dirname($out),
	conf => "outbox.retention = '10 days'");
$node->sql(q{INSERT INTO outbox_route (name, relay) VALUES ('theirs', 'external')});

is( $node->sql(q{SELECT string_agg(attrelid::regclass::text, ' ' ORDER BY attrelid::regclass::text) FROM pg_attribute
		WHERE attname = 'tenant' AND attrelid::regclass::text ~ '^outbox(_archive|_messages|_failed|_new)?$'}),
	'outbox outbox_archive outbox_failed outbox_messages outbox_new',
	'the table, the archive and the views have it');

$node->sql(q{SELECT outbox_enqueue_batch('[{"event_type": "batch", "payload": 1, "tenant": "a"},
	{"event_type": "batch", "payload": 1, "tenant": "b", "route": "theirs"}]')});
$node->sql(q{INSERT INTO outbox_new (event_type, payload, tenant) VALUES ('new', '2', 'c')});
$node->sql(q{SELECT outbox_enqueue('plain', '3')});
$node->wait_sql(q{SELECT count(*) FROM outbox_archive}, 3);
is( $node->sql(q{SELECT string_agg(event_type || ' ' || coalesce(tenant, '-'), ', ' ORDER BY seq) FROM outbox_archive}),
	'batch a, new c, plain -', 'the worker has published and archived what batch and view have set');

is($node->sql(q{SELECT tenant FROM outbox_claim('theirs')}), 'b', 'outbox_claim() returns it');
$node->sql(q{SELECT outbox_ack(token) FROM outbox_leases});
is($node->sql(q{SELECT tenant FROM outbox_archive WHERE route = 'theirs'}), 'b', '... and outbox_ack() archives it');

# By the statement, as an administrator's trigger keeps the direct way from being used.
$node->sql(q{CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TRIGGER theirs BEFORE INSERT ON outbox_archive FOR EACH ROW EXECUTE FUNCTION nothing()});
$node->sql(q{INSERT INTO outbox (event_type, payload, tenant) VALUES ('table', '4', 'd')});
$node->wait_sql(q{SELECT tenant FROM outbox_archive WHERE event_type = 'table'}, 'd');
pass('the statement that archives has it');

$node->sql(q{SELECT outbox_replay('-infinity', route => 'default')});
$node->wait_sql(q{SELECT count(*) FROM outbox_archive WHERE event_type = 'batch' AND route = 'default' AND tenant = 'a'}, 2);
pass('a replay copies it');

# A message that is over a new limit may stay as it is.
$node->sql(q{UPDATE outbox_route SET paused = true WHERE name = 'default'});
$node->sql(q{SELECT outbox_enqueue('waits', to_jsonb(repeat('x', 5000)))});
$node->set('outbox.max_message_size', '1kB');
$node->wait_sql('SHOW outbox.max_message_size', '1kB');
is($node->sql(q{UPDATE outbox SET last_error = 'x' RETURNING last_error}), 'x', 'an UPDATE of another column is not judged');
like($node->sql_fails(q{UPDATE outbox SET tenant = 'e'}), qr/too large|max_message_size/, 'one that changes the column is');

done_testing();
