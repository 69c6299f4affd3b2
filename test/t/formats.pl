# outbox_route.format: what is on the wire for whom, in every property, header and
# byte; what a format cannot carry is refused at enqueue; a change of the format
# counts for what waits; another attempt is the same.  doc/formats.md.
#
# suite: test
# takes: 12 s

use strict;
use warnings;
use utf8;

use Test::More;
use Encode qw(encode_utf8);
use JSON::PP ();
use OutboxTest::Checker;
use OutboxTest::Content;
use OutboxTest::Node;
use OutboxTest::Rabbit;
use OutboxTest::Util;

# In make test they are the same each time.
$ENV{OUTBOX_SEED} //= 1 unless $ENV{OUTBOX_TEST_FULL};
my $MESSAGES = $ENV{OUTBOX_TEST_FULL} ? 2000 : 60;    # random ones, of each database
seed();

my $json = JSON::PP->new->canonical->allow_nonref;
my $rabbit = OutboxTest::Rabbit->start;
my $node = OutboxTest::Node->create(
	broker => $rabbit,
	conf => "outbox.trace_spans = on\noutbox.retry_initial = 20ms\noutbox.retry_max = 50ms\noutbox.max_message_size = 2kB");
$rabbit->amqp('exchange', 'outbox', ',', 'queue', 'q', ',', 'bind', 'q', 'outbox');

my $ID = '01890a5d-ac96-774b-bcce-b302099a8057';
my $TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00';    # not sampled
my $SAMPLED = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
my $TIME = '2026-11-23T03:45:31.123456Z';
my $SECONDS = 1795405531;

