"""Publishers with a name: their receipts, whose bookmarks wait; who waits for whom; how they are opened and closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from scene import data_of, pick_up

from ampsq import AsyncClient, Bookmark, MemoryPublishStore, Queue, Topic
from ampsq.base.errors import Closed, DefinitionError, NotPersisted
from ampsq.protocol.schema import key
from ampsq.publishing import published_runs
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.store import Store


@pytest.fixture
def recorded(client):
    """The bookmarks of a topic's messages, in their order."""

    def recorded(topic):
        with client.subscribe_topic(topic, bookmark="[epoch:now]") as messages:
            return [message.bookmark for message in messages]

    return recorded


def test_receipts_have_their_numbers_at_once_and_bookmarks_when_all_is_persisted(client, make_store, recorded):
    client.apply(Topic(name="orders"))
    with client.publisher("till-1", store=make_store(), ack_conflation="5m") as till:
        one = till.publish("orders", 1)
        many = till.publish_many("orders", range(2, 700), batch=90)
        last = till.publish("orders", 700)

        assert (one.sequence, many[0].sequence, many[-1].sequence, last.sequence) == (1, 2, 699, 700)
        assert [len(many), repr(many), repr(one)] == [698, "<698 of Receipt, orders>", "<Receipt 1, orders>"]
        found = [one.bookmark("30s"), *(each.bookmark("30s") for each in many), last.bookmark("30s")]
    assert found == recorded("orders")
    # Also once the publisher is closed
    assert many[300].bookmark() == found[301]


def test_a_receipt_that_no_answer_is_kept_for_is_looked_up_in_the_log(client, recorded, monkeypatch):
    monkeypatch.setattr(published_runs, "_KEPT", 4)
    client.apply(Queue(name="work", underlying_topic="orders"))
    till = client.publisher("till-1", store=MemoryPublishStore())
    receipts = []
    for number in range(20):
        receipts.append(till.publish("work" if number % 2 else "orders", number))
        till.flush("30s")

    assert till._core.guaranteed.known_bookmark(1) is None
    assert [each.bookmark() for each in receipts] == recorded("orders")


def test_a_receipt_of_what_the_log_lost_has_an_empty_id(client, redis):
    till = client.publisher("till-1", store=MemoryPublishStore())
    receipt = till.publish("orders", 1)
    till.flush("30s")
    till._core.guaranteed._work.published._runs.clear()
    redis.xtrim(key(client.instance, "log", "orders"), maxlen=0)

    assert receipt.bookmark() == Bookmark.of("orders", client.origin, "")


def test_a_receipt_of_what_was_refused_says_why(client, redis):
    client.apply(Topic(name="broken"))
    redis.set(key(client.instance, "log", "broken"), "no stream")
    failed = []
    till = client.publisher("till-1", store=MemoryPublishStore(), on_failed_write=failed.append)

    receipt, good = till.publish("broken", 1), till.publish("orders", 2)

    with pytest.raises(type(failed[0].error) if failed else Exception, match="WRONGTYPE"):
        receipt.bookmark("30s")
    assert good.bookmark("30s").topic == "orders"


def test_who_waits_for_a_bookmark_is_told_what_is_missing(client):
    class Held(MemoryPublishStore):
        def read(self, after, number):
            return super().read(after, number) if may_go_on.is_set() else []

    may_go_on = threading.Event()
    till = client.publisher("till-1", store=Held())
    receipt = till.publish("orders", 1)
    with pytest.raises(NotPersisted, match=r"1 messages \(sequences 1 to 1\) of publisher 'till-1'"):
        receipt.bookmark("100ms")
    may_go_on.set()
    till.publish("orders", 2)
    assert receipt.bookmark("30s").topic == "orders"


def test_without_a_store_receipts_are_complete(client, recorded):
    with client.publisher("till-1") as till:
        one = till.publish("orders", 1)
        many = till.publish_many("orders", [2, 3])
        again = till.publish("orders", "again", sequence=2)

        assert [one.sequence, *(each.sequence for each in many), again.sequence] == [1, 2, 3, 2]
        assert [one.bookmark(), *(each.bookmark() for each in many)] == recorded("orders")
        assert again.bookmark() == many[0].bookmark()
        assert till.last_persisted == 3


def test_with_asyncio_receipts_are_awaited(valkey, instance):
    async def work():
        async with AsyncClient(valkey.url, instance=instance) as client:
            async with client.publisher("till-1", store=MemoryPublishStore()) as till:
                receipts = await asyncio.gather(*(till.publish("orders", number) for number in range(30)))
                receipts.sort(key=lambda each: each.sequence)
                found = [await each.bookmark("30s") for each in receipts]
            plain = await client.publisher("till-2")
            last = await (await plain.publish("orders", 30)).bookmark()
            await plain.close()
            with pytest.raises(Closed):
                await plain.publish("orders", 31)
            async with await client.subscribe_topic("orders", bookmark="[epoch:now]") as messages:
                return [*found, last], [message.bookmark async for message in messages]

    found, recorded = asyncio.run(work())
    assert found == recorded


# -- who waits for whom


