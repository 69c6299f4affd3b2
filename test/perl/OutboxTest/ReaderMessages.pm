package OutboxTest::ReaderMessages;

=pod

=head1 NAME

OutboxTest::ReaderMessages - the messages that the client libraries read back

=head1 SYNOPSIS

  my %messages = OutboxTest::ReaderMessages::all();
  enqueue_all($node, 'postgres', map { @$_ } values %messages);

all() returns lists of messages in the form of L<OutboxTest::Content>, by the queue
into which they go: content, large, priority, expiring, quorum, headed.

=cut

use strict;
use warnings;
use utf8;

use Encode qw(encode_utf8);
use OutboxTest::Content;

# A frame's payload, as RabbitMQ and the clients agree on frames of 131072 bytes.
use constant FRAME => 131_072 - 8;
use constant MB => 1024 * 1024;

my %TEXTS = (
	empty => '',
	ascii => 'plain text',
	control => join('', map { chr } 1 .. 31, 127),
	quotes => q(a "quoted" \\ back'slash / and {braces}),
	digits => '12345678901234567890',
	'looks like JSON' => '{"a": [1, null]}',
	accents => 'Zoë Ångström, naïve façade',
	combining => "e\x{301} a\x{30a} n\x{303} \x{1100}\x{1161}\x{11a8}",
	composed => "\x{e9} \x{e5} \x{f1} \x{ac01}",
	'right to left' => "\x{5e9}\x{5dc}\x{5d5}\x{5dd} \x{627}\x{644}\x{633}\x{644}\x{627}\x{645} \x{200f}123\x{202e}abc\x{202c}",
	'4 bytes' => "\x{1f600}\x{1f468}\x{200d}\x{1f469}\x{200d}\x{1f467} \x{1d11e} \x{20000} \x{10fffd}",
	separators => "a\x{2028}b\x{2029}c\x{85}d\x{a0}e\x{feff}f\x{fffd}",
	noncharacters => "\x{ffff}\x{fffe}\x{fdd0}",
	'1000 bytes' => 'x' x 1000,
	'1025 bytes' => 'y' x 1025,
	'1000 of 3 bytes' => "\x{20ac}" x 1000,
	'60000 bytes' => 'z' x 60_000);

# Integers at the borders of all types that a library may have for them.
sub integers
{
	my @texts = (0, map { my $p = $_; map { ($_, "-$_") } $p } powers());
	return ((map { { l => $_ } } @texts), { l => '-9223372036854775808' });
}

# 2^k - 1, 2^k and 2^k + 1 in text, up to 2^63 - 1.
sub powers
{
	my %seen;
	return grep { $_ > 0 && !$seen{$_}++ } (map { ($_ - 1, $_, $_ + 1) } map { 1 << $_ } 0 .. 62),
	  9223372036854775807, 1234567890123456789, 1_000_000_000_000_000, 1_000_000_000_000_000_000;
}

sub doubles
{
	my @numbers = (1.5, 0.1, 1 / 3, 2.5e15, 123456.789, 1e15 + 0.5, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308,
		1e300, 1e-300, 3.14159265358979, 4294967296.25, 9007199254740993.5, map { 1 + 1 / $_ } 2 .. 40);

	return ((map { (fraction($_), fraction(-$_)) } @numbers),
		double(1, '1.0'), double(-1, '-1.0'), double(0, '0.0'), double(0, '-0.0'), double(5, '5.000'),
		double(2**53, '9007199254740992.0'), double(1e15, '1000000000000000.0'));
}

# A number whose text has no fraction would be an integer.
sub fraction
{
	my ($number) = @_;
	my $text = sprintf '%.17g', $number;
	return double($number, $text =~ /^-?\d+$/ ? "$text.0" : $text);
}

# JSON integers that 64 bits do not hold.
sub beyond
{
	return (double(2**63, '9223372036854775808'), double(-2**63, '-9223372036854775809'),
		double(2**64, '18446744073709551616'), double(1e30, '1000000000000000000000000000000'),
		double(1e300, '1' . '0' x 300));
}

sub named
{
	my ($prefix, @values) = @_;
	my $n = 0;
	return { map { sprintf("$prefix%03d", $n++) => $_ } @values };
}

# As many in each as fit into one frame with room to spare.
sub numbered
{
	my ($prefix, $per_message, @values) = @_;
	my @messages;

	while (my @some = splice @values, 0, $per_message)
	{
		push @messages, { event_type => "content.$prefix", payload => '{}', headers => named($prefix, @some) };
	}
	return @messages;
}

sub nested
{
	my ($kind, $depth) = @_;
	my $value = { S => 'ground' };

	$value = $kind eq 'A' || ($kind eq 'both' && $_ % 2) ? { A => [ $value, { l => $_ } ] } : { F => { down => $value, depth => { l => $_ } } }
	  foreach 1 .. $depth;
	return $value;
}

sub structures
{
	my @mixed = ({ S => 'x' }, { l => 1 }, double(1.5), { V => undef }, { t => \1 }, { t => \0 });
	my %all = (
		nothing => { V => undef },
		true => { t => \1 },
		false => { t => \0 },
		'empty array' => { A => [] },
		'empty object' => { F => {} },
		mixed => { A => [@mixed] },
		'mixed in arrays' => { A => [ { A => [@mixed] }, { A => [ { A => [] } ] }, { F => {} } ] },
		nulls => { A => [ ({ V => undef }) x 5 ] },
		'object of all' => { F => { map { ("f$_" => $mixed[$_]) } 0 .. $#mixed } },
		'array of objects' => { A => [ map { { F => { n => { l => $_ }, even => { t => $_ % 2 ? \0 : \1 } } } } 1 .. 50 ] },
		'deep arrays' => nested('A', 7),
		'deep objects' => nested('F', 7),
		deep => nested('both', 7),
		thousand => { F => { map { ("n$_" => { l => $_ * 7919 }) } 1 .. 1000 } });
	return map { { event_type => 'content.structure', payload => '{}', headers => { $_ => $all{$_} } } } sort keys %all;
}

# Names that a library could take for something else, or cut off.
sub names
{
	my $long = "\x{e9}" x 127 . 'x';
	my @names = ('x' x 255, $long, ' ', '"', 'a.b', 'a b', "\x{1f511}", "e\x{301}", "\x{e9}", "\x{5de}\x{5e4}\x{5ea}\x{5d7}",
		'__proto__', 'constructor', 'toString', 'length', 'self', 'class', 'Content-Type', 'content-type', "\x01", 'null', '0');

	return map { { event_type => 'content.name', payload => '{}', headers => $_ } }
	  { map { ($_ => { S => "of $_" }) } @names },
	  { map { ($_ => { F => { $_ => { l => 7 } } }) } @names },
	  { '' => { S => 'an empty name' } };
}

sub texts
{
	return (
		(map { { event_type => 'content.text', payload => '{}', headers => { $_ => { S => $TEXTS{$_} } } } } sort keys %TEXTS),
		{ event_type => 'content.text', payload => '{}', headers => { all => { A => [ map { { S => $TEXTS{$_} } } grep { length $TEXTS{$_} < 2000 } sort keys %TEXTS ] } } });
}

# Short strings: everywhere where AMQP has one.
sub properties
{
	my @short = map { $TEXTS{$_} } qw(ascii quotes digits accents combining), 'right to left', '4 bytes', 'separators';
	my @names = qw(content_encoding correlation_id reply_to type app_id);

	return (
		(
			map {
				my $text = $_;
				+{
					event_type => $text, payload => '{"n": 1}', aggregate_type => $text, aggregate_id => $text,
					routing_key => $text, properties => { map { $_ => $text } @names }
				}
			} @short),
		{
			event_type => 'x' x 255, payload => '{}', aggregate_type => 'x' x 255, aggregate_id => 'x' x 255, routing_key => 'x' x 255,
			properties => { map { $_ => 'y' x 255 } @names, 'content_type' }
		},
		{
			event_type => 'order.created', payload => '{"total": 12.50}', aggregate_type => 'order', aggregate_id => '4711',
			headers => {
				traceparent => { S => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
				tracestate => { S => 'congo=t61rcWkgMzE' }
			},
			properties => {
				content_type => 'application/vnd.shop+json', content_encoding => 'utf-8', correlation_id => 'c-1', reply_to => 'replies',
				app_id => 'shop', priority => 7, expiration => '86400000'
			}
		},
		(map { { event_type => 'content.priority', payload => '{}', properties => { priority => $_ } } } 0, 1, 127, 128, 255),
		(map { { event_type => 'content.expiration', payload => '{}', properties => { expiration => $_ } } } qw(600000 4294967295)));
}

# When it was enqueued, with and without a fraction.
sub moments
{
	return map { { event_type => 'content.time', payload => '{}', method => 'insert', created_at => "'$_'" } }
	  '1969-12-31 23:59:59 UTC', '1970-01-01 UTC', '1999-12-31 23:59:59.5 UTC', '2000-01-01 UTC', '2038-01-19 03:14:08 UTC',
	  '2106-02-07 06:28:16 UTC', '2262-04-11 23:47:17 UTC', '9999-12-31 23:59:59 UTC';
}

sub bodies
{
	my @json = ('{}', '[]', 'null', 'true', '"text"', '12345678901234567890', '-0.5', '{"a": {"b": [1, 2.50, null, "\u00e9"]}}',
		map { '"' . ($_ =~ s/([\\"])/\\$1/gr) . '"' } @TEXTS{ 'combining', 'right to left', '4 bytes', 'separators' });
	my @bytes = ('', "\0", "\0" x 1000, join('', map { chr } 0 .. 255), "\xff\xfe", "\r\n\0\n", encode_utf8($TEXTS{'4 bytes'}));

	return ((map { { event_type => 'content.body', payload => $_ } } @json),
		(map { { event_type => 'content.bytes', body => $_ } } @bytes),
		{ event_type => 'content.bytes', body => encode_utf8($TEXTS{accents}), content_type => 'text/plain; charset=utf-8' },
		{ event_type => 'content.bytes', body => 'not JSON at all', content_type => 'application/json' },
		{ event_type => 'content.bytes', body => "\0\1\2", content_type => 'application/x-protobuf' });
}

# Sizes around those of a frame, and large ones; what is in them does not repeat at a frame's length.
sub large
{
	my $pattern = join '', map { chr(($_ * 37 + ($_ >> 8)) % 256) } 0 .. 65_520;
	my @sizes = (FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 8 * FRAME, MB, 16 * MB);

	return (
		(map { { event_type => 'large.bytes', route => 'large', body => substr($pattern x (1 + int($_ / length $pattern)), 0, $_) } } @sizes),
		{ event_type => 'large.json', route => 'large', payload => '{"pad": "' . ("\x{20ac}" x (MB / 3)) . '"}' });
}

sub all
{
	return (
		content => [ texts(), numbered('integer', 70, integers()), numbered('double', 70, doubles()), numbered('beyond', 70, beyond()),
			structures(), names(), properties(), moments(), bodies() ],
		large => [ large() ],
		priority => [ map { { event_type => "priority.$_", route => 'priority', payload => '{}', properties => { priority => $_ } } } 1, 9, 0, 5, 3, 9, 1 ],
		expiring => [ map { { event_type => 'expiring', route => 'expiring', payload => '{}', properties => { expiration => $_ } } } qw(1 3600000) ],
		quorum => [ map { { event_type => 'quorum', route => 'quorum', payload => '{}', headers => { n => { l => $_ } } } } 1 .. 3 ],
		headed => [
			headed(S => 'eu', 7, 1.5, \1), headed(S => 'us', 7, 1.5, \1), headed(S => 'eu', 8, 1.5, \1), headed(S => 'eu', 7, 1.25, \1),
			headed(S => 'eu', 7, 1.5, \0) ]);
}

# The first is what the queues are bound for.
sub headed
{
	my (undef, $region, $tier, $ratio, $vip) = @_;
	return {
		event_type => 'headed', route => 'headed', payload => '{}',
		headers => { region => { S => $region }, tier => { l => $tier }, ratio => double($ratio), vip => { t => $vip }, more => { V => undef } } };
}

1;
