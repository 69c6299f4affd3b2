# Arguments as drivers bind them: each kind of value that an application has, by each way
# to enqueue, through the drivers of five languages.  What works is known, line by
# line (bindings/expected): a binding that worked and no longer does is a failure, and so is one
# that is stored as something else.  The tables of test/clients/bindings/README.md and
# doc/clients.md are made of it.
#
# builds: test/clients/bindings/go test/clients/bindings/rust test/clients/bindings/node test/clients/bindings/java test/clients/bindings/python
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

# All messages in one argument, as outbox_enqueue_batch() takes them.
my @BATCH = ([ messages => 'list' ], [ messages => 'text' ]);

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
	message_id => 'uuid',
	messages => 'jsonb');

my $FUNCTION = 'outbox_enqueue';

# Each makes the statement of a list of [ argument, its expression, kind if it is bound ].
my %WAY = (
	position => sub { call($FUNCTION, 1, sub { $_[0][1] }, @_) },
	name => sub { call($FUNCTION, 0, sub { $_[0][1] }, @_) },
	cast => sub { call($FUNCTION, 0, sub { cast($_[0], 0) }, @_) },
	casts => sub { call($FUNCTION, 0, sub { cast($_[0], 1) }, @_) },
	new => sub { insert('outbox_new', @_) },
	outbox => sub { insert('outbox', @_) },
	text => sub { call('outbox_enqueue_text', 0, sub { $_[0][1] }, @_) },
);
my @WAYS = qw(position name cast casts new outbox text);

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
		# a text of its own: some drivers keep a statement with the types that it had first
		line => join("\t", $number, join(',', @kinds), $WAY{$way}->(@arguments) . " -- $number", @values) };
}

# One message by outbox_enqueue_batch(), as far as there is such a way.
sub make_batch_case
{
	my ($kind, $way) = @_;
	my $case = make_case("messages $kind", $way, [ payload => $kind, $JSON ], [ message_id => 'uuid' ]);
	my $argument = [ 'messages', '$1', $kind ];
	my %expression = (name => '$1', cast => cast($argument, 0), casts => cast($argument, 1));

	return unless $expression{$way};
	my $message = JSON::PP->new->utf8->encode({ event_type => $USUAL{event_type}, message_id => $case->{expected}{message_id} });
	substr($message, 1, 0) = "\"payload\": $JSON, ";
	$case->{line} = join "\t", $number, $kind, "SELECT outbox_enqueue_batch($expression{$way})::text -- $number", "[$message]";
	return $case;
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
		push @cases, map { make_batch_case($_->[1], $way) } @BATCH;
	}
	return @cases;
}

# --- drivers

