"""The consumers of the soak, each a process: ``soak_consumers ROLE URL INSTANCE FOLDER``."""

# ruff: noqa: T201  (what a process says is for who looks into its file)

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

import redis
from soak_ledger import Ledger
from soak_world import is_rejected

from ampsq import AsyncClient, Client, RedisBookmarkStore, Reject, SqliteBookmarkStore, Worker
from ampsq.base.errors import AmpsqError, Rejected
from ampsq.protocol.schema import key

_GET = 0.5


def _line(write, what, message):
    """Write down a message of a queue or of a topic, under its place in the log."""
    body = message.data
    write(what, body["by"], body["n"], str(message.bookmark).replace(" ", "_"))


class Leak(threading.Thread):
    """A leak that the switch `--leak` plants here: one thing each 1,000 messages that the queues settle."""

    def __init__(self, kind, url, instance):
        super().__init__(daemon=True)
        self._plant, self._address, self._kept = getattr(self, f"_{kind}"), (url, instance), []

    def run(self):
        url, instance = self._address
        with Client(url, instance=instance) as client:
            planted = None
            while True:
                # A server that is full, or away, is asked again.
                with contextlib.suppress(AmpsqError, redis.RedisError):
                    found = [client.admin.queue_stats(name) for name in client.admin.queues()]
                    due = sum(each.acknowledged + each.expired + each.evicted for each in found) // 1_000
                    planted = due if planted is None else planted
                    for number in range(planted, due):
                        self._plant(client, number)
                        planted = number + 1
                time.sleep(0.5)  # between two looks

    def _memory(self, _client, _number):
        self._kept.append(bytearray(1_024))

    @staticmethod
    def _thread(_client, _number):
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    @staticmethod
    def _key(client, number):
        client._store.redis.hset(key(client.instance, "bookmarks", f"leak-{number}"), "floor", "")


def _worker(url, instance, folder, queue, handle):
    write = Ledger(folder / "consumed" / queue)
    Worker(lambda message: handle(write, message), queue, url=url, instance=instance, concurrency=4).run(signals=True)


def _handle(write, message):
    """Refuse some for good, some the first time, and acknowledge the others."""
    _line(write, "h", message)
    if is_rejected(message.data["n"]):
        raise Reject("never again")
    if message.delivery == 1 and message.data["n"] % 40 == 7:
        raise RuntimeError("not now")


def work(url, instance, folder):
    """A worker of `main`."""
    _worker(url, instance, folder, "main", _handle)


def shared(url, instance, folder):
    """A worker of `shared`, at either instance; what is done where is written down, too."""
    here = Ledger(folder / "consumed" / f"shared-{instance}")

    def handle(write, message):
        _line(write, "h", message)
        _line(here, "h", message)

    _worker(url, instance, folder, "shared", handle)


def handle(message, _written=[]):  # noqa: B006 - one file, opened when the first message comes
    """Handle a message, as `ampsq worker` calls it."""
    if not _written:
        _written.append(Ledger(Path(os.environ["SOAK_FOLDER"], "consumed", "cli")))
    _line(_written[0], "h", message)


def _each(subscription, act):
    """Give each message of a subscription to a function, until this process is ended; a gone server is waited for."""
    while True:
        try:
            message = subscription.get(_GET)
            if message is not None:
                act(message)
        except Rejected as error:
            print("refused:", type(error).__name__, error, flush=True)
        except AmpsqError as error:
            print("waits:", error, flush=True)
            time.sleep(0.2)  # before the next attempt


def subscriptions(url, instance, folder, *leaks):
    """Subscriptions of threads: one by one with priorities, two that barriers come to, and a ring."""
    for leak in leaks:
        Leak(leak, url, instance).start()
    ranked, days, barriers = (Ledger(folder / "consumed" / name) for name in ("ranked", "days", "barriers"))

    def confirm(message):
        _line(ranked, "h", message)
        message.ack(wait=True)
        _line(ranked, "k", message)

    def note(message):
        _line(barriers if message.is_barrier else days, "h", message)
        if not message.is_barrier:
            message.ack()

    def be_slow(message):
        message.ack()
        time.sleep(0.02)  # how slow it is

    with Client(url, instance=instance) as client, contextlib.ExitStack() as stack:
        asked = (("ranked", confirm, 10), ("days", note, 20), ("days", note, 20), ("ring", be_slow, 2))
        for name, act, backlog in asked:
            subscription = stack.enter_context(client.subscribe(name, max_backlog=backlog, renew=True))
            threading.Thread(target=_each, args=(subscription, act), daemon=True).start()
        threading.Event().wait()


