package OutboxTest::Content;

=pod

=head1 NAME

OutboxTest::Content - messages with any content, and what must arrive of them

=head1 SYNOPSIS

  my @messages = map { random_message() } 1 .. 100;
  my $errors = enqueue_all($node, 'postgres', @messages);
  ... wait until they are delivered ...
  my $expected = expected($node, 'postgres', @messages);
  my @got = $rabbit->inspect('q');
  same_content('they arrive as they are', $expected, @got);

=head1 MESSAGES

A message is a hash reference of character strings, absent ones being NULL:

  id, route, event_type, aggregate_type, aggregate_id, routing_key
  payload       JSON text; or
  body          bytes (and content_type, the argument of outbox_enqueue_bytes)
  headers       hash reference of typed values, as Rabbit's inspect shows them:
                { S => 'x' } { t => \1 } { l => '5' } { V => undef }
                { A => [ ... ] } { F => { ... } }; [ value, text ] for a number
                that JSON has in another form, and double() makes those of d
  properties    hash reference, names of properties to strings (priority: number)
  available_at, created_at      SQL expressions; created_at is for method insert
  method        function (default), batch, insert or copy
  wrong         why enqueue must refuse it; 'maybe' if it may refuse it

The routing keys and exchanges of the routes are in %OutboxTest::Content::route.

=cut

use strict;
use warnings;

use Digest::SHA ();
use Encode qw(encode_utf8);
use Exporter 'import';
use JSON::PP ();
use Test::More;
use OutboxTest::Util;

our @EXPORT =
  qw(enqueue_all expected same_content random_message random_text double);

our %route = (default => { exchange => 'outbox', key => '{event_type}' });

my $json = JSON::PP->new->canonical->allow_nonref;

# ------------------------------------------------------------------ to the SQL

