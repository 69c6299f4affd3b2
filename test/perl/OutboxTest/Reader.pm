package OutboxTest::Reader;

=pod

=head1 NAME

OutboxTest::Reader - what a client library made of each message, beside what was on the wire

=head1 SYNOPSIS

  my $reader = OutboxTest::Reader->new(deviations => { rounds => sub {
	  my ($wire, $path) = @_;
	  return $wire->{l} && ... ? { t => 'd', v => $bits } : undef; } });
  my @differences = $reader->compare($wire, $said);
  $reader->values; $reader->cells; $reader->types;

$wire is a message as Rabbit's inspect shows it, $said a line of the programs in
test/clients/consumers: C<< {"t": kind, "as": the library's type, "v": value} >> for each value, kinds
being those of the programs' own comments.

Each value has to be equal, or to be what one of the deviations makes of it: code that gets
the wire's form of it and its path, and returns what must be said instead, or undef
where it has nothing to do with it. What is not on the wire is C<< { none => 1 } >>; what must not be said, C<< { missing => 1 } >>. So a deviation that is none any more shows.

=cut

use strict;
use warnings;

use JSON::PP ();
use Math::BigInt;

# Up to here a double has every integer.
use constant EXACT => Math::BigInt->new(2)->bpow(53);

=pod

=over

=item new(deviations => { name => code }), compare($wire, $said)

compare() returns the differences, as texts.

=item values, met, types

How many values were compared; how often each deviation was met; the library's types by what was on the wire.

=item cell($row)

Names of the deviations in a row of the matrix (@ROWS, a list of [ title, code ]); undef if
there was nothing of it.

=item OutboxTest::Reader::types_table(\@titles, @readers)

Each type of the wire beside those of the readers, as a table.

=back

=cut

my %KIND = (S => 's', l => 'i', d => 'd', t => 'o', V => 'n', A => 'a', F => 'm');

# The rows of the matrix, and what belongs to them: the first that fits.
our @ROWS = (
	[ 'names of headers' => sub { $_[0] eq 'name' } ],
	[ '`x-outbox-` headers, `x-first-enqueued`, trace context' => sub { $_[0] =~ m{^headers/(?:x-outbox-|x-first-|trace)} } ],
	[ 'strings, ASCII' => sub { is_header(S => @_) && $_[1]{S} !~ /[^\x00-\x7f]/ && !is_long(@_) } ],
	[ 'strings, Unicode' => sub { is_header(S => @_) && !is_long(@_) } ],
	[ 'strings over 1000 bytes' => sub { is_header(S => @_) } ],
	[ 'booleans' => sub { is_header(t => @_) } ],
	[ 'integers up to 2^53' => sub { is_header(l => @_) && Math::BigInt->new($_[1]{l})->babs->bcmp(EXACT) <= 0 } ],
	[ 'integers above 2^53' => sub { is_header(l => @_) } ],
	[ 'doubles, integers beyond 64 bits' => sub { is_header(d => @_) } ],
	[ 'null' => sub { is_header(V => @_) } ],
	[ 'arrays' => sub { is_header(A => @_) } ],
	[ 'objects' => sub { is_header(F => @_) } ],
	[ 'bodies, also of 16 MB and whole frames' => sub { $_[0] =~ m{^body/} } ],
	[ '`timestamp`' => sub { $_[0] eq 'timestamp' } ],
	[ '`priority`' => sub { $_[0] eq 'priority' } ],
	[ '`expiration`' => sub { $_[0] eq 'expiration' } ],
	[ '`message_id`, `type` and the other properties' => sub { $_[0] !~ m{/|^(?:exchange|routing_key|redelivered)$} } ],
	[ 'exchange, routing key, Unicode too' => sub { $_[0] =~ /^(?:exchange|routing_key)$/ } ],
	[ 'the flag of redelivery' => sub { $_[0] eq 'redelivered' } ],
);

sub is_header
{
	my ($kind, $path, $wire) = @_;
	return $path =~ m{^headers/} && exists $wire->{$kind};
}

# Of what is longer than the wire's form shows there is a digest.
sub is_long
{
	my ($path, $wire) = @_;
	return ($wire->{S} // '') =~ /^[0-9a-f]{64}$/;
}

sub new
{
	my ($class, %params) = @_;
	return bless { values => 0, cells => {}, types => {}, met => {}, deviations => {}, %params }, $class;
}

sub values { return $_[0]{values} }
sub met { return $_[0]{met} }

sub cell
{
	my ($self, $row) = @_;
	my $cell = $self->{cells}{$row} or return;
	return [ grep { $_ ne '' } sort keys %$cell ];
}

my @TYPES = (
	[ 'headers S', 'a string', 'S, long string' ],
	[ 'headers t', '`true`, `false`', 't, boolean' ],
	[ 'headers l', 'an integer of 64 bits', 'l, integer of 64 bits' ],
	[ 'headers d', 'any other number', 'd, double' ],
	[ 'headers V', '`null`', 'V, no value' ],
	[ 'headers A', 'an array', 'A, array' ],
	[ 'headers F', 'an object', 'F, table' ],
	[ 'message_id', '`message_id`, `type` and other texts', 'short string' ],
	[ 'expiration', '`expiration`', 'short string' ],
	[ 'priority', '`priority`', 'octet' ],
	[ 'delivery_mode', '`delivery_mode`', 'octet' ],
	[ 'timestamp', '`timestamp`', 'timestamp, seconds' ],
	[ 'body', 'the body', 'bytes' ]);

sub types_table
{
	my ($titles, @readers) = @_;
	my $text = '| enqueued | on the wire | ' . join(' | ', @$titles) . " |\n" . '| --- ' x (2 + @readers) . "|\n";

	foreach my $type (@TYPES)
	{
		my ($path, @said) = @$type;
		$text .= '| ' . join(' | ', @said, map { join ' or ', map { "`$_`" } sort keys %{ $_->{types}{$path} } } @readers) . " |\n";
	}
	return $text;
}

sub shown
{
	my ($v) = @_;
	return JSON::PP->new->canonical->ascii->allow_nonref->encode($v);
}

sub same
{
	my ($v, $w) = @_;
	return defined $v && defined $w ? "$v" eq "$w" : defined $v == defined $w;
}

# One that has nothing in it, as its form is; lists and maps are compared by what they hold.
sub plain
{
	my ($wire) = @_;
	my ($letter, $v) = %$wire;
	return if $letter eq 'none';
	return { t => $KIND{$letter}, v => $letter eq 't' ? ($v ? 1 : 0) : $letter =~ /[AF]/ ? undef : $v };
}

sub note
{
	my ($self, $path, $wire, $deviation) = @_;
	my ($row) = grep { $_->[1]->($path, $wire) } @ROWS;

	$self->{values}++;
	$self->{cells}{ $row->[0] }{$deviation}++;
	$self->{met}{$deviation}++ if $deviation ne '';
	return;
}

# What must be said of a value, and by which deviation.
sub wanted
{
	my ($self, $path, $wire) = @_;

	return (plain($wire), '') if $path =~ m{^body/};
	foreach my $name (sort keys %{ $self->{deviations} })
	{
		my $want = $self->{deviations}{$name}->($wire, $path);
		return ($want, $name) if $want;
	}
	return (plain($wire), '');
}

# Differences between what must be said and what is, as texts.
sub compare_value
{
	my ($self, $path, $wire, $said) = @_;
	my ($letter, $inside) = %$wire;
	my ($want, $deviation) = $self->wanted($path, $wire);
	my @differences;

	return () if $want->{missing} && !defined $said && do { $self->note($path, $wire, $deviation); 1 };
	return "$path is missing" unless defined $said;
	return "$path should not be there" if $want->{missing};
	my ($is_path) = $path =~ m{^([^/]+)};
	my $v = $said->{t} eq 'o' ? ($said->{v} ? 1 : 0) : $said->{t} =~ /[am]/ ? undef : $said->{v};
	$self->{types}{ $is_path eq 'headers' ? "headers $letter" : $is_path }{ $said->{as} } = 1;
	if ($said->{t} ne $want->{t} || !same($want->{v}, $v))
	{
		push @differences, sprintf '%s is %s, should be %s', $path, map { substr shown($_), 0, 200 } $said, $want;
	}
	$self->note($path, $wire, $deviation);
	push @differences, $self->compare_list($path, $inside, $said->{v}) if $letter eq 'A' && $said->{t} eq 'a';
	push @differences, $self->compare_map($path, $inside, $said->{v}) if $letter eq 'F' && $said->{t} eq 'm';
	return @differences;
}

sub compare_list
{
	my ($self, $path, $inside, $said) = @_;

	return sprintf '%s has %d elements, should have %d', $path, scalar @$said, scalar @$inside if @$said != @$inside;
	return map { $self->compare_value("$path/$_", $inside->[$_], $said->[$_]) } 0 .. $#$inside;
}

sub compare_map
{
	my ($self, $path, $inside, $said) = @_;
	my %left = %$said;
	my @differences;

	foreach my $name (sort keys %$inside)
	{
		my $element = delete $left{$name};
		my ($want, $deviation) = $self->wanted('name', { S => $name });

		$self->note('name', { S => $name }, $deviation);
		push @differences, $self->compare_value("$path/$name", $inside->{$name}, $element) unless $want->{missing} && !defined $element;
	}
	return (@differences, map { "$path has " . shown($_) . ' beside it' } sort keys %left);
}

# A property that is not on the wire, and is said to have a value.
sub compare_absent
{
	my ($self, $name, $said) = @_;
	my $wire = { none => 1 };
	my ($want, $deviation) = $self->wanted($name, $wire);

	return "property $name is not on the wire: " . shown($said) if $deviation eq '' || $said->{t} ne $want->{t} || !same($want->{v}, $said->{v});
	$self->note($name, $wire, $deviation);
	return;
}

my %INTEGER = map { $_ => 1 } qw(delivery_mode priority timestamp);
my %ELSEWHERE = map { $_ => 1 } qw(headers body_size body_sha256 exchange routing_key redelivered);

# All of a message.
sub compare
{
	my ($self, $wire, $said) = @_;
	my %properties = %{ $said->{properties} };
	my @differences;

	push @differences, $self->compare_value($_, { S => $wire->{$_} }, { t => 's', as => 'text', v => $said->{$_} }) foreach qw(exchange routing_key);
	push @differences, $self->compare_value('redelivered', { t => $wire->{redelivered} }, { t => 'o', as => 'flag', v => $said->{redelivered} });
	foreach my $name (sort grep { !$ELSEWHERE{$_} } keys %$wire)
	{
		push @differences, $self->compare_value($name, { ($INTEGER{$name} ? 'l' : 'S') => $wire->{$name} }, delete $properties{$name});
	}
	push @differences, map { $self->compare_absent($_, $properties{$_}) } sort keys %properties;
	push @differences, $self->compare_map('headers', $wire->{headers} // {}, $said->{headers}{v} // {});
	push @differences, $self->compare_value('body/size', { l => $wire->{body_size} }, { t => 'i', as => $said->{body}{as}, v => $said->{body}{size} });
	push @differences, $self->compare_value('body/content', { S => $wire->{body_sha256} }, { t => 's', as => $said->{body}{as}, v => $said->{body}{sha256} });
	return @differences;
}

1;