@pytest.fixture
def held(monkeypatch):
    """Calls that carry the body ``held`` wait until the event is set; the other one is set when one has come."""
    came, goes = threading.Event(), threading.Event()
    sync, awaited = Store.call, AsyncStore.call

    def call(self, call):
        if b'"held"' in call.arguments:
            came.set()
            goes.wait(30)
        return sync(self, call)

    async def call_awaited(self, call):
        if b'"held"' in call.arguments:
            came.set()
            await asyncio.to_thread(goes.wait, 30)
        return await awaited(self, call)

    monkeypatch.setattr(Store, "call", call)
    monkeypatch.setattr(AsyncStore, "call", call_awaited)
    yield came, goes
    goes.set()


@pytest.mark.parametrize("named", [False, True], ids=["client", "publisher"])
def test_threads_wait_for_each_other_only_under_a_name(client, held, named):
    came, goes = held
    client.apply(Topic(name="orders"))
    by = client.publisher("till-1") if named else client
    is_done = threading.Event()
    threads = [
        threading.Thread(target=by.publish, args=("orders", "held")),
        threading.Thread(target=lambda: (by.publish("orders", "next"), is_done.set())),
    ]
    threads[0].start()
    assert came.wait(30)
    threads[1].start()

    # A number must not overtake the one before.
    assert is_done.wait(0.5 if named else 30) is not named

    goes.set()
    for thread in threads:
        thread.join()
    with client.subscribe_topic("orders", bookmark="[epoch:now]") as messages:
        assert data_of(list(messages)) == (["held", "next"] if named else ["next", "held"])


@pytest.mark.parametrize("named", [False, True], ids=["client", "publisher"])
def test_tasks_wait_for_each_other_only_under_a_name(valkey, instance, held, named):
    _, goes = held

    async def work():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(Topic(name="orders"))
            async with contextlib.AsyncExitStack() as stack:
                by = await stack.enter_async_context(client.publisher("till-1")) if named else client
                first = asyncio.create_task(by.publish("orders", "held"))
                await asyncio.sleep(0.05)  # the first one is sent, and not answered
                second = asyncio.create_task(by.publish("orders", "next"))
                done, _ = await asyncio.wait([second], timeout=0.5 if named else 30)
                goes.set()
                await asyncio.gather(first, second)
                return bool(done)

    assert asyncio.run(work()) is not named


# -- opening and closing


def test_a_client_has_one_publisher_of_a_name_at_a_time(client):
    till = client.publisher("till-1", store=MemoryPublishStore())
    with pytest.raises(DefinitionError, match="a publisher 'till-1' that is open"):
        client.publisher("till-1")
    till.publish("orders", 1)
    till.close()
    till.close()
    with pytest.raises(Closed, match="this publisher was closed"):
        till.publish("orders", 2)
    with client.publisher("till-1") as again:
        assert again.publish("orders", 2).sequence == 2


def test_a_client_closes_its_publishers(connect):
    client = connect()
    plain, kept = client.publisher("a"), client.publisher("b", store=MemoryPublishStore())
    receipt = kept.publish("orders", 1)
    client.close()
    assert receipt.bookmark().topic == "orders"
    for publisher in (plain, kept):
        with pytest.raises(Closed):
            publisher.publish("orders", 2)
    with pytest.raises(Closed):
        client.publisher("c")


def test_a_publisher_that_nobody_entered_says_so(valkey, instance):
    async def work():
        async with AsyncClient(valkey.url, instance=instance) as client:
            with pytest.raises(Closed, match="async with client"):
                await client.publisher("till-1").publish("orders", 1)
        with pytest.raises(Closed, match="not connected"):
            AsyncClient(valkey.url, instance=instance).publisher("till-1")

    asyncio.run(work())


# -- acknowledgements


def test_acknowledgements_are_kept_where_the_subscription_says_so(client):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    store = MemoryPublishStore()
    till = client.publisher("till-1", store=store)
    till.publish_many("orders", range(2))
    bookmark = till.publish("orders", 2).bookmark("30s")
    with client.subscribe("work", max_backlog=2, publisher=till) as messages:
        for message in pick_up(messages, 2):
            message.ack()
        till.flush("30s")
    assert client.admin.queue_stats("work").acknowledged == 2
    assert client.ack("work", [bookmark], publisher=till) == 1
    till.flush("30s")
    assert store.settlements() == {}


@pytest.mark.parametrize("ask", ["subscribe", "ack"])
def test_what_cannot_keep_acknowledgements_is_refused(client, connect, ask):
    client.apply(Queue(name="work", underlying_topic="orders"))
    ways = {
        "subscribe": lambda publisher: client.subscribe("work", publisher=publisher),
        "ack": lambda publisher: client.ack("work", [], publisher=publisher),
    }
    foreign = connect().publisher("b", store=MemoryPublishStore())
    for publisher, text in ((client.publisher("a"), "has no store"), (foreign, "one of this client"), (1, "one of")):
        with pytest.raises(DefinitionError, match=text):
            ways[ask](publisher)


def test_what_may_mean_others_the_second_time_is_not_kept(client):
    client.apply(Queue(name="work", underlying_topic="orders"))
    till = client.publisher("till-1", store=MemoryPublishStore())
    for given in ({"filter": "/id = 1"}, {"bookmarks": [], "option": "cancel"}):
        with pytest.raises(DefinitionError, match="publisher: allowed with bookmarks"):
            client.ack("work", publisher=till, **given)
