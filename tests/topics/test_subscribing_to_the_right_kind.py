"""`subscribe` is for queues, `subscribe_topic` for topics: the wrong one names the right one, which asks no more."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from scene import data_of, pick_up

from ampsq import AsyncClient, AsyncSubscription, AsyncTopicSubscription, ConflatedTopic, Queue, Topic, View
from ampsq.base.errors import UnknownQueue, UnknownTopic
from ampsq.queues.subscription import Subscription
from ampsq.topics.subscription import TopicSubscription


@pytest.fixture
def defined(either):
    """A queue over a topic, one over its own topic, a topic alone, a view and a conflated topic."""
    either.apply(
        Topic(name="orders", key="/id"),
        Queue(name="work", underlying_topic="orders"),
        Queue(name="mail"),
        Topic(name="alone"),
        View(name="totals", underlying_topic="orders", projection=["COUNT(*) AS /n"]),
        ConflatedTopic(name="slow", underlying_topic="orders", interval="100ms"),
    )
    return either


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders", "'orders' is a topic, not a queue: subscribe_topic('orders') follows it; its queues are 'work'"),
        ("alone", "'alone' is a topic, not a queue: subscribe_topic('alone') follows it, and no queue is over it"),
        ("totals", "'totals' is a view, not a queue: subscribe_topic('totals') follows its rows"),
        ("slow", "'slow' is a conflated topic, not a queue: subscribe_topic('slow') follows it"),
        ("wrok", "'wrok' is neither a queue nor a topic; did you mean 'work'?"),
        (
            "order",
            "'order' is neither a queue nor a topic; did you mean 'orders'? It is a topic: "  # noqa: ISC004
            "subscribe_topic('orders') follows it",
        ),
    ],
)
def test_what_is_no_queue_is_told_what_it_is_and_what_to_call(defined, name, text):
    with pytest.raises(UnknownQueue) as refusal:
        defined.subscribe(name)
    assert (str(refusal.value), refusal.value.detail) == (text, {"queue": name})
    with defined.subscribe("work") as messages, pytest.raises(UnknownQueue) as refusal:
        messages.replace(name=name)
    assert str(refusal.value) == text


def test_a_name_that_nothing_has_may_be_a_topic_s_that_is_to_come(defined):
    with pytest.raises(UnknownQueue, match=r"\. A topic that is to come is waited for with subscribe_topic\('bills'\)"):
        defined.subscribe("bills")
    with defined.subscribe_topic("bills") as messages:
        defined.publish("bills", 1)
        assert data_of(pick_up(messages, 1)) == [1]


@pytest.mark.parametrize("options", [{}, {"rate": 100}, {"sub_id": "books"}, {"bookmark_not_found": "fail"}])
def test_what_is_no_topic_is_told_what_it_is_and_what_to_call(defined, options):
    with pytest.raises(UnknownTopic) as refusal:
        defined.subscribe_topic("work", **options)
    text = (
        "'work' is a queue, not a topic: subscribe('work') takes its messages; subscribe_topic('orders') follows its "
        "topics, and takes nothing"
    )
    assert (str(refusal.value), refusal.value.detail) == (text, {"name": "work"})
    with pytest.raises(UnknownTopic, match=r"did you mean 'work'\? It is a queue: subscribe\('work'\) takes"):
        defined.subscribe_topic("wrok", **options)
    assert defined.admin.queue_stats("work").subscriptions == 0


def test_with_a_bookmark_a_queue_s_name_stands_for_its_topics(defined):
    defined.publish("orders", {"id": 1})
    with defined.subscribe_topic("work", bookmark="epoch") as messages:
        assert data_of(pick_up(messages, 1)) == [{"id": 1}]
    assert defined.admin.queue_stats("work").depth == 1


def test_a_name_of_both_is_the_one_that_the_call_is_for(defined):
    with defined.subscribe_topic("mail") as live, defined.subscribe_topic("mail", sub_id="audit") as durable:
        defined.publish("mail", 1)
        with defined.subscribe("mail") as leased:
            for messages in (live, durable, leased):
                assert data_of(pick_up(messages, 1)) == [1]


def test_the_rows_of_a_view_are_followed_by_its_name(defined):
    with defined.subscribe_topic("totals") as rows:
        assert rows.get(0) is None


@pytest.mark.parametrize(
    ("method", "argument", "text"),
    [
        ("subscribe", {"bookmark": "epoch"}, r"subscribe_topic\('orders', bookmark=\.\.\.\) follows topics, and has"),
        ("subscribe", {"sub_id": "a"}, r"subscribe_topic\('orders', sub_id=\.\.\.\) follows topics, and has it"),
        ("subscribe", {"speed": 1}, "no argument 'speed'; allowed: max_backlog, filter, renew, on_message"),
        ("subscribe_topic", {"max_backlog": 2}, r"subscribe\('orders', max_backlog=\.\.\.\) takes the messages of qu"),
        ("subscribe_topic", {"renew": True}, r"subscribe\('orders', renew=\.\.\.\) takes the messages of queues, and"),
        ("subscribe_topic", {"speed": 1}, "no argument 'speed'; allowed: bookmark, filter, on_message, sub_id"),
    ],
)
def test_an_argument_of_the_other_call_is_told_where_it_belongs(defined, method, argument, text):
    with pytest.raises(TypeError, match=text):
        getattr(defined, method)("orders", **argument)


def test_a_regular_expression_that_only_the_other_kind_matches_is_told_in_the_log(defined, caplog):
    with defined.subscribe("^(al|or)"):
        assert "no queue matches '^(al|or)' yet, and topics do, as 'alone': subscribe_topic('^(al|or)')" in caplog.text
    with defined.subscribe_topic("^wo"):
        assert "no topic matches '^wo' yet, and queues do, as 'work': subscribe('^wo') takes" in caplog.text
    caplog.clear()
    with defined.subscribe("^(or|wo)"), defined.subscribe_topic("^(or|wo)"), defined.subscribe("^none"):
        assert caplog.text == ""


def test_each_call_returns_what_it_says(client, valkey, instance):
    client.apply(Queue(name="mail"))
    with client.subscribe("mail") as queue, client.subscribe_topic("mail") as topic:
        assert (type(queue), type(topic)) == (Subscription, TopicSubscription)

    async def scenario():
        async with (
            AsyncClient(valkey.url, instance=instance) as other,
            other.subscribe("mail") as queue,
            other.subscribe_topic("mail") as topic,
        ):
            return type(queue), type(topic)

    assert asyncio.run(scenario()) == (AsyncSubscription, AsyncTopicSubscription)


def test_the_right_call_asks_the_server_for_nothing_more(client, valkey):
    # Given a name that is a queue's and a topic's
    client.apply(Queue(name="mail"))
    for subscribe in (client.subscribe, client.subscribe_topic):
        subscribe("mail").close()
    with contextlib.closing(valkey.client()) as redis:

        def commands():
            stats = redis.info("commandstats")
            return {name: each["calls"] for name, each in stats.items() if "info" not in name}

        def made(subscribe):
            before = commands()
            messages = subscribe("mail")
            after = commands()
            messages.close()
            return {name[8:]: each - before.get(name, 0) for name, each in after.items() if each > before.get(name, 0)}

        queue, topic = made(client.subscribe), made(client.subscribe_topic)
    # Then of a queue it is one script, which reads no definitions
    assert (queue["evalsha"], queue.get("hgetall", 0)) == (1, 0)
    # And of a topic the clock, the definitions once, the last of its log and the hold on it
    assert (topic["get"], topic["evalsha"], topic["xrevrange"]) == (1, 2, 1)