sub literal
{
	my ($text) = @_;
	return defined $text ? "'" . ($text =~ s/'/''/gr) . "'" : 'NULL';
}

sub hex_of
{
	return '\x' . unpack 'H*', $_[0];
}

=pod

=over

=item double($number, $text)

A typed value for a double, from Perl's number, which is exact; $text is the
JSON number, where that is another one.

=cut

sub json_text
{
	my ($value) = @_;
	my ($kind, $content) = %$value;

	return $json->encode($content) if $kind eq 'S';
	return $$content ? 'true' : 'false' if $kind eq 't';
	return ref $content ? $content->[1] : $content
	  if $kind eq 'l' || $kind eq 'd';
	return 'null' if $kind eq 'V';
	return '[' . join(', ', map { json_text($_) } @$content) . ']'
	  if $kind eq 'A';
	return object_text($content);
}

sub object_text
{
	my ($object) = @_;
	return '{'
	  . join(', ',
		map { $json->encode($_) . ': ' . json_text($object->{$_}) }
		sort keys %$object)
	  . '}';
}

sub double
{
	my ($number, $text) = @_;
	return { d =>
		  [ unpack('H*', pack 'd>', $number), $text // sprintf '%.17g', $number ] };
}

sub properties_text
{
	my ($properties) = @_;
	return '{'
	  . join(', ',
		map {
			"\"$_\": "
			  . ( $_ eq 'priority'
				? $properties->{$_}
				: $json->encode($properties->{$_}))
		} sort keys %$properties)
	  . '}';
}

# Name and text of each column that has a value.
sub columns
{
	my ($m) = @_;
	my %column = map { $_ => $m->{$_} } grep { defined $m->{$_} }
	  qw(id route event_type aggregate_type aggregate_id routing_key payload);
	$column{body} = hex_of($m->{body}) if defined $m->{body};
	$column{headers} = object_text($m->{headers}) if $m->{headers};
	$column{properties} = properties_text($m->{properties})
	  if $m->{properties};
	return \%column;
}

# An array of one, of the arguments that outbox_enqueue() would have.
sub batch_statement
{
	my ($expression) = @_;
	my %cast = (
		body => "encode(%s::bytea, 'base64')",
		map { $_ => '%s::jsonb' } qw(payload headers properties));

	return 'SELECT outbox_enqueue_batch(jsonb_build_array(jsonb_build_object('
	  . join(', ',
		map {
			literal($_ eq 'body' ? 'body_base64' : $_) . ', '
			  . sprintf($cast{$_} // '%s', $expression->{$_})
		} sort keys %$expression)
	  . ")));\n";
}

sub statement
{
	my ($m) = @_;
	my $method = $m->{method} // 'function';
	my $column = columns($m);
	my %expression = map { $_ => $m->{$_} } grep { defined $m->{$_} }
	  qw(available_at created_at);

	if ($method eq 'copy')
	{
		my @names = sort keys %$column;
		my %escape = ("\\" => "\\\\", "\n" => "\\n", "\t" => "\\t", "\r" => "\\r");
		return 'COPY outbox ('
		  . join(', ', @names)
		  . ") FROM stdin;\n"
		  . join("\t",
			map { $column->{$_} =~ s/([\\\n\t\r])/$escape{$1}/gr } @names)
		  . "\n\\.\n";
	}
	$expression{$_} = literal($column->{$_}) foreach keys %$column;
	my @names = sort keys %expression;
	return 'INSERT INTO outbox ('
	  . join(', ', @names)
	  . ') VALUES ('
	  . join(', ', map { $expression{$_} } @names) . ");\n"
	  if $method eq 'insert';

	$expression{message_id} = delete $expression{id} if $expression{id};
	$expression{content_type} = literal($m->{content_type})
	  if defined $m->{body} && defined $m->{content_type};
	return batch_statement(\%expression) if $method eq 'batch';
	return 'SELECT outbox_enqueue'
	  . (defined $m->{body} ? '_bytes' : '') . '('
	  . join(', ', map { "$_ => $expression{$_}" } sort keys %expression)
	  . ");\n";
}

# For test_sent: what the order is promised of; hashed, because it may contain anything.
sub key_of
{
	my ($m) = @_;
	return 'NULL' unless defined $m->{aggregate_id};
	my $type = defined $m->{aggregate_type} ? "t$m->{aggregate_type}" : '';
	return literal(
		Digest::SHA::sha1_hex(encode_utf8(($m->{route} // 'default') . "\0$type\0$m->{aggregate_id}")));
}

=pod

=item enqueue_all($node, $dbname, @messages)

Enqueues each in a transaction of its own that also notes it in test_sent (of
OutboxTest::Checker), and sets accepted in each message. Returns the errors as
text. Messages without an id get one.

=cut

sub enqueue_all
{
	my ($node, $dbname, @messages) = @_;
	my $script = "SET client_min_messages = error;\n";
	my ($out, $err) = ('', '');

	foreach my $m (@messages)
	{
		$m->{id} //= random_uuid();
		my $key = key_of($m);
		$script .= "BEGIN;\n"
		  . statement($m)
		  . "INSERT INTO test_sent VALUES (nextval('test_sent_n'), '$m->{id}', $key);\n"
		  . "COMMIT;\n";
	}
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	$node->psql($dbname, encode_utf8($script),
		on_error_stop => 0,
		stdout => \$out,
		stderr => \$err);
	my %sent = map { $_ => 1 } split /\n/,
	  $node->sql('SELECT id FROM test_sent', $dbname);
	$_->{accepted} = $sent{ $_->{id} } ? 1 : 0 foreach @messages;
	return $err;
}

# ------------------------------------------------------- what must arrive of it

sub rendered
{
	my ($m) = @_;
	return $m->{routing_key} if defined $m->{routing_key};
	my $route = $route{ $m->{route} // 'default' } or return '';
	my $template = $route->{key};
	return $template =~
	  s/\{(event_type|aggregate_type|aggregate_id)\}/$m->{$1} \/\/ ''/ger;
}

# The same typed value as inspect shows it.
sub shown
{
	my ($value) = @_;
	my ($kind, $content) = %$value;

	if ($kind eq 'S' && length $content > 250)
	{
		my $bytes = encode_utf8($content);
		return { S => Digest::SHA::sha256_hex($bytes) } if length $bytes > 1000;
	}
	return { t => $$content ? JSON::PP::true : JSON::PP::false }
	  if $kind eq 't';
	return { $kind => ref $content ? $content->[0] : "$content" }
	  if $kind eq 'l' || $kind eq 'd';
	return { A => [ map { shown($_) } @$content ] } if $kind eq 'A';
	return { F => { map { $_ => shown($content->{$_}) } keys %$content } }
	  if $kind eq 'F';
	return $value;
}

=pod

=item expected($node, $dbname, @messages)

What must have arrived of the accepted ones, once they are all published: a hash
reference from id to the form in which Rabbit's inspect shows it, without
redelivered.

=cut

sub expected
{
	my ($node, $dbname, @messages) = @_;
	my %expected;

	# The JSON text and the time are the database's.
	my %row = map { $_->[0] => $_ } $node->rows(<<'SQL', $dbname);
SELECT id, floor(extract(epoch FROM created_at)),
	octet_length(convert_to(payload::text, 'UTF8')),
	encode(sha256(convert_to(payload::text, 'UTF8')), 'hex')
FROM outbox_archive
SQL

	foreach my $m (grep { $_->{accepted} } @messages)
	{
		my (undef, $created, $size, $sha) = @{ $row{ $m->{id} } // [] };
		my %headers = map { $_ => shown($m->{headers}{$_}) }
		  keys %{ $m->{headers} // {} };
		my %message = (
			%{ $m->{properties} // {} },
			message_id => $m->{id},
			delivery_mode => 2,
			exchange => $route{ $m->{route} // 'default' }{exchange},
			routing_key => rendered($m),
			body_size => $size,
			body_sha256 => $sha);

		$message{type} //= $m->{event_type};
		$message{content_type} //=
			defined $m->{payload} ? 'application/json'
		  : ($m->{method} // 'function') =~ /^(function|batch)$/
		  ? $m->{content_type} // 'application/octet-stream'
		  : 'application/octet-stream';
		if (defined $m->{body})
		{
			$message{body_size} = length $m->{body};
			$message{body_sha256} = Digest::SHA::sha256_hex($m->{body});
		}
		$message{timestamp} = $created if defined $created && $created >= 0;
		$headers{$_} = shown({ S => $m->{$_} }) foreach grep { defined $m->{$_} }
		  qw(aggregate_id aggregate_type);
		$message{headers} = \%headers if %headers;
		$expected{ $m->{id} } = \%message;
	}
	return \%expected;
}

=pod

=item same_content($name, $expected, @got)

One test: each of what has arrived is equal to what was expected of it, in all
properties. (Whether everything arrives, and nothing else, and how often, is the
checker's business.)

=cut

sub same_content
{
	my ($name, $expected, @got) = @_;
	my @wrong;

	foreach my $got (@got)
	{
		my %got = %$got;
		delete $got{redelivered};
		my $want = $expected->{ $got{message_id} } or next;
		my ($a, $b) = map { canonical($_) } ($want, \%got);
		push @wrong, "expected $a\n     got $b" if $a ne $b;
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	if (!ok(!@wrong, $name))
	{
		diag scalar(@wrong) . ' of ' . scalar(@got) . ' differ';
		diag substr $_, 0, 4000 foreach @wrong[ 0 .. ($#wrong > 2 ? 2 : $#wrong) ];
	}
	return;
}

# JSON::PP tells numbers from strings by how they were used last.  RabbitMQ 4 reads
# the expiration and passes it on as a number without leading zeros.
sub canonical
{
	my ($message) = @_;
	my %copy = %$message;
	$copy{expiration} =~ s/^0+(?=\d)// if defined $copy{expiration};
	$copy{$_} = "$copy{$_}" foreach grep { defined $copy{$_} && !ref $copy{$_} } keys %copy;
	return JSON::PP->new->canonical->ascii->encode(\%copy);
}

# ---------------------------------------------------------------------- chance

=pod

=item random_message(%params)

A message at random: chars => a list of characters that strings may have
(default: any of Unicode), routes => names in %OutboxTest::Content::route. One
in ten has something wrong, and says what.

=item random_text($bytes, $chars)

A string of at most so many bytes in UTF-8, often exactly so many.

=back

=cut

sub random_uuid
{
	my $hex = join '', map { sprintf '%04x', rand 65536 } 1 .. 8;
	$hex =~ s/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/$1-$2-4$3-8$4-$5/;
	return $hex;
}

sub random_char
{
	my ($chars) = @_;
	return $chars->[ rand @$chars ] if $chars;
	my $range = pick([ 0x20, 0x7e ], [ 0x20, 0x7e ], [ 0x01, 0x1f ],
		[ 0x7f, 0x7ff ], [ 0x800, 0xd7ff ], [ 0xe000, 0xfffd ],
		[ 0x10000, 0x10ffff ]);
	my $code = $range->[0] + int rand($range->[1] - $range->[0] + 1);

	# Perl warns about these, and a JSON parser may
	return 'x' if ($code & 0xfffe) == 0xfffe || $code >= 0xfdd0 && $code <= 0xfdef;
	return chr $code;
}

sub random_text
{
	my ($bytes, $chars) = @_;
	my $full = rand() < 0.15;
	my $limit = $full ? $bytes : int rand pick(4, 20, $bytes + 1);
	my $text = '';
	my $used = 0;

	$limit = $bytes if $limit > $bytes;
	while ($used < $limit)
	{
		my $char = random_char($chars);
		my $size = length encode_utf8($char);
		last if $used + $size > $limit;
		$text .= $char;
		$used += $size;
	}
	$text .= 'x' x ($bytes - $used) if $full;
	return $text;
}

sub random_typed
{
	my ($depth, $chars) = @_;
	my $kind = pick(qw(S S S t l l d V), $depth > 0 ? qw(A F) : ());

	return { S => random_text(pick(10, 10, 300), $chars) } if $kind eq 'S';
	return { t => \(rand() < 0.5 ? 1 : 0) } if $kind eq 't';
	return { V => undef } if $kind eq 'V';
	return { l => pick(0, 1, -1, '9223372036854775807', '-9223372036854775808',
			int(rand 2**31), -int(rand 2**52)) }
	  if $kind eq 'l';
	return { A => [ map { random_typed($depth - 1, $chars) } 1 .. rand 5 ] }
	  if $kind eq 'A';
	return { F => random_object($depth - 1, $chars) } if $kind eq 'F';
	while (1)
	{
		# bits at random: every exponent
		my $number = unpack 'd>', pack 'N2', rand 2**32, rand 2**32;
		next if $number != $number || abs($number) == 9**9**9;
		# integers that fit are no doubles, and jsonb has no negative zero
		next if abs($number) < 2**63 && $number == int $number;
		return double($number);
	}
}

sub random_object
{
	my ($depth, $chars) = @_;
	my %object;

	for (1 .. rand 6)
	{
		my $name = random_text(pick(8, 8, 255), $chars);
		next if $name =~ /^(CC|BCC)$/;
		$object{$name} = random_typed($depth, $chars);
	}
	return \%object;
}

# JSON that is no AMQP table: any depth, any number.
sub random_json
{
	my ($depth, $chars) = @_;
	my $kind = int rand($depth > 0 ? 8 : 6);

	return $json->encode(random_text(pick(10, 100, 2000), $chars))
	  if $kind < 2;
	return pick(qw(true false null)) if $kind == 2;
	return pick(0, -1, '1e400', '1.50', '-0.0', '12345678901234567890123',
		'1' . '0' x 300, rand) if $kind < 6 && $kind > 2;
	return '['
	  . join(pick(',', ' , '),
		map { random_json($depth - 1, $chars) } 1 .. rand 5)
	  . ']'
	  if $kind == 6;
	return '{'
	  . join(',',
		map { $json->encode(random_text(12, $chars)) . ':' . random_json($depth - 1, $chars) }
		1 .. rand 5)
	  . '}';
}

sub random_bytes
{
	my ($size) = @_;
	my $block = pack 'N*', map { rand 2**32 } 1 .. 256;
	return substr $block x (1 + $size / length $block), 0, $size;
}

sub random_size
{
	my $choice = rand;
	return pick(0, 0, 1) if $choice < 0.2;
	return int rand 100 if $choice < 0.7;
	return int rand 10_000 if $choice < 0.97;
	return (1 + int rand 3) * 131064 + int(rand 3) - 1 if $choice < 0.99;
	return int rand 1_500_000;
}

sub random_properties
{
	my ($chars) = @_;
	my %properties;

	foreach my $name (
		qw(content_type content_encoding correlation_id reply_to type app_id))
	{
		$properties{$name} = random_text(255, $chars) if rand() < 0.25;
	}
	$properties{reply_to} = 'amq.gen-x'
	  if ($properties{reply_to} // '') =~ /^amq\.rabbitmq/ || rand() < 0.02;
	$properties{priority} = pick(0, 1, 9, 10, 255) if rand() < 0.3;
	$properties{expiration} = pick(qw(3600000 4294967295 0003600000))
	  if rand() < 0.2;
	return \%properties;
}

# Each makes a good message a bad one, and returns what enqueue calls it.
my @mistakes = (
	[ event_type => sub { $_[0]{event_type} = '' } ],
	[ event_type => sub { $_[0]{event_type} = "\x{e9}" x 128 } ],
	[ aggregate_id => sub { $_[0]{aggregate_id} = '' } ],
	[ aggregate_id => sub { $_[0]{aggregate_id} = 'x' x 256 } ],
	[ aggregate_type => sub { $_[0]{aggregate_type} = "\x{e9}" x 128 } ],
	[ routing_key => sub { $_[0]{routing_key} = 'x' x 256 } ],
	[ route => sub { $_[0]{route} = 'nowhere' } ],
	[ 'CC' => sub { $_[0]{headers}{CC} = { A => [ { S => 'q' } ] } } ],
	[ 'BCC' => sub { $_[0]{headers}{BCC} = { S => 'q' } } ],
	[ 'out of range' => sub { $_[0]{headers}{n} = { l => '1' . '0' x 309 } } ],
	[
		'too deep' => sub {
			my $value = { l => 1 };
			$value = { A => [$value] } foreach 1 .. 8;
			$_[0]{headers}{deep} = $value;
		}
	],
	[ 'a name in headers' => sub { $_[0]{headers}{ 'x' x 256 } = { V => undef } } ],
	[ 'too large' => sub { $_[0]{headers}{large} = { S => 'x' x 131_072 } } ],
	[ 'unknown property' => sub { $_[0]{properties}{user_id} = 'guest' } ],
	[ 'unknown property' => sub { $_[0]{properties}{delivery_mode} = '1' } ],
	[ priority => sub { $_[0]{properties}{priority} = pick(-1, 256, 1.5) } ],
	[
		expiration => sub {
			$_[0]{properties}{expiration} =
			  pick('', '-1', '1.5', 'abc', '99999999999999', '4294967296', ' 1');
		}
	],
	[ reply_to => sub { $_[0]{properties}{reply_to} = 'amq.rabbitmq.reply-to' } ],
	[ app_id => sub { $_[0]{properties}{app_id} = 'x' x 256 } ],
	[
		'exactly one' => sub {
			$_[0]{method} = 'insert';
			@{ $_[0] }{qw(payload body)} = ('{}', '');
		}
	]);

sub random_message
{
	my (%params) = @_;
	my $chars = $params{chars};
	my %m = (
		id => random_uuid(),
		method => pick(qw(function batch insert copy)),
		event_type => random_text(255, $chars));

	$m{event_type} = pick('order.created', 'x') if $m{event_type} eq '';
	if (rand() < 0.5)
	{
		$m{aggregate_id} = rand() < 0.7 ? 'k' . int rand 20 : random_text(255, $chars);
		delete $m{aggregate_id} if $m{aggregate_id} eq '';
	}
	$m{aggregate_type} = rand() < 0.7 ? 'kind' : random_text(255, $chars)
	  if rand() < 0.6;
	if (rand() < 0.5)
	{
		$m{payload} = random_json(pick(1, 3, 8), $chars);
	}
	else
	{
		$m{body} = random_bytes(random_size());
		$m{content_type} = random_text(255, $chars)
		  if $m{method} =~ /^(function|batch)$/ && rand() < 0.5;
	}
	$m{headers} = random_object(pick(0, 2, 7), $chars) if rand() < 0.6;
	$m{properties} = random_properties($chars) if rand() < 0.6;
	$m{routing_key} = random_text(255, $chars) if rand() < 0.2;
	$m{route} = pick(@{ $params{routes} })
	  if $params{routes} && !defined $m{routing_key};
	$m{available_at} = pick(q{now() - interval '1 day'}, q{'-infinity'},
		q{clock_timestamp() + interval '200 ms'})
	  if $m{method} ne 'copy' && !defined $m{aggregate_id} && rand() < 0.1;
	$m{created_at} = pick(q{'4713-01-01 BC'}, q{'1969-12-31 23:59:59 UTC'},
		q{'1970-01-01 UTC'}, q{'9999-12-31'}, q{'200000-01-01'})
	  if $m{method} eq 'insert' && rand() < 0.1;

	if (rand() < 0.03)
	{
		# near the limit of one frame, which is kept by a margin
		$m{headers}{large} = { S => 'x' x (129_000 + rand 2_000) };
		$m{wrong} = 'maybe';
	}
	if (rand() < 0.1)
	{
		my ($what, $make) = @{ pick(@mistakes) };
		$make->(\%m);
		$m{wrong} = $what;
		delete $m{content_type} if $m{method} ne 'function';
	}
	$m{wrong} //= 'routing key of route'
	  if length encode_utf8(rendered(\%m)) > 255;
	return \%m;
}

1;
