package OutboxTest::Settings;

=pod

=head1 NAME

OutboxTest::Settings - every setting of a server with the values that could do harm

=head1 SYNOPSIS

  my @all = settings($node);
  my @round = map { [ $_->{name}, $_->{values}[0] ] } @all;
  my @refused = set_all($admin, \@places, @round);
  reset_all($admin, @places);

What the server has is asked of itself (pg_settings), so a newer one is asked for what it has
beyond. A place is what comes between ALTER and SET: C<DATABASE shop>, C<ROLE ALL>.

=cut

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(settings set_all reset_all);

# Values of settings whose type says nothing of what they mean.  Others get the empty one and one
# that names nothing.
my %texts = (
	DateStyle => [ 'German', 'SQL, DMY', 'Postgres, YMD' ],
	TimeZone => [ 'Asia/Kathmandu', 'America/St_Johns', '<-99>99' ],
	backtrace_functions => ['errfinish'],
	client_encoding => [ 'LATIN1', 'SQL_ASCII', 'EUC_JP' ],
	createrole_self_grant => ['set, inherit'],
	debug_io_direct => [],
	# tried by itself, see settings_hostile.pl
	dynamic_library_path => [],
	default_text_search_config => ['pg_catalog.german'],
	default_tablespace => [ 'hostile_space', 'absent' ],
	lc_messages => [ 'C', 'C.UTF-8', 'absent' ],
	lc_monetary => [ 'C.UTF-8', 'en_US.UTF-8', 'absent' ],
	lc_numeric => [ 'C.UTF-8', 'de_DE.UTF-8', 'absent' ],
	lc_time => [ 'C.UTF-8', 'de_DE.UTF-8', 'absent' ],
	restrict_nonsystem_relation_kind => [ 'view', 'view, foreign-table' ],
	role => [ 'stranger', 'absent' ],
	search_path => [ 'hostile, pg_catalog', 'pg_temp, absent', '' ],
	session_authorization => [ 'stranger', 'absent' ],
	temp_tablespaces => [ 'hostile_space', 'absent' ],
	timezone_abbreviations => [ 'India', 'Australia', 'absent' ],
	wal_consistency_checking => ['all'],
	'plpgsql.extra_errors' => ['all'],
	'plpgsql.extra_warnings' => ['all']);

sub numbers
{
	my ($setting) = @_;
	my ($low, $high) = @$setting{qw(min_val max_val)};
	my (%seen, @values);

	# What would break a backend of anybody's, and none of ours.
	foreach my $value ($low, $high, 0, 1, -1)
	{
		next if $value < $low || $value > $high || $value == $setting->{setting};
		push @values, $value unless $seen{$value}++;
	}
	return @values;
}

sub values_of
{
	my ($setting) = @_;
	my ($name, $type) = @$setting{qw(name vartype)};

	return $setting->{setting} eq 'on' ? ('off') : ('on') if $type eq 'bool';
	return numbers($setting) if $type eq 'integer' || $type eq 'real';
	return grep { $_ ne $setting->{setting} } split /,/, $setting->{enumvals}
	  if $type eq 'enum';
	return @{ $texts{$name} // [ '', 'absent' ] };
}

=pod

=over

=item settings($node)

Hash references with name, context, and values: those that somebody may set for a session, but for outbox's own.
Libraries that sessions load by themselves are loaded for it.

=cut

sub settings
{
	my ($node) = @_;
	my @columns = qw(name context vartype setting min_val max_val enumvals);
	my $columns = join ', ', map {
		$_ eq 'enumvals' ? "array_to_string($_, ',')" : $_
	} @columns;
	my @all;

	foreach my $row ($node->rows(<<"SQL"))
LOAD 'plpgsql'; LOAD 'auto_explain';
SELECT $columns FROM pg_settings
WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend') AND name !~ '^outbox[.]'
ORDER BY name COLLATE "C"
SQL
	{
		my %setting;
		@setting{@columns} = @$row;
		$setting{values} = [ values_of(\%setting) ];
		push @all, \%setting;
	}
	# Not shown, and settable.
	push @all,
	  map { { name => $_, context => 'user', values => $texts{$_} } }
	  qw(role session_authorization);
	return @all;
}

=pod

=item set_all($client, \@places, [ $name, $value ], ...)

The first setting at the first place, and so on, around. Returns the names of those that
the server does not set there.

=item reset_all($client, @places)

=back

=cut

sub quoted
{
	my ($text) = @_;
	return q{E'} . ($text =~ s/(['\\])/\\$1/gr) . q{'};
}

# Of lists each element is an identifier of its own.
sub assignment
{
	my ($name, $value) = @_;
	my $list = $name =~ /^(?:search_path|temp_tablespaces|.*_preload_libraries|DateStyle|createrole_self_grant|restrict_nonsystem_relation_kind|wal_consistency_checking|plpgsql\.extra_.*)$/;
	my $values = $list && $value ne '' ? join ', ', map { quoted($_) } split /, */, $value : quoted($value);
	return join('.', map { qq{"$_"} } split /\./, $name) . " = $values";
}

sub set_all
{
	my ($client, $places, @pairs) = @_;
	my $n = 0;
	my $statements = join ",\n", map {
		my ($name, $value) = @$_;
		my $place = $places->[ $n++ % @$places ];
		'(' . quoted($name) . ', '
		  . quoted("ALTER $place SET " . assignment($name, $value)) . ')'
	} @pairs;

	$client->query(<<"SQL");
DO \$\$
DECLARE
	s record;
	refused text := '';
BEGIN
	SET LOCAL client_min_messages = error;
	FOR s IN SELECT * FROM (VALUES $statements) AS v (name, command)
	LOOP
		BEGIN
			EXECUTE s.command;
		EXCEPTION WHEN OTHERS THEN
			refused := refused || ' ' || s.name;
		END;
	END LOOP;
	PERFORM set_config('test.refused', refused, false);
END
\$\$
SQL
	return split ' ', $client->query(q{SELECT current_setting('test.refused')});
}

sub reset_all
{
	my ($client, @places) = @_;
	$client->query("ALTER $_ RESET ALL") foreach @places;
	return;
}

1;
