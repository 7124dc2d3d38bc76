"""A late acknowledgement whose reply is lost: its repeat tells what it did itself from what another consumer did."""

from __future__ import annotations

import contextlib

import pytest
from observing import eventually

from ampsq import Action, Queue
from ampsq.base.errors import AlreadyAcked, StaleLease
from ampsq.protocol.calls import duties as duty_calls
from ampsq.queues.message import head_of

VERBS = {
    "ack": lambda message: message.ack(wait=True),
    "cancel": lambda message: message.cancel(),
    "cancel later": lambda message: message.cancel("1h"),
    "expire": lambda message: message.expire(),
    "extend": lambda message: message.extend("1h"),
}


@pytest.fixture
def consumers(valkey, proxy, connect):
    """A queue, a consumer behind a connection that breaks, and another one."""
    publisher = connect(valkey.url)

    def define(**elements):
        queue = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=500, **elements)
        publisher.apply(queue)
        return publisher, connect(proxy.url, ack_timeout="1h"), connect(valkey.url)

    return define


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


def lapse(publisher, number):
    """Wait until so many leases have lapsed."""
    eventually(
        lambda: publisher._store.call(duty_calls.sweep()) and publisher.admin.queue_stats("work").returned == number
    )


def take_away(publisher, former, other, taken, settle):
    """The leases of messages lapse, whose holder wants no more; another consumer gets and settles them."""
    former.replace(filter="/wanted = 1")
    lapse(publisher, len(taken))
    with other.subscribe("work", max_backlog=len(taken)) as messages:
        for expected in taken:
            message = messages.get(30)
            assert (message.bookmark, message.delivery) == (expected.bookmark, 2)
            settle(message)


@pytest.mark.parametrize("settle", ["ack", "expire"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_repeated_call_is_refused_where_another_consumer_ended_the_lease(consumers, proxy, verb, settle):
    # Given a message whose lease lapsed, and that another consumer has settled
    publisher, mine, other = consumers(lease_period="1s")
    publisher.publish("orders", 1)
    with mine.subscribe("work") as messages:
        message = messages.get(30)
        take_away(publisher, messages, other, [message], VERBS[settle])
        # When its first holder settles it, and the reply is lost
        proxy.lose("settle", 1)
        # Then it hears that it was too late
        with pytest.raises((AlreadyAcked, StaleLease)):
            VERBS[verb](message)
    assert proxy.lost == ["settle"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_repeated_call_is_refused_where_another_consumer_holds_the_message(consumers, proxy, stack, verb):
    publisher, mine, other = consumers(lease_period="1s")
    publisher.publish("orders", 1)
    with mine.subscribe("work") as messages:
        message = messages.get(30)
        messages.replace(filter="/wanted = 1")
        lapse(publisher, 1)
        again = stack.enter_context(other.subscribe("work")).get(30)
        assert again.delivery == 2
        again.extend("1h")
        proxy.lose("settle", 1)
        with pytest.raises(StaleLease):
            VERBS[verb](message)
    assert proxy.lost == ["settle"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_repeated_call_succeeds_where_its_first_run_did_it(consumers, proxy, verb):
    publisher, mine, _ = consumers()
    publisher.publish("orders", 1)
    with mine.subscribe("work") as messages:
        message = messages.get(30)
        proxy.lose("settle", 1)
        VERBS[verb](message)
    assert proxy.lost == ["settle"]


@pytest.mark.parametrize("other_acks", [False, True])
def test_a_cancel_succeeds_though_another_consumer_has_the_message_by_then(consumers, proxy, stack, other_acks):
    # Given a message that was cancelled, which came back, and whose reply is repeated late
    publisher, mine, other = consumers()
    publisher.publish("orders", 1)
    with mine.subscribe("work") as messages:
        message = messages.get(30)
        messages.replace(filter="/wanted = 1")
        others = stack.enter_context(other.subscribe("work"))
        proxy.lose("settle", 1)
        message.cancel()
        # Then another consumer gets it, as usual
        again = others.get(30)
        assert again.delivery == 2
        if other_acks:
            again.ack(wait=True)


def test_the_last_cancel_of_a_message_succeeds_when_its_reply_is_lost(consumers, proxy):
    # Given a queue that gives a message up when it is cancelled once
    publisher, mine, _ = consumers(max_cancels=1)
    publisher.apply(Action.dead_letter("work", "dead"))
    publisher.publish("orders", 1)
    with mine.subscribe("work") as messages:
        message = messages.get(30)
        proxy.lose("settle", 1)
        message.cancel(reason="no such customer")
    assert proxy.lost == ["settle"]


@pytest.mark.parametrize("name", ["settle", "take"])
def test_a_batch_tells_which_of_its_acknowledgements_came_too_late(consumers, proxy, name):
    # Given ten messages of which three were acknowledged by another consumer
    publisher, mine, other = consumers(lease_period="1s")
    publisher.publish_many("orders", range(10))
    with mine.subscribe("work", max_backlog=10) as messages:
        taken = [messages.get(30) for _ in range(10)]
        for message in taken[3:]:
            message.extend("1h")
        take_away(publisher, messages, other, taken[:3], VERBS["ack"])
        for message in taken:
            message.ack()
        # When all are acknowledged in one call, by itself or with the next take, and its reply is lost
        proxy.lose(name, 1)
        if name == "settle":
            messages.flush()
        else:
            assert messages.get(0.01) is None
            messages.flush()
        # Then those three are told, and no others
        assert [error.detail["ref"] for error in messages.late] == [head_of(m)[5].decode() for m in taken[:3]]
    assert proxy.lost == [name]
    assert publisher.admin.queue_stats("work").depth == 0
