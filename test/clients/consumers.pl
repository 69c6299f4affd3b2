# What consumers read: each kind of header, property and body that can be enqueued, as the objects
# of each client library have it, value by value beside what is on the wire.  What a library
# itself makes of a value is listed here as a deviation, and has to be so: the tables
# of doc/consumers.md and test/clients/consumers/README.md are made of it.
#
# builds: test/clients/consumers/pika test/clients/consumers/kombu test/clients/consumers/amqp091-go test/clients/consumers/lapin test/clients/consumers/amqplib test/clients/consumers/java test/clients/consumers/spring
# takes: 40 s

use strict;
use warnings;
use utf8;

use Encode ();
use IPC::Run ();
use JSON::PP ();
use Math::BigInt;
use POSIX ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Checker;
use OutboxTest::Clients;
use OutboxTest::Content;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Reader;
use OutboxTest::ReaderMessages;
use OutboxTest::Util;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

# --- what the libraries make of values, other than what they are

sub double_of
{
	my ($bits) = @_;
	return unpack 'd>', pack 'H*', $bits;
}

# A whole number without its fraction, as text; of any size.
sub truncated
{
	my ($bits) = @_;
	return Math::BigInt->new(sprintf '%.0f', POSIX::trunc(double_of($bits)))->bstr;
}

