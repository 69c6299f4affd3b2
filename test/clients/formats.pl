# Each format of a route, read by the library that it is for: what its own objects say is
# what was enqueued.  Libraries that cannot run here (.NET) are represented by messages of theirs that they
# have published: field by field, ours has the same.  The table of test/clients/formats/README.md
# is made of it.
#
# builds: test/clients/formats/cloudevents-python test/clients/formats/cloudevents-go test/clients/formats/cloudevents-java test/clients/formats/debezium test/clients/formats/spring test/clients/formats/celery test/clients/formats/laravel
# takes: 90 s

use strict;
use warnings;
use utf8;

use Encode qw(encode_utf8);
use JSON::PP ();
use MIME::Base64 ();
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::Clients;
use OutboxTest::Node;
use OutboxTest::Rabbit;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

my $JSON = JSON::PP->new->canonical->allow_nonref;    # characters, not bytes
my $ASCII = JSON::PP->new->canonical->allow_nonref->ascii;
my $DIR = 'test/clients/formats';
my $TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

my $rabbit = OutboxTest::Rabbit->start(plugins => ['rabbitmq_amqp1_0']);
my $node = OutboxTest::Node->create(broker => $rabbit, conf => $OutboxTest::Clients::CONF);

# --- messages

my %ORDER = (
	number => 42,
	customer => "Zoë \x{1f600} \"\\ \x{2028}\x{5d0}",
	note => undef,
	total => 12.5,
	lines => [ { sku => 'a-1', count => 2 }, { sku => 'ж', count => 10 } ]);

# By name: columns, with payload as a structure.
my %EVENT = (
	order => {
		event_type => 'order.created',
		payload => \%ORDER,
		aggregate_type => 'order',
		aggregate_id => '42',
		headers => { tenant => 'ü', traceparent => $TRACE, tracestate => 'vendor=1' } },
	unicode => { event_type => 'order.created', payload => \%ORDER, aggregate_type => 'order', aggregate_id => "ключ-\x{2713}\x{1f600}" },
	large => {
		event_type => 'order.created',
		payload => { %ORDER, note => 'ж' x 100_000 },
		aggregate_type => 'order',
		aggregate_id => 'large' },
	headers => {
		event_type => 'order.created',
		payload => \%ORDER,
		aggregate_type => 'order',
		aggregate_id => 'headers',
		headers => { a_text => 'x' x 2000, a_number => 9007199254740993, a_fraction => 0.5, a_truth => JSON::PP::true, nothing => undef,
			a_list => [ 1, 'two', { three => 3 } ], a_table => { deep => { deeper => 'ж' } } } },
	alone => { event_type => 'order.created', payload => \%ORDER },
	cancelled => {
		event_type => 'order.cancelled',
		payload => { number => 42, reason => 'ж' },
		aggregate_type => 'order',
		aggregate_id => '42' },
	list => { event_type => 'order.listed', payload => [ 1, 'ж', { deep => JSON::PP::true } ], aggregate_type => 'order', aggregate_id => 'list' },
	bytes => {
		event_type => 'order.scanned',
		body => join('', map { chr } 0 .. 255),
		content_type => 'image/png',
		aggregate_type => 'order',
		aggregate_id => '42' },
);