sub literal { my ($text) = @_; return "'" . ($text =~ s/'/''/gr) . "'" }

# The route of the messages to come.
sub route
{
	my ($format, $options) = @_;
	my $value = defined $options ? literal($json->encode($options)) : 'NULL';
	$node->sql(encode_utf8("SET client_encoding = 'UTF8';
		INSERT INTO outbox_route (name, exchange, exchange_type, max_attempts, format, format_options)
		VALUES ('r', 'outbox', 'topic', 1000000, '$format', $value)
		ON CONFLICT (name) DO UPDATE SET format = '$format', format_options = $value"));
	return;
}

# A row of the table, with an id and a time that are known.
sub insert
{
	my (%m) = @_;
	my %column = (
		id => $ID, route => 'r', created_at => $TIME,
		event_type => 'order.created', %m);
	$column{payload} = '{"n": 1}' unless exists $m{payload} || exists $m{body};
	my @names = sort keys %column;
	return encode_utf8("SET client_encoding = 'UTF8'; INSERT INTO outbox ("
		  . join(', ', @names) . ') VALUES ('
		  . join(', ', map { literal(ref $column{$_} ? $json->encode($column{$_}) : $column{$_}) } @names)
		  . ')');
}

# What goes out of that is exactly this: a body, headers (of strings) and what is
# otherwise than in plain of the properties.
sub goes_out
{
	my ($what, $m, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->sql(insert(%$m));
	$node->wait_drained;
	my ($got) = $rabbit->get('q');
	my %expected = (
		message_id => $ID, delivery_mode => 2, timestamp => $SECONDS,
		type => 'order.created', content_type => 'application/json',
		exchange => 'outbox', routing_key => 'order.created', redelivered => JSON::PP::false,
		body => '{"n": 1}', %$expected);
	delete @expected{ grep { !defined $expected{$_} } keys %expected };
	is_deeply($got, \%expected, $what) or diag explain $got;
	return $got;
}

sub refused
{
	my ($what, $m, $regexp) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	like($node->sql_fails(insert(%$m)), $regexp, "$what: refused at enqueue");
	return;
}

my %key = (aggregate_type => 'order', aggregate_id => '4711');

# ----------------------------------------------------------------- cloudevents

note 'cloudevents, binary';
my %event = (
	'cloudEvents:specversion' => '1.0', 'cloudEvents:id' => $ID, 'cloudEvents:source' => '/shop',
	'cloudEvents:type' => 'order.created', 'cloudEvents:time' => $TIME);
route('cloudevents', { source => '/shop' });
goes_out('least', {}, { headers => {%event} });
goes_out('with a key and a trace',
	{ %key, headers => { traceparent => $TRACE, tracestate => 'a=b', from => 'x' } },
	{ headers => {
			%event, %key,
			'cloudEvents:subject' => '4711',
			'cloudEvents:traceparent' => $TRACE, 'cloudEvents:tracestate' => 'a=b',
			traceparent => $TRACE, tracestate => 'a=b', from => 'x' } });
goes_out('what is no trace context is a header and no more',
	{ headers => { traceparent => 'x', tracestate => 'a=b' } },
	{ headers => { %event, traceparent => 'x', tracestate => 'a=b' } });
goes_out('bytes, and their type',
	{ body => '\x00ff', properties => { content_type => 'application/avro' } },
	{ headers => {%event}, content_type => 'application/avro', body => undef, body_hex => '00ff' });
goes_out('an extension attribute', { headers => { 'cloudEvents:tenant7' => 'ü' } },
	{ headers => { %event, 'cloudEvents:tenant7' => 'ü' } });
goes_out('a year that RFC 3339 has not', { created_at => '10000-01-01T00:00:00Z' },
	{ timestamp => 253402300800,
		headers => { map { $_ => $event{$_} } grep { !/time/ } keys %event } });

route('cloudevents', {
		source => 'https://example.com/{aggregate_type}', type => 'com.example.{event_type}.v1',
		types => { 'order.paid' => 'com.example.paid', 'größer' => 'com.example.größer' },
		dataschema => 'https://example.com/{event_type}.json', prefix => 'cloudEvents_' });
goes_out('types, templates and the other prefix', { %key },
	{ headers => {
			%key, cloudEvents_subject => '4711',
			(map { s/:/_/r => $event{$_} } keys %event),
			cloudEvents_source => 'https://example.com/order',
			cloudEvents_type => 'com.example.order.created.v1',
			cloudEvents_dataschema => 'https://example.com/order.created.json' } });
is(goes_out('the type of an event type', { %key, event_type => 'order.paid' },
	{ routing_key => 'order.paid', type => 'order.paid', headers => {
			%key, cloudEvents_subject => '4711',
			(map { s/:/_/r => $event{$_} } keys %event),
			cloudEvents_source => 'https://example.com/order',
			cloudEvents_type => 'com.example.paid',
			cloudEvents_dataschema => 'https://example.com/order.paid.json' } }
	)->{headers}{cloudEvents_type}, 'com.example.paid', 'it is of types');
route('cloudevents', { source => '/shop', prefix => 'ce-' });
goes_out("Knative's prefix", {}, { headers => { map { s/cloudEvents:/ce-/r => $event{$_} } keys %event } });

note 'cloudevents, structured';
route('cloudevents', { source => '/shop', mode => 'structured' });
my %structured = (content_type => 'application/cloudevents+json; charset=UTF-8');
my $envelope = qq({"specversion": "1.0", "id": "$ID", "source": "/shop", "type": "order.created", "time": "$TIME");
goes_out('JSON', {}, { %structured, body => qq($envelope, "datacontenttype": "application/json", "data": {"n": 1}}) });
goes_out('JSON null', { payload => 'null' },
	{ %structured, body => qq($envelope, "datacontenttype": "application/json", "data": null}) });
goes_out('a key, a trace, characters that JSON escapes',
	{ aggregate_type => 'order', aggregate_id => '"4\\7" ü', headers => { traceparent => $TRACE } },
	{ %structured,
		headers => { aggregate_type => 'order', aggregate_id => '"4\\7" ü', traceparent => $TRACE },
		body => qq($envelope, "subject": "\\"4\\\\7\\" ü", "traceparent": "$TRACE", "datacontenttype": "application/json", "data": {"n": 1}}) });
foreach my $bytes ([ '', '' ], [ '00', 'AA==' ], [ '00ff', 'AP8=' ], [ '00ff80', 'AP+A' ], [ '00ff8001', 'AP+AAQ==' ])
{
	goes_out("bytes: '$bytes->[0]'", { body => "\\x$bytes->[0]" },
		{ %structured, body => qq($envelope, "datacontenttype": "application/octet-stream", "data_base64": "$bytes->[1]"}) });
}
goes_out('JSON that the user calls something else',
	{ properties => { content_type => 'text/plain', content_encoding => 'UTF-8' } },
	{ %structured, content_encoding => 'UTF-8',
		body => qq($envelope, "datacontenttype": "text/plain", "data_base64": "eyJuIjogMX0="}) });
refused('content_encoding', { properties => { content_encoding => 'gzip' } }, qr/property content_encoding/s);
refused('an attribute as a header', { headers => { 'cloudEvents:x' => 'y' } }, qr/headers must not name attributes/);

note 'cloudevents: refusals';
foreach my $mode ('binary', 'structured')
{
	route('cloudevents', { source => '/{aggregate_type}', mode => $mode });
	refused("$mode: a control character in aggregate_id", { aggregate_id => "4\x{85}" },
		qr/aggregate_id has control characters.*DETAIL: +Route "r" has the format cloudevents/s);
	refused("$mode: a noncharacter in event_type", { event_type => "x\x{fdd0}" }, qr/event_type has control characters/);
	refused("$mode: a source that is none", { aggregate_type => 'an order', aggregate_id => '1' },
		qr/aggregate_type makes a source that is no URI-reference/);
	refused("$mode: no media type", { properties => { content_type => 'json' } }, qr/property content_type is no media type/);
	refused("$mode: a type of CloudEvents", { properties => { content_type => 'application/CloudEvents+json' } },
		qr/property content_type must be that of the data/);
}
route('cloudevents', { source => '/', type => '{aggregate_type}' });
refused('an empty type', {}, qr/aggregate_type or aggregate_id is missing/);
route('cloudevents', { source => '/' });
refused('an attribute that we set', { headers => { 'cloudEvents_id' => '1' } }, qr/headers must not name an attribute/);
refused('an extension with another name', { headers => { 'cloudEvents:a_b' => '1' } }, qr/lower-case letters and digits/);
refused('an extension of another type', { headers => { 'cloudEvents:ab' => 1 } }, qr/that is no string/);

note 'sizes';
route('plain');
my $most = 2048;
foreach my $mode ('binary', 'structured')
{
	route('cloudevents', { source => '/shop', mode => $mode });
	my $beside = $mode eq 'binary' ? 0 : length(qq($envelope, "datacontenttype": "application/json", "data": ""}));
	$beside += 2 if $mode eq 'binary';
	my $text = '"' . 'x' x ($most - $beside) . '"';
	goes_out("$mode: the largest payload", { payload => $text },
		{ $mode eq 'binary' ? (headers => {%event}, body => $text) :
			(%structured, body => qq($envelope, "datacontenttype": "application/json", "data": $text})) });
	refused("$mode: one byte more", { payload => '"' . 'x' x ($most - $beside + 1) . '"' }, qr/payload is too large/s);
}
refused('bytes, by a third', { body => '\x' . '00' x 1400 }, qr/body is too large.*With what the format of its route puts around it, it has 2\d\d\d bytes/s);

