"""Guaranteed publishing: changes and deletions of records keep their place."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from scene import data_of

from ampsq import AsyncClient, MemoryPublishStore, Topic
from ampsq.base.errors import DefinitionError, NoRecords
from ampsq.protocol.schema import key


def test_changes_and_deletions_of_records_are_kept_and_sent_in_their_place(frail, connect_to, make_store):
    client, till = connect_to(frail, store=make_store(), retry_timeout="20s")
    client.apply(Topic(name="orders", key="/id"))
    till.publish("orders", b'{"id": 1, "v": 1}')
    till.publish("orders", b'{"id": 2, "v": 1}')
    till.flush("20s")

    # When the server is away meanwhile
    with frail.stopped():
        assert till.delta_publish("orders", b'{"id": 1, "w": 2}').sequence == 3
        deletion = till.sow_delete("orders", keys=[2, 9])
        assert till.publish("orders", b'{"id": 2, "v": 2}').sequence == 5
        assert till.sow_delete("orders", data=b'{"id": 1}').sequence == 6
        assert till.delta_publish("orders", b'{"id": 2, "w": 3}').sequence == 7
    till.flush("20s")

    assert till.last_persisted == 7
    assert (deletion.sequence, deletion.deleted("20s")) == (4, 1)
    assert data_of(client.sow("orders")) == [{"id": 2, "v": 2, "w": 3}]
    bodies = [body for body in frail.bodies("orders") if body]
    assert bodies == [
        '{"id": 1, "v": 1}', '{"id": 2, "v": 1}', '{"id": 1, "v": 1,"w": 2}', '{"id": 2, "v": 2}',
        '{"id": 2, "v": 2,"w": 3}',
    ]  # fmt: skip


def test_changes_wait_for_records_that_are_behind_their_log(connect, valkey, instance):
    client = connect()
    till = client.publisher("till-1", store=MemoryPublishStore())
    client.apply(Topic(name="orders", key="/id"))
    with contextlib.closing(valkey.client()) as redis:
        redis.xadd(key(instance, "log", "orders"), {"b": '{"id": 1, "v": 1}'})

    till.delta_publish("orders", {"id": 1, "w": 2})
    with contextlib.closing(valkey.client()) as redis:
        till.flush("30s")
        redis.xadd(key(instance, "log", "orders"), {"b": '{"id": 3}'})
    till.sow_delete("orders", keys=[3])
    till.flush("30s")

    assert data_of(client.sow("orders")) == [{"id": 1, "v": 1, "w": 2}]


def test_refused_changes_and_deletions_are_told_and_the_others_recorded(connect):
    failed = []
    client = connect()
    till = client.publisher("till-1", store=MemoryPublishStore(), on_failed_write=failed.append)
    client.apply(
        Topic(name="orders", key="/id"), Topic(name="plain"), Topic(name="fills", key="/55", message_type="fix")
    )

    till.publish("orders", {"id": 1})
    till.publish("orders", {"no": 1})
    refused = till.sow_delete("plain", keys=["1"])
    till.sow_delete("orders", data={"no": 1})
    till.publish("fills", {"55": "IBM", "44": 1})
    till.delta_publish("fills", {"55": "IBM", "44": 2})
    till.delta_publish("orders", {"id": 1, "v": 2})
    till.flush("30s")

    assert [(type(each.error).__name__, each.sequence, each.kind, each.topic) for each in failed] == [
        ("MissingKey", 2, "publish", "orders"), ("NoRecords", 3, "sow_delete", "plain"),
        ("MissingKey", 4, "sow_delete", "orders"), ("DeltaNotJson", 6, "publish", "fills"),
    ]  # fmt: skip
    assert data_of(client.sow("orders")) == [{"id": 1, "v": 2}]
    with pytest.raises(NoRecords):
        refused.deleted("30s")
    with pytest.raises(DefinitionError, match="allowed: one of keys and data"):
        till.sow_delete("orders")
    with pytest.raises(DefinitionError, match="numbers its messages itself"):
        till.delta_publish("orders", {"id": 1}, sequence=1)


def test_with_asyncio_changes_and_deletions_are_kept_as_well(valkey, instance, make_store):
    async def work():
        async with (
            AsyncClient(valkey.url, instance=instance) as client,
            client.publisher("till-1", store=make_store()) as till,
        ):
            await client.apply(Topic(name="orders", key="/id"))
            await till.publish_many("orders", [{"id": 1, "v": 1}, {"id": 2}])
            numbers = [
                (await till.delta_publish("orders", {"id": 1, "w": 2})).sequence,
                (await till.sow_delete("orders", keys=[2])).sequence,
                (await till.sow_delete("orders", data={"id": 3})).sequence,
            ]
            await till.flush("30s")
            return numbers, data_of(await client.sow("orders"))

    assert asyncio.run(work()) == ([3, 4, 5], [{"id": 1, "v": 1, "w": 2}])
