"""First uses by publishers and workers, who may not define: a coordinator makes it, and nobody else does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from observing import eventually

from ampsq import AsyncClient, Client, ConflatedTopic, Instance, Queue, Topic
from ampsq.base.errors import DefinitionError, NobodyDefines, TopicNotDefined, UnknownQueue
from ampsq.catalog import first_use
from ampsq.coordinator.wanted_names import WantedNames
from ampsq.definitions.address_setting import AddressSetting
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.limits import WANTED
from ampsq.protocol.schema import key
from ampsq.transport.store import Store

pytestmark = pytest.mark.default_user(reason="makes its users itself, and has them do what their role may not")


@pytest.fixture
def store(server, instance):
    with contextlib.closing(Store(server.url, instance)) as store:
        yield store


@pytest.fixture
def admin(login, instance):
    with Client(login("admin"), instance=instance) as client:
        client.apply(
            Queue(name="work", underlying_topic="orders"), AddressSetting(match="auto.#", auto_create_queues=True)
        )
        yield client


@pytest.mark.usefixtures("admin")
def test_a_coordinator_makes_the_topic_that_a_publisher_uses_first(login, instance, coordinate):
    coordinate(login("coordinator"))
    with (
        Client(login("publisher"), instance=instance) as publisher,
        Client(login("worker"), instance=instance) as worker,
    ):
        publisher.publish("trades", {"id": 1})
        publisher.publish_many("quotes", [{"id": 2}])
        publisher.publish("auto.jobs", {"id": 3})

        assert {"trades", "quotes"} <= set(worker.admin.topics())
        with worker.subscribe("auto.jobs") as messages:
            assert messages.get(timeout="10s").data == {"id": 3}
        with worker.subscribe("auto.later"):
            assert "auto.later" in worker.admin.queues()
        with pytest.raises(UnknownQueue):
            worker.subscribe("trades.jobs")


@pytest.mark.usefixtures("admin")
def test_a_guaranteed_publisher_waits_for_one(login, instance, coordinate, tmp_path):
    with (
        Client(login("publisher"), instance=instance) as client,
        client.publisher("till", store=tmp_path / "till.db") as till,
    ):
        till.publish("late", {"id": 1})
        # Longer than who has no guarantee waits
        time.sleep(4.0)
        coordinate(login("coordinator"))
        till.flush(timeout="20s")
        assert "late" in client.admin.topics()


@pytest.mark.usefixtures("admin")
def test_so_it_does_for_asyncio(login, instance, coordinate):
    async def use():
        async with AsyncClient(login("gateway"), instance=instance) as client:
            await client.publish("later", {"id": 2})
            async with client.subscribe("auto.next"):
                return await client.admin.topics()

    coordinate(login("coordinator"))

    assert {"later", "auto.next"} <= set(asyncio.run(use()))


@pytest.mark.parametrize("role", ["publisher", "gateway"])
def test_without_a_coordinator_it_is_refused_and_says_what_helps(role, login, instance, admin, store):
    before = store.call(catalog_calls.catalog())
    with Client(login(role), instance=instance) as client:
        with pytest.raises(NobodyDefines, match=r"'trades' is not defined.*ampsq coordinator.*ampsq apply"):
            client.publish("trades", {"id": 1})
        assert store.call(catalog_calls.catalog()) == before
        # What was asked for is made as soon as one comes, or by an administrator
        assert store.call(define_calls.read_wanted(instance)) == ["trades"]
        admin.apply(Topic(name="trades"))
        client.publish("trades", {"id": 1})


def test_what_cannot_be_made_is_refused_before_it_is_asked_for(login, instance, admin, store):
    admin.apply(ConflatedTopic(name="slowly", underlying_topic="orders", key="/id"))
    with (
        Client(login("publisher"), instance=instance) as client,
        pytest.raises(DefinitionError, match="conflated topic"),
    ):
        client.publish("slowly", {"id": 1})

    assert store.call(define_calls.read_wanted(instance)) == []


def test_a_name_that_cannot_be_made_is_told_once_and_forgotten(instance, admin, store, caplog):
    admin.apply(ConflatedTopic(name="slowly", underlying_topic="orders", key="/id"))
    store.redis.zadd(key(instance, "wanted"), {"slowly": 1, "no name": 2, "fine": 3})

    WantedNames().run_once(store)

    assert "fine" in admin.admin.topics()
    assert store.call(define_calls.read_wanted(instance)) == []
    assert [record.message.partition(" was used")[0] for record in caplog.records] == ["slowly", "no name"]


def test_only_so_many_names_are_kept(login, instance, admin, store):  # noqa: ARG001 - the instance is there
    store.redis.zadd(key(instance, "wanted"), {f"t{number}": number for number in range(WANTED)})
    with contextlib.closing(Store(login("worker"), instance)) as worker:
        assert worker.call(define_calls.want_name("one-more"))

    assert store.redis.zcard(key(instance, "wanted")) == WANTED
    assert store.redis.zscore(key(instance, "wanted"), "t0") is None


def test_who_may_define_does_not_ask(instance, admin, store):
    admin.publish("mine", {"id": 1})

    eventually(lambda: "mine" in admin.admin.topics())
    assert not store.redis.exists(key(instance, "wanted"))


@pytest.mark.parametrize("role", ["publisher", "gateway"])
def test_where_defined_topics_alone_are_taken_it_is_refused_at_once_and_nobody_is_asked(
    role, login, instance, admin, store
):
    admin.apply(Instance(topics="defined"))
    with Client(login(role), instance=instance) as client:
        began = time.monotonic()
        with pytest.raises(TopicNotDefined, match=r"'ordres' is not defined.*did you mean 'orders'\?"):
            client.publish("ordres", {"id": 1})
        # Who waits for a coordinator that makes it waits for three seconds
        assert time.monotonic() - began < 2.0
        client.publish("orders", {"id": 1})

    assert store.call(define_calls.read_wanted(instance)) == []


def test_whoever_waits_for_a_topic_is_refused_when_it_is_forbidden(login, instance, admin, monkeypatch):
    monkeypatch.setattr(first_use, "_LOOKS", (0.05,) * 1_000)
    with Client(login("publisher"), instance=instance) as client, ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.publish, "trades", {"id": 1})
        eventually(lambda: admin._store.call(define_calls.read_wanted(instance)) == ["trades"])

        admin.apply(Instance(topics="defined"))

        with pytest.raises(TopicNotDefined, match="'trades' is not defined"):
            waiting.result(20)


def test_a_coordinator_does_not_make_what_the_instance_does_not_take(instance, admin, store, caplog):
    # Given names that were asked for by those who do not know what the instance takes
    admin.apply(Instance(topics="defined"))
    store.redis.zadd(key(instance, "wanted"), {"ordres": 1, "auto.jobs": 2})

    WantedNames().run_once(store)

    # Then only the queue of an address setting is made, and the other one is told
    assert "ordres" not in admin.admin.topics()
    assert "auto.jobs" in admin.admin.queues()
    assert store.call(define_calls.read_wanted(instance)) == []
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith(f"ordres was used first in {instance}, and cannot be made: 'ordres' is not defined")