# One frame of 128 kB has the headers; what the format adds counts.
route('cloudevents', { source => '/' . 's' x 3000 });
my %large = map { ("h$_" => 'x' x 1000) } 1 .. 127;
refused('headers', { headers => {%large} }, qr/headers are too large/s);
delete $large{h1};
delete $large{h2};
delete $large{h3};
goes_out('headers that fit', { headers => {%large} },
	{ headers => { %large, %event, 'cloudEvents:source' => '/' . 's' x 3000 } });

# -------------------------------------------------- debezium and spring

note 'debezium';
route('debezium', undef);
goes_out('least', {}, { headers => { id => $ID, eventType => 'order.created' } });
goes_out('with a key; nobody forges the id', { %key, headers => { id => 'x', eventType => 'y', other => 'z' } },
	{ headers => { %key, id => $ID, eventType => 'order.created', aggregateType => 'order', aggregateId => '4711', other => 'z' } });
route('debezium', { quoted => JSON::PP::true, type => 'E.{event_type}', headers => { event_type => 'kind', aggregate_id => undef } });
goes_out('quoted, by other names', { %key },
	{ headers => { %key, id => qq("$ID"), kind => '"E.order.created"', aggregateType => '"order"' } });
goes_out('bytes', { body => '\x61' },
	{ headers => { id => qq("$ID"), kind => '"E.order.created"' }, content_type => 'application/octet-stream', body => 'a' });

