package OutboxTest::Prometheus;

=pod

=head1 NAME

OutboxTest::Prometheus - a private Prometheus with both exporters, for one server

=head1 SYNOPSIS

  my $prometheus = OutboxTest::Prometheus->start($node);	# 2 s
  $prometheus->exported('postgres');		# { 'outbox_up' => 1, ... }
  $prometheus->value('sum(outbox_backlog_messages)');
  $prometheus->wait_alert('OutboxBrokerDown');
  $prometheus->wait_no_alert('OutboxBrokerDown');
  $prometheus->timeline($from, $to);		# which alert fired from when to when

The files of monitoring/ are used as they are, but for what a user changes, too: addresses,
the connection, the path of the rules. And the times of the rules are shortened: one minute
of theirs takes 60 / speed seconds.

All programs listen on 127.0.0.1, and end with the test.

=cut

use strict;
use warnings;

use HTTP::Tiny ();
use IO::Socket::INET ();
use IPC::Run ();
use JSON::PP ();
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Util;

my $top = 'monitoring';
my %program = (
	postgres => 'prometheus-postgres-exporter',
	sql => 'prometheus-sql-exporter',
	prometheus => 'prometheus');
my @all;

END
{
	my $status = $?;
	$_->stop foreach grep { $_->{creator} == $$ } @all;
	$? = $status;
}

=pod

=over

=item OutboxTest::Prometheus::missing

The programs that are not installed, '' if none.

=item OutboxTest::Prometheus->start($node, %params)

speed => 30; role => 'monitor', which is made, a member of pg_monitor; dbname => 'postgres';
exporters => [qw(postgres sql)].

=item $prometheus->stop, $prometheus->stop_one($what), $prometheus->start_one($what)

All of them; one: 'postgres', 'sql' or 'prometheus'.

=cut

sub missing
{
	return join ' ', grep { !IPC::Run::run([ 'which', $_ ], '<', \undef, '>', \my $out, '2>', \my $err) }
	  sort(values %program), 'promtool';
}

# Nothing else listens there: what the system gives to connections starts above 30000.
sub _free_port
{
	while (1)
	{
		my $port = 12000 + int(rand(17000));
		my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 1)
		  or next;
		close $socket;
		return $port;
	}
}

sub start
{
	my ($class, $node, %params) = @_;
	my $self = bless {
		node => $node,
		creator => $$,
		speed => $params{speed} // 30,
		role => $params{role} // 'monitor',
		dbname => $params{dbname} // 'postgres',
		exporters => $params{exporters} // [qw(postgres sql)],
		dir => $node->basedir . '/prometheus',
		http => HTTP::Tiny->new(timeout => 10, proxy => undef, http_proxy => undef)
	}, $class;

	mkdir $self->{dir} or die "could not create $self->{dir}: $!";
	$node->sql("CREATE ROLE $self->{role} LOGIN IN ROLE pg_monitor", $self->{dbname});
	push @all, $self;
	$self->{port}{$_} = _free_port() foreach keys %program;
	$self->_write($_, $self->_config($_)) foreach qw(postgres sql prometheus rules);
	$self->start_one($_) foreach @{ $self->{exporters} }, 'prometheus';
	return $self;
}

sub _file { return "$_[0]{dir}/$_[1].yml" }

sub _write
{
	my ($self, $what, $text) = @_;
	PostgreSQL::Test::Utils::append_to_file($self->_file($what), $text);
	return;
}

# A file of monitoring/ with what each user changes in it.
sub _config
{
	my ($self, $what) = @_;
	my $host = $self->{node}->host;
	my $port = $self->{node}->port;

	if ($what eq 'postgres')
	{
		return slurp_file("$top/postgres_exporter/queries.yaml");
	}
	if ($what eq 'sql')
	{
		my $text = slurp_file("$top/sql_exporter/sql_exporter.yml");
		$text =~ s{'postgres://[^']*'}{'postgres://$self->{role}@/$self->{dbname}?host=$host&port=$port&sslmode=disable'}
		  or die 'no connection in sql_exporter.yml';
		$text =~ s/interval: 5s/interval: 1s/ or die 'no interval in sql_exporter.yml';
		return $text;
	}
	if ($what eq 'rules')
	{
		return scaled(slurp_file("$top/prometheus/outbox.rules.yml"), $self->{speed});
	}
	my $text = slurp_file("$top/prometheus/prometheus.yml");
	my $rules = $self->_file('rules');
	$text =~ s/localhost:9187/127.0.0.1:$self->{port}{postgres}/ or die 'no postgres_exporter in prometheus.yml';
	$text =~ s/localhost:9237/127.0.0.1:$self->{port}{sql}/ or die 'no sql_exporter in prometheus.yml';
	$text =~ s/scrape_interval: 5s/scrape_interval: 1s/g;
	$text =~ s{/etc/prometheus/outbox.rules.yml}{$rules} or die 'no rules in prometheus.yml';
	return "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n\n$text";
}

