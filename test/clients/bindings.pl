# Arguments as drivers bind them: each kind of value that an application has, by each way
# to enqueue, through the drivers of five languages.  What works is known, line by
# line (bindings/expected): a binding that worked and no longer does is a failure, and so is one
# that is stored as something else.
#
# builds: test/clients/bindings/go
# takes: 60 s

use strict;
use warnings;

use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Clients;
use OutboxTest::Node;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

# --- what is bound

# The columns of a message as text, and what they are if nothing is said.
my @COLUMNS = qw(event_type payload aggregate_type aggregate_id headers route routing_key properties available_at);
my %USUAL = (event_type => 'binding.tried', payload => '{}', route => 'default');

my $JSON = '{"n": 42, "name": "Zoë", "nothing": null}';
my $LIST = '[1, {"a": "b"}]';
my $HEADERS = '{"tenant": "a\\\\b", "x-retries": 3}';
my $PROPERTIES = '{"priority": 5}';
my $TIME = '2040-01-02T03:04:05Z';

# Kinds of values: what the driver's own type for it is, in SQL.
my %SQL_TYPE = (text => 'text', int => 'integer', bigint => 'bigint', uuid => 'uuid', json => 'json', list => 'json',
	struct => 'json', time => 'timestamptz', null => 'text');

# What a value is in the table; of a kind that is not said, as it is.
my @BINDINGS = (
	[ event_type => 'text', 'order.created' ],
	[ payload => 'json', $JSON ],
	[ payload => 'struct', $JSON ],
	[ payload => 'list', $LIST ],
	[ payload => 'text', $JSON ],
	[ aggregate_type => 'text', 'customer' ],
	[ aggregate_id => 'text', '42' ],
	[ aggregate_id => 'int', '42' ],
	[ aggregate_id => 'bigint', '9007199254740991' ],
	[ aggregate_id => 'uuid', '6f1c2f4e-8d3a-4c43-9a55-0d1f8b1f6c77' ],
	[ headers => 'json', $HEADERS ],
	[ headers => 'text', $HEADERS ],
	[ headers => 'null' ],
	[ route => 'text', 'default' ],
	[ routing_key => 'text', 'a.key' ],
	[ routing_key => 'null' ],
	[ properties => 'json', $PROPERTIES ],
	[ properties => 'text', $PROPERTIES ],
	[ properties => 'null' ],
	[ available_at => 'time', $TIME ],
	[ available_at => 'text', $TIME ],
	[ available_at => 'null' ],
	[ message_id => 'uuid' ],
	[ message_id => 'text' ],
	[ message_id => 'null' ],
);

# Kinds in a call with all arguments at once: as the driver has them, and as strings.
my %ALL = (
	native => [ qw(text json text text json text text json time uuid) ],
	strings => [ ('text') x 10 ]);

# --- how it is enqueued

my @ARGUMENTS = (@COLUMNS, 'message_id');
my %ARGUMENT_TYPE = (
	(map { $_ => 'text' } @ARGUMENTS),
	payload => 'jsonb',
	headers => 'jsonb',
	properties => 'jsonb',
	available_at => 'timestamptz',
	message_id => 'uuid');

my $FUNCTION = 'outbox_enqueue';

# Each makes the statement of a list of [ argument, its expression, kind if it is bound ].
my %WAY = (
	position => sub { call($FUNCTION, 1, sub { $_[0][1] }, @_) },
	name => sub { call($FUNCTION, 0, sub { $_[0][1] }, @_) },
	cast => sub { call($FUNCTION, 0, sub { cast($_[0], 0) }, @_) },
	casts => sub { call($FUNCTION, 0, sub { cast($_[0], 1) }, @_) },
	outbox => sub { insert('outbox', @_) },
);
my @WAYS = grep { $WAY{$_} } qw(position name cast casts new outbox text);

sub cast
{
	my ($argument, $twice) = @_;
	my ($name, $expression, $kind) = @$argument;

	return $expression unless $kind;
	return $expression . ($twice ? "::$SQL_TYPE{$kind}" : '') . "::$ARGUMENT_TYPE{$name}";
}

