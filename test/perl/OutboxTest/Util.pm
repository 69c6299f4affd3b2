package OutboxTest::Util;

=pod

=head1 NAME

OutboxTest::Util - waiting, chance and what to compare times with, for TAP tests

=cut

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils ();

our @EXPORT = qw(wait_until seed pick median percentile plain_publisher timed best_of clear_of_midnight switches $TIMEOUT);

# Seconds that something may take which normally takes none. Long, because it is
# only waited for when the test fails anyway.
our $TIMEOUT = $ENV{OUTBOX_TEST_TIMEOUT} // 30;

=pod

=over

=item wait_until($what, $code, $seconds)

Calls $code until it returns true, for at most $seconds (default $TIMEOUT).
Returns the true value, or fails a test named for $what and returns false. The
seconds that it took are in $OutboxTest::Util::waited.

=cut

our $waited;

# Microseconds between two looks, of which the last began at $asked: a tenth of what the
# wait has lasted, so that short ones end soon, and four times what a look costs, so that
# those who wait leave the processors to those who work.
sub pause
{
	my ($start, $asked) = @_;
	my $now = time;
	my $pause = max(0.1 * ($now - $start), 4 * ($now - $asked), 0.002);
	return 1_000_000 * min($pause, 0.25);
}

sub wait_until
{
	my ($what, $code, $seconds) = @_;
	my $start = time;

	$seconds //= $TIMEOUT;
	while (1)
	{
		my $asked = time;
		my $value = $code->();
		$waited = time - $start;
		return $value if $value;
		last if $waited > $seconds;
		usleep(pause($start, $asked));
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fail(sprintf('%s: not within %.1f s', $what, $seconds));
	return;
}

=pod

=item seed()

Seeds Perl's random numbers, from OUTBOX_SEED or by chance, prints the seed,
and returns it. Call it once in each test that draws.

=item pick(@list)

One of the list.

=item percentile($p, @numbers), median(@numbers)

=item timed($name, $limit, $code)

Runs the code. A test: it took less than so many seconds.

=item best_of($limit, $code)

Runs the code, which returns seconds, until they are less than the limit, at most three
times; returns the least. Other programs on the machine can only make it slower.

=item clear_of_midnight($seconds)

Waits for the next day (UTC) if less than so many seconds of this one are left: for tests
that name partitions of today.

=item switches($pid)

How often a process has waited for something: what counts its wake-ups.

=item plain_publisher(port => ..., key => ..., count => ..., ...)

Publishes with tools/raw, whose options are the parameters (mandatory => undef
for one without a value); returns its messages a second, or in list context those
and the seconds that it took. What a test says about speed is compared with this, in
the same minute on the same machine, and not with a number of seconds.

=back

=cut

sub seed
{
	my $seed = $ENV{OUTBOX_SEED} // int(rand(2**31));
	srand($seed);
	note "seed $seed (repeat with OUTBOX_SEED=$seed)";
	return $seed;
}

sub pick
{
	return $_[ rand @_ ];
}

sub percentile
{
	my ($p, @numbers) = @_;
	@numbers = sort { $a <=> $b } @numbers;
	return unless @numbers;
	my $i = int($p / 100 * @numbers);
	return $numbers[ $i > $#numbers ? $#numbers : $i ];
}

sub timed
{
	my ($name, $limit, $code) = @_;
	my $start = time;

	$code->();
	my $took = time - $start;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($took, '<', $limit, $name);
	note sprintf '%s: %.2f s', $name, $took;
	return;
}

sub best_of
{
	my ($limit, $code) = @_;
	my $best;

	foreach (1 .. 3)
	{
		my $took = $code->();
		$best = $took if !defined $best || $took < $best;
		last if $best < $limit;
	}
	return $best;
}

sub clear_of_midnight
{
	my ($seconds) = @_;
	my $left = 86_400 - time % 86_400;
	return if $left > $seconds;
	note "$left s to midnight, UTC";
	usleep(($left + 1) * 1e6);
	return;
}

sub switches
{
	my ($pid) = @_;
	my $status = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status");
	return $1 if $status =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	die "no context switches in the status of $pid";
}

sub plain_publisher
{
	my (%options) = @_;
	my ($out, $err) = ('', '');
	my @options = map { defined $options{$_} ? ("--$_", $options{$_}) : "--$_" } sort keys %options;

	IPC::Run::run([ 'raw', @options ], '<', \undef, '>', \$out, '2>', \$err)
	  or die "raw @options: $err";
	my ($seconds, $rate) = $out =~ /seconds ([\d.]+) rate (\d+)/ or die "raw: $out";
	return wantarray ? ($rate, $seconds) : $rate;
}

sub median
{
	return percentile(50, @_);
}

1;
