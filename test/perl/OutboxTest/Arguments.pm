package OutboxTest::Arguments;

=pod

=head1 NAME

OutboxTest::Arguments - calls of all functions, with whatever can be an argument

=head1 SYNOPSIS

  my @functions = OutboxTest::Arguments::functions($node);
  my $call = OutboxTest::Arguments::call($functions[0]);   # public.outbox_wait('...'::uuid, NULL)

What is drawn comes from rand(): the test calls seed().

=cut

use strict;
use warnings;

use OutboxTest::Util;

# A table, a view, an index and so on.
my @relations = map { "'$_'" } qw(public.outbox public.outbox_status public.outbox_archive
  pg_catalog.pg_class pg_catalog.pg_class_oid_index public.outbox_seq_seq public.outbox_route_count);
my @numbers = qw(1 0 -1 2 32 2147483647 -2147483648);
my @big = (@numbers, qw(9223372036854775807 '-9223372036854775808'));
my @floats = (
	qw(1 0 -1 0.5), map { "'$_'" } qw(-0 NaN Infinity -Infinity 1e308 -1e308 5e-324 1e-300));
my @texts = (
	q{'default'}, q{'order'}, q{''}, q{' '}, q{repeat('x', 256)}, q{repeat('ä', 40000)},
	q{E'a\nb\tc\x01\x7f'}, q{'%s%n%1000000d'}, q('{aggregate_id}{'), q('{'), q('{}}}'),
	q('"; DROP TABLE outbox; --'), q('null'), q('[{}]'), q('{"a": 1}'), q{'infinity'},
	q{repeat('[', 100000)}, q{'1e1000000000'}, q{'00000000-0000-0000-0000-000000000000'}, q{'amq.direct'});
my @uuids = map { "'$_'" } qw(0199e7ac-4b3e-7000-8000-000000000001 00000000-0000-0000-0000-000000000000
  ffffffff-ffff-ffff-ffff-ffffffffffff);
my @times = (
	map { "'$_'" } 'now', qw(infinity -infinity epoch 2000-01-01), '294276-12-31 23:59:59.999999+00',
	'4713-01-01 00:00:00+00 BC');
my @messages = (
	q({"event_type": "e", "payload": 1}), q({"event_type": "e", "body_base64": "*"}), '{}', 'null', '[]', '7',
	q({"event_type": null, "payload": null, "route": null, "message_id": null}),
	q({"event_type": 7, "payload": "x", "route": [], "message_id": {}, "headers": 1, "properties": true}),
	q({"event_type": "e", "payload": 1, "available_at": "infinity", "aggregate_id": 1e400}),
	q({"event_type": "e", "payload": 1, "unknown": 1}), q({"": ""}));
my @json = (
	q('{"a": 1}'), q('null'), q('[]'), q('{}'), q('""'), q('1e4000'), q('-0'), q('"\u00e4"'),
	q<(repeat('[', 3000) || repeat(']', 3000))>, q<(repeat('{"k":', 3000) || '1' || repeat('}', 3000))>,
	q{to_jsonb(repeat('x', 1000000))}, q{jsonb_build_object(repeat('k', 300), 1)},
	q('{"x": {"y": [1, null, {"z": 1e30, "": ""}]}, "x-death": "a"}'),
	q('{"priority": -1, "expiration": "x", "timestamp": 1e99, "delivery_mode": 3, "content_type": 7}'),
	q('{"priority": 9, "expiration": "1", "content_type": "a/b", "correlation_id": null}'),
	(map { "'[$_]'" } @messages),
	q{'[} . join(',', @messages) . q{]'},
	q{(SELECT jsonb_agg(jsonb_build_object('event_type', 'e', 'payload', n)) FROM generate_series(1, 300) n)});