def ranked(url, instance, folder):
    """Another subscription of the queue with priorities, to be killed."""
    write = Ledger(folder / "consumed" / "ranked")

    def confirm(message):
        _line(write, "h", message)
        message.ack(wait=True)
        _line(write, "k", message)

    with Client(url, instance=instance) as client, client.subscribe("ranked", max_backlog=10, renew=True) as messages:
        _each(messages, confirm)


def durable(url, instance, folder):
    """Two durable readers of the topic, with their places in a file and on the server."""

    def read(name, store):
        write = Ledger(folder / "consumed" / f"topic-{name}")
        while True:
            with (
                contextlib.suppress(AmpsqError),
                client.subscribe_topic(
                    "sales", bookmark="most_recent", sub_id=name, bookmark_store=store, auto_ack=False
                ) as messages,
            ):
                _each(messages, lambda message: (_line(write, "h", message), message.ack()))

    with Client(url, instance=instance) as client:
        stores = {"file": SqliteBookmarkStore(str(folder / "places.db")), "server": RedisBookmarkStore()}
        threads = [threading.Thread(target=read, args=each, daemon=True) for each in stores.items()]
        for thread in threads:
            thread.start()
        threading.Event().wait()


class _Tasks:
    """The consumers of one event loop."""

    def __init__(self, client, folder):
        self._client, self._folder = client, folder

    def _ledger(self, name):
        return Ledger(self._folder / "consumed" / name)

    async def _queue(self, name, note, backlog=20, **options):
        async with self._client.subscribe(name, max_backlog=backlog, renew=True, **options) as messages:
            while True:
                try:
                    message = await messages.get(_GET)
                    if message is not None:
                        note(message)
                        await message.ack()
                except Rejected as error:
                    print("refused:", type(error).__name__, error, flush=True)
                except AmpsqError as error:
                    print("waits:", error, flush=True)
                    await asyncio.sleep(0.2)  # before the next attempt

    async def _live(self):
        write = self._ledger("topic-live")
        async with self._client.subscribe_topic("sales", bookmark="epoch") as messages:
            while True:
                message = await messages.get(_GET)
                if message is not None:
                    _line(write, "h", message)

    async def _records(self):
        """Follow the records; whenever nothing comes, what they are is written down."""
        write, state, shown = self._ledger("records"), {}, None
        async with self._client.sow_and_subscribe("shelves", oof=True) as changes:
            while True:
                change = await changes.get(_GET)
                if change is not None:
                    write(change.command)
                    if change.command == "oof":
                        state.pop(change.key, None)
                    else:
                        state[change.key] = change.data
                elif shown != (text := json.dumps(state, sort_keys=True)):
                    shown = text
                    (self._folder / "records").write_text(text)

    def begin(self, group):
        chosen, spark, letters = (self._ledger(name) for name in ("chosen", "spark", "letters"))
        seen, changes = self._ledger("view"), self._ledger("changes")

        def letter(message):
            body, where = message.data["message"], str(message.data["bookmark"]).replace(" ", "_")
            letters("h", body["by"], body["n"], where)
            letters("k", body["by"], body["n"], where)

        for filter_ in ("/s = 'IBM'", "/s = 'AAPL'"):
            group.create_task(self._queue("chosen", lambda each: _line(chosen, "h", each), filter=filter_))
        group.create_task(self._queue("spark", lambda each: _line(spark, "h", each)))
        group.create_task(self._queue("letters", letter))
        group.create_task(self._queue("view", lambda each: seen(each.data.get("orders"))))
        group.create_task(self._queue("changes", lambda each: changes(each.data["id"])))
        group.create_task(self._live())
        group.create_task(self._records())


def tasks(url, instance, folder):
    """Everything that tasks consume."""

    async def run():
        async with AsyncClient(url, instance=instance) as client, asyncio.TaskGroup() as group:
            _Tasks(client, folder).begin(group)

    asyncio.run(run())


if __name__ == "__main__":
    roles = {
        "work": work, "shared": shared, "subscriptions": subscriptions, "ranked": ranked, "durable": durable,
        "tasks": tasks,
    }  # fmt: skip
    roles[sys.argv[1]](sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:])
