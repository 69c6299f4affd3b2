package OutboxTest::Shape;

=pod

=head1 NAME

OutboxTest::Shape - what the tables of outbox are, to be compared

=head1 SYNOPSIS

  my $made = shape($node, 'postgres');
  ... dump, restore, add and remove ...
  is_deeply(shape($node, 'copy'), $made);

=cut

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(shape);

# Without what a restore or an owner changes: identifiers, the partitions of days.
my %SHAPE = (
	triggers => q{SELECT tgrelid::regclass, tgname, tgenabled, tgtype, tgfoid::regproc, pg_get_triggerdef(oid) ~ 'DEFERR'
		FROM pg_trigger WHERE tgrelid::regclass::text ~ '^outbox' AND NOT tgisinternal},
	constraints => q{SELECT conrelid::regclass, conname, convalidated, pg_get_constraintdef(oid)
		FROM pg_constraint WHERE conrelid::regclass::text ~ '^outbox(_route|_control|_archive)?$'},
	columns => q{SELECT attrelid::regclass, attname, atttypid::regtype, attnotnull, attidentity, attstorage, attcompression, pg_get_expr(adbin, adrelid)
		FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
		WHERE attrelid::regclass::text ~ '^outbox(_route|_control|_archive)?$' AND attnum > 0 AND NOT attisdropped},
	indexes => q{SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index
		WHERE indrelid::regclass::text ~ '^outbox(_route|_control|_archive)?$'},
	'settings of tables' => q{SELECT oid::regclass, reloptions, relreplident, relrowsecurity, relpersistence FROM pg_class
		WHERE relname ~ '^outbox' AND relname !~ '_p\d{8}'},
	functions => q{SELECT oid::regprocedure, prosecdef, proconfig, grantor::regrole, grantee::regrole, privilege_type
		FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) WHERE proname ~ '^outbox'},
	rights => q{SELECT oid::regclass, grantor::regrole, grantee::regrole, privilege_type
		FROM pg_class, aclexplode(coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))) WHERE relkind <> 'i' AND relname ~ '^outbox' AND relname !~ '_p\d{8}'},
	'members of the extension' => q{SELECT pg_describe_object(classid, objid, 0) FROM pg_depend
		WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
			AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox')
			AND pg_describe_object(classid, objid, 0) !~ '_p\d{8}'});

=pod

=over

=item shape($node, $dbname)

A hash reference: what (triggers, constraints, ...) to text.

=back

=cut

sub shape
{
	my ($server, $dbname) = @_;
	my %shape;
	my $what = '';

	foreach my $line (split /\n/, $server->sql(
			join(";\n", map { "SELECT '--- $_'; $SHAPE{$_}" } sort keys %SHAPE), $dbname))
	{
		if ($line =~ /^--- (.*)/) { $what = $1; }
		else { push @{ $shape{$what} }, $line; }
	}
	die "no $_ in $dbname\n" foreach grep { !$shape{$_} } sort keys %SHAPE;
	return { map { $_ => join "\n", sort @{ $shape{$_} } } keys %shape };
}

1;