sub literal
{
	my ($text) = @_;
	return defined $text ? "'" . ($text =~ s/'/''/gr) . "'" : 'NULL';
}

# In order, on a route into a queue of its own with that format. Returns each as it is
# stored, by its id: columns, created_at in microseconds, and payload as a structure.
sub enqueue
{
	my ($name, $format, $options, @events) = @_;
	my %sent;

	$rabbit->amqp('queue', $name);
	$node->sql(encode_utf8(sprintf "INSERT INTO outbox_route (name, exchange, routing_key, ordering, format, format_options) VALUES (%s, '', %s, 'none', %s, %s)",
			map { literal($_) } $name, $name, $format, $JSON->encode($options)));
	foreach my $event (@events)
	{
		my %column = %{ $EVENT{$event} };
		my $bytes = delete $column{body};
		delete $column{extensions};
		my $content_type = delete $column{content_type};
		my %argument = (
			(map { $_ => literal(ref $column{$_} ? $JSON->encode($column{$_}) : $column{$_}) } keys %column),
			route => literal($name));
		@argument{qw(body content_type)} = ("'\\x" . unpack('H*', $bytes) . "'", literal($content_type)) if defined $bytes;
		my $id = $node->sql(encode_utf8('SELECT outbox_enqueue' . (defined $bytes ? '_bytes(' : '(')
				. join(', ', map { "$_ => $argument{$_}" } sort keys %argument) . ')'));
		$sent{$id} = { %{ $EVENT{$event} }, id => $id, name => $event };
	}
	$node->wait_drained;
	my $times = $JSON->decode($node->sql("SELECT json_object_agg(id, (extract(epoch FROM created_at) * 1000000)::bigint) FROM outbox_messages WHERE route = '$name'"));
	$sent{$_}{time} = $times->{$_} foreach keys %sent;
	return \%sent;
}

# --- what was read

my @proofs;
my $values;

sub leaves
{
	my ($value) = @_;
	my $n = 0;

	return 1 unless ref $value eq 'HASH' || ref $value eq 'ARRAY';
	$n += leaves($_) foreach ref $value eq 'HASH' ? values %$value : @$value;
	return $n;
}

sub shown
{
	my ($value) = @_;
	my $text = $ASCII->encode($value);
	return length $text > 600 ? substr($text, 0, 600) . ' ... of ' . length $text : $text;
}

sub same
{
	my ($name, $is, $should) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$values += leaves($should);
	ok($JSON->encode($is) eq $JSON->encode($should), $name) or diag 'is     ' . shown($is), "\nshould " . shown($should);
	return;
}

sub said
{
	my ($out) = @_;
	return map { JSON::PP->new->utf8->decode($_) } grep { /^\{/ } split /\n/, $out;
}

# Runs the program of the folder and gives each message that it shows to $check, with what was sent. The version is
# what the expression finds in its manifest.
sub proof
{
	my ($format, $mode, $sent, $check, %reader) = @_;
	my $folder = "$DIR/$reader{folder}";
	my @versions = map { slurp_file("$folder/$reader{manifest}") =~ /$_/ ? $1 : die "$folder: no version $_" } @{ $reader{version} // [] };
	my $title = "$format, $mode: $reader{library}";
	my $why = OutboxTest::Clients::missing($folder);

	if ($why)
	{
		note "$title: $why";
		push @proofs, undef;
		return;
	}
	subtest $title => sub {
		my $out = eval { OutboxTest::Clients::run($node, $folder, args => [ map { $_ eq 'COUNT' ? scalar keys %$sent : $_ } @{ $reader{args} } ], in => $reader{in} // '') };
		ok(defined $out, 'it reads them') or diag $@;
		return unless defined $out;
		my @said = said($out);

		$values = 0;
		is(scalar @said, scalar keys %$sent, 'all that was enqueued');
		foreach my $said (@said)
		{
			my $id = $reader{id} ? $reader{id}->($said) : $said->{id};
			my $event = $sent->{ $id // '' };
			ok($event, 'a message of ours') or diag shown($said);
			$check->($said, $event) if $event;
		}
	};
	push @proofs, [ $format, $mode, $reader{library}, join(' + ', @versions, $reader{installed} // ()), $reader{read}, $values, 'run' ];
	return;
}

# --- cloudevents

my %EVENTS = (source => 'https://shop.example/orders', type => 'example.{event_type}', dataschema => 'https://shop.example/{event_type}.json');
my @EVENTS = qw(order unicode large headers alone cancelled list bytes);

sub check_event
{
	my ($said, $sent) = @_;
	my $json = exists $sent->{payload};
	my $headers = $sent->{headers} // {};
	my $data = MIME::Base64::decode_base64(delete $said->{data});

	same("$sent->{name}: attributes", $said, {
			id => $sent->{id},
			source => $EVENTS{source},
			type => "example.$sent->{event_type}",
			subject => $sent->{aggregate_id},
			dataschema => "https://shop.example/$sent->{event_type}.json",
			datacontenttype => $json ? 'application/json' : $sent->{content_type},
			specversion => '1.0',
			time => $sent->{time},
			extensions => { %{ $sent->{extensions} // {} }, map { defined $headers->{$_} ? ($_ => $headers->{$_}) : () } qw(traceparent tracestate) } });
	same("$sent->{name}: data", $json ? JSON::PP->new->utf8->decode($data) : unpack('H*', $data),
		$json ? $sent->{payload} : unpack('H*', $sent->{body}));
	return;
}

# Library, folder, manifest, versions; arguments before port, queue and count.
my %SDK = (
	python => [ 'SDK for Python', 'cloudevents-python', 'requirements.txt', qr/cloudevents==(\S+)/ ],
	go => [ 'SDK for Go', 'cloudevents-go', 'go.mod', qr{protocol/amqp/v2 v(\S+)} ],
	java => [ 'SDK for Java', 'cloudevents-java', 'pom.xml', qr{amqp-proton</artifactId>\s*<version>(.*?)<}, qr{cloudevents-core</artifactId>\s*<version>(.*?)<} ],
);

# Binary mode in AMQP 1.0 needs RabbitMQ 4: before, its consumers get no headers.
foreach my $try (
	[ python => 'binary', 'cloudEvents:', '0-9-1' ],
	[ go => 'binary', 'cloudEvents:', '0-9-1' ],
	[ java => 'binary', 'cloudEvents:', '0-9-1' ],
	[ python => 'binary', 'cloudEvents_', '0-9-1' ],
	[ python => 'binary', 'ce-', '0-9-1' ],
	[ python => 'structured', undef, '0-9-1' ],
	[ go => 'structured', undef, '1.0' ],
	[ java => 'structured', undef, '1.0' ])
{
	my ($sdk, $mode, $prefix, $protocol) = @$try;
	my ($library, $folder, $manifest, @version) = @{ $SDK{$sdk} };
	my $queue = join '-', 'events', scalar @proofs;
	my %prefix = $prefix ? (prefix => $prefix) : ();

	# of the user's, by a header with the prefix
	$EVENT{extended} = { %{ $EVENT{cancelled} }, headers => { "${prefix}tenant" => 'ü' }, extensions => { tenant => 'ü' } } if $prefix;
	my $sent = enqueue($queue, 'cloudevents', { %EVENTS, mode => $mode, %prefix }, @EVENTS, $prefix ? 'extended' : ());

	proof('cloudevents', $mode . ($prefix ? ", prefix `$prefix`" : ''), $sent, \&check_event,
		library => $library, folder => $folder, manifest => $manifest, version => \@version,
		args => [ $sdk eq 'python' ? () : $protocol, $rabbit->port, $queue, 'COUNT' ],
		read => "attributes, extensions and data, over AMQP $protocol");
}

# --- debezium

my %PLACED = (type => 'eventType', aggregatetype => 'aggregateType', aggregateid => 'aggregateId');

# What the event router makes of the row, and what has come. A header that is null in the
# router's record is none in ours.
sub check_routed
{
	my ($quoted, $said, $sent) = @_;
	my ($router, $message) = @$said{qw(router message)};
	my $texts = $router->{ $quoted ? 'quoted' : 'texts' };

	# Jackson escapes what is beyond U+FFFF, which says the same
	my $value = sub { $quoted ? $JSON->decode($_[0] // 'null') : $_[0] };
	same("$sent->{name}: headers", { map { $_ => $value->($message->{headers}{$_}) } keys %$texts },
		{ map { $_ => $value->($texts->{$_}) } keys %$texts });
	like($message->{headers}{id}, $quoted ? qr/^"[^"]+"$/ : qr/^[^"]+$/, "$sent->{name}: quotes");
	same("$sent->{name}: body", $JSON->decode($message->{body}), $JSON->decode($router->{body}));
	is($message->{body}, $router->{body}, "$sent->{name}: body, byte by byte") unless length $message->{body} > 10000;
	return;
}

foreach my $quoted (0, 1)
{
	my $queue = "debezium-$quoted";
	my @events = qw(order unicode large headers cancelled list);
	my $sent = enqueue($queue, 'debezium', $quoted ? { quoted => JSON::PP::true } : {}, @events);
	my $rows = $node->sql(<<"END");
SELECT json_build_object('id', id, 'aggregatetype', aggregate_type, 'aggregateid', aggregate_id, 'type', event_type, 'payload', payload::text)
FROM outbox_messages WHERE route = '$queue' ORDER BY seq
END

	proof('debezium', $quoted ? '`"quoted": true`' : 'plain texts', $sent, sub { check_routed($quoted, @_) },
		library => 'the event router (`EventRouter`)', folder => 'debezium', manifest => 'pom.xml',
		version => [qr{debezium-connect-plugins</artifactId>\s*<version>(.*?)<}],
		args => [ $rabbit->port, $queue, join(',', map { "$_:header:$PLACED{$_}" } sort keys %PLACED) ],
		in => $rows, id => sub { $_[0]{router}{texts}{id} },
		read => 'the same row through the router: its headers and value are ours');
}

# --- spring

my %CLASS = ('order.created' => 'shop.orders.OrderCreated', 'order.cancelled' => 'shop.orders.OrderCancelled');

sub check_spring
{
	my ($type, $said, $sent) = @_;
	my %headers = (%{ $sent->{headers} // {} }, '__TypeId__' => $type->($sent->{event_type}),
		map { defined $sent->{$_} ? ($_ => $sent->{$_}) : () } qw(aggregate_type aggregate_id));
	my $got = delete $said->{headers};

	same("$sent->{name}: object and properties", $said, {
			handler => $sent->{event_type} =~ s/.*\.//r,
			event => $sent->{payload},
			id => $sent->{id},
			type => $sent->{event_type},
			time => int($sent->{time} / 1_000_000),
			content_type => 'application/json',
			content_encoding => 'UTF-8' });

	my @texts = grep { !ref $headers{$_} } keys %headers;
	same("$sent->{name}: headers", { map { $_ => $got->{$_} } @texts }, { map { $_ => $headers{$_} } @texts });
	return;
}

foreach my $try ([ jackson2 => 'mapped', 'Jackson2JsonMessageConverter' ], [ jackson3 => 'mapped', 'JacksonJsonMessageConverter' ],
	[ jackson2 => 'trusted', 'Jackson2JsonMessageConverter' ], [ jackson3 => 'trusted', 'JacksonJsonMessageConverter' ])
{
	my ($converter, $how, $class) = @$try;
	my $queue = "spring-$converter-$how";
	my $sent = enqueue($queue, 'spring', $how eq 'mapped' ? {} : { types => \%CLASS }, qw(order unicode large headers alone cancelled));

	proof('spring', $how eq 'mapped' ? 'ids of classes' : 'names of classes', $sent,
		sub { check_spring($how eq 'mapped' ? sub { $_[0] } : sub { $CLASS{ $_[0] } }, @_) },
		library => "Spring AMQP, `$class`", folder => 'spring', manifest => 'pom.xml',
		version => [qr{spring-rabbit</artifactId>\s*<version>(.*?)<}],
		args => [ $converter, $how, $rabbit->port, $queue, 'COUNT' ],
		read => 'which `@RabbitHandler` is called, its object, properties, headers');
}

# --- celery

my %TASK = ('order.created' => 'shop.tasks.order_created', map { $_ => $_ } qw(order.cancelled order.listed));

sub check_task
{
	my ($one, $said, $sent) = @_;
	my $payload = $one ? [ $sent->{payload} ] : $sent->{payload};
	my $list = ref $payload eq 'ARRAY';
	my $headers = $sent->{headers} // {};

	same("$sent->{name}: task, arguments, request, result", $said, {
			task => $TASK{ $sent->{event_type} },
			args => $list ? $payload : [],
			kwargs => $list ? {} : $payload,
			(map { $_ => $sent->{id} } qw(id root_id correlation_id)),
			(map { $_ => undef } qw(parent_id group eta expires timelimit callbacks errbacks chain chord)),
			retries => 0,
			(map { $_ => $headers->{$_} } qw(traceparent tenant)),
			(map { $_ => $sent->{$_} } qw(aggregate_type aggregate_id)),
			state => 'SUCCESS',
			result => scalar($list ? @$payload : keys %$payload) });
	return;
}

foreach my $try ([ arguments => [qw(order unicode large headers alone cancelled list)], 'arguments by their names, or their places' ],
	[ argument => [qw(list)], 'the payload as one argument' ])
{
	my ($payload, $events, $mode) = @$try;

	proof('celery', $mode, enqueue("celery-$payload", 'celery', { types => \%TASK, payload => $payload }, @$events),
		sub { check_task($payload eq 'argument', @_) },
		library => 'a worker of Celery', folder => 'celery', manifest => 'requirements.txt', version => [qr/^celery==(\S+)/m],
		args => [ $rabbit->port, "celery-$payload", 'COUNT' ],
		read => 'which task runs, its arguments, `task.request`, its result in a result backend');
}

# --- laravel

my %HANDLER = ('order.created' => 'OrderHandler', 'order.cancelled' => 'OrderHandler@cancelled', 'order.listed' => 'OrderHandler@fire');

sub check_job
{
	my ($said, $sent) = @_;

	same("$sent->{name}: handler, data, job", $said, {
			method => $HANDLER{ $sent->{event_type} } =~ /@(.*)/ ? $1 : 'fire',
			data => $sent->{payload},
			id => $sent->{id},
			uuid => $sent->{id},
			name => 'OrderHandler',
			attempts => 1,
			failOnTimeout => JSON::PP::false,
			map { $_ => undef } qw(maxTries maxExceptions timeout backoff retryUntil) });
	return;
}

my ($laravel) = -e '/usr/bin/dpkg-query' ? `dpkg-query -W -f '\${Version}' php-illuminate-queue 2>/dev/null` =~ /^(\d+\.\d+)/ : ();

proof('laravel', 'string jobs',
	enqueue('laravel', 'laravel', { types => \%HANDLER }, qw(order unicode large headers alone cancelled list)), \&check_job,
	library => 'the worker of Laravel (illuminate/queue) with php-amqplib', folder => 'laravel',
	installed => $laravel // 'of the distribution',
	args => [ $rabbit->port, 'laravel', 'COUNT' ],
	read => 'which method of which class is called, its data, the job (id, uuid, name, attempts, limits)');

# --- envelopes of .NET

my $GUID = qr/^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;
my $CLASS = qr/^\w+(?:\.\w+)*$/;

# What a field of the published message looks like, and so of ours; those that may be absent say so.
my %SHAPE = (
	masstransit => {
		messageId => $GUID,
		messageType => qr/^\["urn:message:[\w.]+:[\w+]+"(?:,"urn:message:[\w.]+:[\w+]+")*\]$/,
		message => qr/^\{/,
		sentTime => qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,7}Z$/,
		headers => qr/^\{/,
		host => [qr/^\{/],
		(map { $_ => [$GUID] } qw(requestId correlationId conversationId initiatorId)),
		(map { $_ => [qr{^[a-z]+://[^/]+/}] } qw(sourceAddress destinationAddress responseAddress faultAddress)),
		expirationTime => [qr/^\d{4}-/] },
	nservicebus => {
		'NServiceBus.MessageId' => $GUID,
		'NServiceBus.EnclosedMessageTypes' => qr/^\w+(?:\.\w+)*(?:, [^;]*)?(?:;\w+(?:\.\w+)*(?:, [^;]*)?)*$/,
		'NServiceBus.ContentType' => qr{^application/json$},
		'NServiceBus.MessageIntent' => qr/^(?:Publish|Send)$/,
		'NServiceBus.TimeSent' => qr/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z$/,
		(map { ("NServiceBus.$_" => [qr/\S/]) } qw(ConversationId CorrelationId OriginatingEndpoint OriginatingMachine ReplyToAddress Version)),
		'$.diagnostics.originating.hostid' => [qr/\S/] },
	cap => {
		'cap-msg-id' => qr/^\S+$/,
		'cap-msg-name' => qr/^\S+$/,
		'cap-corr-id' => qr/^\S+$/,
		'cap-corr-seq' => qr/^\d+$/,
		'cap-msg-type' => [$CLASS],
		# CAP's own is local time; what its documentation promises is ours: ISO 8601 in UTC
		'cap-senttime' => qr{^(?:\d\d/\d\d/\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)$},
		'cap-callback-name' => [qr/^$/] },
);

# Fields are texts, or JSON where they are more than that; null is absent.
sub field
{
	my ($value) = @_;
	return ref $value ? $JSON->encode($value) : $value;
}

# Every field has the shape that is known of it; those that may be absent, if they are there.
sub same_shape
{
	my ($format, $whose, $fields) = @_;
	my %shape = %{ $SHAPE{$format} };

	foreach my $name (sort keys %shape)
	{
		my ($re, $optional) = ref $shape{$name} eq 'ARRAY' ? ($shape{$name}[0], 1) : ($shape{$name}, 0);
		my $value = field($fields->{$name});

		next if $optional && !defined $value;
		like($value, $re, "$whose: $name");
		$values++;
	}
	return;
}

sub envelope
{
	my ($format, $options, $check, $read, @events) = @_;
	my $sent = enqueue($format, $format, $options, @events);
	my $file = JSON::PP->new->utf8->decode(slurp_file("$DIR/published/$format.json"));
	my $published = $file->{body} // $file->{headers};

	subtest "$format: the published message" => sub {
		my @messages = $rabbit->get($format, scalar @events);

		same_shape($format, 'published', $published);
		is(join(' ', sort keys %$published), join(' ', sort keys %{ $SHAPE{$format} }), '... and no other field is');
		$values = 0;
		is(scalar @messages, scalar @events, 'all that was enqueued');
		foreach my $message (@messages)
		{
			my $event = $sent->{ $message->{message_id} };
			ok($event, 'a message of ours') or next;
			$check->($message, $event);
		}
	};
	push @proofs, [ $format, '-', $file->{source}, '-', $read, $values, $file->{proof} // 'published' ];
	return;
}

my $ISO = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';

sub time_text
{
	my ($micros, $format) = @_;
	return $node->sql("SELECT to_char(to_timestamp(0) AT TIME ZONE 'UTC' + $micros * interval '1 microsecond', '$format')");
}

envelope('masstransit', { sourceAddress => 'rabbitmq://localhost/outbox', types => { 'order.created' => 'Shop.Orders:OrderCreated', 'order.cancelled' => [ 'Shop.Orders:OrderCancelled', 'Shop.Orders:OrderEvent' ] } }, sub {
		my ($message, $sent) = @_;
		my $body = $JSON->decode($message->{body});
		my $headers = $sent->{headers} // {};

		same_shape('masstransit', $sent->{name}, $body);
		same("$sent->{name}: what is in it", { map { $_ => $body->{$_} } qw(messageId conversationId correlationId sourceAddress messageType message sentTime) }, {
				messageId => $sent->{id},
				conversationId => $sent->{id},
				correlationId => undef,
				sourceAddress => 'rabbitmq://localhost/outbox',
				messageType => $sent->{event_type} eq 'order.created' ? ['urn:message:Shop.Orders:OrderCreated']
				: [ 'urn:message:Shop.Orders:OrderCancelled', 'urn:message:Shop.Orders:OrderEvent' ],
				message => $sent->{payload},
				sentTime => time_text($sent->{time}, $ISO) });
		same("$sent->{name}: headers", { map { $_ => $body->{headers}{$_} } grep { !ref $headers->{$_} } keys %$headers },
			{ map { $_ => $headers->{$_} } grep { !ref $headers->{$_} } keys %$headers });
		is($message->{content_type}, 'application/vnd.masstransit+json', "$sent->{name}: content type");
		is($message->{headers}{'MT-Activity-Id'}, $headers->{traceparent}, "$sent->{name}: activity");
	}, 'envelope, types, message, headers, activity', qw(order unicode large headers alone cancelled));

envelope('nservicebus', { endpoint => 'shop', types => { 'order.created' => 'Shop.Orders.OrderCreated', 'order.cancelled' => [ 'Shop.Orders.OrderCancelled', 'Shop.Orders.IOrderEvent' ] } }, sub {
		my ($message, $sent) = @_;
		my $created = $sent->{event_type} eq 'order.created';

		same_shape('nservicebus', $sent->{name}, $message->{headers});
		same("$sent->{name}: what is in them", { map { $_ => $message->{headers}{"NServiceBus.$_"} } qw(MessageId ConversationId CorrelationId EnclosedMessageTypes ContentType MessageIntent OriginatingEndpoint TimeSent) }, {
				(map { $_ => $sent->{id} } qw(MessageId ConversationId CorrelationId)),
				MessageIntent => 'Publish',
				OriginatingEndpoint => 'shop',
				EnclosedMessageTypes => $created ? 'Shop.Orders.OrderCreated' : 'Shop.Orders.OrderCancelled;Shop.Orders.IOrderEvent',
				ContentType => 'application/json',
				TimeSent => time_text($sent->{time}, 'YYYY-MM-DD HH24:MI:SS:US "Z"') });
		same("$sent->{name}: body", $JSON->decode($message->{body}), $sent->{payload});
		is($message->{content_type}, 'application/json', "$sent->{name}: content type");
		is($message->{headers}{traceparent}, ($sent->{headers} // {})->{traceparent}, "$sent->{name}: trace");
	}, 'headers, content type, body, trace', qw(order unicode large headers alone cancelled));

envelope('cap', { types => { 'order.cancelled' => 'shop.order.cancelled' } }, sub {
		my ($message, $sent) = @_;
		my $name = $sent->{event_type} eq 'order.cancelled' ? 'shop.order.cancelled' : $sent->{event_type};

		same_shape('cap', $sent->{name}, $message->{headers});
		same("$sent->{name}: what is in them", { map { $_ => $message->{headers}{"cap-$_"} } qw(msg-id msg-name corr-id corr-seq senttime) }, {
				'msg-id' => $sent->{id},
				'msg-name' => $name,
				'corr-id' => $sent->{id},
				'corr-seq' => '0',
				senttime => time_text($sent->{time}, $ISO) });
		same("$sent->{name}: body", $JSON->decode($message->{body}), $sent->{payload});
	}, 'headers and body', qw(order unicode large headers alone cancelled list));

# --- the table of test/clients/formats/README.md

my %KIND = (run => 'run here', published => 'a message that they have published', source => 'their source');

sub table
{
	my @lines = ([ qw(format as), 'read by', 'version', 'what is compared', 'values', 'proof' ], [ ('---') x 7 ]);

	push @lines, map { my ($format, $mode, $library, $version, $read, $count, $kind) = @$_; [ $format, $mode, $library, $version, $read, $count, $KIND{$kind} ] } @proofs;
	return join '', map { '| ' . (join(' | ', @$_) =~ s/  +/ /gr) . " |\n" } @lines;
}

SKIP:
{
	skip 'not all could run here', 1 if grep { !defined } @proofs;
	my $table = table();
	my $page = slurp_file('test/clients/formats/README.md');
	my ($old) = $page =~ /<!-- by make test-clients: formats -->\n\n(.*?)\n<!-- end -->/s;

	$page =~ s/(?<=<!-- by make test-clients: formats -->\n\n).*?(?=\n<!-- end -->)/$table/s;
	OutboxTest::Clients::result('formats.md', $page);
	is($old, $table, 'test/clients/formats/README.md says so');
}
done_testing();