sub call
{
	my ($function, $by_position, $expression, @arguments) = @_;
	my %given = map { $_->[0] => $_ } @arguments;
	my @list = @arguments;

	if ($by_position)
	{
		my ($last) = grep { $given{ $ARGUMENTS[$_] } } reverse 0 .. $#ARGUMENTS;
		@list = map { $given{$_} // [ $_, $_ eq 'route' ? q('default') : 'NULL' ] } @ARGUMENTS[ 0 .. $last ];
	}
	return "SELECT $function("
	  . join(', ', map { ($by_position ? '' : "$_->[0] => ") . $expression->($_) } @list)
	  . ')::text';
}

sub insert
{
	my ($table, @arguments) = @_;
	return "INSERT INTO $table ("
	  . join(', ', map { $_->[0] eq 'message_id' ? 'id' : $_->[0] } @arguments)
	  . ') VALUES ('
	  . join(', ', map { $_->[1] } @arguments)
	  . ') RETURNING id::text';
}

# --- the cases

my $number = 0;

# A message id that nobody has had.
sub new_id
{
	return sprintf '00000000-0000-4000-8000-%012d', $number;
}

# A statement that binds these [ argument, kind, value ], what else it needs as literals.
sub make_case
{
	my ($binding, $way, @bound) = @_;
	my (%bound, @arguments, @values, @kinds);

	$number++;
	foreach my $bound (@bound)
	{
		my ($name, $kind, $value) = @$bound;
		$value = $kind eq 'null' ? undef : new_id() if $name eq 'message_id';
		$bound{$name} = [ $kind, $value ];
	}
	my %literal = %USUAL;
	delete $literal{route};
	%literal = (%literal, aggregate_type => 'order') if $bound{aggregate_id};
	%literal = (%literal, aggregate_id => '1') if $bound{aggregate_type};
	my %expected = (%USUAL, %literal, map { $_ => $bound{$_}[1] // $USUAL{$_} } keys %bound);
	foreach my $name (@ARGUMENTS)
	{
		if ($bound{$name})
		{
			push @kinds, $bound{$name}[0];
			push @values, $bound{$name}[1] // '';
			push @arguments, [ $name, '$' . @values, $bound{$name}[0] ];
		}
		elsif (defined $literal{$name})
		{
			push @arguments, [ $name, "'$literal{$name}'" ];
		}
	}
	return {
		number => $number,
		binding => $binding,
		way => $way,
		expected => \%expected,
		line => join("\t", $number, join(',', @kinds), $WAY{$way}->(@arguments), @values) };
}

sub cases
{
	my @cases;

	foreach my $way (@WAYS)
	{
		push @cases, map { make_case("$_->[0] $_->[1]", $way, $_) } @BINDINGS;
		foreach my $all (sort keys %ALL)
		{
			my %value = map { $_->[0] => $_->[2] } @BINDINGS[ 0, 1, 5, 6, 10, 13, 14, 16, 19 ];
			my @kinds = @{ $ALL{$all} };
			push @cases, make_case("all $all", $way, map { [ $_, shift @kinds, $value{$_} ] } @ARGUMENTS);
		}
	}
	return @cases;
}

# --- drivers

# What a driver or a mode of it is called by its language's program.
my @DRIVERS = (
	[ go => 'pgx', 'pgx exec', 'pgx stdlib', 'lib/pq' ],
);

my $node = OutboxTest::Node->create(conf => "$OutboxTest::Clients::CONF\noutbox.enabled = off");
my @cases = cases();
my %outcome;		# driver, binding, way
my @drivers;

# Each row that is there, by its id, as [ columns ].  Bytes of UTF-8, as those of this file are.
sub stored
{
	my $columns = join ', ', map {
		$_ eq 'available_at' ? q{to_char(available_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')} : "$_\::text"
	} @COLUMNS;
	return JSON::PP->new->decode($node->sql("SELECT coalesce(json_object_agg(id, json_build_array($columns)), '{}') FROM outbox"));
}

# How the row is not what was bound.  Without a time it is any.
sub difference
{
	my ($case, $id, $row) = @_;
	my $expected = $case->{expected};

	return "there is no row $id" unless $row;
	return "its id is $id" if defined $expected->{message_id} && $expected->{message_id} ne $id;
	foreach my $i (0 .. $#COLUMNS)
	{
		my ($is, $should) = map { $_ // 'NULL' } $row->[$i], $expected->{ $COLUMNS[$i] };
		return "$COLUMNS[$i] is $is, and not $should" if $is ne $should && $should ne 'any';
	}
	return;
}

# A line for each case: its number, "ok" with the id, "none" if the driver has no such kind, or
# SQLSTATE ("client" if it did not come from the server) with the message.
sub try_driver
{
	my ($folder, $driver) = @_;
	my $out = OutboxTest::Clients::run($node, $folder, args => [$driver], in => join("\n", map { $_->{line} } @cases) . "\n");
	my %said = map { my ($n, @rest) = split /\t/, $_, 3; $n => \@rest } split /\n/, $out;
	my $rows = stored();

	push @drivers, $driver;
	foreach my $case (@cases)
	{
		my ($outcome, $text) = @{ $said{ $case->{number} } // [ 'silent', '' ] };
		my $difference = $outcome eq 'ok' ? difference($case, $text, $rows->{$text}) : undef;
		note "$driver, $case->{binding}, $case->{way}: $outcome " . ($difference // $text) if $difference || $outcome ne 'ok';
		$outcome{$driver}{ $case->{binding} }{ $case->{way} } = $difference ? 'wrong' : $outcome eq 'none' ? '-' : $outcome;
	}
	$node->sql('TRUNCATE outbox');
	return;
}

foreach my $language (@DRIVERS)
{
	my ($name, @names) = @$language;
	try_driver("test/clients/bindings/$name", $_) foreach @names;
}

# --- what is known of them

my @bindings = do { my %seen; grep { !$seen{$_}++ } map { $_->{binding} } @cases };

sub table
{
	my @lines = [ 'driver', 'binding', @WAYS ];

	foreach my $driver (@drivers)
	{
		push @lines, map { my $o = $outcome{$driver}{$_}; [ $driver, $_, map { $o->{$_} } @WAYS ] } @bindings;
	}
	return join '', map { sprintf("%-14s%-20s" . '%-9s' x @WAYS, @$_) =~ s/ +$/\n/r } @lines;
}

# What is not as expected is left where it can be looked at, and taken.
sub compare
{
	my ($name, $file, $is) = @_;
	my %expected = map { $_ => 1 } -e $file ? split /\n/, slurp_file($file) : ();
	my @lines = split /\n/, $is;

	OutboxTest::Clients::result($file =~ s|.*/||r, $is);
	is(join("\n", grep { !delete $expected{$_} } @lines), '', $name);
	is(join("\n", sort keys %expected), '', "$name: nothing is missing");
	return;
}

compare('what works and what is stored is what is known', 'test/clients/bindings/expected', table());
done_testing();
