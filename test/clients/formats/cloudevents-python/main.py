"""Events of a queue, as the SDK of CloudEvents for Python reads them.

    main.py PORT QUEUE N    one line of JSON for each: attributes, time in microseconds, data in base64

The SDK takes what any client of RabbitMQ has: its binding for AMQP reads the names of that
(cloudEvents_ and cloudEvents:), the one for RabbitMQ those of Knative (ce-).
"""

import base64
import datetime
import json
import sys

import pika
from cloudevents.core.bindings import amqp, rabbitmq

CORE = ("id", "source", "type", "subject", "dataschema", "datacontenttype", "specversion")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def read(properties, body):
    headers = properties.headers or {}
    if any(name.startswith("ce-") for name in headers):
        return rabbitmq.from_rabbitmq_event(
            rabbitmq.RabbitMQMessage(headers=headers, content_type=properties.content_type, body=body)
        )
    return amqp.from_amqp_event(
        amqp.AMQPMessage(
            properties={"content-type": properties.content_type},
            application_properties=headers,
            application_data=body,
        )
    )


def as_bytes(data):
    return data if isinstance(data, bytes) else json.dumps(data).encode()


def show(event):
    attributes = event.get_attributes()
    shown = {name: attributes.get(name) for name in CORE}
    shown["time"] = (event.get_time() - EPOCH) // datetime.timedelta(microseconds=1)
    shown["extensions"] = {
        name: value for name, value in attributes.items() if name not in CORE and name != "time"
    }
    shown["data"] = base64.b64encode(as_bytes(event.get_data())).decode()
    return shown


def main(port, queue, count):
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(port)))
    channel = connection.channel()
    left = int(count)
    for method, properties, body in channel.consume(queue):
        print(json.dumps(show(read(properties, body))), flush=True)
        channel.basic_ack(method.delivery_tag)
        left -= 1
        if left == 0:
            break
    channel.cancel()
    connection.close()


main(*sys.argv[1:])
