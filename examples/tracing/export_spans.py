#!/usr/bin/python3
"""Tells a collector of OpenTelemetry (OTLP over HTTP, JSON) of the spans in outbox_spans.

    export_spans.py --dsn "dbname=shop user=tracing" --endpoint http://localhost:4318/v1/traces \\
        --state /var/lib/outbox-spans/shop.json [--once]

Each span is told at least once: what the collector has taken is written to the state
file, and what is newer is told after a restart.  A span that is told twice has the same
ids.  Rows become visible a little out of the order of their end_time, so
the last OVERLAP seconds are read again each time, and what of them was told is remembered.
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request

import psycopg2

PRODUCER = 4        # kinds and codes of OTLP
ERROR = 2
RETRIED = {429, 502, 503, 504}

QUERY = """
SELECT trace_id, span_id, parent_span_id, trace_state, name, attributes, end_time::text,
    (extract(epoch FROM start_time) * 1000000)::bigint, (extract(epoch FROM end_time) * 1000000)::bigint
FROM outbox_spans
WHERE end_time >= %s::timestamptz - %s * interval '1 second'
ORDER BY end_time
"""


def value(v):
    if isinstance(v, bool):
        return {"boolValue": v}
    if isinstance(v, int):
        return {"intValue": str(v)}
    return {"stringValue": str(v)}


def span(row):
    trace_id, span_id, parent, state, name, attributes, _, start_us, end_us = row
    result = {
        "traceId": trace_id, "spanId": span_id, "parentSpanId": parent, "traceState": state or "",
        "name": name, "kind": PRODUCER, "flags": 1,
        "startTimeUnixNano": str(start_us * 1000), "endTimeUnixNano": str(end_us * 1000),
        "attributes": [{"key": k, "value": value(v)} for k, v in attributes.items()],
    }
    if "error.type" in attributes:
        result["status"] = {"code": ERROR, "message": attributes["error.type"]}
    return result


def post(args, rows):
    body = {"resourceSpans": [{
        "resource": {"attributes": [{"key": "service.name", "value": value(args.service)}]},
        "scopeSpans": [{"scope": {"name": "outbox"}, "spans": [span(row) for row in rows]}]}]}
    request = urllib.request.Request(args.endpoint, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        rejected = json.loads(response.read() or b"{}").get("partialSuccess")
    if rejected:
        print("the collector has rejected some: %s" % rejected, file=sys.stderr)


def load(path):
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return {"until": "-infinity", "told": {}}


def save(path, state):
    with open(path + ".new", "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def told(args, state, rows):
    """Remembers them, and forgets those that will not be read again."""
    state["told"].update({row[0] + row[1] + row[6]: row[8] for row in rows})
    state["until"] = rows[-1][6]
    oldest = rows[-1][8] - args.overlap * 1000000
    state["told"] = {k: end for k, end in state["told"].items() if end >= oldest}
    save(args.state, state)


def export(args, connection, state):
    """Tells of all that is new; returns how many."""
    count = 0
    with connection, connection.cursor("spans") as cursor:
        cursor.execute(QUERY, (state["until"], args.overlap))
        while True:
            read = cursor.fetchmany(args.batch)
            if not read:
                return count
            new = [row for row in read if row[0] + row[1] + row[6] not in state["told"]]
            if new:
                post(args, new)
                told(args, state, new)
                count += len(new)


def run(args):
    state = load(args.state)
    while True:
        try:
            connection = psycopg2.connect(args.dsn)
            try:
                while True:
                    count = export(args, connection, state)
                    if args.once:
                        return
                    if count == 0:
                        time.sleep(args.interval)
            finally:
                connection.close()
        except (psycopg2.OperationalError, urllib.error.URLError, OSError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in RETRIED:
                raise           # another try would be told the same
            print("will be tried again: %s" % error, file=sys.stderr)
            time.sleep(args.interval)


def main():
    parser = argparse.ArgumentParser(description="spans of outbox_spans to a collector")
    parser.add_argument("--dsn", default="", help="as libpq's; without it the environment's")
    parser.add_argument("--endpoint", default="http://localhost:4318/v1/traces")
    parser.add_argument("--state", required=True, help="file that says what has been told")
    parser.add_argument("--service", default="outbox", help="service.name of the spans")
    parser.add_argument("--interval", type=float, default=5, help="seconds between two looks")
    parser.add_argument("--overlap", type=float, default=10, help="seconds that are read again")
    parser.add_argument("--batch", type=int, default=500, help="spans in a request")
    parser.add_argument("--once", action="store_true", help="what is there now, and no more")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