=pod

=item scaled($rules, $speed)

The text of the rules with times that are shorter by that: "for", ranges, offsets, and
thresholds that are written as minutes * 60.

=cut

my %seconds = (s => 1, m => 60, h => 3600, d => 86400);

sub scaled
{
	my ($text, $speed) = @_;
	my $span = sub { return int($_[0] * $seconds{ $_[1] } / $speed + 0.5) || 1 };

	$text =~ s/(\bfor: )(\d+)([smhd])\b/$1 . $span->($2, $3) . 's'/ge;
	$text =~ s/\[(\d+)([smhd])\]/'[' . $span->($1, $2) . 's]'/ge;
	$text =~ s/(\boffset )(\d+)([smhd])\b/$1 . $span->($2, $3) . 's'/ge;
	$text =~ s/(> \d+ \* )60\b/$1 . 60 \/ $speed/ge;
	return $text;
}

sub start_one
{
	my ($self, $what) = @_;
	my $listen = "127.0.0.1:$self->{port}{$what}";
	my $host = $self->{node}->host;
	my $port = $self->{node}->port;
	my %arguments = (
		postgres => [
			"--web.listen-address=$listen", '--extend.query-path=' . $self->_file('postgres'),
			'--disable-default-metrics', '--disable-settings-metrics'
		],
		sql => [ '-web.listen-address', $listen, '-config.file', $self->_file('sql') ],
		prometheus => [
			"--web.listen-address=$listen", '--config.file=' . $self->_file('prometheus'),
			"--storage.tsdb.path=$self->{dir}/data", '--log.level=warn'
		]);

	local $ENV{DATA_SOURCE_NAME} = "host=$host port=$port user=$self->{role} dbname=$self->{dbname} sslmode=disable";
	local $ENV{CONFIG};
	$self->{process}{$what} = IPC::Run::start(
		[ $program{$what}, @{ $arguments{$what} } ],
		'<', \undef, '>>', "$self->{dir}/$what.log", '2>&1');
	my $path = $what eq 'prometheus' ? '/-/ready' : '/metrics';
	wait_until("$program{$what} answers", sub { $self->{http}->get("http://$listen$path")->{success} })
	  or die slurp_file("$self->{dir}/$what.log");
	return;
}

sub stop_one
{
	my ($self, $what) = @_;
	my $process = delete $self->{process}{$what} or return;
	$process->kill_kill(grace => 5);
	return;
}

sub stop
{
	my ($self) = @_;
	$self->stop_one($_) foreach qw(prometheus sql postgres);
	return;
}

=pod

=item $prometheus->log($what)

What a program has written.

=item $prometheus->page($what)

The page of an exporter, as text.

=item $prometheus->exported($what)

The metrics of outbox on it: values by name and labels, as 'outbox_state{state="idle"}'.
Labels that the exporters add themselves are left out, as are empty ones.

=item OutboxTest::Prometheus::series($name, \%labels)

Such a name.

=cut

sub log
{
	my ($self, $what) = @_;
	return slurp_file("$self->{dir}/$what.log");
}

sub page
{
	my ($self, $what) = @_;
	my $answer = $self->{http}->get("http://127.0.0.1:$self->{port}{$what}/metrics");
	die "$what exporter: $answer->{status} $answer->{content}" unless $answer->{success};
	return $answer->{content};
}

my %ours = map { $_ => 1 } qw(state worker route severity problem le);