note 'spring';
route('spring', { types => { 'order.created' => 'com.example.OrderCreated',
			'orders' => [ 'java.util.ArrayList', 'com.example.Order' ] } });
goes_out('a class', { headers => { __TypeId__ => 'evil' } },
	{ headers => { __TypeId__ => 'com.example.OrderCreated' }, content_encoding => 'UTF-8' });
goes_out('a collection', { event_type => 'orders', payload => '[]' },
	{ type => 'orders', routing_key => 'orders', content_encoding => 'UTF-8', body => '[]',
		headers => { __TypeId__ => 'java.util.ArrayList', __ContentTypeId__ => 'com.example.Order' } });
goes_out('an id of a class', { event_type => 'order.paid', properties => { content_encoding => 'utf-8' } },
	{ type => 'order.paid', routing_key => 'order.paid', headers => { __TypeId__ => 'order.paid' }, content_encoding => 'utf-8' });

# -------------------------------------------------------------------- .NET

my $CORRELATION = '4c1a47c2-7d2e-4f9f-8b1a-000000000001';
note 'masstransit';
my %masstransit = (content_type => 'application/vnd.masstransit+json');
route('masstransit');
goes_out('least', { event_type => 'Shop:OrderCreated' },
	{ %masstransit, type => 'Shop:OrderCreated', routing_key => 'Shop:OrderCreated',
		body => qq({"messageId": "$ID", "conversationId": "$ID", "messageType": ["urn:message:Shop:OrderCreated"], "sentTime": "$TIME", "headers": {}, "message": {"n": 1}}) });
route('masstransit', { types => { 'order.created' => [ 'Shop:OrderCreated', 'urn:message:Shop:Event' ] },
		sourceAddress => 'rabbitmq://localhost/shop', faultAddress => 'queue:faults' });
goes_out('types, addresses, headers, a trace',
	{ %key, headers => { tenant => 'ü', n => 1, traceparent => $TRACE }, properties => { correlation_id => $CORRELATION, content_type => 'text/json' } },
	{ %masstransit, correlation_id => $CORRELATION,
		headers => { %key, tenant => 'ü', n => 1, traceparent => $TRACE, 'MT-Activity-Id' => $TRACE },
		body => qq({"messageId": "$ID", "correlationId": "$CORRELATION", "conversationId": "$CORRELATION", "sourceAddress": "rabbitmq://localhost/shop", )
		  . qq("faultAddress": "queue:faults", "messageType": ["urn:message:Shop:OrderCreated", "urn:message:Shop:Event"], "sentTime": "$TIME", )
		  . qq("headers": {"n": 1, "tenant": "ü", "traceparent": "$TRACE"}, "message": {"n": 1}}) });
route('masstransit');
goes_out('a correlation_id that is no GUID', { event_type => 'T', properties => { correlation_id => 'x' }, headers => { traceparent => 'x' } },
	{ %masstransit, type => 'T', routing_key => 'T', correlation_id => 'x', headers => { traceparent => 'x' },
		body => qq({"messageId": "$ID", "conversationId": "$ID", "messageType": ["urn:message:T"], "sentTime": "$TIME", "headers": {"traceparent": "x"}, "message": {"n": 1}}) });
refused('JSON null', { payload => 'null' }, qr/payload must not be null/);
refused('bytes', { body => '\x00' }, qr/body cannot be sent in the format masstransit, which needs JSON/);

