# Random messages of any content, through every way in, in databases of several
# encodings: what enqueue accepts arrives as it was enqueued, by a strict reading of
# what RabbitMQ delivers; what it does not accept it refuses with the argument's name;
# and none of it costs a connection, an attempt or a message.  Also what
# outbox_claim() gives out, replays, edits, dead letters and captured rows.
# doc/dev/fault-cases.md E13.  The oracle is test/content, which asks neither us nor a
# client library what a value looks like on the wire.
#
# Prints its seed, and counts by the way in; OUTBOX_SEED=N repeats what is drawn. The
# short form has always the same messages, unless that is set.
# make test-content [SECONDS=600] runs it for so long (OUTBOX_TEST_CONTENT), as does
# OUTBOX_TEST_FULL=1 for 4 minutes.
#
# suite: test faults
# takes: 20 s

use strict;
use warnings;

use IPC::Run ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $SECONDS = $ENV{OUTBOX_TEST_CONTENT} // ($ENV{OUTBOX_TEST_FULL} ? 240 : undef);
my $CASES = 480;
my @databases = qw(utf8 latin1 win1251 euc_jp sql_ascii);
# In make test they are the same each time: what is new is looked for elsewhere.
$ENV{OUTBOX_SEED} //= 1 unless defined $SECONDS;
my $seed = seed();

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<'END');
max_worker_processes = 16
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
END

# A server may be built without ICU.
push @databases, 'icu'
  if $node->sql(q{SELECT count(*) FROM pg_collation WHERE collprovider = 'i'}) > 0;

my ($out, $err) = ('', '');
my $good = IPC::Run::run(
	[
		'test/content/content',
		'--pg' => join(':', $node->host, $node->port, scalar getpwuid $<),
		'--amqp' => $rabbit->port,
		'--seed' => $seed,
		'--databases' => join(',', @databases),
		defined $SECONDS ? ('--seconds' => $SECONDS) : ('--cases' => $CASES)
	],
	'>' => \$out,
	'2>' => \$err,
	IPC::Run::timeout(($SECONDS // 0) + 900));
note $out;
ok($good, 'what is accepted arrives as it is, and nothing is refused without a reason')
  or diag $out;
is($err, '', 'nothing is wrong with the test itself');
unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:|XX000/,
	'the server survives all of it');
unlike($node->log_text(0), qr/outbox relay (ERROR|WARNING)/, 'and so does the relay');
done_testing();