# How to write values of a type; the first is what a caller might mean.
my %values = (
	boolean => [qw(true false)],
	integer => \@numbers,
	bigint => \@big,
	'double precision' => \@floats,
	text => \@texts,
	name => \@texts,
	uuid => \@uuids,
	jsonb => \@json,
	bytea => [ q('\x00ff'), q(''), q{decode(repeat('00', 100000), 'hex')} ],
	date => [ map { "'$_'" } qw(now infinity -infinity 2000-01-01 5874897-12-31), '4713-01-01 BC' ],
	'timestamp with time zone' => \@times,
	interval => [
		map { "'$_'" } '1 day', '0', '-1 day', '1 microsecond', '178000000 years', '-178000000 years',
		'1 mon -30 days', '-1 mon 30 days', '2147483647 days', '2147483647 mons 2147483647 days' ],
	oid => [ qw(1259 0 4294967295), map { "${_}::regclass::oid" } @relations ],
	regclass => [ @relations, qw(0 4294967295) ],
	tid => [
		map { "'($_)'" } '0,1', '0,0', '0,65535', '4294967295,1', '4294967294,65535', '1000,1' ]);

=pod

=over

=item functions($node)

Those of the extensions outbox and outbox_inbox, by what the catalog says; each is a
hash: name, args (types), defaults (how many of the last may be left out), set, trigger.

=item value($type)

One of that type as an expression; an array has up to two dimensions and any lower bound.

=item call($function, $plain)

The function with arguments; $plain: what a caller might mean.

=back

=cut

sub functions
{
	my ($node) = @_;
	my @functions;

	foreach my $row ($node->rows(<<'SQL'))
SELECT format('%I.%I', n.nspname, p.proname),
	array_to_string(ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes::oid[]) t), ','),
	p.pronargdefaults, p.proretset, format_type(p.prorettype, NULL)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
		AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname IN ('outbox', 'outbox_inbox')
ORDER BY 1, 2
SQL
	{
		my ($name, $args, $defaults, $set, $returns) = @$row;
		push @functions,
		  {
			name => $name,
			args => [ split /,/, $args ],
			defaults => $defaults,
			set => $set eq 't',
			trigger => scalar($returns =~ /trigger$/)
		  };
	}
	return @functions;
}

# A type of the extension's own is a row type.
sub _pool
{
	my ($type) = @_;

	return $values{$type} if $values{$type};
	die "no values for arguments of type $type" unless $type =~ /^(?:\w+\.)?outbox_\w+$/;
	return [
		"jsonb_populate_record(NULL::$type, '{\"name\": \"default\", \"route\": \"default\"}')",
		"jsonb_populate_record(NULL::$type, '{}')"
	];
}

sub _array
{
	my ($type) = @_;
	my $cast = $type;
	my $some = sub { join ', ', map { value($type) } 1 .. 1 + int rand 3 };

	return pick(
		sub { "'{}'::$cast\[]" },
		sub { "ARRAY[NULL]::$cast\[]" },
		sub { "ARRAY[${\ $some->()}]::$cast\[]" },
		sub { "ARRAY[${\ $some->()}]::$cast\[]" },
		sub { my $row = $some->(); "ARRAY[[$row], [$row]]::$cast\[]" },
		sub { "array_fill(${\ value($type)}, ARRAY[3], ARRAY[-1])::$cast\[]" },
		sub { "array_fill(${\ value($type)}, ARRAY[2000])::$cast\[]" })->();
}

sub value
{
	my ($type, $plain) = @_;

	return $plain ? "'{}'" : _array($1) if $type =~ /^(.*)\[\]$/;
	my $pool = _pool($type);
	return "NULL::$type" if !$plain && rand() < 0.15;
	my $value = $plain || rand() < 0.3 ? $pool->[0] : pick(@$pool);
	return $values{$type} ? "($value)::$type" : $value;
}

sub call
{
	my ($function, $plain) = @_;
	my @args = @{ $function->{args} };

	splice @args, @args - int rand(1 + $function->{defaults}) if rand() < 0.3 && $function->{defaults};
	return "$function->{name}(" . join(', ', map { value($_, $plain) } @args) . ')';
}

1;
