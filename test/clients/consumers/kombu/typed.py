"""What a Python object is, for test/clients/consumers.pl: its kind, its type and its value.

The kinds: s text, b bytes, o truth value, i integer, d double, T time, n nothing,
a list, m map."""

import datetime
import decimal
import hashlib
import struct

LONG = 1000  # bytes of a text above which only a digest is said


def digest(octets):
    return hashlib.sha256(octets).hexdigest()


def kind_and_value(value):
    if value is None:
        return "n", None
    if isinstance(value, bool):
        return "o", value
    if isinstance(value, int):
        return "i", str(value)
    if isinstance(value, float):
        return "d", struct.pack(">d", value).hex()
    if isinstance(value, decimal.Decimal):
        return "D", str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "b", bytes(value).hex()
    if isinstance(value, str):
        octets = value.encode("utf-8", "surrogatepass")
        return "s", digest(octets) if len(octets) > LONG else value
    if isinstance(value, datetime.datetime):
        return "T", str(int(value.replace(tzinfo=value.tzinfo or datetime.timezone.utc).timestamp()))
    if isinstance(value, (list, tuple)):
        return "a", [typed(element) for element in value]
    if isinstance(value, dict):
        return "m", {name: typed(element) for name, element in value.items()}
    raise TypeError(type(value))


def typed(value):
    kind, content = kind_and_value(value)
    return {"t": kind, "as": type(value).__name__, "v": content}


def typed_body(body):
    octets = body.encode() if isinstance(body, str) else bytes(body)
    return {"as": type(body).__name__, "size": len(octets), "sha256": digest(octets)}
