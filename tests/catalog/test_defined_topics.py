"""An instance that takes messages for defined topics alone: what is refused, and what counts as defined."""

from __future__ import annotations

import asyncio
import contextlib
import pickle

import pytest

from ampsq import (
    Action,
    AsyncClient,
    ConflatedTopic,
    Do,
    Instance,
    MemoryPublishStore,
    On,
    Queue,
    Topic,
    View,
)
from ampsq.base.errors import DefinitionError, TopicNotDefined, UnknownTopic
from ampsq.base.suggestions import nearest_names
from ampsq.catalog import apply
from ampsq.definitions.action import DeadLetterAction
from ampsq.definitions.address_setting import AddressSetting
from ampsq.protocol.schema import key
from ampsq.transport.store import Store

DEFINED = Instance(topics="defined")
SENTENCE = (
    "'ordres' is not defined, and this instance takes messages for defined topics alone "
    "(Instance(topics='defined')); did you mean 'orders'? "
    "To define it: client.apply(Topic(name='ordres')), or `ampsq apply FILE`"
)


@pytest.fixture
def strict(either):
    """A client of an instance that takes defined topics alone, and has some."""
    either.apply(DEFINED, Topic(name="orders"), Topic(name="trades", key="/id"))
    return either


@pytest.fixture
def store(strict):
    with contextlib.closing(Store(strict.url, strict.instance)) as store:
        yield store


def stored(store):
    """Everything that the server has of the instance, but who is connected to it."""
    redis = store.redis
    names = sorted(redis.scan_iter(key(store.instance, "instance").removesuffix(":instance") + ":*", count=1_000))
    return {name: redis.dump(name) for name in names}


@pytest.mark.parametrize(
    "publish",
    [
        lambda client: client.publish("ordres", {"id": 1}),
        lambda client: client.publish("ordres", b"bytes", delay="1h"),
        lambda client: client.publish_many("ordres", [{"id": 1}, {"id": 2}]),
        lambda client: client.delta_publish("ordres", {"id": 1}),
    ],
    ids=["publish", "bytes", "many", "delta"],
)
def test_a_first_publish_to_a_topic_that_nobody_defined_is_refused_and_changes_nothing(strict, store, publish):
    before = stored(store)
    with pytest.raises(TopicNotDefined) as refused:
        publish(strict)

    assert str(refused.value) == SENTENCE
    assert (refused.value.topic, refused.value.nearest) == ("ordres", ("orders",))
    assert isinstance(refused.value, DefinitionError)
    assert stored(store) == before
    # And what it says helps
    strict.apply(Topic(name="ordres"))
    publish(strict)


def test_so_it_is_with_asyncio(strict):
    async def use():
        async with AsyncClient(strict.url, instance=strict.instance) as client:
            for publish in (
                client.publish("ordres", 1),
                client.publish_many("ordres", [1, 2]),
                client.delta_publish("ordres", {"id": 1}),
            ):
                with pytest.raises(TopicNotDefined) as refused:
                    await publish
                assert str(refused.value) == SENTENCE
            await client.publish("orders", 1)
            return await client.admin.topics()

    assert set(asyncio.run(use())) == {"orders", "trades"}


def test_a_guaranteed_publisher_is_told_which_write_failed_and_goes_on(strict, connect_to_each):
    failed = []
    with connect_to_each().publisher("till", store=MemoryPublishStore(), on_failed_write=failed.append) as till:
        till.publish("orders", b"1")
        till.publish("ordres", b"2")
        till.publish("orders", b"3")
        till.flush("30s")

    assert [(each.sequence, each.topic, str(each.error)) for each in failed] == [(2, "ordres", SENTENCE)]
    assert strict.admin.topics()["orders"].messages == 2
    assert "ordres" not in strict.admin.topics()


def test_the_names_of_other_things_that_are_defined_are_topics_too(strict):
    strict.apply(
        Queue(name="work", underlying_topic="jobs"),
        Queue(name="own"),
        Queue(name="regional", underlying_topic="^region/", default_publish_target="region/eu"),
        View(name="board", underlying_topic="prices", projection=["/id", "COUNT(/id) AS /n"], grouping=["/id"]),
        ConflatedTopic(name="slowly", underlying_topic="quotes", key="/id"),
        DeadLetterAction(queue="work", topic="dead").action(),
        Action(name="copy", on=On.publish(topic="source"), do=Do.publish(topic="copies", data="{{AMPS_DATA}}")),
        AddressSetting(match="auto.#", auto_create_queues=True),
    )

    for name in (
        *("work", "jobs", "own", "regional", "region/eu", "board", "prices", "quotes", "dead", "source", "copies"),
        "auto.made",
    ):
        strict.publish(name, {"id": 1})

    assert "auto.made" in strict.admin.queues()
    # A pattern says of which topics, not which there are; nor does what is published by
    for name in ("region/us", "autos", "copy", "dead-letter-work"):
        with pytest.raises(TopicNotDefined):
            strict.publish(name, {"id": 1})


