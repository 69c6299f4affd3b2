# Whatever enqueue accepts arrives as it was enqueued, in every property, and
# whatever RabbitMQ would refuse is refused at enqueue: no content closes a
# channel.  doc/dev/fault-cases.md E1 to E12, F13, F15.  (Refusals: sql/validation*.sql;
# random messages: content_random.pl.)
#
# OUTBOX_TEST_FULL=1: more large messages.
#
# suite: test faults
# takes: 63 s

use strict;
use warnings;
use utf8;

use Test::More;
use Encode qw(encode encode_utf8);
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Consumer;
use OutboxTest::Content;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

my $FULL = $ENV{OUTBOX_TEST_FULL};
my $WINDOW = 100;
my $FRAME = 131_072 - 8;                 # bytes of a body in one frame
my $MB = 1024 * 1024;
my $MAX = 128 * $MB;                     # RabbitMQ 3.10's own limit, 4's is 16 MB
my $LARGE = $FULL ? 200 : 24;            # messages of 10 MB: more than memory may hold
my $RANDOM = $FULL ? 500 : 40;            # messages for each encoding
my $RSS_LIMIT_KB = 128 * 1024;
my $SMALL_FRAME = 8192 - 8;
my $SMALL_BODY = 200_000;
my $began = time;
seed();

my $rabbit = OutboxTest::Rabbit->start(conf => "max_message_size = $MAX\n");
my $small = OutboxTest::Rabbit->start(
	name => 'small',
	conf => "frame_max = 8192\nmax_message_size = $SMALL_BODY\n");
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => <<"END");
outbox.window = $WINDOW
outbox.retry_initial = 20ms
outbox.retry_max = 100ms
outbox.max_message_size = $MAX
max_worker_processes = 16
END
my %checker = (postgres => OutboxTest::Checker->install($node));

%OutboxTest::Content::route = (
	%OutboxTest::Content::route,
	template => {
		exchange => 'outbox',
		key => 'ü.{aggregate_type}.{event_type}.{aggregate_id}'
	},
	fanout => { exchange => 'fan', key => '{aggregate_id}', type => 'fanout' },
	queue => { exchange => '', key => 'q' });

# Of some databases only.
my @routes = sort keys %OutboxTest::Content::route;
$OutboxTest::Content::route{strict} = $OutboxTest::Content::route{default};

# The routes of a database, but for the default one.
sub add_routes
{
	my ($dbname) = @_;
	foreach my $name (grep { $_ ne 'default' } @routes)
	{
		my $route = $OutboxTest::Content::route{$name};
		my $type = $route->{type} ? "'$route->{type}'" : 'NULL';
		$node->sql(encode_utf8(<<"SQL"), $dbname);
SET client_encoding = 'UTF8';
INSERT INTO outbox_route (name, exchange, exchange_type, routing_key)
VALUES ('$name', '$route->{exchange}', $type, '$route->{key}')
SQL
	}
	return;
}
add_routes('postgres');
$rabbit->amqp('exchange', 'outbox', ',', 'exchange', 'fan', 'fanout', ',',
	'queue', 'q', ',', 'bind', 'q', 'outbox', ',', 'bind', 'q', 'fan');

my %reconnects;

sub begin
{
	my ($what, $dbname) = @_;
	$dbname //= 'postgres';

	note sprintf '--- %s (after %.0f s)', $what, time - $began;
	$node->wait_drained(undef, $dbname);
	$node->sql('TRUNCATE test_sent, outbox_archive', $dbname);
	$reconnects{$dbname} = $node->reconnects($dbname);
	return;
}

# Every case ends here: what is in the queue is all that was enqueued, equal in
# everything.  Returns what has arrived.
sub arrive
{
	my ($what, $messages, %params) = @_;
	my $dbname = delete $params{dbname} // 'postgres';
	my $broker = delete $params{broker} // $rabbit;
	my $connections = delete $params{reconnects} // 0;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->wait_drained(120, $dbname);
	my @got = $broker->inspect('q');
	$checker{$dbname}->check($what,
		[ map { { %$_, id => $_->{message_id} } } @got ], %params);
	same_content("$what: all properties and the body",
		expected($node, $dbname, @$messages), @got);
	is($node->reconnects($dbname) - $reconnects{$dbname},
		$connections, "$what: no connection or channel was lost")
	  if defined $connections;
	return @got;
}

