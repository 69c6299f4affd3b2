package OutboxTest::Client;

=pod

=head1 NAME

OutboxTest::Client - a statement through libpq, without a process for it

=head1 SYNOPSIS

  my $client = OutboxTest::Client->connect($node->connstr('postgres'));
  my $output = $client->query('SELECT count(*) FROM outbox');

A test asks the server a thousand times, mostly whether something has happened yet. A
psql for each costs its start, which was half of the suite's processor time
(measured). Output is that of psql -At: columns separated by '|', rows by newlines,
NULL empty.

=cut

use strict;
use warnings;

use DBD::Pg ();
use DBI ();

=pod

=over

=item OutboxTest::Client::can_run($statements)

Whether query() takes it: one statement, none of psql's own commands, no COPY with the
client. Several statements in one string would be one transaction here.

=cut

sub can_run
{
	my ($statements) = @_;

	return $statements =~ /\S/ && $statements !~ /;\s*\S/ && $statements !~ /^\s*\\|\\g/m
	  && $statements !~ /\bcopy\b.*\bstd(?:in|out)\b/is;
}

=pod

=item OutboxTest::Client->connect($connstr)

Dies if there is no connection to be had.

=item $client->query($statement)

Returns the output; dies with the server's message. A new session ends with its object.

=back

=cut

sub connect
{
	my ($class, $connstr) = @_;
	my $dbh = DBI->connect(
		"dbi:Pg:$connstr",
		'', '',
		{
			AutoCommit => 1,
			# a child of the test that ends does not end the session
			AutoInactiveDestroy => 1,
			PrintError => 0,
			PrintWarn => 0,
			RaiseError => 0,
			# text as the server sends it
			pg_bool_tf => 1,
			pg_enable_utf8 => 0,
			pg_expand_array => 0,
			pg_server_prepare => 0
		}) or die 'connection failed: ' . DBI->errstr . "\n";

	return bless { dbh => $dbh }, $class;
}

sub query
{
	my ($self, $statement) = @_;
	my $sth = $self->{dbh}->prepare($statement, { pg_direct => 1 });

	die $self->{dbh}->errstr . "\n" unless $sth && $sth->execute;
	return '' unless $sth->{NUM_OF_FIELDS};

	my @types = @{ $sth->{pg_type} };
	my @rows;
	while (my $row = $sth->fetchrow_arrayref)
	{
		push @rows, join '|', map {
			my $value = $row->[$_];
			!defined $value ? '' : $types[$_] eq 'bytea' ? '\\x' . unpack('H*', $value) : $value;
		} 0 .. $#types;
	}
	die $sth->errstr . "\n" if $sth->err;
	return join "\n", @rows;
}

sub DESTROY
{
	my ($self) = @_;
	local ($@, $?);
	eval { $self->{dbh}->disconnect };
	return;
}

1;