sub unsigned
{
	my ($wire) = @_;
	return unless ($wire->{l} // 0) < 0;
	return { t => 'i', v => Math::BigInt->new($wire->{l})->badd(Math::BigInt->new(2)->bpow(64))->bstr };
}

my $CAST = sub { my ($wire) = @_; return defined $wire->{d} ? { t => 'i', v => truncated($wire->{d}) } : undef };

# JavaScript has numbers of one kind, which are exact up to 2^53.
sub number
{
	my ($wire, $exact) = @_;
	return unless defined $wire->{l};
	my $bits = unpack 'H*', pack 'd>', "$wire->{l}" + 0.0;
	return unless $exact == (Math::BigInt->new(truncated($bits))->bcmp(Math::BigInt->new($wire->{l})) == 0);
	return { t => 'd', v => $bits };
}

# Go's zero values say nothing of whether it was there.
sub unset
{
	my ($wire, $path) = @_;
	return { missing => 1 } if $path eq 'priority' && $wire->{l} == 0;
	return { missing => 1 } if $path !~ m{/} && $path !~ /^(?:name|exchange|routing_key)$/ && ($wire->{S} // 'x') eq '';
	return;
}

# A time of the library's own type, in seconds as on the wire.
sub moment
{
	my ($wire, $path) = @_;
	return $path eq 'timestamp' ? { t => 'T', v => $wire->{l} } : undef;
}

# A string with its bytes, of any length or of one that is shown as a digest.
sub long_string
{
	my ($wire, $path, $all) = @_;
	return unless $path =~ m{^headers/} && ($all || OutboxTest::Reader::is_long($path, $wire)) && defined $wire->{S};
	return { t => 'L', v => $wire->{S} };
}

my %NOTE = (
	fractions => 'Doubles are cast to integers: 1.5 becomes 1, 0.1 becomes 0, 1e300 an integer of 301 digits',
	unsigned => 'Negative integers are read without their sign: -1 becomes 18446744073709551615',
	rounds => 'Integers above 2^53 are rounded to the next number that JavaScript has',
	proto => 'A header named `__proto__` is not among the headers',
	'long string' => 'Strings in headers are of the type `LongString`, which no `String` equals; `toString()` has the text',
	'above 1024' => 'Strings in headers of more than 1024 bytes stay a `LongString`, shorter ones are a `String`',
	'priority 0' => 'The priority of a message without one is 0',
	unset => 'What is not set and what is 0 (`priority`) or empty is the same',
);

# --- clients

my @CLIENTS = (
	{
		name => 'pika (Debian)',
		queue => 'pika-debian',
		command => [ '/usr/bin/python3', 'test/clients/consumers/pika/main.py' ],
		version => sub { return debian_version('pika') },
		deviations => { fractions => $CAST, unsigned => \&unsigned }
	},
	{
		name => 'pika',
		folder => 'pika',
		version => [ 'requirements.txt', qr{pika==(\S+)} ],
		deviations => { fractions => $CAST }
	},
	{
		name => 'kombu',
		folder => 'kombu',
		version => [ 'requirements.txt', qr{kombu==(\S+)} ],
		deviations => {}
	},
	{
		name => 'amqp091-go',
		folder => 'amqp091-go',
		version => [ 'go.mod', qr{amqp091-go v(\S+)} ],
		deviations => {
			unset => \&unset,
			'' => \&moment
		}
	},
	{
		name => 'lapin',
		folder => 'lapin',
		version => [ 'Cargo.toml', qr{lapin = \{ version = "=(.*?)"} ],
		deviations => {}
	},
	{
		name => 'amqplib',
		folder => 'amqplib',
		version => [ 'package.json', qr{"amqplib": "(.*?)"} ],
		deviations => {
			'' => sub { return number($_[0], 1) },
			rounds => sub { return number($_[0], 0) },
			proto => sub { return ($_[0]{S} // '') eq '__proto__' ? { missing => 1 } : undef }
		}
	},
	{
		name => 'java',
		title => 'Java client',
		folder => 'java',
		version => [ 'pom.xml', qr{<artifactId>amqp-client</artifactId>\s*<version>(.*?)<} ],
		deviations => { '' => \&moment, 'long string' => sub { return long_string(@_, 1) } }
	},
	{
		name => 'spring',
		title => 'Spring AMQP',
		folder => 'spring',
		version => [ 'pom.xml', qr{<artifactId>spring-rabbit</artifactId>\s*<version>(.*?)<} ],
		deviations => {
			'' => \&moment,
			'above 1024' => \&long_string,
			'priority 0' => sub { return $_[1] eq 'priority' && $_[0]{none} ? { t => 'i', v => 0 } : undef }
		}
	},
);

sub debian_version
{
	my ($module) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ '/usr/bin/python3', '-c', "import $module; print($module.__version__)" ], '<', \undef, '>', \$out, '2>', \$err) or die $err;
	chomp $out;
	return $out;
}

sub version
{
	my ($client) = @_;
	my $version = $client->{version};

	return $version->() if ref $version eq 'CODE';
	my ($file, $re) = @$version;
	my ($is) = slurp_file("test/clients/consumers/$client->{folder}/$file") =~ $re or die "$client->{name} has no version in $file";
	return $is;
}

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(broker => $rabbit, conf => <<"END");
${OutboxTest::Clients::CONF}outbox.retry_initial = 50ms
outbox.retry_max = 100ms
END
OutboxTest::Checker->install($node);

sub program
{
	my ($client, @words) = @_;
	my %env = (AMQP_URI => sprintf('amqp://guest:guest@127.0.0.1:%d/%%2f', $rabbit->port), PYTHONUTF8 => 1, PYTHONDONTWRITEBYTECODE => 1);
	my ($out, $err) = ('', '');

	return OutboxTest::Clients::run($node, "test/clients/consumers/$client->{folder}", args => \@words, env => \%env) if $client->{folder};
	local %ENV = (%ENV, %env);
	IPC::Run::run([ @{ $client->{command} }, @words ], '<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(120))
	  or die "$client->{name} failed:\n$err\n";
	return $out;
}

# --- queues: for each client, and one that is read byte by byte

my %EXCHANGE = (content => 'topic', large => 'fanout', priority => 'fanout', expiring => 'fanout', quorum => 'fanout', headed => 'headers');

# raw.KIND is the queue that shows what is on the wire.
sub declare
{
	my ($name) = @_;
	my @commands = map { ([ 'queue', "$name.$_" ], [ 'bind', "$name.$_", $_ ]) } qw(content large expiring);

	push @commands, map { [ 'bind', "$name.$_", $_ ] } qw(priority quorum);
	return @commands;
}

$_->{queue} //= $_->{name} foreach @CLIENTS;
$node->sql(qq{INSERT INTO outbox_route (name, exchange, exchange_type) VALUES ('$_', '$_', '$EXCHANGE{$_}')}) foreach grep { $_ ne 'content' } sort keys %EXCHANGE;
$node->sql($_) foreach
  q{UPDATE outbox_route SET exchange = 'content' WHERE name = 'default'},
  q{INSERT INTO outbox_route (name, exchange, exchange_type, sequence) VALUES ('numbered', 'content', 'topic', 'key')},
  q{INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts, failed_route) VALUES ('nowhere', 'nowhere', 'fanout', 2, 'default')};
%OutboxTest::Content::route = (
	default => { exchange => 'content', key => '{event_type}' },
	map { $_ => { exchange => $_, key => '{event_type}' } } qw(large priority expiring quorum headed));

my @commands = map { [ 'exchange', $_, $EXCHANGE{$_} ] } sort keys %EXCHANGE;
$rabbit->amqp(splice_commands(@commands));
program($_, 'setup', $_->{queue}) foreach @CLIENTS;
@commands = map { [ 'queue', "raw.$_" ] } qw(priority quorum headed);
$rabbit->amqp(splice_commands(@commands, [ 'bind', 'raw.headed', 'headed' ], map { declare($_) } 'raw', map { $_->{queue} } @CLIENTS));

sub splice_commands
{
	my @words = map { (@$_, ',') } @_;
	pop @words;
	return @words;
}

# --- messages

my %messages = OutboxTest::ReaderMessages::all();
my @enqueued = map { @{ $messages{$_} } } sort keys %messages;
my $errors = enqueue_all($node, 'postgres', @enqueued);
is(scalar(grep { !$_->{accepted} } @enqueued), 0, 'all of them are accepted') or diag $errors;

# What the outbox itself adds: numbers, what was given up elsewhere, a replay with the ids as they were and with new ones.
$node->sql(q{SELECT outbox_enqueue('numbered', '{}', 'order', 'n' || i / 2, route => 'numbered') FROM generate_series(1, 4) i});
$node->wait_drained;
$node->sql(q{SELECT outbox_replay('-infinity', aggregate_type => 'order', aggregate_id => '4711')});
$node->sql(q{SELECT outbox_replay('-infinity', aggregate_type => 'order', aggregate_id => 'n1', new_ids => true)});
$node->wait_sql(q{SELECT count(*) FROM outbox_job WHERE state = 'done'}, 2);
$node->sql(q{SELECT outbox_enqueue('given.up', '{}', 'order', 'x', route => 'nowhere')});
$node->wait_drained;

my %wire = map { $_ => [ $rabbit->inspect("raw.$_") ] } sort keys %EXCHANGE;
my $expected = expected($node, 'postgres', @enqueued);
my %by_id;
push @{ $by_id{ $_->{message_id} } }, $_ foreach map { @$_ } values %wire;
my @once = grep { @{ $by_id{ $_->{message_id} } } == 1 } map { @$_ } values %wire;
is(scalar(grep { !$by_id{ $_->{id} } && ($_->{properties}{expiration} // '') ne '1' } @enqueued), 0, 'all of them are in the queues');
same_content('what is on the wire is what was enqueued', $expected, @once);

# What a client must be handed out of its queues, in this order where there is one.
my @fits = grep { $_->{headers}{region}{S} eq 'eu' && $_->{headers}{tier}{l} == 7 && $_->{headers}{vip}{t} } @{ $wire{headed} };
my @again = map { +{ %$_, redelivered => 1, headers => { %{ $_->{headers} }, 'x-delivery-count' => { l => 1 } } } } @{ $wire{quorum} };
my %must = (%wire, headers => \@fits, quorum => [ @{ $wire{quorum} }, @again ]);
delete $must{headed};
my %rank = map { $must{priority}[$_]{message_id} => $_ } 0 .. $#{ $must{priority} };
$must{priority} = [ sort { $b->{priority} <=> $a->{priority} || $rank{ $a->{message_id} } <=> $rank{ $b->{message_id} } } @{ $must{priority} } ];

my @queues = sort keys %must;
my $count = 0;
$count += @{ $must{$_} } foreach @queues;

sub read_all
{
	my ($client) = @_;
	my %said;
	push @{ $said{ $_->{queue} } }, $_
	  foreach map { JSON::PP::decode_json($_) } split /\n/, program($client, 'read', map { "$client->{queue}.$_=" . @{ $must{$_} } } @queues);
	return \%said;
}

# --- bodies as the converters of kombu and Spring have them

my %JSON = ('{' => 'an object', '[' => 'an array', '"' => 'a string', t => 'a boolean', n => '`null`');
my %sent = map { $_->{id} => $_ } @{ $messages{content} };

# What the body is, by what was enqueued; undef for types and encodings that are made up.
sub body_of
{
	my ($id, $type) = @_;
	my $message = $sent{$id} or return;
	my $payload = $message->{payload};

	return if ($message->{properties}{content_encoding} // 'utf-8') ne 'utf-8';
	return unless $type =~ m{^(?:application/|text/plain)};
	return "`$type`" unless $type eq 'application/json';
	return "`$type`, " . (!defined $payload ? 'but no JSON' : $JSON{ substr $payload, 0, 1 } // 'a number');
}

sub note_converted
{
	my ($client, $said) = @_;

	foreach my $message (grep { $_->{converted} } @$said)
	{
		my $body = body_of(map { $_->{v} } @{ $message->{properties} }{qw(message_id content_type)}) or next;
		$client->{converted}{$body}{$_}{ $message->{converted}{$_} } = 1 foreach keys %{ $message->{converted} };
	}
	return;
}

sub converted_table
{
	my ($client) = @_;
	my $bodies = $client->{converted} or return '';
	my @converters = sort map { keys %$_ } (values %$bodies)[0];
	my $text = "\nBodies as " . title($client) . " has them:\n\n" . line('body', map { "`$_`" } @converters) . line(('---') x (1 + @converters));

	foreach my $body (sort keys %$bodies)
	{
		$text .= line($body, map { my $c = $_; join ' or ', map { "`$_`" } sort keys %{ $bodies->{$body}{$c} } } @converters);
	}
	return $text;
}

# What is shown by the whole of a queue and not by a value in it.
my %SHOWN = (
	priority => 'a priority queue: the order',
	expiring => 'an expired message does not come',
	headers => 'a binding with arguments to a headers exchange',
	quorum => 'given back to a quorum queue: comes again, flagged and counted');

foreach my $client (@CLIENTS)
{
	my $reader = $client->{reader} = OutboxTest::Reader->new(deviations => $client->{deviations});
	my $said = read_all($client);
	my @differences;

	foreach my $queue (@queues)
	{
		my @is = @{ $said->{"$client->{queue}.$queue"} // [] };
		my @here = map { my $i = $_; map { "$queue $i: $_" } $reader->compare($must{$queue}[$i], $is[$i]) } 0 .. $#is;
		$client->{shown}{$queue} = @here ? 'no' : '=';
		push @differences, @here;
		is(scalar @is, scalar @{ $must{$queue} }, "$client->{name}: deliveries of $queue");
		is($rabbit->depth("$client->{queue}.$queue"), 0, "$client->{name}: nothing is left in $queue");
	}
	is(scalar @differences, 0, "$client->{name}: everything is what it was, or what the library is known to make of it");
	diag join "\n", scalar(@differences) . ' differences', @differences[ 0 .. ($#differences > 30 ? 30 : $#differences) ] if @differences;
	is(join(' ', grep { $_ ne '' && !$reader->met->{$_} } sort keys %{ $client->{deviations} }), '', "$client->{name}: all known deviations are still there");
	note_converted($client, $said->{"$client->{queue}.content"});
	$client->{version} = version($client);
	note sprintf '%s %s: %d deliveries, %d values; %s', $client->{name}, $client->{version}, $count, $reader->values,
	  join ', ', map { "$_ $reader->{met}{$_}" } grep { $_ ne '' } sort keys %{ $reader->met };
}

# --- the pages

sub title
{
	my ($client) = @_;
	return $client->{title} // $client->{name};
}

sub line
{
	return '| ' . join(' | ', @_) . " |\n";
}

# Rows of the matrix, and the notes to which its cells point.
sub matrix
{
	my (%number, @notes);
	my $cell = sub {
		my ($client, $row) = @_;
		my $names = $client->{reader}->cell($row) or return '-';
		foreach my $name (grep { !$number{$_} } @$names)
		{
			push @notes, $NOTE{$name} // die "no note for $name";
			$number{$name} = @notes;
		}
		return join(' ', map { "[$number{$_}]" } @$names) || '=';
	};
	my $text = sprintf "%d deliveries, %d values each.\n\n", $count, $CLIENTS[0]{reader}->values;

	$text .= line('', map { title($_) } @CLIENTS) . line(('---') x (1 + @CLIENTS));
	$text .= line('version', map { $_->{version} } @CLIENTS);
	foreach my $row (map { $_->[0] } @OutboxTest::Reader::ROWS)
	{
		$text .= line($row, map { $cell->($_, $row) } @CLIENTS);
	}
	foreach my $queue (sort keys %SHOWN)
	{
		$text .= line($SHOWN{$queue}, map { $_->{shown}{$queue} } @CLIENTS);
	}
	return $text . "\n" . join '', map { sprintf "%d. %s.\n", $_ + 1, $notes[$_] } 0 .. $#notes;
}

# What is between the marks of a page is this; the page as it has to be is left in the results.
sub compare_page
{
	my ($path, $text) = @_;
	my $page = Encode::decode_utf8(slurp_file($path));
	my ($old) = $page =~ /<!-- by make test-clients: consumers -->\n\n(.*?)\n<!-- end -->/s or die "$path has no place for the table";

	$page =~ s/(?<=<!-- by make test-clients: consumers -->\n\n).*?(?=\n<!-- end -->)/$text/s;
	OutboxTest::Clients::result($path =~ s|^doc/||r =~ s|/|-|gr, Encode::encode_utf8($page));
	is($old, $text, "$path says so");
	return;
}

# The types of all clients, and what each of them is known to make of a value.
sub types
{
	my %seen;
	my $text = OutboxTest::Reader::types_table([ map { title($_) . " $_->{version}" } @CLIENTS ], map { $_->{reader} } @CLIENTS) . "\n";

	foreach my $name (grep { $_ ne '' && !$seen{$_}++ } map { sort keys %{ $_->{deviations} } } @CLIENTS)
	{
		$text .= '- ' . join(', ', map { title($_) } grep { exists $_->{deviations}{$name} } @CLIENTS) . ": $NOTE{$name}.\n";
	}
	return $text;
}

compare_page('doc/consumers.md', types());
compare_page('test/clients/consumers/README.md', matrix() . join '', map { converted_table($_) } @CLIENTS);
done_testing();