# What a driver or a mode of it is called by its language's program, how it writes a
# parameter, and where its version is said.
my @DRIVERS = (
	[ go => 'go.mod' =>
		[ 'pgx', '$1', qr{pgx/v5 v(\S+)} ],
		[ 'pgx exec', '$1', qr{pgx/v5 v(\S+)} ],
		[ 'pgx stdlib', '$1', qr{pgx/v5 v(\S+)} ],
		[ 'lib/pq', '$1', qr{lib/pq v(\S+)} ] ],
	[ rust => 'Cargo.toml' =>
		[ 'tokio-postgres', '$1', qr{tokio-postgres.*"=(.*?)"} ],
		[ 'sqlx', '$1', qr{sqlx.*"=(.*?)"} ] ],
	[ node => 'package.json' =>
		[ 'pg', '$1', qr{"pg": "(.*?)"} ],
		[ 'postgres.js', '$1', qr{"postgres": "(.*?)"} ] ],
	[ java => 'pom.xml' =>
		[ 'pgjdbc', '?', qr{postgresql</artifactId>\s*<version>(.*?)<} ],
		[ 'pgjdbc json', '?', qr{postgresql</artifactId>\s*<version>(.*?)<} ],
		[ 'pgjdbc unspecified', '?', qr{postgresql</artifactId>\s*<version>(.*?)<} ] ],
	[ python => 'requirements.txt' =>
		[ 'psycopg2', '%s', qr{psycopg2-binary==(\S+)} ],
		[ 'psycopg', '%s', qr{psycopg\[binary\]==(\S+)} ],
		[ 'psycopg Json', '%s', qr{psycopg\[binary\]==(\S+)} ],
		[ 'asyncpg', '$1', qr{asyncpg==(\S+)} ],
		[ 'asyncpg codec', '$1', qr{asyncpg==(\S+)} ] ],
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

my (%parameter, %version);

foreach my $language (@DRIVERS)
{
	my ($name, $manifest, @those) = @$language;
	my $folder = "test/clients/bindings/$name";

	foreach (@those)
	{
		my ($driver, $parameter, $re) = @$_;
		$parameter{$driver} = $parameter;
		($version{$driver}) = slurp_file("$folder/$manifest") =~ $re or die "$driver has no version in $manifest";
		try_driver($folder, $driver);
	}
}

# --- what is known of them

my @bindings = do { my %seen; grep { !$seen{$_}++ } map { $_->{binding} } @cases };

sub table
{
	my @lines = [ 'driver', 'binding', @WAYS ];

	foreach my $driver (@drivers)
	{
		push @lines, map { my $o = $outcome{$driver}{$_}; [ $driver, $_, map { $o->{$_} // '-' } @WAYS ] } @bindings;
	}
	return join '', map { sprintf("%-20s%-20s" . '%-9s' x @WAYS, @$_) =~ s/ +$/\n/r } @lines;
}

# What is not as expected is left where it can be looked at, and taken.
sub compare
{
	my ($name, $file, $is) = @_;
	my %expected = map { $_ => 1 } grep { /\S/ } -e $file ? split /\n/, slurp_file($file) : ();
	my @lines = grep { /\S/ } split /\n/, $is;

	OutboxTest::Clients::result($file =~ s|.*/||r, $is);
	is(join("\n", grep { !delete $expected{$_} } @lines), '', $name);
	is(join("\n", sort keys %expected), '', "$name: nothing is missing");
	return;
}

compare('what works and what is stored is what is known', 'test/clients/bindings/expected', table());

# --- the tables of test/clients/bindings/README.md and doc/clients.md

my %KIND = (text => 'string', int => 'int32', bigint => 'int64', uuid => 'UUID', json => 'map',
	list => 'list', struct => 'struct', time => 'time', null => 'NULL');

# Passed of tried.  Only strings are what outbox_enqueue_text() is for.
sub counted
{
	my ($driver, $way) = @_;
	my @tried = grep { $_ ne '-' }
	  map { $outcome{$driver}{$_}{$way} // '-' } grep { $way ne 'text' || / (?:text|null|strings)$/ } @bindings;
	return sprintf '%d of %d', scalar(grep { $_ eq 'ok' } @tried), scalar @tried;
}

# What to write for an argument that does not work as it is, as [ expression, other ways ].
sub mended
{
	my ($driver, $name, $kind) = @_;
	my $ways = $outcome{$driver}{"$name $kind"};
	my $type = $ARGUMENT_TYPE{$name};

	return if $ways->{name} =~ /^(?:ok|-)$/;
	my $write = $ways->{cast} eq 'ok' ? "`$parameter{$driver}::$type`"
	  : $ways->{casts} eq 'ok' ? "`$parameter{$driver}::$SQL_TYPE{$kind}::$type`"
	  : 'serialise it, and bind the string';
	my @others = grep { ($ways->{ $_ eq 'outbox_new' ? 'new' : 'text' } // '') eq 'ok' } qw(outbox_new outbox_enqueue_text());
	my $fails = $ways->{name} eq 'client' ? 'refused by the driver' : $ways->{name} eq 'wrong' ? '**stored as a JSON string**' : $ways->{name};
	return [ $fails, $write, join(', ', map { "`$_`" } @others) || '-' ];
}

# Lists that differ in one field only become one, in the order in which they come.
sub merge
{
	my ($field, @lines) = @_;
	my (%merged, @order);

	foreach my $line (@lines)
	{
		my $rest = join "\t", map { $_ == $field ? '' : $line->[$_] } 0 .. $#$line;
		if ($merged{$rest}) { $merged{$rest}[$field] .= ", $line->[$field]" }
		else { push @order, $merged{$rest} = [@$line] }
	}
	return @order;
}

sub counts_table
{
	my @all = map { values %{ $outcome{$_} } } @drivers;
	my @tried = grep { ($_->{name} // '-') ne '-' } @all;
	my $works = sub { my @ways = @_; scalar grep { my $o = $_; grep { ($o->{$_} // '') eq 'ok' } @ways } @tried };
	my $text = sprintf "Of %d bindings %d work without a cast, %d with one, %d with one or two. Without a cast, but by the way that suits, %d do.\n\n",
	  scalar @tried, $works->('name'), $works->('name', 'cast'), $works->('name', 'cast', 'casts'), $works->(qw(name new text));
	$text .= "| driver | version | `outbox_enqueue()` | one cast | two casts | `outbox_new` | `outbox` | `outbox_enqueue_text()` |\n"
	  . '| --- ' x 8 . "|\n";

	foreach my $driver (@drivers)
	{
		$text .= '| ' . join(' | ', $driver, $version{$driver}, map { counted($driver, $_) } qw(name cast casts new outbox text)) . " |\n";
	}
	return $text;
}

# Lines that differ in the argument only are one, then those that differ in the kind, then
# those that differ in the driver.
sub casts_table
{
	my $text = "| driver | value | for | without a cast | write | or use |\n" . '| --- ' x 6 . "|\n";
	my @lines;

	foreach my $driver (@drivers)
	{
		my @those = map { my $m = mended($driver, @$_); $m ? [ $KIND{ $_->[1] }, "`$_->[0]`", @$m ] : () } @BINDINGS, @BATCH;
		push @lines, map { [ $driver, @$_ ] } merge(0, merge(1, @those));
	}
	$text .= '| ' . join(' | ', @$_) . " |\n" foreach merge(0, @lines);
	return $text;
}

# What is between the marks of a page is this; the page as it has to be is left in the results.
sub compare_page
{
	my ($path, $table) = @_;
	my $page = slurp_file($path);
	my ($old) = $page =~ /<!-- by make test-clients -->\n\n(.*?)\n<!-- end -->/s or die "$path has no place for the table";

	$page =~ s/(?<=<!-- by make test-clients -->\n\n).*?(?=\n<!-- end -->)/$table/s;
	OutboxTest::Clients::result($path =~ s|.*/||r, $page);
	is($old, $table, "$path says so");
	return;
}

compare_page('test/clients/bindings/README.md', counts_table());
compare_page('doc/clients.md', casts_table());
done_testing();