note 'nservicebus';
my %nservicebus = (
	'NServiceBus.MessageId' => $ID, 'NServiceBus.ConversationId' => $ID, 'NServiceBus.CorrelationId' => $ID,
	'NServiceBus.MessageIntent' => 'Publish', 'NServiceBus.TimeSent' => '2026-11-23 03:45:31:123456 Z',
	'NServiceBus.ContentType' => 'application/json', 'NServiceBus.EnclosedMessageTypes' => 'order.created');
route('nservicebus');
goes_out('least', { headers => { 'NServiceBus.MessageIntent' => 'Reply', from => 'x' } }, { headers => { %nservicebus, from => 'x' } });
route('nservicebus', { intent => 'Send', endpoint => 'Shop', types => { 'order.created' => [ 'Shop.OrderCreated', 'Shop.IEvent' ] } });
goes_out('types and options', { properties => { correlation_id => 'c' } },
	{ correlation_id => 'c', headers => { %nservicebus, 'NServiceBus.MessageIntent' => 'Send', 'NServiceBus.OriginatingEndpoint' => 'Shop',
			'NServiceBus.ConversationId' => 'c', 'NServiceBus.CorrelationId' => 'c',
			'NServiceBus.EnclosedMessageTypes' => 'Shop.OrderCreated;Shop.IEvent' } });
route('nservicebus');
goes_out('bytes', { body => '\x61', properties => { content_type => 'text/xml' } },
	{ body => 'a', content_type => 'text/xml', headers => { %nservicebus, 'NServiceBus.ContentType' => 'text/xml' } });

note 'cap';
my %cap = (
	'cap-msg-id' => $ID, 'cap-msg-name' => 'order.created', 'cap-msg-type' => 'order.created', 'cap-senttime' => $TIME,
	'cap-corr-id' => $ID, 'cap-corr-seq' => '0');
route('cap');
goes_out('least; nobody forges the name', { headers => { 'cap-msg-name' => 'x', 'cap-callback-name' => 'y' } },
	{ headers => { %cap, 'cap-callback-name' => 'y' } });
route('cap', { type => 'v1.{event_type}' });
goes_out('a prefix of topics', { properties => { correlation_id => 'c' } },
	{ correlation_id => 'c', headers => { %cap, 'cap-msg-name' => 'v1.order.created', 'cap-corr-id' => 'c' } });

# ------------------------------------------------------------ celery and laravel

note 'celery';
my $embed = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}]';
my %celery = (
	content_encoding => 'utf-8', correlation_id => $ID,
	headers => { lang => 'py', task => 'shop.order.created', id => $ID, root_id => $ID });
route('celery', { type => 'shop.{event_type}' });
foreach my $way ([ '{"a": 1}', '[[], {"a": 1}, ' ], [ '[1, "b"]', '[[1, "b"], {}, ' ], [ '"c"', '[["c"], {}, ' ], [ 'null', '[[null], {}, ' ])
{
	goes_out("arguments $way->[0]", { payload => $way->[0] }, { %celery, body => $way->[1] . $embed });
}
route('celery', { payload => 'argument', type => 'shop.tasks.{event_type}' });
goes_out('one argument', { payload => '[1]', properties => { content_type => 'application/json; charset=utf-8', correlation_id => 'c' } },
	{ %celery, correlation_id => 'c', headers => { %{ $celery{headers} }, task => 'shop.tasks.order.created' }, body => '[[[1]], {}, ' . $embed });

