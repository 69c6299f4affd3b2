"""Messages at random, through every way in, and what must become of each.

A Message is a way and its arguments; faults() says of any why enqueue has to refuse it,
and expected() what has to arrive of it.  Neither knows how it was drawn, so that it can
be made smaller and asked again.
"""

import base64
import copy
import datetime
import random
import re
import struct
import uuid

from values import (Text, Trees, ascii_text, canonical, canonical_string, depth,
                    header_fault, number_text, texts, typed, unique)

FRAME = 131072 - 8
WAYS = ("enqueue", "bytes", "text", "batch", "once", "insert", "new", "copy",
        "copy binary", "edit")
STRING_PROPERTIES = ("content_type", "content_encoding", "correlation_id", "reply_to",
                     "type", "app_id")

# Times that a message may say it was made at, and what AMQP says of them.
CREATED = {
    "4713-01-01 00:00:00 UTC BC": None, "1969-12-31 23:59:59.999999 UTC": None,
    "1970-01-01 00:00:00 UTC": 0, "2000-01-01 00:00:00.999999 UTC": 946684800,
    "9999-12-31 23:59:59 UTC": 253402300799, "294276-12-31 00:00:00 UTC": 9224317929600,
}
DUE = ("-infinity", "4713-01-01 00:00:00 UTC BC", "1970-01-01 00:00:00 UTC",
       "2000-01-01 00:00:00.999999 UTC")

TRACEPARENT = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z", re.S)


def read_traceparent(text):
    """What is sent of it, or None if it is none."""
    found = TRACEPARENT.match(text)
    if not found:
        return None
    version, trace, parent, flags, more = found.groups()
    if (version == "ff" or not trace.strip("0") or not parent.strip("0")
            or version == "00" and more):
        return None
    return f"00-{trace}-{parent}-{int(flags, 16) & 3:02x}"


class Route:
    def __init__(self, name, exchange, template, **more):
        self.name = name
        self.exchange = exchange
        self.template = template
        self.failed_route = more.get("failed_route")
        self.relay = more.get("relay", "internal")
        self.sequence = more.get("sequence")
        self.exchange_type = more.get("exchange_type")

    def key(self, args):
        parts = re.split(rb"\{(event_type|aggregate_type|aggregate_id)\}",
                         self.template.utf8)
        for i in range(1, len(parts), 2):
            part = args.get(parts[i].decode())
            parts[i] = part.utf8 if part else b""
        return b"".join(parts)


