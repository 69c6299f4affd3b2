"""Tasks of a queue, as a worker of Celery runs them.

    main.py PORT QUEUE N    one line of JSON for each: the task, its arguments, what it knows of its request, its result

The worker is Celery's own, in this process; it ends after N tasks.
"""

import json
import sys
import tempfile

from celery import Celery
from celery.result import AsyncResult
from celery.signals import task_failure, task_unknown

PORT, QUEUE, COUNT = sys.argv[1:]
REQUEST = (
    "id", "root_id", "parent_id", "group", "correlation_id", "retries", "eta", "expires", "timelimit",
    "callbacks", "errbacks", "chain", "chord", "traceparent", "aggregate_type", "aggregate_id", "tenant",
)

directory = tempfile.TemporaryDirectory()
app = Celery("shop", broker=f"amqp://guest:guest@127.0.0.1:{PORT}//", backend=f"file://{directory.name}")
app.conf.update(
    task_default_queue=QUEUE,
    accept_content=["json"],
    broker_connection_retry_on_startup=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_prefetch_multiplier=1,
)
run = []


def remember(task, args, kwargs):
    """What the task has got; after the last one the worker ends."""
    shown = {name: task.request.get(name) for name in REQUEST}
    run.append({"task": task.name, "args": args, "kwargs": kwargs, **shown})
    count_down()
    return len(args) + len(kwargs)


def count_down():
    if len(run) == int(COUNT):
        app.control.broadcast("shutdown")


# Arguments by their names, as an application has them.
@app.task(bind=True, name="shop.tasks.order_created")
def order_created(self, number, customer, note=None, total=0, lines=()):
    return remember(self, [], {"number": number, "customer": customer, "note": note, "total": total, "lines": lines})


@app.task(bind=True, name="order.cancelled")
def order_cancelled(self, number, reason):
    return remember(self, [], {"number": number, "reason": reason})


@app.task(bind=True, name="order.listed")
def order_listed(self, *args):
    return remember(self, args, {})


@task_failure.connect
def failed(exception=None, **_):
    run.append({"failed": repr(exception)})
    count_down()


@task_unknown.connect
def unknown(name=None, **_):
    run.append({"unknown": name})
    count_down()


try:
    app.worker_main(
        ["--quiet", "worker", "--pool=solo", "--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    )
finally:
    for task in run:
        if "id" in task:
            result = AsyncResult(task["id"], app=app)
            task["state"], task["result"] = result.state, result.result
        print(json.dumps(task))