def test_topics_that_were_used_before_stay_and_so_do_those_whose_definition_is_removed(either):
    either.publish("used", 1)
    either.apply(DEFINED, Topic(name="plain"), Topic(name="kept", retention_count=5), Queue(name="work"))

    either.admin.remove(Topic(name="plain"), Topic(name="kept"), Queue(name="work"))
    for name in ("used", "plain", "kept", "work"):
        either.publish(name, 2)

    assert set(either.admin.topics()) == {"used", "plain", "kept", "work"}


def test_the_name_of_a_removed_queue_over_another_topic_is_nobody_s(strict):
    strict.apply(Queue(name="work", underlying_topic="orders"))
    strict.publish("work", 1)

    strict.admin.remove(Queue(name="work"))

    with pytest.raises(TopicNotDefined, match="'work' is not defined"):
        strict.publish("work", 2)


def test_it_is_taken_back_as_any_element_is(strict, store):
    (planned,) = strict.admin.plan(Instance(topics="any"))
    assert planned.changes == {"topics": ("defined", "any")}
    assert strict.apply(DEFINED)[0][1] == "unchanged"
    # Nothing else of the instance is a change of it
    assert strict.admin.plan(Instance(topics="defined", label="ours"))[0].changes == {"label": (None, "ours")}

    assert strict.apply(Instance())[0][1] == "changed"

    strict.publish("ordres", 1)
    assert strict.admin.definitions()[0] == Instance(name=strict.instance)
    assert not store.redis.hexists(key(strict.instance, "instance"), "defined_only")


def test_definitions_have_it_and_removing_the_instance_s_takes_it_back(strict):
    assert strict.admin.definitions()[0] == Instance(name=strict.instance, topics="defined")

    strict.admin.remove(Instance())

    strict.publish("ordres", 1)


@pytest.mark.parametrize("value", ["all", "Defined", "", 1, True, ["orders"], {"defined": 1}])
def test_other_words_are_refused(value):
    with pytest.raises(DefinitionError, match=r"^Instance: topics: .* is not known; allowed: 'any' or 'defined'$"):
        Instance(topics=value)


def test_what_is_said_between_the_look_and_the_making_counts(either, monkeypatch):
    either.apply(Topic(name="orders"))
    define, said = apply._define_topic, []

    def defining_late(*given):
        # Whoever makes the topic has looked, and may; now the instance takes defined ones alone
        if not said:
            said.append(either.apply(DEFINED))
        return define(*given)

    monkeypatch.setattr(apply, "_define_topic", defining_late)
    with contextlib.closing(Store(either.url, either.instance)) as store, pytest.raises(TopicNotDefined):
        store.run(apply.add_topic("ordres"))

    assert said
    assert set(either.admin.topics()) == {"orders"}


def test_subscribing_makes_no_topic_and_is_refused_as_before(strict):
    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        strict.subscribe_topic("ordres", bookmark="now")
    assert "ordres" not in strict.admin.topics()


def test_the_error_can_be_sent_to_other_processes():
    error = TopicNotDefined("ordres", ["orders", "order"])

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert (type(copy), str(copy), copy.topic, copy.nearest) == (
        TopicNotDefined, str(error), "ordres", ("orders", "order"),
    )  # fmt: skip
    assert "did you mean 'orders' or 'order'?" in str(copy)


def test_where_nothing_is_like_it_nothing_is_suggested(either):
    either.apply(DEFINED, Topic(name="trades"))

    with pytest.raises(TopicNotDefined, match=r"\(Instance\(topics='defined'\)\)\. To define it"):
        either.publish("positions", 1)


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("ordres", ["trades", "orders"], ["orders"]),
        ("orderz", ["orders", "order", "traders", "order-books"], ["order", "orders"]),
        ("prices-europe", ["prices-us", "prices-eu", "jobs"], ["prices-eu", "prices-us"]),
        ("orders-5", [f"orders-{n}" for n in range(5)], ["orders-4", "orders-3", "orders-2"]),
        ("zzz", ["orders"], []),
        ("orders", [], []),
    ],
)
def test_the_nearest_names_are_three_at_most(name, known, nearest):
    assert nearest_names(name, known) == nearest
