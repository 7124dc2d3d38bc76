"""Address settings at work: queues take their defaults at once, at run time, and are made when they are first used."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from observing import eventually
from scene import pick_up

from ampsq import AddressSetting, AsyncClient, Queue, Topic, TopicSubscription, View, Worker
from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.files.config import load
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.transport.store import Store

RINGS = AddressSetting(match="ring.#", default_ring_size=3, auto_create_queues=True)


def left(client, queue):
    return [message.data for message in client.sow(queue)]


def fill(client, topic, number=5):
    client.publish_many(topic, range(number))


@pytest.fixture
def store(valkey, instance):
    with contextlib.closing(Store(valkey.url, instance)) as store:
        yield store


# -- defaults of queues


def test_a_queue_of_a_name_that_matches_is_a_ring(client):
    client.apply(RINGS, Queue(name="ring.a"), Queue(name="other"))
    fill(client, "ring.a")
    fill(client, "other")
    assert left(client, "ring.a") == [2, 3, 4]
    assert left(client, "other") == [0, 1, 2, 3, 4]


def test_the_ring_of_the_document_is_one_whatever_else_is_set(client):
    text = """<addresses><address name="ring.my"><anycast><queue name="ring.my" ring-size="2"/></anycast></address>
      </addresses>"""
    client.apply(RINGS, *load(text))
    fill(client, "ring.my")
    assert left(client, "ring.my") == [3, 4]


def test_a_setting_that_comes_later_holds_for_queues_that_are_there(client):
    # Given queues with messages
    client.apply(Queue(name="ring.a"), Queue(name="ring.b", ring_size=4), Queue(name="ring.c", ring_size=-1))
    for name in ("ring.a", "ring.b", "ring.c"):
        fill(client, name)
    # When a setting makes them rings of three
    assert [outcome for _, outcome in client.apply(RINGS)] == ["new"]
    # Then what is there stays, what enters evicts, and what a queue says itself counts more
    for name in ("ring.a", "ring.b", "ring.c"):
        client.publish(name, 5)
    assert left(client, "ring.b") == [2, 3, 4, 5]
    assert left(client, "ring.c") == [0, 1, 2, 3, 4, 5]
    assert left(client, "ring.a")[-3:] == [3, 4, 5]
    # And what is stored of a queue is what was said of it
    assert client.admin.queues()["ring.a"] == Queue(name="ring.a")


def test_a_changed_setting_changes_its_queues_and_says_what_changed(client):
    client.apply(RINGS, Queue(name="ring.a"))
    larger = AddressSetting(match="ring.#", default_ring_size=4)
    (planned,) = client.admin.plan(larger)
    assert (planned.outcome, planned.changes) == (
        "changed",
        {"default_ring_size": (3, 4), "auto_create_queues": (True, None)},
    )
    assert [outcome for _, outcome in client.apply(larger)] == ["changed"]
    assert [outcome for _, outcome in client.apply(larger)] == ["unchanged"]
    fill(client, "ring.a", 9)
    assert left(client, "ring.a") == [5, 6, 7, 8]
    assert client.admin.address_settings() == {"ring.#": larger}


def test_the_most_specific_setting_counts_whichever_came_first(client):
    client.apply(AddressSetting(match="ring.a", default_ring_size=1), Queue(name="ring.a"), Queue(name="ring.b"))
    client.apply(RINGS)
    for name in ("ring.a", "ring.b"):
        fill(client, name)
    assert left(client, "ring.a") == [4]
    assert left(client, "ring.b") == [2, 3, 4]


@pytest.mark.usefixtures("coordinator")
def test_deliveries_redelivery_and_expiration_come_from_settings_too(client, journal):
    client.apply(
        AddressSetting(match="a.#", max_delivery_attempts=2, redelivery_delay="1ms"),
        AddressSetting(match="b.*", expiry_delay="50ms"),
        Queue(name="a.q"),
        Queue(name="b.q"),
    )
    twice = client.publish("a.q", 1)
    with client.subscribe("a.q") as messages:
        pick_up(messages, 1)[0].cancel()
        pick_up(messages, 1)[0].cancel()
    assert journal.entries("a.q") == [("expired", "max_deliveries", twice)]
    late = client.publish("b.q", 1)
    eventually(lambda: journal.entries("b.q") == [("expired", "time_limit", late)])


def test_many_queues_are_compiled_one_by_one(client):
    names = [f"ring.q{number}" for number in range(60)]
    client.apply(*(Queue(name=name) for name in names))
    client.apply(RINGS)
    for name in names[::20]:
        fill(client, name)
        assert left(client, name) == [2, 3, 4]


def test_who_died_while_a_setting_was_applied_is_followed_by_the_next(client, store):
    # Given a client that died when the setting was noted and no queue was compiled yet
    client.apply(Queue(name="ring.a"), Queue(name="ring.b"))
    version = store.call(catalog_calls.catalog()).version
    store.call(define_calls.define_setting(version, "ring.#", ">" + RINGS.to_json()))
    fill(client, "ring.a")
    assert len(left(client, "ring.a")) == 5
    assert client.admin.address_settings() == {"ring.#": RINGS}
    # When a queue is defined meanwhile, then it goes by the new setting
    client.apply(Queue(name="ring.c"))
    fill(client, "ring.c")
    assert left(client, "ring.c") == [2, 3, 4]
    # And when the setting is applied again, all do
    assert [outcome for _, outcome in client.apply(RINGS)] == ["changed"]
    fill(client, "ring.b")
    assert left(client, "ring.b") == [2, 3, 4]
    assert [outcome for _, outcome in client.apply(RINGS)] == ["unchanged"]


def test_queues_and_settings_that_are_applied_at_once_end_as_they_should(connect):
    clients = [connect() for _ in range(4)]
    work = [[RINGS], *([Queue(name=f"ring.{n}{k}") for k in range(10)] for n in "abc")]
    threads = [threading.Thread(target=lambda c=c, d=d: c.apply(*d)) for c, d in zip(clients, work, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in "abc":
        for k in (0, 9):
            fill(clients[0], f"ring.{n}{k}")
            assert left(clients[0], f"ring.{n}{k}") == [2, 3, 4]


def test_a_setting_that_a_queue_cannot_have_is_left_out(client):
    client.apply(Queue(name="ring.p", priority="/p"), Queue(name="ring.b", barrier_expression="/end = 1"), RINGS)
    for name in ("ring.p", "ring.b"):
        fill(client, name)
        assert len(left(client, name)) == 5


def test_what_is_no_definition_is_explained(client):
    with pytest.raises(DefinitionError, match="AddressSetting"):
        client.apply("ring.#")


# -- first use


def test_a_queue_is_made_when_somebody_first_subscribes_to_it(client):
    client.apply(RINGS)
    with client.subscribe("ring.new") as messages:
        client.publish("ring.new", 1)
        assert pick_up(messages, 1)[0].data == 1
    assert client.admin.queues() == {"ring.new": Queue(name="ring.new")}


def test_a_queue_is_made_when_something_is_first_published_to_its_name(client):
    client.apply(RINGS)
    fill(client, "ring.new")
    assert left(client, "ring.new") == [2, 3, 4]
    client.publish("ring.one", 1)
    assert left(client, "ring.one") == [1]


def test_over_a_topic_that_is_there_a_queue_is_made_when_it_is_subscribed_to(client):
    client.apply(Topic(name="ring.t"), RINGS)
    client.publish("ring.t", 1)
    assert client.admin.queues() == {}
    with client.subscribe("ring.t") as messages:
        assert pick_up(messages, 1)[0].data == 1


def test_without_a_setting_that_says_so_nothing_is_made(client):
    client.apply(
        AddressSetting(match="#", auto_create_queues=True),
        AddressSetting(match="a.*", auto_create_queues=False),
        AddressSetting(match="a.b", default_ring_size=3),
    )
    with pytest.raises(UnknownQueue):
        client.subscribe("a.b")
    client.publish("a.b", 1)
    assert (list(client.admin.topics()), client.admin.queues()) == (["a.b"], {})
    # A regular expression asks for what there is
    with client.subscribe("^b"):
        assert client.admin.queues() == {}


def test_no_queue_is_made_of_a_name_that_stands_for_something_else(client):
    client.apply(AddressSetting(match="#", auto_create_queues=True), Queue(name="work", underlying_topic="orders"))
    client.apply(View(name="rows", underlying_topic="orders", projection=["COUNT(*) AS /n"]))
    client.publish("work", 1)
    assert list(client.admin.queues()) == ["work"]
    # A view's name is that of the topic that has its rows
    with client.subscribe_topic("rows") as rows:
        assert isinstance(rows, TopicSubscription)
    client.publish("orders", 2)
    assert list(client.admin.queues()) == ["work"]
    assert left(client, "work") == [1, 2]


def test_a_subscription_may_move_to_a_queue_that_is_made_then(client):
    client.apply(RINGS)
    with client.subscribe("ring.a") as messages:
        messages.replace(name="ring.b")
        client.publish("ring.b", 1)
        assert pick_up(messages, 1)[0].data == 1


def test_workers_make_queues_too(client, valkey, instance):
    client.apply(RINGS)
    seen = []
    worker = Worker(lambda message: seen.append(message.data), "ring.w", url=valkey.url, instance=instance)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        eventually(lambda: "ring.w" in client.admin.queues())
        client.publish("ring.w", 7)
        eventually(lambda: seen == [7])
    finally:
        worker.stop()
        thread.join()


def test_many_at_once_make_one_queue(client, connect):
    client.apply(RINGS)
    clients, errors = [connect() for _ in range(6)], []

    def use(number, other):
        try:
            if number % 2:
                other.publish("ring.new", number)
            else:
                other.subscribe("ring.new").close()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=use, args=pair) for pair in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(left(client, "ring.new")) == [1, 3, 5]


def test_a_foreign_entry_is_a_first_use_where_a_coordinator_sees_it(client, valkey, start_coordinator):
    client.apply(RINGS)
    start_coordinator()
    with valkey.client() as redis:
        redis.xadd("{" + client.instance + "}:log:ring.x", {"n": "1"})
    eventually(lambda: "ring.x" in client.admin.queues())
    assert left(client, "ring.x") == [{"n": "1"}]


def test_the_asynchronous_client_does_the_same(valkey, instance):
    async def scenario():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(RINGS)
            assert await client.admin.address_settings() == {"ring.#": RINGS}
            await client.publish("ring.p", 1)
            async with client.subscribe("ring.s"):
                assert sorted(await client.admin.queues()) == ["ring.p", "ring.s"]

    asyncio.run(scenario())
