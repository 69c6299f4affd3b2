# A trace seen end to end in a collector of OpenTelemetry: from the HTTP request through the
# transaction, the relay and RabbitMQ to the consumer.  Service and consumer have the SDK and
# its instrumentations; the relay's span comes by examples/tracing/export_spans.py.
#
# builds: test/clients/trace/collector test/clients/trace/service
# takes: 20 s

use strict;
use warnings;

use HTTP::Tiny;
use IPC::Run ();
use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use OutboxTest::Clients;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

# Kinds of spans, in OTLP.
my ($SERVER, $CLIENT, $PRODUCER, $CONSUMER) = (2, 3, 4, 5);
my @WAYS = qw(comment setting);

my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "$OutboxTest::Clients::CONF\noutbox.trace_spans = on\n");
$node->sql('CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, way text)');

# --- the collector

my $dir = PostgreSQL::Test::Utils::tempdir();
my ($otlp, $http) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
my $endpoint = "http://127.0.0.1:$otlp";
append_to_file("$dir/collector.yaml", <<"END");
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:$otlp
exporters:
  file:
    path: $dir/spans.jsonl
    flush_interval: 100ms
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [file]
END
my $collector = OutboxTest::Clients::start($node, 'test/clients/trace/collector',
	args => [ '--config', "$dir/collector.yaml" ]);
ok($collector->wait_output(qr/Everything is ready/), 'the collector is ready');

# All that it has been told so far.
sub spans
{
	my @spans;

	return unless -e "$dir/spans.jsonl";
	foreach my $line (split /\n/, slurp_file("$dir/spans.jsonl"))
	{
		my $told = eval { JSON::PP::decode_json($line) } or next;    # half a line

		foreach my $resource (@{ $told->{resourceSpans} })
		{
			my %of = map { $_->{key} => $_->{value}{stringValue} } @{ $resource->{resource}{attributes} };

			push @spans, map { { %$_, service => $of{'service.name'} } }
			  map { @{ $_->{spans} } } @{ $resource->{scopeSpans} };
		}
	}
	return @spans;
}

sub attribute
{
	my ($span, $key) = @_;
	my ($found) = grep { $_->{key} eq $key } @{ $span->{attributes} };

	return $found ? $found->{value}{stringValue} // $found->{value}{intValue} : undef;
}

# --- two orders over HTTP

my %otel = (OTEL_EXPORTER_OTLP_ENDPOINT => $endpoint);
my $consumer = OutboxTest::Clients::start($node, 'test/clients/trace/service',
	args => [ 'consumer', $rabbit->uri =~ s/guest@/guest:guest@/r, scalar @WAYS ], env => \%otel);
ok($consumer->wait_output(qr/bound/), 'the consumer waits');
my $service = OutboxTest::Clients::start($node, 'test/clients/trace/service',
	args => [ 'service', $http ], env => \%otel);
ok($service->wait_output(qr/listening/), 'the service listens');
foreach my $way (@WAYS)
{
	is(HTTP::Tiny->new->post("http://127.0.0.1:$http/$way")->{status}, 201, "an order, trace context by $way");
}
is($consumer->end, 0, 'the consumer has processed both events') or diag $consumer->output;
ok($node->wait_drained, 'both are settled');

# --- the relay's spans

sub export
{
	my $out = '';

	IPC::Run::run([ 'examples/tracing/export_spans.py', '--once', '--dsn', $node->connstr('postgres'),
			'--endpoint', "$endpoint/v1/traces", '--state', "$dir/told.json" ], '>&', \$out)
	  or die "export_spans.py failed: $out\n";
	return;
}

# Two of each kind, and of the clients' whatever else they do.
sub count { my ($kind) = @_; return scalar grep { $_->{kind} == $kind } spans() }

$node->sql(slurp_file('examples/tracing/spans.sql'));
export();
ok(wait_until('all spans are in the collector',
		sub { !grep { count($_) < @WAYS } $SERVER, $CLIENT, $PRODUCER, $CONSUMER }), 'all spans are in the collector')
  or diag explain [ spans() ];

my @spans = spans();
my %by_id = map { $_->{spanId} => $_ } @spans;

foreach my $way (@WAYS)
{
	# Which attribute has the path depends on the version of the conventions.
	my ($server) = grep { $_->{kind} == $SERVER && grep { ($_->{value}{stringValue} // '') =~ m{/$way$} } @{ $_->{attributes} } } @spans;

	ok($server, "$way: the request is a span") or diag explain [ grep { $_->{kind} == $SERVER } @spans ];
	next unless $server;
	my @trace = grep { $_->{traceId} eq $server->{traceId} } @spans;
	my ($send) = grep { $_->{kind} == $PRODUCER } @trace;
	my ($process) = grep { $_->{kind} == $CONSUMER } @trace;

	ok($send && $process, "$way: one trace from the request to the consumer") or diag explain \@trace;
	next unless $send && $process;
	is($process->{parentSpanId}, $send->{spanId}, "$way: the consumer's parent is the relay's span");
	if ($way eq 'comment')
	{
		my $statement = $by_id{ $send->{parentSpanId} };

		is($statement->{kind}, $CLIENT, "$way: its parent is the statement");
		is($statement->{parentSpanId}, $server->{spanId}, "$way: whose parent is the request");
	}
	else
	{
		is($send->{parentSpanId}, $server->{spanId}, "$way: its parent is the request");
	}
	is($server->{parentSpanId} // '', '', "$way: which has none");
	is("$server->{service} $send->{service} $process->{service}", 'orders outbox notifications', "$way: who did what");
	is($send->{name}, 'send outbox', "$way: its name");
	is(attribute($send, 'messaging.destination.name'), 'outbox:order.created', "$way: destination");
	is(attribute($send, 'messaging.message.id'), attribute($process, 'messaging.message.id'), "$way: the same message");

	# A consumer may be faster than the settling.
	my @times = ($server->{startTimeUnixNano}, $by_id{ $send->{parentSpanId} }{startTimeUnixNano}, $send->{startTimeUnixNano},
		@$process{qw(startTimeUnixNano endTimeUnixNano)});
	is_deeply(\@times, [ sort { $a <=> $b } @times ], "$way: one after the other");
	cmp_ok($send->{endTimeUnixNano}, '>', $server->{startTimeUnixNano}, "$way: sent after the request came");
	cmp_ok($send->{endTimeUnixNano}, '>', $send->{startTimeUnixNano}, "$way: sending took time");
	OutboxTest::Clients::result('trace.txt', join '', "$way\n",
		map { sprintf "  %-24s %-14s kind %d  %s <- %s  %8.3f ms to %8.3f ms\n", @$_{qw(name service kind spanId)},
			  $_->{parentSpanId} || '-' x 16,
			  map { ($_ - $server->{startTimeUnixNano}) / 1e6 } @$_{qw(startTimeUnixNano endTimeUnixNano)} }
		sort { $a->{startTimeUnixNano} <=> $b->{startTimeUnixNano} } @trace);
}

# --- once more: it goes on where it stopped

$node->sql(<<'END');
SELECT outbox_enqueue('order.late', '{}', headers => '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'),
	outbox_enqueue('order.quiet', '{}', headers => '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}')
END
$node->wait_drained;
export();
ok(wait_until('the later span is there', sub { count($PRODUCER) > @WAYS }), 'the exporter tells of what is new');
is(count($PRODUCER), @WAYS + 1, 'and of nothing twice, nor of what is not sampled');
$service->signal('TERM');
$collector->signal('TERM');
is($collector->end, 0, 'the collector ends');
done_testing();
