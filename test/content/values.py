"""Values of any kind, and what must become of them: the oracle.

Nothing here asks outbox, or the server, what a value looks like on the wire; that is
said a second time, from doc/sql.md and PostgreSQL's own documents.

A Text is a string of the database, as bytes in its encoding and in UTF-8 (None if it
has no form there).  A tree is a JSON value with all that its text may say: pairs that
are there twice, numbers as they were written.
"""

import random
import struct


class Text:
    def __init__(self, db, utf8):
        self.db = db
        self.utf8 = utf8

    def __add__(self, other):
        both = self.utf8 is not None and other.utf8 is not None
        return Text(self.db + other.db, self.utf8 + other.utf8 if both else None)

    def __len__(self):
        return len(self.utf8 if self.utf8 is not None else self.db)

    def __repr__(self):
        return repr(self.utf8 if self.utf8 is not None else self.db)


def ascii_text(text):
    return Text(text.encode("ascii"), text.encode("ascii"))


class Alphabet:
    """Characters of a database's encoding."""

    def __init__(self, encoding, connection):
        self.encoding = encoding
        self.lost = []      # of which UTF-8 has none
        self.one_way = {}   # which do not come back from UTF-8, and that in UTF-8
        if encoding in ("UTF8", "SQL_ASCII"):
            self.chars = None
            return
        self.chars = []
        for code, utf8, back in connection.query(CHARACTERS % {
                "codes": CODES.get(encoding, CODES[None]), "encoding": encoding}):
            code, utf8, back = (x and bytes.fromhex(x.decode()) for x in (code, utf8, back))
            if utf8 is None:
                self.lost.append(Text(code, None))
            else:
                if back != code:
                    self.one_way[code] = utf8
                self.chars.append(Text(code, utf8))

    def char(self):
        if random.random() < 0.6:
            return ascii_text(chr(random.randint(0x20, 0x7e)))
        if random.random() < 0.15:
            return ascii_text(chr(random.choice(
                list(range(1, 32)) + [34, 39, 92, 47, 127, 36, 123, 125])))
        if self.chars:
            return random.choice(self.chars)
        while True:
            code = random.choice([
                random.randint(0x80, 0x7ff), random.randint(0x800, 0xffff),
                random.randint(0x10000, 0x10ffff), 0xfffe, 0xffff, 0xfeff, 0x85,
                0x2028, 0x1f600, 0x301, 0xe0041, 0x202e])
            if not 0xd800 <= code <= 0xdfff:
                return Text(chr(code).encode(), chr(code).encode())

    def untold(self):
        """One that is no character in UTF-8, or None if there is none here."""
        if self.encoding == "SQL_ASCII":
            return Text(random.choice([
                b"\xff", b"\xc3", b"\xe9x", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
                b"\xc0\x80", b"\x80", b"\xe2\x82"]), None)
        return random.choice(self.lost) if self.lost else None

    def text(self, limit, untold=0.0):
        """Of at most so many bytes in UTF-8, often exactly so many."""
        full = random.random() < 0.12
        size = limit if full else random.randint(
            0, min(limit, random.choice([3, 12, 40, limit])))
        parts, used = [], 0
        while used < size:
            char = self.char()
            if used + len(char) > size:
                char = ascii_text("x")
            parts.append(char)
            used += len(char)
        result = Text(b"".join(p.db for p in parts), b"".join(p.utf8 for p in parts))
        if untold and random.random() < untold:
            bad = self.untold()
            if bad:
                at = random.randint(0, len(parts))
                result = Text(b"".join(p.db for p in parts[:at]) + bad.db
                              + b"".join(p.db for p in parts[at:]), None)
        return result

    def goes_by_utf8(self, octets):
        """Does a client in UTF-8 say the same?"""
        return self.encoding == "UTF8" or not any(
            code in octets for code in self.one_way)


CODES = {
    None: "SELECT set_byte('\\x00'::bytea, 0, x) FROM generate_series(128, 255) x",
    "EUC_JP": """
        SELECT set_byte(set_byte('\\x0000'::bytea, 0, a), 1, b)
        FROM generate_series(161, 254) a, generate_series(161, 254) b
        UNION ALL SELECT set_byte('\\x8e00'::bytea, 1, b) FROM generate_series(161, 223) b
        UNION ALL SELECT set_byte(set_byte('\\x8f0000'::bytea, 1, a), 2, b)
        FROM generate_series(161, 254) a, generate_series(161, 254) b""",
}

CHARACTERS = """
CREATE FUNCTION pg_temp.as_utf8(code bytea) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
    RETURN convert(code, '%(encoding)s', 'UTF8');
EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
    RETURN NULL;
END $$;
SELECT encode(code, 'hex'), encode(utf8, 'hex'),
    encode(convert(utf8, 'UTF8', '%(encoding)s'), 'hex')
FROM (SELECT code, pg_temp.as_utf8(code) AS utf8 FROM (%(codes)s) c(code)) u
"""

