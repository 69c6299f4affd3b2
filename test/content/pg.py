"""As much of PostgreSQL's protocol as a test of odd content needs.

Bytes go to the server as they are, in whatever encoding the session says, and an
error comes back with all its fields: no driver that converts, casts or quotes
stands between the test and the server.  (And none has to be installed.)
"""

import socket
import struct


class Error(Exception):
    """A report of severity ERROR or worse; the fields by their letters."""

    def __init__(self, fields):
        self.fields = fields
        super().__init__(self.text())

    @property
    def state(self):
        return self.fields.get("C", b"").decode()

    def text(self):
        """Everything in it that a person reads."""
        return "\n".join(
            self.fields[k].decode("utf-8", "backslashreplace")
            for k in "MDHW" if k in self.fields)


class Connection:
    """A session over the server's Unix socket, as a role that needs no password."""

    def __init__(self, host, port, user, dbname, encoding=None):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(f"{host}/.s.PGSQL.{port}")
        self.input = self.socket.makefile("rb")
        options = {"user": user, "database": dbname, "application_name": "content"}
        if encoding:
            options["client_encoding"] = encoding
        body = b"".join(
            k.encode() + b"\0" + v.encode() + b"\0" for k, v in options.items()) + b"\0"
        self.socket.sendall(struct.pack(">II", len(body) + 8, 196608) + body)
        self.finish()

    def close(self):
        self.socket.close()

    def send(self, kind, body):
        self.socket.sendall(kind + struct.pack(">I", len(body) + 4) + body)

    def receive(self):
        head = self.input.read(5)
        if len(head) < 5:
            raise ConnectionError("the server has closed the connection")
        kind, size = head[:1], struct.unpack(">I", head[1:])[0]
        return kind, self.input.read(size - 4)

    def finish(self, copy=None):
        """The rest of an answer: its rows, as tuples of bytes and None."""
        rows, error = [], None
        while True:
            kind, body = self.receive()
            if kind == b"E":
                error = Error({
                    chr(f[0]): f[1:] for f in body.split(b"\0") if f})
            elif kind == b"D":
                rows.append(self.row(body))
            elif kind == b"G":
                self.send(b"d", copy if copy is not None else b"")
                self.send(b"c", b"")
            elif kind == b"R" and body != b"\0\0\0\0":
                raise ConnectionError("the server wants a password")
            elif kind == b"Z":
                if error:
                    raise error
                return rows

    @staticmethod
    def row(body):
        (count,), at, row = struct.unpack_from(">H", body), 2, []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", body, at)
            at += 4
            row.append(None if size < 0 else body[at:at + size])
            at += max(size, 0)
        return tuple(row)

    def query(self, sql, copy=None):
        """Rows of all statements in the text; copy is what COPY FROM STDIN gets."""
        if isinstance(sql, str):
            sql = sql.encode()
        self.send(b"Q", sql + b"\0")
        return self.finish(copy)

    def value(self, sql):
        return self.query(sql)[0][0]
