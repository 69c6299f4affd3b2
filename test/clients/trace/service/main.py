"""A service with orders and a consumer of its events, with the SDK of OpenTelemetry.

    main.py service PORT            POST /comment, POST /setting: an order and its event
    main.py consumer AMQP_URI N     takes so many events, and ends

Spans go to OTEL_EXPORTER_OTLP_ENDPOINT; the database is in PGHOST and the like.  The two
ways differ in how the event gets the trace context: from the comment that the
instrumentation of psycopg2 puts behind each statement, or from SET LOCAL.
"""

import sys
from wsgiref.simple_server import make_server

import pika
import psycopg2
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.psycopg2 import Psycopg2Instrumentor
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor


def set_up(service):
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def place_order(cursor, way):
    if way == "setting":
        carrier = {}
        propagate.inject(carrier)
        cursor.execute("SELECT set_config('outbox.traceparent', %s, true),"
                       " set_config('outbox.tracestate', %s, true)",
                       (carrier["traceparent"], carrier.get("tracestate", "")))
    cursor.execute("INSERT INTO orders (way) VALUES (%s) RETURNING id", (way,))
    order = cursor.fetchone()[0]
    cursor.execute("SELECT outbox_enqueue('order.created', jsonb_build_object('order_id', %s::bigint, 'way', %s::text),"
                   " aggregate_type => 'order', aggregate_id => %s::text)", (order, way, order))


def orders(environ, start_response):
    way = environ["PATH_INFO"].strip("/")
    connection = psycopg2.connect("")
    try:
        with connection, connection.cursor() as cursor:     # BEGIN ... COMMIT
            place_order(cursor, way)
    finally:
        connection.close()
    start_response("201 Created", [("Content-Type", "text/plain")])
    return [b"created\n"]


def service(port):
    set_up("orders")
    Psycopg2Instrumentor().instrument(enable_commenter=True, skip_dep_check=True)
    with make_server("127.0.0.1", int(port), OpenTelemetryMiddleware(orders)) as server:
        print("listening", flush=True)
        server.serve_forever()


def consumer(uri, count):
    set_up("notifications")
    tracer = trace.get_tracer("consumer")
    channel = pika.BlockingConnection(pika.URLParameters(uri)).channel()
    channel.exchange_declare("outbox", "topic", durable=True)
    channel.queue_declare("orders", durable=True)
    channel.queue_bind("orders", "outbox", "order.*")
    print("bound", flush=True)
    for method, properties, body in channel.consume("orders"):
        context = propagate.extract(properties.headers)
        with tracer.start_as_current_span("process orders", context, trace.SpanKind.CONSUMER, {
                "messaging.system": "rabbitmq", "messaging.operation.type": "process",
                "messaging.message.id": properties.message_id}):
            print(properties.headers["traceparent"], body.decode(), flush=True)
            channel.basic_ack(method.delivery_tag)
        if method.delivery_tag == int(count):
            return


if __name__ == "__main__":
    {"service": service, "consumer": consumer}[sys.argv[1]](*sys.argv[2:])
