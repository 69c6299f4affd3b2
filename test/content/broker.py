"""A consumer that takes nothing for granted.

Decodes frames by the letter of AMQP 0-9-1, with the types that outbox documents
and no others: a string that is not UTF-8, a length that does not add up, a name that
is there twice, or a byte behind the last property is an error and not a guess.

A value of a header is a pair of its letter and the value: ("S", text), ("l", int),
("d", bits as 16 digits), ("t", bool), ("V", None), ("A", [...]), ("F", {...}).
"""

import select
import socket
import struct
import time

PROPERTIES = (
    "content_type", "content_encoding", "headers", "delivery_mode", "priority",
    "correlation_id", "reply_to", "expiration", "message_id", "timestamp", "type",
    "user_id", "app_id", "cluster_id")


class Malformed(Exception):
    """What the broker has delivered is no AMQP."""


class Reader:
    """Takes one thing after the other from bytes, all of which must be used."""

    def __init__(self, octets):
        self.octets = octets
        self.at = 0

    def take(self, size):
        if self.at + size > len(self.octets):
            raise Malformed(f"{size} bytes wanted at {self.at} of {len(self.octets)}")
        self.at += size
        return self.octets[self.at - size:self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def text(self, size):
        octets = self.take(size)
        try:
            return octets.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Malformed(f"no UTF-8: {octets!r}") from error

    def short(self):
        return self.text(self.number("B"))

    def end(self):
        if self.at != len(self.octets):
            raise Malformed(f"{len(self.octets) - self.at} bytes too many")

    def table(self):
        inner, result = Reader(self.take(self.number("I"))), {}
        while inner.at < len(inner.octets):
            name = inner.short()
            if name in result:
                raise Malformed(f"header {name!r} twice")
            result[name] = inner.value()
        return result

    def value(self):
        kind = self.take(1).decode("latin-1")
        if kind == "S":
            return kind, self.text(self.number("I"))
        if kind == "l":
            return kind, self.number("q")
        if kind == "d":
            return kind, self.take(8).hex()
        if kind == "t":
            octet = self.number("B")
            if octet > 1:
                raise Malformed(f"boolean {octet}")
            return kind, bool(octet)
        if kind == "V":
            return kind, None
        if kind == "F":
            return kind, self.table()
        if kind == "A":
            inner, result = Reader(self.take(self.number("I"))), []
            while inner.at < len(inner.octets):
                result.append(inner.value())
            return kind, result
        raise Malformed(f"value of type {kind!r}")


def decode_header(octets):
    """Size of the body, and the properties that are there."""
    reader, found = Reader(octets), {}
    if reader.number("H") != 60 or reader.number("H") != 0:
        raise Malformed("content header of another class")
    size, flags = reader.number("Q"), reader.number("H")
    for bit, name in enumerate(PROPERTIES):
        if not flags & 0x8000 >> bit:
            continue
        if name == "headers":
            found[name] = reader.table()
        elif name in ("delivery_mode", "priority"):
            found[name] = reader.number("B")
        elif name == "timestamp":
            found[name] = reader.number("Q")
        else:
            found[name] = reader.short()
    if flags & 3:
        raise Malformed(f"flags {flags:04x}")
    reader.end()
    return size, found


def short(text):
    octets = text.encode()
    return bytes([len(octets)]) + octets


class Consumer:
    """Takes everything that comes into a durable queue, which it declares."""

    def __init__(self, port, queue, user="guest", password="guest", vhost="/"):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.ahead = bytearray()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.expect(10, 10)
        plain = f"\0{user}\0{password}".encode()
        self.method(0, 10, 11, struct.pack(">I", 0) + short("PLAIN")
                    + struct.pack(">I", len(plain)) + plain + short("en_US"))
        tune = self.expect(10, 30)
        channels, frame = tune.number("H"), tune.number("I")
        self.method(0, 10, 31, struct.pack(">HIH", channels, frame, 0))
        self.method(0, 10, 40, short(vhost) + b"\0\0")
        self.expect(10, 41)
        self.method(1, 20, 10, b"\0")
        self.expect(20, 11)
        self.method(1, 50, 10, b"\0\0" + short(queue) + b"\x02" + bytes(4))
        self.expect(50, 11)
        # no-ack: what has come is no longer the broker's
        self.method(1, 60, 20, b"\0\0" + short(queue) + short("strict") + b"\x02"
                    + struct.pack(">I", 0))
        self.expect(60, 21)

    def close(self):
        self.socket.close()

    def exchange(self, name, kind):
        self.method(1, 40, 10, b"\0\0" + short(name) + short(kind) + b"\x02" + bytes(4))
        self.expect(40, 11)

    def bind(self, queue, exchange, key):
        self.method(1, 50, 20, b"\0\0" + short(queue) + short(exchange) + short(key)
                    + b"\0" + bytes(4))
        self.expect(50, 21)

    def method(self, channel, cls, number, arguments):
        body = struct.pack(">HH", cls, number) + arguments
        self.socket.sendall(
            struct.pack(">BHI", 1, channel, len(body)) + body + b"\xce")

    def frame(self):
        kind, _, size = struct.unpack(">BHI", self.read(7))
        body = self.read(size)
        if self.read(1) != b"\xce":
            raise Malformed("frame without an end")
        return kind, body

    def expect(self, cls, number):
        kind, body = self.frame()
        reader = Reader(body)
        got = kind, reader.number("H"), reader.number("H")
        if got != (1, cls, number):
            raise Malformed(f"method {got} and not {cls}, {number}: {body!r}")
        return reader

    def read(self, size):
        while len(self.ahead) < size:
            part = self.socket.recv(1 << 20)
            if not part:
                raise Malformed("the broker has closed the connection")
            self.ahead += part
        octets = bytes(self.ahead[:size])
        del self.ahead[:size]
        return octets

    def waits(self, seconds):
        return self.ahead or select.select([self.socket], [], [], seconds)[0]

    def message(self, seconds):
        """The next one, or None when none has come for so long."""
        deadline = time.monotonic() + seconds
        while not self.waits(max(0, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return None
        deliver = self.expect(60, 60)
        deliver.short()
        deliver.number("Q")
        redelivered = deliver.number("B")
        message = {"exchange": deliver.short(), "routing_key": deliver.short()}
        deliver.end()
        if redelivered:
            message["redelivered"] = True
        kind, header = self.frame()
        if kind != 2:
            raise Malformed(f"frame of type {kind} instead of a header")
        size, properties = decode_header(header)
        message.update(properties)
        body = b""
        while len(body) < size:
            kind, part = self.frame()
            if kind != 3:
                raise Malformed(f"frame of type {kind} instead of a body")
            body += part
        if len(body) != size:
            raise Malformed("more of a body than it has")
        message["body"] = body
        return message
