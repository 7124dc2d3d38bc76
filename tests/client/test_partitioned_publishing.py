"""Publishing to all partitions by what a topic's definition says of keys, on one server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading

import pytest
import redis
from observing import eventually
from partitioned import TOTAL, client_of_partitions

from ampsq import AsyncClient, Client, FilePublishStore, MemoryPublishStore, Queue, Topic
from ampsq.base.errors import Closed, DefinitionError, PartitionByFixed, PublishStoreError
from ampsq.base.partitions import partition_of_key
from ampsq.client.partitioned_publisher import PartitionedPublisher
from ampsq.client.publisher import Publisher
from ampsq.protocol.calls.catalog import catalog
from ampsq.protocol.calls.definitions import define_topic
from ampsq.protocol.schema import key
from ampsq.publishing.memory_store import PublishStore

ORDERS = Topic(name="orders", partition_by="/customer")


client = client_of_partitions


def partition(client, bookmark):
    return client.partitions.index(bookmark.origin.rpartition(".")[0])


def customers(number):
    return [{"customer": f"c{each % 7}", "number": each} for each in range(number)]


def test_messages_are_in_the_partition_of_what_partition_by_names(client):
    client.apply(ORDERS, Queue(name="work", underlying_topic="orders"))
    messages = customers(200)

    many = client.publish_many("orders", messages)
    encoded = client.publish_many("orders", (json.dumps(each).encode() for each in messages))
    single = [client.publish("orders", each) for each in messages[:20]]
    through_queue = client.publish("work", messages[3])

    expected = [partition_of_key(each["customer"], TOTAL) for each in messages]
    assert [partition(client, each) for each in many] == expected
    assert [partition(client, each) for each in encoded] == expected
    assert [partition(client, each) for each in single] == expected[:20]
    assert partition(client, through_queue) == expected[3]
    found = [message.data for one in client.clients for message in one.sow("work")]
    assert sorted(each["number"] for each in found) == sorted([*range(200)] * 2 + [*range(20), 3])


def test_a_key_of_the_call_goes_before_that_of_the_topic_and_what_lacks_its_value_goes_on(client):
    client.apply(ORDERS)
    message = {"customer": "c1"}

    assert partition(client, client.publish("orders", message, key="till-4")) == partition_of_key("till-4", TOTAL)
    assert partition(client, client.publish("orders", message, group="g")) == partition_of_key("c1", TOTAL)
    assert partition(client, client.publish("orders", {}, group="g")) == partition_of_key("g", TOTAL)
    assert partition(client, client.publish("orders", {}, deduplication_id="i")) == partition_of_key("i", TOTAL)
    assert len({partition(client, client.publish("orders", {})) for _ in range(TOTAL)}) == TOTAL


def test_deduplication_ids_of_many_messages_hold_in_the_partitions_of_their_topics_key(client):
    client.apply(ORDERS)
    messages = customers(30)

    first = client.publish_many("orders", messages, deduplication_id=lambda message: f"i{message['number']}")
    again = client.publish_many("orders", messages, deduplication_id=lambda message: f"i{message['number']}")

    assert list(first) == list(again)
    assert [partition(client, each) for each in first] == [
        partition_of_key(each["customer"], TOTAL) for each in messages
    ]


def test_what_others_define_counts_from_the_first_message_on(client, connect_partitions):
    later = connect_partitions()
    # Given a client that has asked for a topic before it was defined
    assert later._router.topic_key("orders").paths == ()

    client.apply(ORDERS)

    assert partition(later, later.publish("orders", {"customer": "c3"})) == partition_of_key("c3", TOTAL)


def test_a_topic_that_is_made_by_publishing_to_it_is_asked_for_until_it_is_there(client):
    client.publish("letters", 1)
    bookmark = client.publish("letters", 2, key="c3")

    assert partition(client, bookmark) == partition_of_key("c3", TOTAL)
    client.publish("letters", 3)
    assert client._router._topic_keys["letters"].paths == ()


def test_partition_by_stays_once_any_partition_has_had_a_message(client):
    client.apply(ORDERS)
    client.apply(Topic(name="orders", partition_by=["/customer", "/till"]))
    client.apply(ORDERS)
    client.publish("orders", {"customer": "c3"})

    for changed in (Topic(name="orders"), Topic(name="orders", partition_by="/till")):
        with pytest.raises(PartitionByFixed, match=r"stay in the partitions.*another name"):
            client.apply(changed)
    # Other elements change, and a removed definition leaves it, since the messages stay.
    client.apply(Topic(name="orders", partition_by="/customer", retention_count=1_000))
    client.admin.remove(ORDERS)
    assert client.admin.definitions() == [ORDERS]


def test_a_partition_refuses_it_by_itself_where_a_message_came_meanwhile(client):
    client.apply(Topic(name="orders"))
    # Given one that has planned it, and a message that comes before it is defined
    first = client.clients[0]
    version = first._store.call(catalog()).version
    first.publish("orders", {"customer": "c"})

    with pytest.raises(PartitionByFixed):
        first._store.call(define_topic(version, "orders", ORDERS.to_json(), []))
    assert client.admin.definitions() == [Topic(name="orders")]


def test_an_instance_without_partitions_takes_it_and_it_says_nothing_there(server, instance):
    with Client(server.url, instance=instance) as client:
        client.apply(ORDERS)
        client.publish("orders", {"customer": "c"})
        assert client.admin.plan(Topic(name="orders"))[0].outcome == "changed"
        client.apply(Topic(name="orders", partition_by="/till"))
        assert len(client.publish_many("orders", customers(10))) == 10


@pytest.mark.parametrize(
    ("elements", "told"),
    [
        ({"partition_by": "customer +"}, "partition_by"),
        ({"partition_by": []}, "partition_by: .*allowed is a list of identifiers"),
        ({"partition_by": "/a = 1"}, "partition_by: .* is no identifier"),
        ({"partition_by": "/a", "message_type": "binary"}, "partition_by: .*reads the body"),
    ],
)
def test_what_names_no_value_of_a_body_is_refused(elements, told):
    with pytest.raises(DefinitionError, match=told):
        Topic(name="orders", **elements)


def test_data_that_cannot_be_published_is_refused_before_anything_is_recorded(client):
    client.apply(ORDERS)

    with pytest.raises(DefinitionError, match="cannot be published"):
        client.publish("orders", {"customer": object()})
    with pytest.raises(DefinitionError, match="cannot be published"):
        client.publish_many("orders", [object()])
    with pytest.raises(DefinitionError):
        client.publish(17, {"customer": "c"})


def test_an_asyncio_client_does_the_same(server, instance):
    async def publish():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(ORDERS)
            messages = customers(50)
            many = await client.publish_many("orders", messages)
            one = await client.publish("orders", messages[3])
            assert [partition(client, each) for each in [*many, one]] == [
                partition_of_key(each["customer"], TOTAL) for each in [*messages, messages[3]]
            ]
            with pytest.raises(PartitionByFixed):
                await client.apply(Topic(name="orders"))

    asyncio.run(publish())


# -- publishers with names and stores


def recorded(client, topic="orders"):
    """(publisher's number, data) of everything in the topic's logs, of each partition."""
    found = []
    with contextlib.closing(redis.from_url(client.url)) as server:
        for name in client.partitions:
            entries = server.xrange(key(name, "log", topic))
            found.append([(int(fields.get(b"n", 0)), json.loads(fields[b"b"])) for _, fields in entries])
    return found


@pytest.fixture(params=["none", "memory", "file"])
def store(request, tmp_path):
    """A store for a publisher, or none; a file is the same each time."""
    kinds = {"none": lambda: None, "memory": MemoryPublishStore, "file": lambda: str(tmp_path / "till.db")}
    return kinds[request.param]()


def test_a_publisher_with_a_name_numbers_the_messages_of_each_partition(client, store):
    client.apply(ORDERS)
    messages = customers(100)

    with client.publisher("till", store=store) as till:
        one = till.publish("orders", {"customer": "c3", "number": -1})
        receipts = till.publish_many("orders", messages, batch=10)
        keyed = till.publish("orders", {"number": -2}, key="c3")
        till.flush("10s")

        assert till.name == "till"
        assert [each.partition for each in receipts] == [partition_of_key(each["customer"], TOTAL) for each in messages]
        assert one.partition == keyed.partition == partition_of_key("c3", TOTAL)
        assert (one.sequence, len(receipts)) == (1, 100)
        assert [partition(client, each.bookmark("5s")) for each in receipts] == [each.partition for each in receipts]
        assert receipts[-1].bookmark("5s") == receipts[99].bookmark("5s")
        assert [each.sequence for each in receipts[:3]] == [receipts[index].sequence for index in range(3)]
        assert repr(receipts) == "<100 receipts of several partitions>"
        assert f"of partition {one.partition}, orders" in repr(one)

    logs = recorded(client)
    for number, log in enumerate(logs):
        # Its numbers have no gaps, and are those of the receipts.
        assert [sequence for sequence, _ in log] == list(range(1, len(log) + 1))
        found = {data["number"]: sequence for sequence, data in log}
        told = {message["number"]: each for message, each in zip(messages, receipts, strict=True)}
        assert all(
            (told[message].partition, told[message].sequence) == (number, sequence)
            for message, sequence in found.items()
            if message >= 0
        )
    assert sum(map(len, logs)) == 102


def test_messages_without_a_key_go_to_the_partitions_in_turn(client, store):
    with client.publisher("till", store=store) as till:
        assert [till.publish("orders", number).partition for number in range(4)] == [0, 1, 2, 3]
        assert [each.partition for each in till.publish_many("orders", range(20), batch=5)] == [
            number for number in range(4) for _ in range(5)
        ]
        till.flush("10s")
    assert [len(log) for log in recorded(client)] == [6] * 4


def test_a_message_that_is_published_again_under_its_number_is_recorded_once(client):
    with client.publisher("till") as till:
        first = till.publish("orders", 1, key="c3", sequence=7)
        again = till.publish("orders", 1, key="c3", sequence=7)
        assert (first.partition, first.sequence, first.bookmark()) == (again.partition, 7, again.bookmark())
        with pytest.raises(DefinitionError, match=r"sequence=8 counts in one partition.*allowed: with key="):
            till.publish("orders", 1, sequence=8)
        client.apply(Topic(name="parcels", partition_by="/customer"))
        assert till.publish("parcels", {"customer": "c"}, sequence=9).sequence == 9
        with pytest.raises(DefinitionError, match="sequence=10 counts in one partition"):
            till.publish("parcels", {}, sequence=10)
    assert sum(map(len, recorded(client))) == 1


def test_what_is_persisted_or_refused_is_told_with_its_partition(client):
    acks, failed, at_once = [], [], []

    def note(events):
        def told(event):
            at_once.append(threading.current_thread().name)
            events.append(event)

        return told

    with client.publisher(
        "till",
        store=MemoryPublishStore(),
        ack_conflation="10ms",
        on_persisted=note(acks),
        on_failed_write=note(failed),
    ) as till:
        receipts = till.publish_many("orders", range(40), key=str)
        till.flush("10s")
        eventually(lambda: {each.partition for each in acks} == {each.partition for each in receipts}, within=5.0)
    highest = {each.partition: each.sequence for each in acks}
    assert highest == {each.partition: each.sequence for each in receipts}
    assert failed == []


PUBLISH = """
import sys
from ampsq import Client
url, instance, store, run = sys.argv[1:]
with Client(url, instance=instance, partitions=4) as client, client.publisher("till", store=store) as till:
    number = 0
    while True:
        till.publish("orders", {"customer": f"c{number % 7}", "run": int(run), "number": number})
        number += 1
        print(number, flush=True)
"""


def test_a_killed_program_s_messages_are_sent_by_the_next_one_without_doubles(client, server, instance, tmp_path):
    client.apply(ORDERS)
    store, taken = str(tmp_path / "till.db"), []
    for run in range(3):
        # Given programs that publish from one file, one after the other, each killed at some point
        program = subprocess.Popen(
            [sys.executable, "-c", PUBLISH, server.url, instance, store, str(run)], stdout=subprocess.PIPE, text=True
        )
        lines = iter(program.stdout.readline, "")
        for line in lines:
            if int(line) >= 40 + 13 * run:
                break
        program.kill()
        program.wait()
        taken.append(int([line, *lines][-1]))
        program.stdout.close()

    # When the store is opened again
    with client.publisher("till", store=store) as till:
        till.flush("20s")

    # Then everything that was taken is recorded once, and each key in its order
    logs = recorded(client)
    for number, log in enumerate(logs):
        assert [sequence for sequence, _ in log] == list(range(1, len(log) + 1))
        by_key = {}
        for _, data in log:
            assert partition_of_key(data["customer"], TOTAL) == number
            by_key.setdefault(data["customer"], []).append((data["run"], data["number"]))
        assert all(found == sorted(found) for found in by_key.values())
    found = [(data["run"], data["number"]) for log in logs for _, data in log]
    assert len(set(found)) == len(found)
    for run, number in enumerate(taken):
        of_run = sorted(each for at, each in found if at == run)
        # One more may have been taken before the program could say so.
        assert of_run in (list(range(number)), list(range(number + 1)))


def test_a_store_s_bounds_are_shared_by_the_partitions(client, tmp_path):
    for whole in (MemoryPublishStore(messages=400, size="4MB"), FilePublishStore(tmp_path / "t.db", messages=400)):
        shares = whole.divided(TOTAL)
        assert [share.messages for share in shares] == [100] * TOTAL
        assert {share.size for share in shares} == {whole.size // TOTAL}
        assert {share.timeout for share in shares} == {whole.timeout}

    memory = MemoryPublishStore()
    with (
        client.publisher("till", store=memory),
        pytest.raises(PublishStoreError, match="another client"),
    ):
        client.publisher("other", store=memory)


def test_a_store_of_another_kind_is_refused_with_what_helps(client):
    class Own(MemoryPublishStore):
        divided = PublishStore.divided

    with pytest.raises(DefinitionError, match=r"Own keeps for one instance.*allowed: the path of a file"):
        client.publisher("till", store=Own())


def test_where_one_partition_has_the_name_none_is_opened(client, tmp_path):
    taken = client.clients[2].publisher("till", store=MemoryPublishStore())

    with pytest.raises(DefinitionError, match="has a publisher 'till' that is open"):
        client.publisher("till", store=str(tmp_path / "till.db"))
    taken.close()
    with client.publisher("till", store=str(tmp_path / "till.db")) as till:
        assert repr(till) == "<PartitionedPublisher till in 4 partitions>"
    with pytest.raises(Closed):
        till.publish("orders", 1)
    till.close()


def test_an_error_of_many_messages_tells_which_are_taken(client):
    with (
        client.publisher("till", store=MemoryPublishStore(messages=40, timeout="100ms")) as till,
        pytest.raises(DefinitionError, match="10 messages of this publish_many are taken, in several") as raised,
    ):
        till.publish_many("orders", [*range(10), object()], batch=1, key=str)
    assert all(isinstance(each, int) for each in raised.value.published)
    assert len(raised.value.published) == 10


def test_acknowledgements_are_kept_in_the_store_of_their_partition(client, tmp_path):
    client.apply(ORDERS, Queue(name="work", underlying_topic="orders"))
    bookmarks = client.publish_many("orders", customers(20))

    with client.publisher("till", store=str(tmp_path / "till.db")) as till:
        assert client.ack("work", bookmarks[:12], publisher=till) == 12
        till.flush("10s")
        with pytest.raises(DefinitionError, match="allowed with bookmarks"):
            client.ack("work", filter="/number > 1", publisher=till)
    assert client.admin.queue_stats("work").acknowledged == 12
    with pytest.raises(DefinitionError, match="allowed is one of this client"):
        client.ack("work", bookmarks[:1], publisher=object())


def test_what_has_no_one_number_is_refused_with_what_helps(client):
    with client.publisher("till") as till:
        with pytest.raises(DefinitionError, match="not there for an instance with partitions yet; allowed: "):
            _ = till.last_persisted
        calls = {name for name, value in vars(Publisher).items() if callable(value) and not name.startswith("_")}
        assert calls <= {*vars(PartitionedPublisher)}
        with pytest.raises(TypeError, match=r"publish\(\) has no argument 'deduplication_id'"):
            till.publish("orders", 1, deduplication_id="i")
        with pytest.raises(AttributeError):
            _ = till.nothing


def test_an_instance_without_partitions_takes_keys_of_publishers_too(server, instance, store):
    with Client(server.url, instance=instance) as client, client.publisher("till", store=store) as till:
        receipt = till.publish("orders", 1, key="c")
        assert receipt.partition is None
        assert [each.partition for each in till.publish_many("orders", [1, 2], key=str)] == [None, None]
        with pytest.raises(DefinitionError, match="key: 17 is not a text"):
            till.publish("orders", 1, key=17)
        with pytest.raises(DefinitionError, match="key='k': allowed is a function"):
            till.publish_many("orders", [1], key="k")


def test_an_asyncio_publisher_does_the_same(server, instance, store):
    async def publish():
        async with AsyncClient(server.url, instance=instance, partitions=TOTAL) as client:
            await client.apply(ORDERS, Queue(name="work", underlying_topic="orders"))
            closed = client.publisher("till", store=store)
            with pytest.raises(Closed):
                await closed.publish("orders", 1)
            async with closed as till:
                messages = customers(50)
                receipts = await till.publish_many("orders", messages, batch=10)
                one = await till.publish("orders", {"number": 50}, key="c3")
                await till.flush("10s")
                assert [each.partition for each in [*receipts, one]] == [
                    partition_of_key(each, TOTAL) for each in [*(each["customer"] for each in messages), "c3"]
                ]
                bookmarks = [await each.bookmark("5s") for each in receipts]
                if store is not None:
                    assert await client.ack("work", bookmarks[:5], publisher=till) == 5
                with pytest.raises(DefinitionError, match="last_persisted is not there"):
                    _ = till.last_persisted
            second = await client.publisher("till", store=store)
            async with second:
                assert (await second.publish("orders", {}, key="c3")).partition == one.partition
        with contextlib.closing(redis.from_url(server.url)) as connection:
            assert sum(connection.xlen(key(each, "log", "orders")) for each in client.partitions) == 52

    asyncio.run(publish())