note 'laravel';
route('laravel', { types => { 'order.created' => 'App\\Handlers\\Orders@created' } });
my $job = qq({"uuid": "$ID", "id": "$ID", "displayName": "App\\\\Handlers\\\\Orders", "job": "App\\\\Handlers\\\\Orders\@created", )
  . '"maxTries": null, "maxExceptions": null, "failOnTimeout": false, "backoff": null, "timeout": null, "data": {"n": 1}}';
goes_out('a job', {}, { body => $job, correlation_id => $ID });
refused('its own table', { headers => { laravel => { attempts => 7 } } }, qr/headers must not have laravel/);

# -------------------------------------------------------------------- all of them

note 'spans';
route('cloudevents', { source => '/shop', mode => 'structured' });
$node->sql(insert(headers => { traceparent => $SAMPLED }));
$node->wait_drained;
my ($spanned) = $rabbit->get('q');
isnt($spanned->{headers}{traceparent}, $SAMPLED, "the header's parent is the span of sending");
is($json->decode(encode_utf8($spanned->{body}))->{traceparent}, $spanned->{headers}{traceparent}, "and the event's is, too");

note 'another attempt';
route('cloudevents', { source => '/shop', mode => 'structured' });
$rabbit->amqp('unbind', 'q', 'outbox');
$node->sql(insert(%key));
$node->wait_sql('SELECT count(*) FROM outbox WHERE attempts > 0', 1);
$rabbit->amqp('bind', 'q', 'outbox');
$node->wait_drained;
my ($retried) = $rabbit->get('q');
ok($retried->{headers}{'x-outbox-attempts'} > 0, 'it was tried before');
is($retried->{body}, qq($envelope, "subject": "4711", "datacontenttype": "application/json", "data": {"n": 1}}),
	'its body is the same');

note 'a change of the format';
route('plain');
$node->sql("SELECT outbox_pause('r')");
$node->sql(insert(id => '00000000-0000-7000-8000-000000000001', aggregate_id => "a\tb"));
$node->sql(insert(id => '00000000-0000-7000-8000-000000000002', aggregate_id => 'ab'));
route('cloudevents', { source => '/shop' });
$node->sql("SELECT outbox_resume('r')");
$node->wait_drained;
my @changed = $rabbit->get('q', 2);
is(scalar @changed, 1, 'what waits goes out in the new format');
is($changed[0]{headers}{'cloudEvents:subject'}, 'ab', 'if it can');
is($node->sql('SELECT attempts, last_error_reason, last_error FROM outbox_failed'),
	'1|message refused|aggregate_id has control characters or noncharacters, which attributes of CloudEvents must not have',
	'what cannot has failed, and says why');
route('plain');
$node->sql('SELECT outbox_requeue_failed()');
$node->wait_drained;
is(scalar(my @requeued = $rabbit->get('q')), 1, 'and goes out when it can');

# Of the archive, what cannot go out does not keep the rest from it.
$node->sql("DELETE FROM outbox_archive WHERE id NOT IN ('00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002')");
route('cloudevents', { source => '/shop' });
my $replay = $node->sql(q{SELECT outbox_replay('-infinity')});
$node->wait_sql("SELECT state FROM outbox_job WHERE id = $replay", 'done', 60);
$node->wait_drained;
is(join(',', map { $_->{headers}{'cloudEvents:subject'} } $rabbit->get('q', 2)), 'ab', 'replayed in the new format');
is($node->sql('SELECT count(*) FROM outbox_failed'), 1, 'what cannot has failed, and the job has not');
$node->sql("SELECT outbox_discard_messages('test')");

note 'random content: what is accepted goes out, and can be read';
my %options = (
	cloudevents => { source => '/shop' },
	structured => { source => '/shop', mode => 'structured' },
	celery => { type => 'shop.{event_type}' },
	laravel => { type => 'App\\{event_type}' },
	map { $_ => {} } qw(debezium spring masstransit nservicebus cap));
# Where an envelope has them.
my %data_of = (structured => 'data', masstransit => 'message', laravel => 'data');
my %envelope = map { $_ => 1 } qw(structured masstransit celery laravel);
is($node->reconnects, 0, 'no connection or channel was lost');
my %random = (postgres => undef, latin1 => [ map { chr } 0x01 .. 0x7e, 0x80 .. 0xff ]);

