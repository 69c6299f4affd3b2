"""Rows of odd tables, which outbox_capture() makes messages of.

What to_jsonb() says of a row is the server's business, so it is asked for that; all the
rest of the message is known.
"""

import random

from messages import ANY
from pg import Error
from values import Text, ascii_text

# A type, and values that are at its ends.
TYPES = [
    ("float8", ["'NaN'", "'-Infinity'", "'-0'", "1e308", "5e-324", "0.1"]),
    ("float4", ["'Infinity'", "3.4e38", "1e-45", "0.1"]),
    ("numeric", ["'NaN'", "'Infinity'", "1e1000", "1e-1000", "0.000"]),
    ("timestamptz", ["'infinity'", "'294276-12-31'", "'4713-01-01 BC'", "'epoch'"]),
    ("timestamp", ["'-infinity'", "'0044-03-15 BC'"]), ("date", ["'infinity'", "'9999-1-1'"]),
    ("interval", ["'-178000000 years'", "'1 mon -1 day'"]), ("timetz", ["'24:00:00+15:59'"]),
    ("json", ["'{\"a\": 1, \"a\": [1e400]}'", "' null '", "'\"\\u0001\"'"]),
    ("jsonb", ["'null'", "'[[[[[[[[[[]]]]]]]]]]'", "'{\"\": 1e-300}'"]),
    ("bytea", ["'\\x00ff'", "''"]), ("int4[]", ["'{}'", "'{{1,2},{NULL,4}}'", "'[0:1]={1,2}'"]),
    ("text[]", ["'{\"\",NULL,\"\\\\\"}'"]), ("bit(3)", ["B'101'"]), ("money", ["'-1.5'"]),
    ("int8range", ["'empty'", "'(,)'"]), ("point", ["'(NaN,1e300)'"]), ("inet", ["'::1/128'"]),
    ("bool", ["true", "NULL"]), ("oid", ["4294967295"]), ("uuid", ["gen_random_uuid()"]),
    ("int8", ["9223372036854775807", "-9223372036854775808"]), ("tsvector", ["'a:1 b'"]),
    ('"char"', ["'a'", "''", "(-1)::\"char\"", "(-61)::\"char\""]), ("name", ["'n'"]),
]


class Capture:
    def __init__(self, database):
        self.database = database
        self.number = 0

    def name(self):
        """A name that has not been, of odd characters."""
        self.number += 1
        text = ascii_text(f"t{self.number} ")
        for _ in range(random.randint(0, 12)):
            text += self.database.alphabet.char()
        return text

    @staticmethod
    def quoted(text):
        return b'"' + text.db.replace(b'"', b'""') + b'"'

    @staticmethod
    def literal(text):
        return b"'" + text.db.replace(b"'", b"''") + b"'"

    def round(self, count):
        """Pairs of None and what is wrong."""
        wanted = {}
        for _ in range(count):
            yield from self.one(wanted)
        for got in self.database.deliveries(wanted):
            want = wanted.pop(got.get("message_id"), None)
            if want is None:
                yield None, f"capture: something else: {got!r:.300}"
                continue
            self.count("delivered")
            found = self.database.differences(want, got)
            if found:
                yield None, f"capture: {found}: {want!r:.500}"
        for want in wanted.values():
            yield None, f"capture: did not arrive: {want!r:.500}"

    def count(self, what):
        self.database.tally["capture"][what] += 1

    def one(self, wanted):
        alphabet, sql = self.database.alphabet, self.database.sql
        table, key = self.name(), alphabet.text(random.choice([20, 255]), 0.05)
        if random.random() < 0.05:
            key += ascii_text("x" * 256)
        value = alphabet.text(300, 0.02)
        columns = random.sample(TYPES, random.randint(0, 5))
        chosen = [random.choice(values) for _, values in columns]
        faults = [n for n, bad in (
            ("aggregate_id", key.utf8 is None or not 1 <= len(key) <= 255),
            ("payload", key.utf8 is None or value.utf8 is None)) if bad]
        statements = [
            b"CREATE TABLE public." + self.quoted(table) + b" (k text PRIMARY KEY, "
            + self.quoted(self.name()) + b" text" + b"".join(
                b", " + self.quoted(self.name()) + b" " + kind.encode()
                for kind, _ in columns) + b")",
            b"CREATE TRIGGER t AFTER INSERT ON public." + self.quoted(table)
            + b" FOR EACH ROW EXECUTE FUNCTION public.outbox_capture('headers=op,table')",
            b"INSERT INTO public." + self.quoted(table) + b" VALUES ("
            + self.literal(key) + b", " + self.literal(value)
            + "".join(", " + c for c in chosen).encode() + b")"]
        self.count("tried")
        try:
            sql.query("BEGIN")
            for statement in statements:
                sql.query(statement)
            (mid,), = sql.query("SELECT id FROM public.outbox ORDER BY seq DESC LIMIT 1")
            body = sql.value(b"SELECT encode(convert_to(to_jsonb(t)::text, 'UTF8'), 'hex') FROM public."
                             + self.quoted(table) + b" t")
            sql.query(b"COMMIT; DROP TABLE public." + self.quoted(table))
        except Error as error:
            sql.query("ROLLBACK")
            self.count(error.state)
            shown = statements[2].decode("utf-8", "backslashreplace")
            if error.state[:2] not in ("22", "23", "42", "54") or not faults or not any(
                    f in error.text() for f in faults):
                yield None, (f"capture: refused because of {faults}: {error.state} "
                             f"{error.text()} {shown:.600}")
            return
        self.count("accepted")
        if faults:
            yield None, f"capture: accepted in spite of {faults}: {statements[2]!r:.600}"
        name = table.utf8.decode()
        wanted[mid.decode()] = {
            "exchange": self.database.routes[0].exchange, "routing_key": name + ".inserted",
            "delivery_mode": 2, "message_id": mid.decode(), "type": name + ".inserted",
            "timestamp": ANY, "content_type": "application/json",
            "body": bytes.fromhex(body.decode()),
            "headers": {
                "aggregate_type": ("S", name), "aggregate_id": ("S", key.utf8.decode()
                                   if key.utf8 is not None else ANY),
                "op": ("S", "INSERT"), "table": ("S", name)}}