# ----------------------------------------------------------------------- JSON

# A tree: ("s", Text), ("n", str), ("b", bool), ("z",), ("a", [tree]),
# ("o", [(Text, tree)]), the last of several pairs with one name counts.

NUMBERS = [
    "0", "-0", "-0.0", "1", "-1", "1.0", "1.50", "0.1", "1e2", "1E+2", "1.5e1", "12e-1",
    "1e-7", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
    "-9223372036854775809", "1e18", "1e19", "2147483648", "0.1e1", "100e-2", "5e-324",
    "1e-400", "1.7976931348623157e308", "0.30000000000000004", "4294967296",
    "-0e10", "0e-5", "123456789012345678901234567890.5"]
LARGE_NUMBERS = [
    "1e400", "-1e400", "1" + "0" * 999, "9" * 1000, "0." + "3" * 1000, "1e308",
    "1.8e308", "1e131071", "1e-16000", "9" * 1100, "0." + "0" * 1097 + "1",
    "0." + "0" * 1098 + "1", "1" * 1101, "1." + "0" * 2000, "-" + "9" * 308]


def number_text(text):
    """As numeric writes it: all digits, and those behind the point as they were."""
    mantissa, _, exponent = text.lower().partition("e")
    sign = mantissa.startswith("-")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    shift = int(exponent or 0)
    scale = max(0, len(fraction) - shift)
    digits, point = whole + fraction, len(whole) + shift
    if point < 0:
        digits, point = "0" * -point + digits, 0
    digits = digits.ljust(point + scale, "0")
    whole, fraction = digits[:point].lstrip("0") or "0", digits[point:point + scale]
    result = whole + ("." + fraction if scale else "")
    return "-" + result if sign and result.strip("0.") else result


def unique(pairs):
    """The pairs that count, in the order of jsonb."""
    last = {name.db: (name, value) for name, value in pairs}
    return [last[k] for k in sorted(last, key=lambda k: (len(k), k))]


ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"',
           92: b"\\\\"}


def canonical_string(octets):
    return b'"' + b"".join(
        ESCAPES.get(c, b"\\u%04x" % c if c < 32 else bytes([c])) for c in octets) + b'"'


def canonical(tree, form="utf8"):
    """The text that jsonb has for it, in UTF-8 or in the database's encoding."""
    kind = tree[0]
    if kind == "s":
        return canonical_string(getattr(tree[1], form))
    if kind == "n":
        return number_text(tree[1]).encode()
    if kind == "b":
        return b"true" if tree[1] else b"false"
    if kind == "z":
        return b"null"
    if kind == "a":
        return b"[" + b", ".join(canonical(t, form) for t in tree[1]) + b"]"
    return b"{" + b", ".join(
        canonical_string(getattr(name, form)) + b": " + canonical(value, form)
        for name, value in unique(tree[1])) + b"}"


def typed_number(text):
    text = number_text(text)
    if "." not in text and -2**63 <= int(text) < 2**63:
        return "l", int(text)
    return "d", struct.pack(">d", float(text)).hex()


def typed(tree):
    """The value of AMQP that a header has."""
    kind = tree[0]
    if kind == "s":
        return "S", tree[1].utf8.decode()
    if kind == "n":
        return typed_number(tree[1])
    if kind == "b":
        return "t", tree[1]
    if kind == "z":
        return "V", None
    if kind == "a":
        return "A", [typed(t) for t in tree[1]]
    return "F", {n.utf8.decode(): typed(v) for n, v in unique(tree[1])}


def texts(tree):
    """All strings in it that count, names included."""
    if tree[0] == "s":
        yield tree[1]
    elif tree[0] == "a":
        for element in tree[1]:
            yield from texts(element)
    elif tree[0] == "o":
        for name, value in unique(tree[1]):
            yield name
            yield from texts(value)


def depth(tree):
    if tree[0] == "a":
        return 1 + max([depth(t) for t in tree[1]], default=0)
    if tree[0] == "o":
        return 1 + max([depth(v) for _, v in unique(tree[1])], default=0)
    return 0


def header_number_fits(text):
    text = number_text(text)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return len(text) <= 1100 and abs(float(text)) != float("inf")


def header_fault(tree, top=True):
    """Why enqueue must refuse it as headers, or None."""
    if tree[0] == "n" and not header_number_fits(tree[1]):
        return "a number in headers"
    if tree[0] == "a":
        return next(filter(None, (header_fault(t, False) for t in tree[1])), None)
    if tree[0] != "o":
        return None
    names = []
    for name, value in unique(tree[1]):
        if len(name) > 255 or top and name.db in (b"CC", b"BCC", b"x-outbox-seq", b"x-outbox-key-seq"):
            return "a name in headers"
        names.append(name.utf8)
        fault = header_fault(value, False)
        if fault:
            return fault
    return "a name in headers twice" if len(set(names)) < len(names) else None