$node->set('outbox.max_message_size', '4MB');
$node->sql("CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
$node->sql('CREATE EXTENSION outbox', 'latin1');
foreach my $dbname (sort keys %random)
{
	OutboxTest::Checker->install($node, dbname => $dbname);
	$node->wait_sql('SHOW outbox.max_message_size', '4MB', undef, $dbname);
	foreach my $name (keys %options)
	{
		$OutboxTest::Content::route{$name} = { exchange => 'outbox', key => 'k' };
		$node->sql("INSERT INTO outbox_route (name, exchange, exchange_type, routing_key, format, format_options) VALUES ('$name', 'outbox', 'topic', 'k', '"
			  . ($name eq 'structured' ? 'cloudevents' : $name) . "', " . literal($json->encode($options{$name})) . ')', $dbname);
	}
	my @messages = map { random_message(chars => $random{$dbname}, routes => [ sort keys %options ]) } 1 .. $MESSAGES;
	my $errors = enqueue_all($node, $dbname, @messages);
	my %accepted = map { $_->{id} => $_ } grep { $_->{accepted} } @messages;
	is_deeply([ grep { $_->{accepted} && ($_->{wrong} // 'maybe') ne 'maybe' } @messages ], [],
		"$dbname: nothing that is wrong is accepted") or diag $errors;
	$node->wait_drained(120, $dbname);
	is($node->sql("SELECT count(*), string_agg(DISTINCT last_error, ';') FROM outbox_failed", $dbname), '0|', "$dbname: nothing has failed");
	my @got = $rabbit->get('q', 2 * $MESSAGES);
	my %seen;
	my (@unread, @documents);
	foreach my $got (@got)
	{
		my $m = $accepted{ $got->{message_id} };
		my $name = ($m // {})->{route} // 'default';
		$seen{$name}++;
		push @unread, $got if !$m;
		next unless $envelope{$name};
		# Perl's JSON is strict about UTF-8 and control characters.
		my $document = eval { $json->decode(encode_utf8($got->{body})) };
		push @unread, { %$got, error => $@ } if !defined $document;
		push @documents, "('$got->{message_id}', " . literal($got->{body}) . ", '$data_of{$name}')" if $data_of{$name};
		push @unread, $got
		  if ($name eq 'structured' && $document->{id} ne $got->{message_id})
		  || ($name eq 'masstransit' && !$document->{message} && $m->{payload} !~ /^(?:-?0(?:\.0)?|false|"0?")$/)
		  || ($name eq 'celery' && @$document != 3)
		  || ($name eq 'laravel' && !exists $document->{data});
	}
	is(scalar @got, scalar keys %accepted, "$dbname: as many arrive as were accepted");
	is_deeply(\@unread, [], "$dbname: all of them can be read");
	# The data are those of the row, as the server compares them.
	my ($compared, $differ) = split /\|/, $node->sql(encode_utf8("SET client_encoding = 'UTF8';
		SELECT count(*), count(*) FILTER (WHERE CASE WHEN document ? 'data_base64'
			THEN decode(document ->> 'data_base64', 'base64') IS DISTINCT FROM coalesce(a.body, convert_to(a.payload::text, 'UTF8'))
			ELSE document -> data IS DISTINCT FROM a.payload END)
		FROM (VALUES " . join(', ', @documents) . ") v(id, body, data) CROSS JOIN LATERAL (SELECT v.body::jsonb AS document) d
			JOIN outbox_archive a ON a.id = v.id::uuid"), $dbname);
	cmp_ok($compared, '>', 0, "$dbname: $compared with data in an envelope");
	is($differ, 0, "$dbname: which are those that were enqueued");
	note join ', ', map { "$_: $seen{$_}" } sort keys %seen;
	cmp_ok(scalar keys %seen, '>', 5, "$dbname: of most formats some");
}

note 'past the check';
$node->sql("ALTER TABLE outbox_route DROP CONSTRAINT outbox_route_allowed;
	UPDATE outbox_route SET format = 'cloudevents', format_options = '{\"surce\": 1}' WHERE name = 'r'");
refused('a route whose options have an error', {}, qr/route has an unusable format: format_options has the key "surce"/);

is($node->reconnects, 0, 'no connection or channel was lost');
done_testing();
