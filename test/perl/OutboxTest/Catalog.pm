package OutboxTest::Catalog;

=pod

=head1 NAME

OutboxTest::Catalog - everything that an extension has in the catalog, as text

=head1 SYNOPSIS

  my @differences = differences(catalog($node, 'updated'), catalog($node, 'fresh'));

Every member of the extension and what hangs on it (columns, indexes, constraints,
triggers, defaults, rules, types, sequences, schemas): its row of the catalog without what
is a number of this database, its definition, comments, owner, rights, initial
rights (pg_init_privs: what pg_dump takes for granted), and dependencies. An object
of a kind that is not known here is an error.

=cut

use strict;
use warnings;

use Exporter 'import';
use JSON::PP ();

our @EXPORT = qw(catalog differences);

# Fields of each catalog that are numbers of this database, statistics of use, or
# trees that are there as definitions.
my %LEFT_OUT = (
	pg_class => [qw(oid relnamespace reltype reloftype relowner relam relfilenode
		  reltablespace relpages reltuples relallvisible relallfrozen reltoastrelid
		  relrewrite relfrozenxid relminmxid relacl relpartbound)],
	# a value that an added column has in older rows is stored here
	pg_attribute => [qw(attrelid atttypid attcollation attacl attcacheoff
		  atthasmissing attmissingval attoptions)],
	pg_index => [qw(indexrelid indrelid indcollation indclass indexprs indpred indcheckxmin)],
	pg_sequence => [qw(seqrelid seqtypid)],
	pg_proc => [qw(oid pronamespace proowner prolang provariadic prosupport prorettype
		  proargtypes proallargtypes proargdefaults protrftypes prosqlbody proacl)],
	pg_trigger => [qw(oid tgrelid tgparentid tgname tgfoid tgconstrrelid tgconstrindid
		  tgconstraint tgqual)],
	pg_constraint => [qw(oid connamespace conrelid contypid conindid conparentid
		  confrelid conpfeqop conppeqop conffeqop conexclop conbin)],
	pg_rewrite => [qw(oid ev_class ev_qual ev_action)],
	pg_type => [qw(oid typnamespace typowner typrelid typsubscript typelem typarray
		  typinput typoutput typreceive typsend typmodin typmodout typanalyze
		  typbasetype typcollation typdefaultbin typacl)]);

sub row_of
{
	my ($alias, $catalog) = @_;
	return "to_jsonb($alias) - '{" . join(',', @{ $LEFT_OUT{$catalog} }) . "}'::text[]";
}

sub rights
{
	my ($acl, $default) = @_;
	return "(SELECT jsonb_agg(r ORDER BY r) FROM (SELECT concat_ws(' ', CASE grantee WHEN 0 THEN 'PUBLIC'"
	  . " ELSE grantee::regrole::text END, privilege_type, is_grantable, 'by', grantor::regrole) AS r"
	  . " FROM aclexplode(" . ($default ? "coalesce($acl, $default)" : $acl) . ")) rights)";
}