class Message:
    def __init__(self, way, args, settings=(), comment=None, encoding="db"):
        self.way = way
        self.args = args
        self.settings = list(settings)
        self.comment = comment          # (text behind the statement, headers of it)
        self.form = encoding            # in which the client speaks: db or utf8
        self.id = None
        self.error = None

    def without(self, name):
        smaller = copy.copy(self)
        smaller.args = {k: v for k, v in self.args.items() if k != name}
        smaller.id = smaller.error = None
        return smaller

    def with_value(self, name, value):
        smaller = self.without(name)
        smaller.args[name] = value
        return smaller

    # ------------------------------------------------------------- the oracle

    def pairs(self, name):
        """The pairs of headers or properties that count, by name in the database."""
        tree = self.args.get(name)
        return {} if not tree or tree[0] != "o" else {
            n.db: (n, v) for n, v in unique(tree[1])}

    def route(self, routes):
        name = self.args.get("route", ascii_text("default"))
        return next((r for r in routes if r.name.db == name.db), None)

    def property_faults(self):
        tree = (self.args.get("properties") or ("z",))
        if tree[0] == "z":
            return
        if tree[0] != "o":
            yield "properties"
        for name, (_, value) in self.pairs("properties").items():
            name = name.decode("latin-1")
            if name == "priority":
                if (value[0] != "n" or float(value[1]) not in range(256)
                        or number_text(value[1]).strip("0.") == ""
                        and float(value[1]) != 0):
                    yield "property priority"
            elif name not in STRING_PROPERTIES + ("expiration",):
                yield "unknown property"
            elif value[0] != "s" or value[1].utf8 is None or len(value[1]) > 255:
                yield f"property {name}"
            elif name == "expiration" and not (
                    re.match(rb"[0-9]{1,10}\Z", value[1].db)
                    and int(value[1].db) < 2**32):
                yield "property expiration"
            elif name == "reply_to" and value[1].db.startswith(b"amq.rabbitmq.reply-to"):
                yield "property reply_to"

    def header_faults(self):
        tree = (self.args.get("headers") or ("z",))
        if tree[0] == "z":
            return
        if tree[0] != "o":
            yield "headers"
        elif any(t.utf8 is None for t in texts(tree)):
            yield "headers"
        elif header_fault(tree) or depth(tree) > 8:
            yield "headers"

    def string_faults(self, routes):
        for name in ("event_type", "aggregate_type", "aggregate_id", "routing_key"):
            value = self.args.get(name)
            if name == "event_type" and value is None:
                yield name
            if value is not None and (
                    value.utf8 is None or len(value) > 255
                    or not value.db and name in ("event_type", "aggregate_id")):
                yield name
        route = self.route(routes)
        if route is None:
            yield "route"
        elif self.args.get("routing_key") is None and not any(
                getattr(self.args.get(n), "utf8", b"") is None
                for n in ("event_type", "aggregate_type", "aggregate_id")) \
                and len(route.key(self.args)) > 255:
            yield "routing key of route"

    def body_faults(self):
        payload, body = self.args.get("payload"), self.args.get("body")
        if payload and payload[0] == "z" and body is not None:
            payload = None
        if (payload is None) == (body is None):
            yield "payload and body"
        if payload and any(t.utf8 is None for t in texts(payload)):
            yield "payload"
        kind = self.args.get("content_type")
        if kind is not None and self.way == "batch" and body is None:
            yield "content_type"
        elif kind is not None and b"content_type" not in self.pairs("properties") and (
                kind.utf8 is None or len(kind) > 255):
            yield "content_type"

    def faults(self, routes):
        """Names of what enqueue must complain of, if anything."""
        found = (list(self.string_faults(routes)) + list(self.header_faults())
                 + list(self.property_faults()) + list(self.body_faults()))
        for name in ("available_at", "created_at"):
            if self.args.get(name) == "infinity":
                found.append(name)
        if self.args.get("created_at") == "-infinity":
            found.append("created_at")
        key = self.args.get("dedupe_key")
        if self.way == "once" and not 1 <= len(key.db if key else b"") <= 255:
            found.append("dedupe_key")
        return found

    def may_refuse(self):
        """Near the limit of a frame, which is kept with a margin."""
        size = len(canonical(self.args.get("headers") or ("z",), "db"))
        return "headers" if size > 120000 else None

    def trace(self):
        """Headers that nobody has given it."""
        if b"traceparent" in self.pairs("headers"):
            return {}
        if self.way == "edit" and self.args.get("headers"):
            return {}                   # they were those of the row before
        settings = dict(self.settings)
        parent = read_traceparent(settings.get("outbox.traceparent", ""))
        if parent:
            state = settings.get("outbox.tracestate", "")
        elif self.comment and self.comment[1]:
            parent, state = self.comment[1]
        else:
            return {}
        result = {"traceparent": ("S", parent)}
        if state:
            result["tracestate"] = ("S", state)
        return result

    def headers(self, route):
        result = self.trace()
        result.update({n.utf8.decode(): typed(v)
                       for n, v in self.pairs("headers").values()})
        if route.sequence:
            result["x-outbox-seq"] = ("l", ANY)
        return result

    def expected(self, routes):
        """The message as broker.Consumer shows it; ANY is what nobody can know."""
        route = self.route(routes)
        args = self.args
        key = args.get("routing_key")
        result = {
            "exchange": route.exchange, "delivery_mode": 2, "message_id": self.id,
            "routing_key": (key.utf8 if key is not None else route.key(args)).decode(),
            "type": args["event_type"].utf8.decode(), "timestamp": ANY}
        if args.get("body") is not None:
            result["body"] = args["body"]
            kind = args.get("content_type")
            result["content_type"] = (
                kind.utf8.decode() if kind is not None
                and b"content_type" not in self.pairs("properties")
                else "application/octet-stream")
        else:
            result["body"] = canonical(args["payload"])
            result["content_type"] = "application/json"
        for name, (_, value) in self.pairs("properties").items():
            result[name.decode()] = (int(float(value[1])) if name == b"priority"
                                     else value[1].utf8.decode())
        headers = self.headers(route)
        if route.failed_route is not None:
            old = headers.get("x-outbox-death", ("V", None))
            headers["x-outbox-death"] = ("A", [("F", {
                "reason": ("S", "returned"), "error": ("S", ANY), "time": ("S", ANY),
                "route": ("S", route.name.utf8.decode()), "exchange": ("S", route.exchange),
                "routing-key": ("S", result["routing_key"]), "attempts": ("l", 1),
            })] + (old[1] if old[0] == "A" else []))
            target = next(r for r in routes if r.name.db == route.failed_route.db)
            result["exchange"] = target.exchange
            result["routing_key"] = target.key(args).decode()
        for name in ("aggregate_type", "aggregate_id"):
            if args.get(name) is not None:
                headers[name] = ("S", args[name].utf8.decode())
        if headers:
            result["headers"] = headers
        if "created_at" in args:
            result["timestamp"] = CREATED[args["created_at"]]
            if result["timestamp"] is None:
                del result["timestamp"]
        return result

    # ------------------------------------------------------------- statements

    def literal(self, text):
        """A string constant in one of its forms; E'' has the database's own bytes."""
        octets = getattr(text, self.form)
        style = self.rng.random()
        if style < 0.2 and b"$q$" not in octets and not octets.endswith(b"$"):
            return b"$q$" + octets + b"$q$"
        if style < 0.4:
            return b"E'" + b"".join(
                b"\\x%02x" % c if c >= 0x80 or c in b"'\\" or self.rng.random() < 0.1
                else bytes([c]) for c in text.db) + b"'"
        return b"'" + octets.replace(b"'", b"''") + b"'"

    def json(self, tree):
        return self.trees.source(tree, self.form)

    def value(self, name, cast=True):
        """An expression for an argument."""
        value = self.args[name]
        if value is None:
            return b"NULL"
        if isinstance(value, Text):
            return self.literal(value)
        if isinstance(value, bytes):
            return (b"'\\x" + value.hex().encode() + b"'"
                    + (b"::bytea" if cast else b""))
        if isinstance(value, str):
            return b"'" + value.encode() + b"'"
        source = self.json(value)
        return b"'" + source.replace(b"'", b"''") + b"'" + (b"::jsonb" if cast else b"")

    def statement(self, trees):
        """The SQL, and what COPY gets."""
        self.trees = trees
        # the same choices each time, so that what is shown is what was run
        self.rng = random.Random(repr(sorted(map(repr, self.args.items()))))
        state = random.getstate()
        random.seed(self.rng.random())
        try:
            sql, data = getattr(self, "as_" + self.way.replace(" ", "_"))()
        finally:
            random.setstate(state)
        return sql + (self.comment[0] if self.comment else b""), data

    def call(self, function, names, cast=True):
        return (b"SELECT public." + function + b"(" + b", ".join(
            name.encode() + b" => " + self.value(name, cast)
            for name in names) + b")"), None

    def names(self):
        return list(self.args)

    def as_enqueue(self):
        return self.call(b"outbox_enqueue", self.names())

    def as_bytes(self):
        return self.call(b"outbox_enqueue_bytes", self.names())

    def as_text(self):
        return self.call(b"outbox_enqueue_text", self.names(), False)

    def as_once(self):
        return self.call(b"outbox_enqueue_once", self.names())

    def as_batch(self):
        parts = []
        for name, value in self.args.items():
            if value is None:
                source = b"null"
            elif name == "body":
                name, source = "body_base64", canonical_string(
                    base64.encodebytes(value) if len(value) % 2
                    else base64.b64encode(value))
            elif isinstance(value, str):
                source = canonical_string(value.encode())
            elif not isinstance(value, Text):
                source = self.json(value)
            elif name == "aggregate_id" and re.match(rb"[1-9][0-9]{0,17}\Z", value.db):
                source = value.db
            else:
                source = trees_string(self.trees, value, self.form)
            parts.append(b'"' + name.encode() + b'": ' + source)
        document = b"[{" + b", ".join(parts) + b"}]"
        return (b"SELECT * FROM public.outbox_enqueue_batch('"
                + document.replace(b"'", b"''") + b"'::jsonb)"), None

    def columns(self):
        return ["id" if n == "message_id" else n for n in self.args]

    def into(self, table):
        return (b"INSERT INTO public." + table + b" ("
                + ", ".join(self.columns()).encode() + b") VALUES ("
                + b", ".join(self.value(n) for n in self.args) + b") RETURNING id"), None

    def as_insert(self):
        return self.into(b"outbox")

    def as_new(self):
        return self.into(b"outbox_new")

    def as_edit(self):
        """Becomes what it is by an operator's hand, and is sent then."""
        edited = ("payload", "body", "headers", "properties", "routing_key", "route")
        stored = [n for n in self.args if n not in edited]
        first = (b"INSERT INTO public.outbox (" + ", ".join(
            "id" if n == "message_id" else n for n in stored).encode()
            + b", payload, status) VALUES (" + b", ".join(self.value(n) for n in stored)
            + b", '{}', 'failed')")
        where = b"('" + self.args["message_id"].encode() + b"'"
        second = b", ".join([b"SELECT public.outbox_edit" + where] + [
            n.encode() + b" => " + self.value(n) for n in self.args if n in edited])
        return (first + b"; " + second + b"); SELECT public.outbox_requeue" + where + b"); SELECT '"
                + self.args["message_id"].encode() + b"'"), None

    def field(self, name):
        """The text of a column, in the client's encoding."""
        value = self.args[name]
        if value is None:
            return None
        if isinstance(value, Text):
            return getattr(value, self.form)
        if isinstance(value, bytes):
            return b"\\x" + value.hex().encode()
        if isinstance(value, str):
            return value.encode()
        return self.json(value)

    def as_copy(self):
        escapes = {0x5c: b"\\\\", 0x0a: b"\\n", 0x09: b"\\t", 0x0d: b"\\r",
                   0x08: b"\\b", 0x0c: b"\\f", 0x0b: b"\\v"}
        row = b"\t".join(
            b"\\N" if v is None else b"".join(escapes.get(c, bytes([c])) for c in v)
            for v in map(self.field, self.args))
        return (b"COPY public.outbox (" + ", ".join(self.columns()).encode()
                + b") FROM STDIN"), row + b"\n"

    def as_copy_binary(self):
        row = struct.pack(">h", len(self.args))
        for name in self.args:
            value = self.args[name]
            if name == "message_id":
                octets = uuid.UUID(value).bytes
            elif isinstance(value, bytes):
                octets = value
            elif isinstance(value, str):
                octets = struct.pack(">q", microseconds(value))
            else:
                octets = self.field(name)
                if octets is not None and not isinstance(value, Text):
                    octets = b"\1" + octets
            row += b"\xff\xff\xff\xff" if octets is None else (
                struct.pack(">i", len(octets)) + octets)
        return (b"COPY public.outbox (" + ", ".join(self.columns()).encode()
                + b") FROM STDIN WITH (FORMAT binary)",
                b"PGCOPY\n\xff\r\n\0" + bytes(8) + row + b"\xff\xff")