sub series
{
	my ($name, $labels) = @_;
	my @labels = map { "$_=\"$labels->{$_}\"" }
	  grep { $ours{$_} && $labels->{$_} ne '' } sort keys %$labels;
	return @labels ? "$name\{" . join(',', @labels) . '}' : $name;
}

sub exported
{
	my ($self, $what) = @_;
	my %values;

	foreach my $line (split /\n/, $self->page($what))
	{
		my ($labels, $value) = $line =~ /^(?:sql_outbox_metrics|outbox_metrics_value)\{(.*)\} (\S+)$/
		  or next;
		my %labels;
		while ($labels =~ /(\w+)="((?:[^"\\]|\\.)*)"/g)
		{
			my ($name, $text) = ($1, $2);
			$text =~ s/\\(.)/$1 eq 'n' ? "\n" : $1/ge;
			$labels{$name} = $text;
		}
		$values{ series(delete $labels{metric}, \%labels) } = $value;
	}
	return \%values;
}

=pod

=item $prometheus->query($expr)

List of hash references with labels and value. query_range($expr, $from, $to, $step) has values
instead, a list of pairs.

=item $prometheus->value($expr)

Value of the only one, or undef.

=item $prometheus->firing

Names of the alerts that fire now, each once, sorted. Where %labels are given, of those only that have them.

=item $prometheus->wait_alert($name, $seconds), wait_no_alert($name, $seconds)

Until it fires, until it does no longer. Both fail a test when that does not happen.

=item $prometheus->timeline($from, $to, $job)

A list of [alert, labels, from, to] for each time that one fired, in order of its beginning; to is undef
if it fired in the end.

=cut

sub _ask
{
	my ($self, $what, %args) = @_;
	my $answer = $self->{http}->post_form("http://127.0.0.1:$self->{port}{prometheus}/api/v1/$what", \%args);
	my $json = eval { JSON::PP::decode_json($answer->{content}) };
	die "Prometheus, $what: $answer->{status} $answer->{content}"
	  unless $json && $json->{status} eq 'success';
	return @{ $json->{data}{result} };
}

sub query
{
	my ($self, $expr) = @_;
	return map { { labels => $_->{metric}, value => $_->{value}[1] } } $self->_ask('query', query => $expr);
}

sub query_range
{
	my ($self, $expr, $from, $to, $step) = @_;
	return map { { labels => $_->{metric}, values => $_->{values} } }
	  $self->_ask('query_range', query => $expr, start => $from, end => $to, step => $step);
}

sub value
{
	my ($self, $expr) = @_;
	my @found = $self->query($expr);
	die "$expr: " . @found . ' values' if @found > 1;
	return @found ? $found[0]{value} : undef;
}

sub firing
{
	my ($self, %labels) = @_;
	my $more = join '', map { ",$_=\"$labels{$_}\"" } sort keys %labels;
	my %names = map { $_->{labels}{alertname} => 1 } $self->query("ALERTS{alertstate=\"firing\"$more}");
	my @sorted = sort keys %names;
	return @sorted;
}

sub wait_alert
{
	my ($self, $name, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("alert $name fires", sub { grep { $_ eq $name } $self->firing }, $seconds // 60);
}

sub wait_no_alert
{
	my ($self, $name, $seconds) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return wait_until("alert $name ends", sub { !grep { $_ eq $name } $self->firing }, $seconds // 60);
}

sub timeline
{
	my ($self, $from, $to, $job) = @_;
	my $only = defined $job ? ",job=~\"$job|\"" : '';
	my @lines;

	foreach my $series ($self->query_range("ALERTS{alertstate=\"firing\"$only}", $from, $to, 1))
	{
		my ($name, $first, $last) = ($series->{labels}{alertname});
		foreach my $time ((map { $_->[0] } @{ $series->{values} }), undef)
		{
			if (defined $first && (!defined $time || $time > $last + 2))
			{
				push @lines, [ $name, $series->{labels}, $first, $last + 2 > $to ? undef : $last + 1 ];
				undef $first;
			}
			last unless defined $time;
			$first //= $time;
			$last = $time;
		}
	}
	@lines = sort { $a->[2] <=> $b->[2] || $a->[0] cmp $b->[0] } @lines;
	return @lines;
}

=pod

=back

=cut

1;