# WHAT => a query of (classid, objid, text or jsonb); o is the object.
my %FACTS = (
	relation => "SELECT 'pg_class'::regclass, c.oid, " . row_of('c', 'pg_class') . q{
			|| jsonb_build_object('owner', relowner::regrole, 'method', amname,
				'toast', (SELECT reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid),
				'partition of', (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = c.oid),
				'bound', pg_get_expr(relpartbound, c.oid),
				'key', CASE relkind WHEN 'p' THEN pg_get_partkeydef(c.oid) END,
				'definition', CASE WHEN relkind = 'v' THEN pg_get_viewdef(c.oid)
					WHEN relkind IN ('i', 'I') THEN pg_get_indexdef(c.oid) END)
		FROM pg_class c LEFT JOIN pg_am ON pg_am.oid = relam WHERE c.oid IN (SELECT objid FROM names)},
	index => "SELECT 'pg_class'::regclass, indexrelid, " . row_of('i', 'pg_index')
	  . ' FROM pg_index i',
	sequence => "SELECT 'pg_class'::regclass, seqrelid, " . row_of('s', 'pg_sequence')
	  . q{ || jsonb_build_object('type', seqtypid::regtype) FROM pg_sequence s},
	columns => "SELECT 'pg_class'::regclass, attrelid, jsonb_object_agg(attnum, " . row_of('a', 'pg_attribute') . q{
			|| jsonb_build_object('type', format_type(atttypid, atttypmod),
				'collation', attcollation::regcollation, 'rights', } . rights('attacl') . q{,
				/* updates of PostgreSQL 15 and others count changes of a column there */
				'options', (SELECT jsonb_agg(option) FROM unnest(attoptions) option WHERE option !~ '^pg_attver=')))
		FROM pg_attribute a WHERE attnum > 0 AND attrelid IN (SELECT objid FROM names) GROUP BY attrelid},
	'rights of relation' => "SELECT 'pg_class'::regclass, oid, " . rights('relacl',
		q{acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner)}) . ' FROM pg_class WHERE oid IN (SELECT objid FROM names)',
	function => "SELECT 'pg_proc'::regclass, oid, " . row_of('p', 'pg_proc') . q{
			|| jsonb_build_object('owner', proowner::regrole, 'definition', pg_get_functiondef(oid))
		FROM pg_proc p WHERE prokind IN ('f', 'p') AND oid IN (SELECT objid FROM names)},
	'rights of function' => "SELECT 'pg_proc'::regclass, oid, " . rights('proacl', q{acldefault('f', proowner)})
	  . ' FROM pg_proc WHERE oid IN (SELECT objid FROM names)',
	trigger => "SELECT 'pg_trigger'::regclass, oid, " . row_of('t', 'pg_trigger')
	  . q{ || jsonb_build_object('definition', pg_get_triggerdef(oid)) FROM pg_trigger t},
	constraint => "SELECT 'pg_constraint'::regclass, oid, " . row_of('c', 'pg_constraint')
	  . q{ || jsonb_build_object('definition', pg_get_constraintdef(oid)) FROM pg_constraint c},
	default => q{SELECT 'pg_attrdef'::regclass, oid, pg_get_expr(adbin, adrelid) FROM pg_attrdef},
	rule => "SELECT 'pg_rewrite'::regclass, oid, " . row_of('r', 'pg_rewrite')
	  . q{ || jsonb_build_object('definition', pg_get_ruledef(oid)) FROM pg_rewrite r WHERE oid IN (SELECT objid FROM names)},
	type => "SELECT 'pg_type'::regclass, oid, " . row_of('t', 'pg_type')
	  . q{ || jsonb_build_object('owner', typowner::regrole, 'rights', } . rights('typacl') . ') FROM pg_type t WHERE oid IN (SELECT objid FROM names)',
	schema => q{SELECT 'pg_namespace'::regclass, oid, jsonb_build_object('owner', nspowner::regrole,
			'rights', } . rights('nspacl', q{acldefault('n', nspowner)}) . q{)
		FROM pg_namespace},
	extension => q{SELECT 'pg_extension'::regclass, oid, jsonb_build_object('version', extversion,
			'owner', extowner::regrole, 'relocatable', extrelocatable, 'schema', extnamespace::regnamespace,
			'dumped', (SELECT jsonb_object_agg(c::regclass, condition) FROM unnest(extconfig, extcondition) d(c, condition)))
		FROM pg_extension},
	comment => q{SELECT classoid, objoid, jsonb_object_agg(objsubid, description) FROM pg_description
		WHERE objoid IN (SELECT objid FROM names) GROUP BY classoid, objoid},
	label => q{SELECT classoid, objoid, jsonb_object_agg(objsubid, label) FROM pg_seclabel GROUP BY classoid, objoid},
	'initial rights' => q{SELECT classoid, objoid, jsonb_object_agg(objsubid, } . rights('initprivs') . q{)
		FROM pg_init_privs GROUP BY classoid, objoid},
	dependencies => q{SELECT classid, objid, jsonb_agg(concat_ws(' ', deptype, nullif(objsubid, 0),
			coalesce((SELECT name FROM names n WHERE (n.classid, n.objid) = (refclassid, refobjid) AND refobjsubid = 0),
				pg_describe_object(refclassid, refobjid, refobjsubid))))
		FROM pg_depend WHERE objid IN (SELECT objid FROM names) GROUP BY classid, objid},
	'dependencies on roles' => q{SELECT classid, objid, jsonb_agg(concat_ws(' ', deptype, nullif(objsubid, 0),
			pg_describe_object(refclassid, refobjid, 0)))
		FROM pg_shdepend WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		GROUP BY classid, objid});

# What is automatic or internal on a member is of the extension; what merely uses
# it is not.  Names of internal triggers and of TOAST tables are numbers.
my $OBJECTS = <<'SQL';
SET search_path = pg_catalog;
CREATE TEMPORARY TABLE names AS
WITH RECURSIVE o AS (
	SELECT 'pg_extension'::regclass AS classid, e.oid AS objid FROM pg_extension e WHERE extname = ':EXTENSION'
	UNION
	SELECT d.classid, d.objid FROM o JOIN pg_depend d ON (d.refclassid, d.refobjid) = (o.classid, o.objid)
	WHERE d.deptype = 'e' OR d.deptype IN ('a', 'i', 'P', 'S') AND o.classid <> 'pg_extension'::regclass
)
SELECT o.classid, o.objid,
	CASE WHEN t.tgisinternal THEN format('internal trigger %s of constraint %s on %s', t.tgfoid::regproc,
			(SELECT conname FROM pg_constraint c WHERE c.oid = t.tgconstraint), t.tgrelid::regclass)
		ELSE pg_describe_object(o.classid, o.objid, 0) END AS name
FROM o LEFT JOIN pg_trigger t ON o.classid = 'pg_trigger'::regclass AND t.oid = o.objid
WHERE pg_describe_object(o.classid, o.objid, 0) !~ 'pg_toast';
CREATE INDEX ON names (objid);
ANALYZE names;
SQL