ANY = object()


def trees_string(trees, text, form):
    return trees.string(text, form)


def microseconds(text):
    """Of a time, since 2000, as the server has it."""
    if text.endswith("infinity"):
        return -2**63 if text.startswith("-") else 2**63 - 1
    time = datetime.datetime.fromisoformat(text.replace(" UTC", "+00:00"))
    begin = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
    return (time - begin) // datetime.timedelta(microseconds=1)


# ------------------------------------------------------------------------ chance

SETTINGS = [
    ("bytea_output", "escape"), ("DateStyle", "SQL, DMY"), ("TimeZone", "Pacific/Kiritimati"),
    ("extra_float_digits", "-15"), ("search_path", ""), ("IntervalStyle", "sql_standard"),
    ("default_transaction_isolation", "serializable"), ("synchronous_commit", "off"),
    ("work_mem", "64kB"), ("client_min_messages", "debug5"), ("quote_all_identifiers", "on"),
    ("plan_cache_mode", "force_generic_plan"), ("outbox.strict_keys", "on"),
    ("row_security", "off"), ("jit_above_cost", "0"), ("array_nulls", "off")]


def chance(share):
    return random.random() < share


class Maker:
    """Draws messages for a database."""

    def __init__(self, alphabet, routes):
        self.alphabet = alphabet
        self.trees = Trees(alphabet)
        self.routes = routes

    def string(self, limit=255, untold=0.02):
        if chance(0.03):
            return self.alphabet.text(limit) + ascii_text("x" * random.randint(1, 300))
        return self.alphabet.text(limit, untold)

    def body(self):
        choice = random.random()
        if choice < 0.2:
            size = random.choice([0, 1, 2])
        elif choice < 0.9:
            size = random.randint(0, 600)
        elif choice < 0.98:
            size = random.randint(0, 20000)
        else:
            size = FRAME * random.randint(1, 4) + random.randint(-1, 1)
        return random.randbytes(min(size, 4096)) * (size // 4096 + 1) if size > 4096 \
            else random.randbytes(size)

    def payload(self):
        if chance(0.01):
            tree = ("n", "1")
            for _ in range(random.choice([30, 300, 1000])):
                tree = ("a", [tree]) if chance(0.5) else ("o", [(ascii_text("k"), tree)])
            return tree
        return self.trees.tree(random.choice([0, 1, 3, 6]), untold=0.005)

    def headers(self):
        choice = random.random()
        if choice < 0.02:
            return random.choice([("z",), ("a", []), ("s", ascii_text("x")), ("n", "1")])
        tree = self.trees.object(random.choice([0, 1, 2, 6]), True,
                                 0.01 if chance(0.2) else 0)
        pairs = list(tree[1])
        if choice < 0.04:
            pairs.append((ascii_text(random.choice(["CC", "BCC", "x-outbox-seq", "x-outbox-key-seq"])), ("s", ascii_text("q"))))
        elif choice < 0.06:
            pairs.append((ascii_text("n"), ("n", self.trees.number())))
        elif choice < 0.08:
            deep = ("n", "1")
            for _ in range(random.choice([6, 7, 8, 9, 300])):
                deep = ("a", [deep]) if chance(0.5) else ("o", [(ascii_text("k"), deep)])
            pairs.append((ascii_text("deep"), deep))
        elif choice < 0.11:
            pairs.append((ascii_text("large"), (
                "s", ascii_text("x" * (FRAME - random.choice([300, 1000, 3000, 20, 0]))))))
        elif choice < 0.13:
            pairs.append((self.alphabet.text(255) + ascii_text("x" * 256), ("z",)))
        elif choice < 0.2:
            name = random.choice([
                "traceparent", "tracestate", "x-outbox-death", "x-outbox-attempts",
                "x-first-enqueued", "aggregate_id", "aggregate_type", "x-death", "cc",
                "x-outbox-omitted", "x-delay", "x-match", "delivery_mode", ""])
            pairs.append((ascii_text(name), self.trees.tree(1, True)))
        return "o", pairs

    def properties(self):
        pairs = []
        for name in STRING_PROPERTIES:
            if chance(0.2):
                pairs.append((ascii_text(name), ("s", self.string())))
        if chance(0.25):
            pairs.append((ascii_text("priority"), ("n", random.choice(
                ["0", "1", "9", "255", "5.0", "1e2", "2550e-1", "-0", "0.0"]
                if chance(0.9) else ["-1", "256", "1.5", "1e400", "1e-3", "255.001"]))))
        if chance(0.2):
            # no leading zeros: RabbitMQ 4 passes it on without them
            pairs.append((ascii_text("expiration"), ("s", ascii_text(random.choice(
                ["3600000", "4294967295", "7200000"] if chance(0.85) else
                ["", "-1", "1.5", "abc", "4294967296", " 60000", "60000 ", "0x10",
                 "99999999999999999999", "00000003600000"])))))
        if chance(0.06):
            pairs.append(random.choice([
                (ascii_text("user_id"), ("s", ascii_text("guest"))),
                (ascii_text("delivery_mode"), ("n", "1")),
                (ascii_text("reply_to"), ("s", ascii_text("amq.rabbitmq.reply-to"))),
                (ascii_text("reply_to"), ("s", ascii_text("amq.rabbitmq.reply-to.g1"))),
                (ascii_text("app_id"), ("n", "1")), (ascii_text("app_id"), ("z",)),
                (ascii_text("type"), ("a", [])), (self.string(20, 0), ("z",))]))
        if chance(0.02):
            return random.choice([("z",), ("a", []), ("s", ascii_text("x")), ("b", True)])
        return "o", pairs

    def args(self, way):
        args = {"event_type": self.string()}
        if not args["event_type"].db and chance(0.9):
            args["event_type"] = ascii_text("e")
        for name, share in (("aggregate_type", 0.5), ("aggregate_id", 0.5),
                            ("routing_key", 0.15)):
            if chance(share):
                args[name] = self.string() if chance(0.6) else ascii_text(
                    random.choice(["k1", "k2", "17", "0", "orders"]))
        if "aggregate_id" in args and not args["aggregate_id"].db and chance(0.9):
            del args["aggregate_id"]
        if way == "bytes" or way not in ("enqueue", "text", "once") and chance(0.4):
            args["body"] = self.body()
            if way in ("bytes", "batch") and chance(0.5):
                args["content_type"] = self.string()
        else:
            args["payload"] = self.payload()
        if chance(0.02) and way in ("insert", "new", "copy", "copy binary", "batch"):
            args["payload"] = random.choice([("z",), ("o", [])])
        if chance(0.6):
            args["headers"] = self.headers()
        if chance(0.5):
            args["properties"] = self.properties()
        if chance(0.5) or way in ("copy", "copy binary", "edit"):
            args["message_id"] = str(uuid.UUID(bytes=random.randbytes(16)))
        if chance(0.06):
            args["available_at"] = random.choice(DUE if chance(0.7) else ["infinity"])
        if chance(0.08) and way in ("insert", "new", "copy", "copy binary", "edit"):
            args["created_at"] = random.choice(
                list(CREATED) if chance(0.85) else ["infinity", "-infinity"])
        if way == "copy binary":
            for name in ("available_at", "created_at"):
                if args.get(name, "")[:4] in ("4713", "2942"):
                    del args[name]
        return args

    def choose_route(self, args):
        route = random.choice(self.routes)
        if chance(0.02):
            return self.string(40, 0.1) + ascii_text("?")
        if route.exchange_type == "queue":
            args.pop("routing_key", None)
        if route.failed_route is not None:
            # goes to another template, and needs room for another header
            target = next(r for r in self.routes if r.name.db == route.failed_route.db)
            if (len(target.key(args)) > 255 if all(
                    getattr(args.get(n), "utf8", b"") is not None
                    for n in ("event_type", "aggregate_type", "aggregate_id")) else True) \
                    or len(canonical(args.get("headers") or ("z",), "db")) > 100000:
                return None
            args.pop("routing_key", None)
        return route.name

    def settings(self):
        chosen = random.sample(SETTINGS, 2) if chance(0.15) else []
        if chance(0.12):
            chosen.append(("outbox.traceparent", self.traceparent()))
            if chance(0.6):
                chosen.append(("outbox.tracestate", random.choice(
                    ["congo=t61rcWkgMzE", "a=b,c=d", " a=1 , b=2", "k@v=\"'\\ ~", ""])))
        return chosen

    @staticmethod
    def traceparent():
        text = (random.choice(["00", "00", "01", "fe"]) + "-"
                + random.randbytes(16).hex() + "-" + random.randbytes(8).hex() + "-"
                + random.choice(["00", "01", "03", "ff", "80"]))
        return text if text.startswith("00") or chance(0.5) else text + "-more"

    def comment(self):
        """Behind the statement: what sqlcommenter writes, and what nobody should."""
        parent = self.traceparent()
        state = random.choice(["", "a=b", "congo=t61rcWkgMzE,b=\"x y\""])
        quoted = "".join(c if c.isalnum() or c in "-." else "%%%02X" % ord(c)
                         for c in state)
        pairs = ["traceparent='" + parent + "'"] + (
            ["tracestate='" + quoted + "'"] if state else []) + random.sample(
            ["action='%2Fx'", "db_driver='a\\'b'", "n=17", "k='*'"], random.randint(0, 2))
        random.shuffle(pairs)
        text = "/*" + ",".join(pairs) + "*/" + random.choice(["", ";", " ;\n"])
        if chance(0.7):
            return text.encode(), (read_traceparent(parent), state)
        broken = random.choice([
            "/*traceparent='00-zz'*/", "/**/", "/* , */", "/*traceparent=*/", "/*'*/",
            "/*traceparent='%'*/", "-- traceparent='" + parent + "'",
            "/*traceparent='" + parent + "%00'*/", "/*x*/ /*traceparent='" + parent + "*/",
            "/*traceparent=\\'" + parent + "'*/"])
        return broken.encode(), None

    def message(self):
        way = random.choice(WAYS)
        args = self.args(way)
        if chance(0.6):
            name = self.choose_route(args)
            if name is not None:
                args["route"] = name
        if way == "once":
            key = self.string(200, 0.1)
            args["dedupe_key"] = key if chance(0.03) else key + ascii_text(
                random.randbytes(8).hex())
        if chance(0.1):
            for name in ("headers", "properties", "aggregate_type", "routing_key"):
                args.setdefault(name, None)
        settings = self.settings()
        if way == "edit":           # refused under another isolation, 25001
            settings = [s for s in settings if "isolation" not in s[0]]
        message = Message(way, args, settings,
                          self.comment() if chance(0.08) else None)
        if self.alphabet.encoding != "SQL_ASCII" and all(
                self.alphabet.goes_by_utf8(t.db) and t.utf8 is not None
                for t in message_texts(message)) and chance(0.5):
            message.form = "utf8"
        return message


def message_texts(message):
    for value in message.args.values():
        if isinstance(value, Text):
            yield value
        elif isinstance(value, tuple):
            yield from all_texts(value)


def all_texts(tree):
    """Also of pairs that do not count: the server reads them."""
    if tree[0] == "s":
        yield tree[1]
    elif tree[0] == "a":
        for element in tree[1]:
            yield from all_texts(element)
    elif tree[0] == "o":
        for name, value in tree[1]:
            yield name
            yield from all_texts(value)