def same_in_utf8(tree):
    """Has an object of it two names that are one in UTF-8?"""
    if tree[0] == "a":
        return any(same_in_utf8(t) for t in tree[1])
    if tree[0] != "o":
        return False
    names = [n.utf8 for n, _ in unique(tree[1])]
    return len(set(names)) < len(names) or any(
        same_in_utf8(v) for _, v in unique(tree[1]))


class Trees:
    """Trees at random, and their texts."""

    def __init__(self, alphabet):
        self.alphabet = alphabet

    def number(self):
        choice = random.random()
        if choice < 0.5:
            return random.choice(NUMBERS)
        if choice < 0.56:
            return random.choice(LARGE_NUMBERS)
        if choice < 0.8:
            return str(random.randint(-2**70, 2**70) >> random.randint(0, 70))
        digits = "".join(random.choices("0123456789", k=random.randint(1, 25)))
        return (random.choice(["", "-"]) + str(random.randint(0, 99)) + "." + digits
                + random.choice(["", "", f"e{random.randint(-330, 320)}"]))

    def tree(self, deep, header=False, untold=0.0):
        kind = random.choice("ssssnnnbz" + ("aaoo" if deep > 0 else ""))
        if kind == "s":
            return "s", self.alphabet.text(
                random.choice([10, 10, 60, 300, 2000]), untold)
        if kind == "n":
            number = self.number()
            if header and not header_number_fits(number):
                number = "7"
            return "n", number
        if kind == "b":
            return "b", random.random() < 0.5
        if kind == "z":
            return ("z",)
        if kind == "a":
            return "a", [self.tree(deep - 1, header, untold)
                         for _ in range(random.choice([0, 1, 2, 3, 7]))]
        return self.object(deep - 1, header, untold)

    def object(self, deep, header=False, untold=0.0):
        pairs = []
        for _ in range(random.choice([0, 1, 2, 3, 6])):
            name = self.alphabet.text(random.choice([6, 6, 20, 255]), untold)
            if header and name.db in (b"CC", b"BCC", b"x-outbox-seq", b"x-outbox-key-seq"):
                continue
            pairs.append((name, self.tree(deep, header, untold)))
            if random.random() < 0.06:
                pairs.append((name, self.tree(deep, header, untold)))
        return "o", pairs

    # ------------------------------------------------------------ their text

    def blank(self):
        return random.choice(["", "", "", " ", "\n", "\t", "\r\n  "])

    def string(self, text, form):
        """A JSON string, in the database's encoding or in UTF-8."""
        if text.utf8 is None or random.random() < 0.5:
            return canonical_string(getattr(text, form))
        out, at = [], 0
        for char in text.utf8.decode():
            octets = char.encode()
            own = octets
            if form == "db" and text.db != text.utf8:
                # the same number of characters in both, so walk along
                own = self.next_char(text.db, at)
                at += len(own)
            code = ord(char)
            if (code < 0x80 or self.can_escape(octets)) and random.random() < 0.3:
                out.append(self.escape(code))
            elif code in ESCAPES or code < 32:
                out.append(canonical_string(octets)[1:-1])
            else:
                out.append(own)
        return b'"' + b"".join(out) + b'"'

    def next_char(self, octets, at):
        first = octets[at]
        if self.alphabet.encoding == "EUC_JP" and first >= 0x80:
            return octets[at:at + (3 if first == 0x8f else 2)]
        return octets[at:at + 1]

    def can_escape(self, utf8):
        """The server makes a character of it, and the same one?"""
        return (self.alphabet.encoding != "SQL_ASCII"
                and utf8 not in self.alphabet.one_way.values())

    @staticmethod
    def escape(code):
        if code == 47 and random.random() < 0.5:
            return b"\\/"
        if code in ESCAPES and random.random() < 0.5:
            return ESCAPES[code]
        digits = "%04x" if random.random() < 0.5 else "%04X"
        if code < 0x10000:
            return b"\\u" + (digits % code).encode()
        code -= 0x10000
        return ("\\u%04x\\u%04X" % (0xd800 + (code >> 10),
                                    0xdc00 + (code & 0x3ff))).encode()

    def source(self, tree, form):
        kind, b = tree[0], lambda: self.blank().encode()
        if kind == "s":
            return self.string(tree[1], form)
        if kind == "n":
            return tree[1].encode()
        if kind == "b":
            return b"true" if tree[1] else b"false"
        if kind == "z":
            return b"null"
        if kind == "a":
            return b"[" + b() + (b() + b"," + b()).join(
                self.source(t, form) for t in tree[1]) + b() + b"]"
        return b"{" + b() + (b() + b"," + b()).join(
            self.string(name, form) + b() + b":" + b() + self.source(value, form)
            for name, value in tree[1]) + b() + b"}"
