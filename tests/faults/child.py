"""Child processes of these tests: ``child.py ROLE URL INSTANCE RECORDS``.

Each writes what it does into a file of its own, a JSON line at a time, with the machine's monotonic clock.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

from ampsq import Client, RedisBookmarkStore, SqliteBookmarkStore, Worker
from ampsq.base.errors import Rejected


class Records:
    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, what, **facts):
        os.write(self._file, json.dumps({"what": what, "at": time.monotonic(), **facts}).encode() + b"\n")


def work(url, instance, record):
    """A worker of three handlers at a time, each of some milliseconds."""

    def handle(message):
        record("start", bookmark=message.bookmark, delivery=message.delivery)
        time.sleep(0.004)  # the handler's work
        record("end", bookmark=message.bookmark, delivery=message.delivery)

    worker = Worker(handle, "work", url=url, instance=instance, concurrency=3, max_backlog=20)
    record("ready")
    worker.run(signals=True)
    record("stopped", processed=worker.processed)


def hold(url, instance, record):
    """Take two messages, and acknowledge the first when it has waited long enough, then the second."""
    with Client(url, instance=instance) as client, client.subscribe("work", max_backlog=2) as messages:
        held = [messages.get(30), messages.get(30)]
        record("held", bookmarks=[message.bookmark for message in held])
        # As long as the test wants: it stops this process meanwhile.
        time.sleep(0.3)
        for message in held:
            try:
                message.ack(wait=True)
                record("acked", bookmark=message.bookmark)
            except Rejected as error:
                record(type(error).__name__, bookmark=message.bookmark)


def stuck(url, instance, record):
    """A worker whose handler does not end."""

    def handle(message):
        record("start", bookmark=message.bookmark)
        time.sleep(60)  # until it is killed

    concurrency = int(sys.argv[5])
    Worker(handle, "work", url=url, instance=instance, concurrency=concurrency, stop_timeout="300ms").run(signals=True)
    record("stopped")


def redrive(url, instance, record):
    """Put letters back, a few thousand a second."""
    with Client(url, instance=instance) as client:
        client.admin.redrive("dead", rate=2_000, progress=lambda progress: record("progress", done=progress.done))


def publish(url, instance, record):
    """Publish with a guarantee, one by one and in batches, as fast as it goes; the bodies are the run and a count."""
    path, run = sys.argv[5:7]
    with Client(url, instance=instance) as client, client.publisher("till-1", store=path, persisted="memory") as till:
        record("ready", last=client.admin.publishers()[0].sequence)
        number = 0
        while True:
            if number % 7 == 3:
                till.publish_many("orders", [f"{run} {each}" for each in range(number, number + 5)], batch=3)
                number += 5
            else:
                till.publish("orders", f"{run} {number}")
                number += 1
            record("taken", number=number)


def read_durably(url, instance, record):
    """Read a topic under a name, with places in a file; one of three messages is handled before the one before it."""
    store = RedisBookmarkStore() if sys.argv[5] == "redis" else SqliteBookmarkStore(sys.argv[5])
    held = []
    with (
        Client(url, instance=instance) as client,
        client.subscribe_topic(
            "orders", bookmark="most_recent", sub_id="audit", bookmark_store=store, auto_ack=False
        ) as messages,
    ):
        record("ready")
        while True:
            message = messages.get(0.2)
            if message is not None:
                record("received", data=message.data)
                held.append(message)
            if len(held) == 3 or message is None:
                for done in (*held[1:2], *held[:1], *held[2:]):
                    record("handled", data=done.data)
                    done.ack(wait=True)
                    record("noted", data=done.data)
                held.clear()


def groups(url, instance, record):
    """A worker of a queue with groups: three handlers at a time, one of thirty fails."""
    chance = random.Random(int(sys.argv[5]))  # noqa: S311  (a test's dice)

    def handle(message):
        what = {"group": message.group, "number": message.data["n"], "delivery": message.delivery}
        record("start", **what, begins=message.group_begins)
        time.sleep(chance.uniform(0.0, 0.006))  # the handler's work
        if chance.random() < 1 / 30:
            record("failed", **what)
            message.cancel(delay=chance.uniform(0.0, 0.2))
        else:
            record("end", **what)

    Worker(handle, "work", url=url, instance=instance, concurrency=3, max_backlog=6).run(signals=True)


def partitions(url, instance, record):
    """A consumer of all partitions: so many messages at once, of which it settles one when it has as many."""
    total, backlog = int(sys.argv[5]), int(sys.argv[6])
    chance, held = random.Random(os.getpid()), []  # noqa: S311  (a test's dice)
    with (
        Client(url, instance=instance, partitions=total) as client,
        client.subscribe("work", max_backlog=backlog) as messages,
    ):
        record("ready")
        while True:
            message = messages.get(0.2)
            if message is not None:
                held.append(message)
            if held and (message is None or len(held) == backlog):
                done = held.pop(chance.randrange(len(held)))
                try:
                    done.ack(wait=True)
                except Rejected as error:
                    record(type(error).__name__, number=done.data["number"])
                else:
                    record("acked", number=done.data["number"])


if __name__ == "__main__":
    {
        "work": work,
        "hold": hold,
        "stuck": stuck,
        "redrive": redrive,
        "publish": publish,
        "read_durably": read_durably,
        "groups": groups,
        "partitions": partitions,
    }[sys.argv[1]](sys.argv[2], sys.argv[3], Records(sys.argv[4]))
