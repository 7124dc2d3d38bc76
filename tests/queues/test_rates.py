"""Rates through clients: how many messages are delivered in what time, who is woken, and what is refused."""

from __future__ import annotations

import time

import pytest
from scene import rest_of

from ampsq import Destination, GroupLocalQueue, LocalQueue, Queue
from ampsq.base.errors import DefinitionError
from ampsq.base.values import Rate
from ampsq.testing import Instance


def sent(*names):
    topics = [{"name": name} for name in names]
    return Destination(name="ldn", sync_type="async", addresses=["redis://localhost:1#ldn-1"], topics=topics)


def queue(**elements):
    given = {"name": "work", "underlying_topic": "orders", "lease_period": "1h", "max_per_subscription_backlog": 100}
    return Queue(**given | elements)


def taken_for(subscription, seconds):
    """Numbers of what is given in so many seconds, each with when, seconds since the first one; all is acknowledged."""
    found, begin = [], None
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if message := subscription.get(left):
            begin = begin or time.monotonic()
            found.append((message.data["n"], time.monotonic() - begin))
            message.ack()
    return found


@pytest.mark.parametrize("coordinated", [True, False])
def test_an_idle_consumer_gets_as_many_as_the_rate_says(client, coordinated, start_coordinator):
    if coordinated:
        start_coordinator()
    client.apply(queue(rate="50/s", rate_burst=10))
    client.publish_many("orders", [{"n": n} for n in range(500)])
    with client.subscribe("work", max_backlog=10) as subscription:
        begin = time.monotonic()
        found = taken_for(subscription, 2)
        most = 10 + 50 * (time.monotonic() - begin) + 1
    assert [number for number, _ in found] == [*range(len(found))]
    # Without a coordinator an idle consumer looks each second.
    assert (60 if coordinated else 20) <= len(found) <= most


def test_rates_of_groups_keep_back_no_other_group(either):
    client = either
    client.apply(queue(group_by="/g", group_concurrency=5, group_rate="1/h", group_rate_burst=2))
    bodies = [{"g": "a", "n": n} for n in range(5)] + [{"g": "b", "n": n} for n in range(5, 7)] + [{"n": 7}, {"n": 8}]
    client.publish_many("orders", bodies)
    with client.subscribe("work", max_backlog=100) as subscription:
        assert sorted(message.data["n"] for message in rest_of(subscription)) == [0, 1, 5, 6, 7, 8]


def test_a_test_moves_the_time_that_a_rate_waits_for():
    with Instance() as instance:
        instance.client.apply(queue(rate="1/min", rate_burst=2))
        instance.client.publish_many("orders", [{"n": n} for n in range(4)])
        with instance.client.subscribe("work", max_backlog=100) as subscription:
            assert [message.data["n"] for message in rest_of(subscription)] == [0, 1]
            instance.advance("59s")
            assert rest_of(subscription) == []
            instance.advance("1s")
            assert [message.data["n"] for message in rest_of(subscription)] == [2]
            instance.advance("30m")
            assert [message.data["n"] for message in rest_of(subscription)] == [3]


@pytest.mark.parametrize(
    ("text", "step", "burst"),
    [
        ("10/s", 100_000, 1),
        ("500/s", 2_000, 50),
        ("600/min", 100_000, 1),
        ("600/m", 100_000, 1),
        ("1/h", 3_600_000_000, 1),
        ("1/d", 86_400_000_000, 1),
        ("100/10s", 100_000, 1),
        ("30 / 1m", 2_000_000, 1),
        ("1000000/s", 1, 100_000),
        ("1/1.5s", 1_500_000, 1),
    ],
)
def test_a_rate_is_a_number_and_a_time(text, step, burst):
    rate = Rate.parse(text)
    assert (rate.step, rate.usual_burst) == (step, burst)
    assert Rate.parse(rate.text) == rate
    assert queue(rate=text).rate_burst == burst


@pytest.mark.parametrize(
    "value",
    [
        "",
        "10",
        "/s",
        "0/s",
        "10/",
        "-1/s",
        "1.5/s",
        "10/week",
        "10/ms0",
        "1000001/s",
        "1/2d",
        "10/0s",
        10,
        None,
        True,
        "s/10",
    ],
)
def test_what_is_no_rate_is_refused(value):
    with pytest.raises(DefinitionError, match="is not a rate; allowed: a whole number of messages, '/', and a unit s"):
        Rate.parse(value)


@pytest.mark.parametrize(
    ("elements", "said"),
    [
        ({"rate_burst": 2}, "rate_burst: there is no rate; allowed: with rate, as in rate='10/s'"),
        ({"group_by": "/g", "group_rate_burst": 2}, "group_rate_burst: there is no group_rate"),
        ({"group_rate": "1/s"}, "group_rate: the queue has no groups; allowed: with group_by, or group_concurrency"),
        ({"rate": "1/s", "rate_burst": 0}, "rate_burst: 0 is no burst; allowed: a whole number from 1 to 1000000"),
        ({"rate": "1/s", "rate_burst": 1_000_001}, "is no burst"),
        ({"rate": "1/s", "rate_burst": -1}, "rate_burst: -1 is no burst; allowed: a whole number from 1 to 1000000"),
        ({"rate": "fast"}, "rate: 'fast' is not a rate"),
    ],
)
def test_a_rate_that_means_nothing_is_refused(elements, said):
    with pytest.raises(DefinitionError) as refused:
        queue(**elements)
    assert said in str(refused.value)


def test_a_queue_with_a_rate_that_instances_share_is_refused(client):
    with pytest.raises(DefinitionError, match="rate: a GroupLocalQueue is shared by instances"):
        GroupLocalQueue(name="work", initial_owner="nyc", rate="1/s")
    client.apply(LocalQueue(name="mine", underlying_topic="orders", rate="1/s"), sent("orders"))
    with pytest.raises(DefinitionError, match=r"has a rate, and .* is sent it: each instance would deliver at that"):
        client.apply(Queue(name="other", underlying_topic="orders", rate="1/s"), sent("orders", "other"))
    assert set(client.admin.queues()) == {"mine"}


def test_a_definition_says_its_rates_as_they_were_given(client):
    given = queue(rate="600/min", group_by="/g", group_rate="1/h", group_rate_burst=7)
    client.apply(given)
    found = client.admin.queues()["work"]
    assert found == given
    assert (found.rate.text, found.rate_burst, found.group_rate.text, found.group_rate_burst) == (
        "600/min",
        1,
        "1/h",
        7,
    )


def test_what_is_wrong_with_rates_is_found_and_mended(client, redis):
    from ampsq.protocol.schema import key  # noqa: PLC0415

    client.apply(queue(group_by="/g", group_concurrency=5, rate="100/s", rate_burst=100, group_rate="1/h"))
    client.publish_many("orders", [{"g": "a", "n": n} for n in range(3)])
    rates, later, due = (key(client.instance, *parts) for parts in (("rates", "work"), ("later", "work"), ("due",)))

    def names(**options):
        (found,) = client.admin.check("work", **options)
        return {one.name for one in found.differences}

    with client.subscribe("work", max_backlog=9) as subscription:
        assert [message.data["n"] for message in rest_of(subscription)] == [0]
        assert names() == set()
        for damage in (
            lambda: redis.zadd(rates, {"a": 2**52}),
            lambda: redis.zrem(later, "a"),
            lambda: redis.zrem(due, "rates work"),
        ):
            damage()
            assert names() == {"group_count"}
            assert names(repair=True) == {"group_count"}
            assert names() == set()
        assert redis.zscore(later, "a") is not None
