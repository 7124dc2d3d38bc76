"""Calls to topics with a key: the server reads each body, so a call has no more of them than one body may hold."""

from __future__ import annotations

import asyncio
import json

import pytest

from ampsq import AsyncClient, MemoryPublishStore, Topic
from ampsq.base.errors import MissingKey, TooMuchToRead
from ampsq.base.message_types import SMALL_BODY, MessageType, load_msgpack
from ampsq.protocol.calls.publish import publish
from ampsq.protocol.encoding import encode_batches
from ampsq.protocol.limits import BYTES
from ampsq.protocol.request import CallParts
from ampsq.publishing.envelope import Envelope

BODIES = [b'{"id":%d,"text":"%s"}' % (number, b"x" * 4_000) for number in range(40)]
#: Of one call these are refused: a dozen is what it may have.
NUMBERS = list(range(len(BODIES)))


def numbers_of(client, topic="prices"):
    """Return the numbers in the log, in its order."""
    with client.subscribe_topic(topic, bookmark="[epoch:now)") as messages:
        return [message.data["id"] for message in messages]


def record_of_refusals(monkeypatch):
    """Notes what each call that is made in parts was cut to."""
    cuts = []
    made = CallParts.__init__

    def init(self, cut, join):
        made(self, lambda most: cuts.append(most) or cut(most), join)

    monkeypatch.setattr(CallParts, "__init__", init)
    return cuts


@pytest.mark.parametrize(
    ("key", "kind", "most"),
    [('"key":["/id"],', "json", SMALL_BODY), ('"key":["/id"],', "msgpack", SMALL_BODY), ("", "json", BYTES)],
)
def test_a_call_to_a_topic_with_a_key_has_no_more_than_is_read_whatever_it_holds(key, kind, most):
    made = list(encode_batches(BODIES, 500, MessageType.of_definition(f'{{{key}"message_type":"{kind}"}}')))
    assert [body for bodies in made for body in bodies] == BODIES
    assert len(made) == {SMALL_BODY: 5, BYTES: 1}[most]
    assert max(sum(map(len, bodies[:-1])) for bodies in made) < most


@pytest.mark.parametrize("kind", ["json", "msgpack", "nvfix"])
def test_all_of_a_batch_become_records_and_none_of_json_is_refused(either, kind, monkeypatch):
    cuts = record_of_refusals(monkeypatch)
    either.apply(Topic(name="prices", key="/id", message_type=kind))
    heavy = {
        "json": [f'{{"id":{i},"l":[{"[]," * 1_300}1]}}'.encode() for i in NUMBERS],
        "msgpack": [load_msgpack().packb({"id": i, "l": [1] * 4_000}) for i in NUMBERS],
        "nvfix": [f"id={i}\x01".encode() + b"a=\x01" * 1_300 for i in NUMBERS],
    }[kind]
    assert len(either.publish_many("prices", heavy)) == 40
    assert {int(record.data["id"]) for record in either.sow("prices")} == set(NUMBERS)
    with either.subscribe_topic("prices", bookmark="[epoch:now)") as messages:
        assert [int(message.data["id"]) for message in messages] == NUMBERS
    assert bool(cuts) is (kind != "json")


@pytest.mark.parametrize("publisher", ["", "till-1"])
def test_a_call_that_is_too_much_to_read_is_made_in_parts_in_its_order(client, monkeypatch, publisher):
    cuts = record_of_refusals(monkeypatch)
    client.apply(Topic(name="prices", key="/id"))
    call = publish("prices", BODIES, [b'{"h":"1"}'] * 40, publisher, 7)
    published = client._store.call(call)
    assert cuts
    assert sum(part.number for part in published.parts) == 40
    assert [part.duplicates for part in published.parts] == [[]] * len(published.parts)
    assert numbers_of(client) == NUMBERS
    if publisher:
        again = client._store.call(publish("prices", BODIES, [], publisher, 7))
        assert (len(again.duplicates), again.rest) == (40, ())


def test_what_is_refused_for_another_reason_is_refused_when_its_part_comes(client):
    client.apply(Topic(name="prices", key="/id"))
    with pytest.raises(MissingKey):
        client._store.call(publish("prices", [*BODIES[:30], b"{}", *BODIES[30:]], [], "", 0))
    found = numbers_of(client)
    assert 0 < len(found) <= 30
    assert found == NUMBERS[: len(found)]


def test_a_call_by_hand_is_told_what_to_do(client):
    client.apply(Topic(name="prices", key="/id"))
    call = publish("prices", BODIES, [], "", 0)
    call.parts = None
    with pytest.raises(TooMuchToRead, match="too much to read, since the topic has a key; send its"):
        client._store.call(call)
    assert numbers_of(client) == []


def test_a_topic_that_is_given_a_key_meanwhile_has_all_in_order(client, monkeypatch):
    for number in (-2, -1):
        client.publish_many("prices", [{"id": number}])
    client.apply(Topic(name="prices", key="/id"))
    cuts = record_of_refusals(monkeypatch)
    # Of this many, calls are sent ahead.
    bodies = [json.dumps({"id": n, "text": "x" * 4_000}).encode() for n in range(1_000)]
    assert len({str(bookmark) for bookmark in client.publish_many("prices", bodies, batch=100)}) == 1_000
    assert cuts
    assert numbers_of(client) == list(range(-2, 1_000))
    # From then on its batches are cut for that
    cuts.clear()
    client.publish_many("prices", bodies, batch=100)
    assert cuts == []


def test_an_asyncio_client_has_all_in_order_too(client, monkeypatch):
    cuts = record_of_refusals(monkeypatch)

    async def run():
        async with AsyncClient(client.url, instance=client.instance) as other:
            for number in (-2, -1):
                await other.publish_many("prices", [{"id": number}])
            client.apply(Topic(name="prices", key="/id"))
            found = await other.publish_many("prices", BODIES * 10, batch=100)
            assert len({str(bookmark) for bookmark in found}) == 400

    asyncio.run(run())
    assert cuts
    assert numbers_of(client) == [-2, -1, *NUMBERS * 10]


def test_a_guaranteed_publisher_sends_what_is_too_much_in_parts_once_each_and_in_order(connect):
    client = connect()
    till = client.publisher("till-1", store=MemoryPublishStore(), on_failed_write=pytest.fail)
    client.apply(Topic(name="prices", key="/id"), Topic(name="plain"))
    for body in BODIES * 3:
        till.publish("prices", body)
    till.publish("plain", {"id": 1})
    # One of the store's entries is as large as this, since the client learnt the type when it had no key.
    till._core.guaranteed.publish("prices", BODIES * 10, Envelope.of(None, None, None, None))
    till.flush("30s")
    assert till.last_persisted == 521
    assert numbers_of(client) == NUMBERS * 13
    assert numbers_of(client, "plain") == [1]
