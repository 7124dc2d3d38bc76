"""The publishers of the soak, each a process: ``soak_publishers ROLE URL INSTANCE FOLDER``."""

# ruff: noqa: T201  (what a process says is for who looks into its file)

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from soak_ledger import Ledger, Published, wait_while_paused
from soak_world import body_of

from ampsq import AsyncClient, Client
from ampsq.base.errors import AmpsqError, ServerFull
from ampsq.publishing import published_runs

# A publisher keeps its last 10,000 answers for receipts, some 4 MB; with fewer its memory stays as it is from the first
# minute on, so that what grows otherwise is seen.
published_runs._KEPT = 50
#: Messages of a publish call, and seconds between two.
_BATCH, _PAUSE = 5, 0.2
#: Keys of the topic that keeps records.
_KEYS = 100


def plain(url, instance, folder):
    """Publish without a name, one by one and in batches; of what has no answer nobody knows whether it is recorded."""
    numbers, full = Published(folder, "plain"), Ledger(folder / "refused")
    with Client(url, instance=instance) as client:
        while True:
            wait_while_paused(folder, "plain", lambda: None)
            batch = numbers.attempt(_BATCH)
            try:
                client.publish_many("sales", [body_of("plain", number) for number in batch[1:]])
                client.publish("sales", body_of("plain", batch[0]))
                numbers.is_told(batch)
            except ServerFull as error:
                full(time.time(), type(error).__name__)
            except AmpsqError as error:
                print("plain:", error, flush=True)
            time.sleep(_PAUSE)  # the pace


def _keep(url, instance, folder, *, by, topic, persisted):
    numbers = Published(folder, by)
    with (
        Client(url, instance=instance) as client,
        client.publisher(by, store=folder / f"{by}.db", persisted=persisted) as publisher,
    ):
        while True:
            wait_while_paused(folder, by, lambda: publisher.flush("120s"))
            batch = numbers.attempt(_BATCH)
            publisher.publish_many(topic, [body_of(by, number) for number in batch])
            numbers.is_told(batch)
            time.sleep(_PAUSE)  # the pace


def guaranteed(url, instance, folder):
    """Publish with a store in a file."""
    _keep(url, instance, folder, by="guaranteed", topic="sales", persisted="memory")


def there(url, instance, folder):
    """Publish at the other instance until the messages are on both disks."""
    _keep(url, instance, folder, by="there", topic="errands", persisted="fsync")


async def _plain_tasks(client, folder):
    numbers = Published(folder, "tasks")
    while True:
        await _quiet(folder, "tasks")
        batch = numbers.attempt(_BATCH)
        try:
            await client.publish_many("sales", [body_of("tasks", number) for number in batch])
            numbers.is_told(batch)
        except AmpsqError as error:
            print("tasks:", error, flush=True)
        await asyncio.sleep(_PAUSE)  # the pace


async def _kept_tasks(client, folder, by, topic, persisted):
    numbers = Published(folder, by)
    async with client.publisher(by, store=folder / f"{by}.db", persisted=persisted) as publisher:
        while True:
            await _quiet(folder, by, publisher)
            batch = numbers.attempt(_BATCH)
            await publisher.publish_many(topic, [body_of(by, number) for number in batch])
            numbers.is_told(batch)
            await asyncio.sleep(_PAUSE)  # the pace


async def _keyed_tasks(client, folder):
    """Change records: whole, in parts, for a while, and away."""
    done, number = Ledger(folder / "changed"), 0
    while True:
        await _quiet(folder, "keyed")
        number += 1
        key = number % _KEYS
        try:
            if number % 10 == 3:
                await client.sow_delete("shelves", keys=[key])
            elif number % 10 == 5:
                await client.publish("shelves", {"id": key, "value": number}, expiration="3s")
            elif number % 2:
                await client.delta_publish("shelves", {"id": key, "part": number})
            else:
                await client.publish("shelves", {"id": key, "value": number})
            done(number)
        except AmpsqError as error:
            print("keyed:", error, flush=True)
        await asyncio.sleep(0.05)  # the pace


async def _quiet(folder, name, publisher=None):
    if not (folder / "pause").exists():
        return
    epoch = (folder / "pause").read_text()
    if publisher is not None:
        await publisher.flush("120s")
    (folder / "quiet" / name).write_text(epoch)
    # It is another process that ends it.
    while (folder / "pause").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # between two looks


def tasks(url, instance, folder):
    """Publish from tasks of one event loop: plainly, with stores, and records."""

    async def run():
        async with AsyncClient(url, instance=instance) as client, asyncio.TaskGroup() as group:
            group.create_task(_plain_tasks(client, folder))
            group.create_task(_kept_tasks(client, folder, "kept", "sales", "fsync"))
            group.create_task(_kept_tasks(client, folder, "here", "errands", "memory"))
            group.create_task(_keyed_tasks(client, folder))

    asyncio.run(run())


def spark(url, instance, folder):
    """Write rows by a job of Spark once a minute."""
    from ampsq.spark import prepare_environment  # noqa: PLC0415 - Spark is large, and of one process

    prepare_environment()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment comes first

    builder = SparkSession.builder.master("local[1]").appName("ampsq-soak")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }.items():
        builder = builder.config(name, value)
    session, numbers = builder.getOrCreate(), Published(folder, "spark")
    options = {"url": url, "instance": instance, "topic": "spark-rows", "publisher": "spark"}
    due = 0.0
    while True:
        wait_while_paused(folder, "spark", lambda: None)
        if time.monotonic() < due:
            time.sleep(0.05)  # between two looks
            continue
        due = time.monotonic() + 60.0
        batch = numbers.attempt(200)
        # Its number is that of its first row: an epoch is higher than those before.
        frame = session.range(batch[0], batch[-1] + 1, numPartitions=2).selectExpr(
            "to_json(named_struct('by', 'spark', 'n', id)) AS value"
        )
        while True:
            try:
                frame.write.format("ampsq").options(**options, epoch=str(batch[0])).mode("append").save()
                break
            except Exception as error:  # noqa: BLE001 - a job that failed is run again, which records nothing twice
                print("spark:", str(error)[:500], flush=True)
                time.sleep(1.0)  # before the next attempt
        numbers.is_told(batch)


if __name__ == "__main__":
    {"plain": plain, "guaranteed": guaranteed, "there": there, "tasks": tasks, "spark": spark}[sys.argv[1]](
        sys.argv[2], sys.argv[3], Path(sys.argv[4])
    )