# Exactly those without anything wrong are accepted.
sub accepted
{
	my ($what, $errors, @messages) = @_;
	my @surprises = grep {
		($_->{wrong} // '') ne 'maybe'
		  && $_->{accepted} != !defined $_->{wrong}
	} @messages;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	if (!ok(!@surprises, "$what: what is good is accepted, and nothing else"))
	{
		diag explain [ map { +{ %$_, body => length($_->{body} // '') } }
			  @surprises[ 0 .. ($#surprises > 2 ? 2 : $#surprises) ] ];
		diag substr $errors, 0, 2000;
	}
	return;
}

# A case of messages that are all good.
sub case
{
	my ($what, @messages) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	begin($what);
	my $errors = enqueue_all($node, 'postgres', @messages);
	accepted($what, $errors, @messages);
	return arrive($what, \@messages);
}

# --- E1: short strings of 255 bytes

sub full
{
	my ($char) = @_;
	my $n = int(255 / length encode_utf8($char));
	my $rest = 255 - $n * length encode_utf8($char);
	return $char x $n . 'x' x $rest;
}

my @strings;
foreach my $char ('x', 'é', '€', '😀')
{
	foreach my $method (qw(function batch insert copy))
	{
		my %m = (method => $method, body => 'b');
		$m{$_} = full($char)
		  foreach qw(event_type aggregate_type aggregate_id routing_key);
		push @strings, {
			%m,
			properties => {
				map { $_ => full($char) }
				  qw(content_type content_encoding correlation_id reply_to
				  app_id type)
			},
			headers => { full($char) => { S => full($char) x 100 } }
		};
		push @strings, { %m, routing_key => undef };
		push @strings, { %m, content_type => full($char) }
		  if $method =~ /^(function|batch)$/;
		push @strings, { %m, method => $method, routing_key => '', body => undef,
			payload => '""' };
	}
}
my @arrived = case('E1: strings of 255 bytes', @strings);
is(length encode_utf8($arrived[0]{correlation_id}), 255,
	'E1: they are 255 bytes long');

# --- E4: header values

my @values = (
	{ l => '9223372036854775807' }, { l => '-9223372036854775808' },
	{ l => 0 }, { l => -1 }, double(5, '5.000'), double(0, '-0.0'), { l => [ '100', '1e2' ] },
	double(2**63, '9223372036854775808'),
	double(-2**64, '-18446744073709551616'),
	double(1e308, '1e308'), double(0.1, '0.1'), double(-1.5e-300),
	double(5e-324), double(0, '1e-400'),
	double(1 / 3, '0.33333333333333333333333333333333333'),
	{ S => '' }, { S => 'NaN' }, { S => "\x01\n\"\\é€😀" },
	{ S => 'x' x 100_000 },
	{ V => undef }, { t => \1 }, { t => \0 }, { A => [] }, { F => {} },
	{
		A => [
			{ S => 'x' }, { l => 1 }, double(1.5), { V => undef },
			{ t => \1 }, { A => [ { A => [] } ] },
			{ F => { '' => { F => { CC => { S => 'q' } } } } }
		]
	},
	{ F => { map { $_ => { l => $_ } } 1 .. 1000 } });
my $deep = { l => 1 };
$deep = $_ % 2 ? { A => [$deep] } : { F => { f => $deep } } foreach 1 .. 7;
push @values, $deep;
case(
	'E4: header values',
	(
		map {
			my $value = $_;
			map {
				+{
					method => $_,
					event_type => 'e',
					payload => '{}',
					headers => { h => $value }
				}
			} qw(function batch insert copy)
		} @values),
	map {
		+{ event_type => 'e', payload => '{}', headers => { $_ => { l => 1 } } }
	} '', 'x' x 255, "\x01", ' ', '"', 'x-death', 'aggregate_id');
my $nan = $node->sql(
	q{SELECT outbox_enqueue('e', '{}', headers => jsonb_build_object('n', 'NaN'::numeric))});
$node->wait_drained;
is_deeply(
	($rabbit->inspect('q'))[0]{headers},
	{ n => { S => 'NaN' } },
	'E4: NaN, which JSON does not have, is a string');

# --- E9: properties at their limits

case(
	'E9: expiration, priority and time',
	(
		map { +{ event_type => 'e', body => 'x', properties => { expiration => $_ } } }
		  qw(60000 3600000 4294967295 0000060000)),
	(
		map { +{ event_type => 'e', body => 'x', properties => { priority => $_ } } }
		  qw(0 1 9 255)),
	(
		map {
			+{ event_type => 'e', body => 'x', method => 'insert', created_at => $_ }
		  } q{'4713-01-01 BC'}, q{'1969-12-31 23:59:59 UTC'},
		q{'1969-12-31 23:59:59.999999 UTC'}, q{'1999-12-31 23:59:59.5 UTC'},
		q{'1970-01-01 UTC'}, q{'9999-12-31 23:59:59 UTC'},
		q{'294276-12-31 UTC'}),
	{ event_type => 'e', body => 'x', properties => { content_type => '' } },
	{ event_type => 'e', body => 'x', content_type => '' },
	{
		event_type => 'e', body => 'x', content_type => 'text/plain',
		properties => { content_type => 'text/html' }
	},
	{ event_type => 'e', payload => '1', properties => {} });
# It has expired when it reaches the queue, which is no fault of anybody.
$node->sql(q{SELECT outbox_enqueue('e', '{}', properties => '{"expiration": "0"}')});
$node->wait_drained;
is($rabbit->depth('q'), 0, 'E9: a message that expires at once is confirmed');

# --- E3: payloads have no limit of depth but the server's

my $depth = $node->sql(<<'SQL');
SET max_stack_depth = '7MB';
DO $$
DECLARE depth int := 100000;
BEGIN
	LOOP
		BEGIN
			PERFORM outbox_enqueue('e', (repeat('[', depth) || repeat(']', depth))::jsonb);
			PERFORM set_config('test.depth', depth::text, false);
			RETURN;
		EXCEPTION WHEN statement_too_complex THEN
			depth := depth * 0.9;
		END;
	END LOOP;
END $$;
SELECT current_setting('test.depth');
SQL
$depth =~ s/\D//g;
$node->wait_drained;
($arrived[0]) = $rabbit->inspect('q');
is($arrived[0]{body_size}, 2 * $depth, 'E3: the deepest payload arrives');
note "$depth levels";

# --- E2: headers around the size of one frame

# One header with a text of $n bytes, and so many properties that nothing is
# kept in reserve.
sub wide
{
	my ($n, $route) = @_;
	my %m = (route => $route, body => 'x');
	$m{$_} = 'x' x 255
	  foreach qw(event_type aggregate_type aggregate_id routing_key);
	$m{properties}{$_} = 'y' x 255
	  foreach qw(content_type content_encoding correlation_id reply_to app_id type);
	@{ $m{properties} }{qw(priority expiration)} = (9, '4294967295');
	$m{headers} = { h => { S => 'x' x $n } };
	return \%m;
}

# Bytes in the payload of the header frame for $n = 0: fixed part, six short
# strings, table of three, expiration, priority, delivery mode, message_id,
# timestamp.
my $wide = 14 + 6 * 256 + 4 + 7 + (13 + 5 + 255) + (15 + 5 + 255) + 11 + 1 + 1 +
  37 + 8;

# What enqueue does not count exactly: event_type beside another type, the
# default content type beside another one, the headers of a later attempt, and what
# is left of the reserve.
my $margin = 306 + 27 + 49;

begin('E2: headers around the limit at enqueue');
my @wide = map { wide($FRAME - $wide - $margin + $_) } -16 .. 16;
$_->{wrong} = 'too large' foreach @wide[ 17 .. 32 ];
my $errors = enqueue_all($node, 'postgres', @wide);
accepted('E2: headers around the limit at enqueue', $errors, @wide);
unlike($errors, qr/ERROR:  (?!headers are too large|current transaction)/,
	'E2: the error says what is too large');
arrive('E2: headers around the limit at enqueue', \@wide);

$node->sql('CREATE DATABASE small');
$node->sql(
	"ALTER DATABASE small SET outbox.broker_uri = '" . $small->uri . "'");
$node->sql('CREATE EXTENSION outbox', 'small');
$checker{small} = OutboxTest::Checker->install($node, dbname => 'small');
$node->sql(
	q{INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('strict', 'outbox', 2)},
	'small');
$small->amqp('exchange', 'outbox', ',', 'queue', 'q', ',', 'bind', 'q', 'outbox');
$node->wait_sql('SELECT state FROM outbox_status', 'idle', undef, 'small');

begin('E2: headers around the frame of a broker that wants small ones', 'small');
@wide = map { wide($SMALL_FRAME - $wide + $_, 'strict') } -16 .. 16;
delete $_->{aggregate_id} foreach @wide;
$_->{headers}{h}{S} .= 'x' x (13 + 5 + 255) foreach @wide;
$errors = enqueue_all($node, 'small', @wide);
accepted('E2: small frames, enqueue', $errors, @wide);
arrive(
	'E2: headers around the frame of a broker that wants small ones', \@wide,
	dbname => 'small', broker => $small, failed => 16);
is( $node->sql(q{SELECT count(*), min(attempts), max(attempts), min(last_error), max(last_error)
		FROM outbox_failed}, 'small'),
	'16|1|1' . '|headers and properties do not fit into one frame of the broker' x 2,
	'E2: the longer ones fail at once, with the reason');
is($node->sql('SELECT sum(nacked + returned) FROM outbox_workers', 'small'),
	0, 'E2: and were never sent');

@wide = map { +{ event_type => 'e', body => 'x' x $_ } }
  map { ($_ - 1, $_, $_ + 1) } map { $_ * $SMALL_FRAME } 1 .. 4;
$node->sql('DELETE FROM outbox', 'small');
begin('E5: bodies around small frames', 'small');
enqueue_all($node, 'small', @wide);
arrive('E5: bodies around small frames', \@wide,
	dbname => 'small', broker => $small);

# --- E6: larger than the broker takes, in the middle of a full window

begin('E6: too large for the broker, in a full window', 'small');
my $consumer = OutboxTest::Consumer->start($small, exchange => 'outbox');

# Messages a second, until all have been delivered.
sub rate
{
	my ($count) = @_;
	my $before = $consumer->unique;
	my $start = time;
	$checker{small}->enqueue($count, keys => 500, per_tx => $count);
	$consumer->wait_count($before + $count);
	return $count / (time - $start);
}
rate(1000);
my $rate_before = rate(3000);
my $sent = $consumer->unique;
$node->sql('SELECT outbox_pause()', 'small');
$node->sql(<<"SQL", 'small');
SELECT test_enqueue($WINDOW * 3 / 2, 400, 'a'),
	test_enqueue(1, 1, 'guilty', $SMALL_BODY, 'strict'),
	test_enqueue($WINDOW * 3 / 2, 400, 'b')
SQL
my $start = time;
$node->sql('SELECT outbox_resume()', 'small');
$consumer->wait_count($sent + 3 * $WINDOW);
$node->wait_sql(q{SELECT count(*) FROM outbox_failed WHERE attempts = 1
	AND last_error ~ 'PRECONDITION_FAILED.*size'}, '1', undef, 'small');
note sprintf 'failed after %.2f s', time - $start;
my $rate_after = rate(3000);
my $full_speed = time - $start;
note sprintf '%.0f/s before, %.0f/s after', $rate_before, $rate_after;
cmp_ok($full_speed, '<', 10, 'E6: full speed within 10 s');
cmp_ok($rate_after, '>', $rate_before / 3, 'E6: at about the rate of before');
my $lost = $node->reconnects('small') - $reconnects{small};
cmp_ok($lost, '<=', 2, 'E6: two channels at most');
$node->wait_drained(undef, 'small');
# a window; the second channel loses the guilty one alone
my $v = $checker{small}->check(
	'E6: too large for the broker, in a full window', [ $consumer->stop ],
	interruptions => 1, window => $WINDOW, failed => 1);
note "$v->{duplicates} duplicates, $lost channels";
is($node->sql('SELECT max(attempts) FROM outbox_archive', 'small'),
	0, 'E6: no good one is blamed');
$node->sql('SELECT outbox_pause()', 'small');
$small->stop;

# --- E5: bodies of any size

case(
	'E5: bodies',
	(
		map { +{ event_type => 'e', body => 'x' x $_ } } 0, 1,
		16 * $MB,
		map { ($_ - 1, $_, $_ + 1) } map({ $_ * $FRAME } 1 .. 4, 10, 20),
		# large ones go in other frames
		map { $_ * 32_768 } 40 .. 42, 128),
	(
		map { +{ event_type => 'e', payload => '"' . 'é' x ($_ / 2) . '"' } }
		  0, 2, $FRAME - 2, $FRAME, $FRAME + 2, 3 * $FRAME - 2, $MB));

begin('E5: the largest bodies');
my @calls = ("outbox_enqueue_bytes('bytes', convert_to(repeat('x', %d), 'UTF8'))");
push @calls, "outbox_enqueue('json', to_jsonb(repeat('x', %d - 2)))" if $FULL;
foreach my $call (@calls)
{
	my $call_more = sprintf $call, $MAX + 1;
	$call = sprintf $call, $MAX;
	$node->sql("INSERT INTO test_sent SELECT nextval('test_sent_n'), $call");
	like($node->sql_fails("SELECT $call_more"),
		qr/ERROR:  (body|payload) is too large/, 'E5: a byte more is refused');
}
@arrived = arrive('E5: the largest bodies', []);
is(join(' ', map { $_->{body_size} } @arrived),
	join(' ', ($MAX) x @calls), 'E5: bodies of 128 MiB arrive');

# A last frame that is full waits for more, unless it is told not to.
$rabbit->amqp('purge', 'q');
begin('E5: latency of full frames');
my @sizes = map { ($_ - 1, $_, $_ + 1) } map { $_ * $FRAME } 1 .. 4;
$node->sql(<<"SQL");
DO \$\$
DECLARE
	size int;
	body bytea;
BEGIN
	FOR i IN 1 .. 9 LOOP
		FOREACH size IN ARRAY '{@{[ join ',', @sizes ]}}'::int[] LOOP
			body := convert_to(repeat('x', size), 'UTF8');
			INSERT INTO test_sent
				SELECT nextval('test_sent_n'), outbox_enqueue_bytes('e', body);
			COMMIT;
			FOR j IN 1 .. 1000 LOOP
				EXIT WHEN NOT EXISTS (SELECT FROM outbox);
				PERFORM pg_sleep(0.002);
				COMMIT;
			END LOOP;
		END LOOP;
	END LOOP;
END
\$\$
SQL
my %latency = map { @$_ } $node->rows(<<'SQL');
SELECT octet_length(body), round(1000 * percentile_cont(0.5) WITHIN GROUP
	(ORDER BY extract(epoch FROM published_at - created_at))::numeric, 1)
FROM outbox_archive GROUP BY 1
SQL
note 'ms: ' . join ', ', map { "$_ $latency{$_}" } @sizes;
is(scalar(grep { defined $latency{$_} } @sizes), 12, 'E5: each size has a latency');
foreach my $size (map { $_ * $FRAME } 1 .. 4)
{
	my ($neighbour) = sort { $b <=> $a } @latency{ $size - 1, $size + 1 };
	cmp_ok($latency{$size} - $neighbour, '<', 30,
		"E5: no wait for a body of $size bytes");
}
arrive('E5: latency of full frames', []);

# --- E7: databases in other encodings

my %chars = (
	LATIN1 => [ map { chr } 0x20 .. 0x7e, 0xa0 .. 0xff ],
	WIN1251 => [ 'a' .. 'z', map { chr } 0x410 .. 0x44f, 0x401, 0x20ac ],
	EUC_JP => [ 'a' .. 'z', map { chr } 0x3041 .. 0x3093, 0xff71 .. 0xff9d, 0x65e5, 0x672c, 0x8a9e, 0xfc ],
	SQL_ASCII => undef);
# Text that the database takes and UTF-8 has not, and what is said about it.
my %untold = (
	WIN1251 => [ [ q{E'\\x98'} => qr/22P05/ ] ],
	EUC_JP => [ [ q{E'\\xA9\\xA1'} => qr/22P05/ ] ],
	SQL_ASCII => [
		map { [ "E'$_'" => qr/22021/ ] } '\\xff', '\\xc3', 'x\\xe9x',
		'\\xed\\xa0\\x80', '\\xf4\\x90\\x80\\x80', '\\xc0\\x80'
	]);

# It has several codes for some characters, and three bytes for some of two in UTF-8.
sub odd_eucjp
{
	my ($what) = @_;

	like(
		$node->sql_fails(
			q{SELECT outbox_enqueue('e', '{}', headers => jsonb_build_object(E'\\xa2\\xc1', 1, E'\\xad\\xfb', 2))},
			'euc_jp'),
		qr/two names in headers are the same in UTF-8/,
		"$what: two names that are one are refused");
	is($node->sql(<<'SQL', 'euc_jp'), '254', "$what: an external relay gets the whole routing key");
SET client_min_messages = error;
DO $$ BEGIN
	INSERT INTO outbox_route (name, exchange, relay) VALUES ('external', '', 'external');
	PERFORM outbox_enqueue(repeat(E'\x8f\xab\xb1', 127), '{}', route => 'external');
END $$;
SELECT octet_length(convert_to(routing_key, 'UTF8')) FROM outbox_claim('external');
SQL
	return;
}

foreach my $encoding (sort keys %chars)
{
	my $dbname = lc $encoding;
	my $chars = $chars{$encoding};
	my $char = $chars ? $chars->[-1] : 'ü';
	my $what = "E7: $encoding";
	local $OutboxTest::Content::route{template} =
	  { exchange => 'outbox', key => "$char.{aggregate_type}.{event_type}.{aggregate_id}" };

	$node->sql(
		"CREATE DATABASE $dbname ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$node->sql('CREATE EXTENSION outbox', $dbname);
	$checker{$dbname} = OutboxTest::Checker->install($node, dbname => $dbname);
	add_routes($dbname);
	$node->wait_sql('SELECT state FROM outbox_status', 'idle', undef, $dbname);
	begin($what, $dbname);

	my @messages =
	  map { random_message(chars => $chars, routes => \@routes) }
	  1 .. $RANDOM;
	foreach my $method (qw(function batch insert copy))
	{
		push @messages,
		  {
			method => $method,
			( map { $_ => full($char) }
				qw(event_type aggregate_type aggregate_id routing_key)),
			payload => '{"' . $char . '": "' . $char x 1000 . '"}',
			headers => { full($char) => { S => $char } },
			properties => { app_id => full($char) }
		  },
		  { method => $method, event_type => 'e', body => join '', map { chr } 0 .. 255 };
		foreach my $column (qw(event_type aggregate_type aggregate_id routing_key))
		{
			push @messages,
			  {
				method => $method, event_type => 'e', body => '',
				$column => full($char) . $char, wrong => $column
			  };
		}
	}
	my $errors = enqueue_all($node, $dbname, @messages);
	accepted($what, $errors, @messages);
	arrive($what, \@messages, dbname => $dbname);

	# the error of an external relay, be it cut in a character, or no UTF-8
	my $bad = $untold{$encoding} ? $untold{$encoding}[0][0] : q{E'\\x9b'};
	is($node->sql(encode_utf8(<<"SQL"), $dbname), "pending|t\npending|t", "$what: an error of an external relay is stored, and printable");
SET client_encoding = '@{[ $encoding eq 'SQL_ASCII' ? 'SQL_ASCII' : 'UTF8' ]}';
SET client_min_messages = error;
CREATE FUNCTION pg_temp.nack(error text, begin text, OUT result text, OUT stored boolean) LANGUAGE plpgsql AS \$\$
BEGIN
	PERFORM outbox_enqueue('e', '{}', route => 'nacked');
	SELECT outbox_nack(c.token, c.id, error) INTO result FROM outbox_claim('nacked') c;
	SELECT bool_or(last_error LIKE begin) INTO stored FROM outbox WHERE route = 'nacked';
END
\$\$;
INSERT INTO outbox_route (name, exchange, relay) VALUES ('nacked', '', 'external');
SELECT * FROM pg_temp.nack(E'\x1baa' || repeat('$char', 300), '?aa$char$char%');
SELECT * FROM pg_temp.nack('bad' || $bad || 'x', 'bad?%x');
DELETE FROM outbox WHERE route = 'nacked';
SQL

	# the template counts as it is sent
	my $template = $char x 40;
	my $room = 255 - length encode_utf8($template);
	is( join(' ',
			map {
				($node->sql_fails(encode_utf8(<<"SQL"), $dbname) // "") =~ /routing key of route "long" would be too long/ ? 'refused' : 'accepted'
SET client_encoding = 'UTF8';
BEGIN;
INSERT INTO outbox_route (name, exchange, routing_key) VALUES ('long', 'outbox', '$template\{event_type}');
SELECT outbox_enqueue(repeat('x', $_), '{}', route => 'long');
ROLLBACK;
SQL
			} $room, $room + 1),
		'accepted refused',
		"$what: a routing key of 255 bytes, and not one more");

	# what the broker says comes back readable, whatever it says
	$node->sql(encode_utf8(<<"SQL"), $dbname);
SET client_encoding = 'UTF8';
INSERT INTO outbox_route (name, exchange, routing_key, max_attempts)
VALUES ('no queue', '', '$char.x', 1);
SELECT outbox_enqueue('e', '{}', route => 'no queue');
SQL
	$node->wait_sql('SELECT count(*) FROM outbox_failed', '1', undef, $dbname);
	like($node->sql('SELECT last_error FROM outbox_failed', $dbname),
		qr/NO_ROUTE.*routing key "\?+\.x"/, "$what: last_error");

	foreach my $untold (@{ $untold{$encoding} // [] })
	{
		my ($text, $state) = @$untold;
		$text .= '::text';
		my @refused = (
			(
				map {
					my $column = $_;
					(
						"INSERT INTO outbox (event_type, body, $column) VALUES ('e', '', $text)",
						"SELECT outbox_enqueue('e', '{}', $column => $text)")
				} qw(aggregate_type aggregate_id routing_key)),
			"SELECT outbox_enqueue($text, '{}')",
			"SELECT outbox_enqueue_bytes('e', '', content_type => $text)",
			map({ "SELECT outbox_enqueue('e', $_)" }
				"to_jsonb($text)",
				"jsonb_build_object($text, 1)",
				"'{}', headers => jsonb_build_object('h', $text)",
				"'{}', headers => jsonb_build_object('h', jsonb_build_array($text))",
				"'{}', headers => jsonb_build_object($text, 1)",
				"'{}', properties => jsonb_build_object('app_id', $text)"),
			map({ "INSERT INTO outbox_route (name, $_)" }
				"exchange) VALUES ('r', $text",
				"exchange_type) VALUES ('r', 'x-' || $text",
				"routing_key) VALUES ('r', $text",
				"exchange) VALUES ($text, 'x'"));
		my ($out, $err) = ('', '');
		$node->psql(
			$dbname,
			join('', "\\set VERBOSITY verbose\n", map { "$_;\n" } @refused),
			on_error_stop => 0,
			stdout => \$out,
			stderr => \$err);
		my @errors = $err =~ /ERROR:  (.*)/g;
		my @wrong = grep { !/$state/ } @errors;
		is(scalar @errors, scalar @refused,
			"$what: $text is refused wherever it would be sent")
		  or diag $out;
		is(join("\n", @wrong), '', "$what: $text: for that reason");
		like($err, qr/CONTEXT:  converting routing_key to UTF-8/,
			"$what: $text: and the error says what it is");
	}
	odd_eucjp($what) if $encoding eq 'EUC_JP';
	is($node->sql('SELECT state FROM outbox_status', $dbname),
		'idle', "$what: the relay is well");
	$node->sql("DROP DATABASE $dbname");
}

# --- E12: large messages, and the worker's memory

begin('E12: large messages');
$node->sql('ALTER SYSTEM SET outbox.retention = 0');
$node->sql('SELECT pg_reload_conf()');
$consumer = OutboxTest::Consumer->start($rabbit, exchange => 'outbox');

my $pid = $node->sql(q{SELECT pid FROM pg_stat_activity
	WHERE backend_type = 'outbox relay' AND datname = 'postgres'});

sub memory
{
	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m ? $1 : die 'no RssAnon';
}

# The most while they are published.  (How much is claimed when the broker confirms
# nothing is shown by promises.pl.)
sub peak
{
	my ($count, $call) = @_;
	my $before = $consumer->unique;
	my $peak = 0;

	$node->sql('SELECT outbox_pause()');
	$node->sql("INSERT INTO test_sent SELECT nextval('test_sent_n'), $call FROM generate_series(1, $count)");
	$node->sql('SELECT outbox_resume()');
	wait_until(
		"$count large messages",
		sub {
			my $now = memory();
			$peak = $now if $now > $peak;
			return $consumer->unique >= $before + $count;
		},
		300);
	return $peak;
}
note 'before: ' . memory() . ' kB';
foreach my $call (
	"outbox_enqueue_bytes('bytes', convert_to(repeat('x', 10000000), 'UTF8'))",
	"outbox_enqueue('json', to_jsonb(repeat('x', 10000000)))")
{
	my $start = time;
	my $peak = peak($LARGE, $call);
	note sprintf '%d in %.1f s, %d kB', $LARGE, time - $start, $peak;
	cmp_ok($peak, '<', $RSS_LIMIT_KB,
		"E12: the worker's memory stays below $RSS_LIMIT_KB kB");
}
$node->wait_drained;
$checker{postgres}->check('E12: large messages', [ $consumer->stop ]);
note 'after: ' . memory() . ' kB';
$node->sql('ALTER SYSTEM RESET outbox.retention');
$node->sql('SELECT pg_reload_conf()');

# --- F13: an exchange with an alternate one

begin('F13: alternate exchange');
$rabbit->amqp('exchange', 'other', 'fanout', ',', 'queue', 'other', ',', 'bind',
	'other', 'other');
$rabbit->ctl('set_policy', '--apply-to', 'exchanges', 'alternate', '^first$',
	'{"alternate-exchange": "other"}');
$rabbit->amqp('exchange', 'first');
$node->sql(<<'SQL');
INSERT INTO outbox_route (name, exchange) VALUES ('first', 'first');
SQL
$checker{postgres}->enqueue(20, route => 'first', keys => 3);
$node->wait_drained;
@arrived = $rabbit->inspect('other');
$checker{postgres}->check('F13: alternate exchange',
	[ map { { %$_, id => $_->{message_id} } } @arrived ]);
is($node->sql('SELECT max(attempts) FROM outbox_archive'),
	0, 'F13: nothing is returned');
is($arrived[0]{exchange}, 'first', 'F13: the exchange is that of the route');

# --- F15: two queues, one of them full

begin('F15: one of two queues is full');
$rabbit->amqp('exchange', 'two', 'fanout', ',', 'queue', 'full',
	'x-max-length=1', 'x-overflow=reject-publish', ',', 'bind', 'full', 'two',
	',', 'queue', 'roomy', ',', 'bind', 'roomy', 'two');
$node->sql(q{INSERT INTO outbox_route (name, exchange, max_attempts) VALUES ('two', 'two', 4)});
$checker{postgres}->enqueue(2, route => 'two');
$node->wait_sql('SELECT count(*) FROM outbox_failed', '1');
like($node->sql('SELECT last_error FROM outbox_failed'),
	qr/basic\.nack/, 'F15: refused by the one that is full');
@arrived = $rabbit->inspect('roomy');
my %copies;
$copies{ $_->{message_id} }++ foreach @arrived;
is(join(' ', sort values %copies), '1 4',
	'F15: the other one gets a copy with each attempt');
$rabbit->amqp('purge', 'full');
$node->sql('SELECT outbox_requeue_failed()');
$node->wait_drained;
push @arrived, $rabbit->inspect('roomy');
my $v15 = $checker{postgres}->check('F15: one of two queues is full',
	[ map { { %$_, id => $_->{message_id} } } @arrived ], interruptions => 4,
	window => 1);
is($v15->{duplicates}, 4, 'F15: and with the one after it was requeued');

unlike($node->log_text(0), qr/PANIC|terminated by signal|TRAP:/,
	'the server survives all of it');
done_testing();