=pod

=over

=item catalog($node, $dbname, %params)

A hash reference of hash references: object, what of it, text. Parameters:
extension (default outbox); before: SQL that is run first, and undone.

=cut

sub catalog
{
	my ($node, $dbname, %params) = @_;
	my $extension = $params{extension} // 'outbox';
	my $objects = $OBJECTS =~ s/:EXTENSION/$extension/r;
	my %catalog;
	my %known;

	my $facts = join "\nUNION ALL\n",
	  map { "SELECT n.classid, n.name, '$_', to_jsonb(f.fact) FROM names n"
		  . " JOIN ($FACTS{$_}) f(classid, objid, fact) USING (classid, objid) WHERE f.fact IS NOT NULL" }
	  sort keys %FACTS;
	my $out = $node->sql(
		"BEGIN;\n" . ($params{before} // '') . ";\n$objects"
		  . "SELECT jsonb_build_array(f.classid::regclass, name, what, fact)\n"
		  . "FROM ($facts) f(classid, name, what, fact);\n"
		  . "SELECT jsonb_build_array(classid::regclass, name, '', NULL) FROM names;\nROLLBACK;",
		$dbname);

	my $json = JSON::PP->new->canonical->allow_nonref;
	foreach my $line (grep { /^\[/ } split /\n/, $out)
	{
		my ($class, $name, $what, $fact) = @{ $json->decode($line) };
		if ($what eq '') { $catalog{$name} //= {}; next; }
		$known{$name} = 1 if $what !~ /^(comment|label|initial rights|dependencies.*)$/;
		# one by one; and several objects may have one name
		my %facts =
		    $what eq 'columns' || $what eq 'comment' ? map { ("$what $_" => [ $fact->{$_} ]) } keys %$fact
		  : ($what => $what =~ /^dependencies/ ? $fact : [$fact]);
		push @{ $catalog{$name}{$_} }, map { _plain($json->encode($_)) } @{ $facts{$_} } foreach keys %facts;
	}
	foreach my $name (keys %catalog)
	{
		die "$name: no catalog of it is known to OutboxTest::Catalog\n" if !$known{$name};
		$_ = join "\n", sort @$_ foreach values %{ $catalog{$name} };
	}
	return _relative_days(\%catalog);
}

# Numbers in the names of internal objects.
sub _plain
{
	my ($text) = @_;
	$text =~ s/RI_ConstraintTrigger_([ac])_\d+/RI_ConstraintTrigger_$1_N/g;
	$text =~ s/pg_toast_\d+/pg_toast_N/g;
	return $text;
}

# The partitions of days, by how many days after the first.
sub _relative_days
{
	my ($catalog) = @_;
	my %days;

	foreach my $name (keys %$catalog)
	{
		$days{$1} = 1 if $name =~ /outbox_archive_p(\d{8})/;
	}
	my $n = 0;
	my @replace = map { my $day = $_; my $dashes = $day =~ s/(....)(..)(..)/$1-$2-$3/r; [ $day, $dashes, $n++ ] }
	  sort keys %days;
	my $replace = sub {
		my ($text) = @_;
		foreach my $day (@replace)
		{
			$text =~ s/$day->[0]/DAY$day->[2]/g;
			$text =~ s/$day->[1]/DAY$day->[2]/g;
		}
		# the end of the last
		$text =~ s/(TO \('|PARTITION.*TO \(\\?')\d{4}-\d\d-\d\d/$1END/g;
		return $text;
	};
	return { map {
			my $name = $_;
			$replace->($name) => { map { $_ => $replace->($catalog->{$name}{$_}) } keys %{ $catalog->{$name} } }
	} keys %$catalog };
}

=pod

=item differences($catalog, $expected)

A list of texts, one for each fact that differs, or that only one of them has.

=back

=cut

sub differences
{
	my ($catalog, $expected) = @_;
	my %names = (%$catalog, %$expected);
	my @differences;

	foreach my $name (sort keys %names)
	{
		my ($is, $should) = ($catalog->{$name}, $expected->{$name});
		if (!$is || !$should)
		{
			push @differences, "$name: " . ($is ? 'is there, and should not' : 'is missing');
			next;
		}
		my %whats = (%$is, %$should);
		foreach my $what (sort keys %whats)
		{
			my ($got, $wanted) = map { $_ // '(none)' } $is->{$what}, $should->{$what};
			push @differences, _shorten("$name: $what", $got, $wanted) if $got ne $wanted;
		}
	}
	return @differences;
}

# From shortly before the first difference on.
sub _shorten
{
	my ($title, $got, $wanted) = @_;
	my $same = length(($got ^ $wanted) =~ s/[^\0].*//sr);
	my $from = $same > 60 ? $same - 60 : 0;

	return join "\n", $title, map { '  ' . ($from ? '...' : '') . substr($_, $from, 300) } "is:     $got", "should: $wanted";
}

1;
