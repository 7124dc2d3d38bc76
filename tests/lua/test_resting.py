"""Rest until something happens: what a look tells of an instance, and which scripts wake a coordinator."""

from __future__ import annotations

import contextlib

import pytest
from world import ref

from ampsq.protocol.calls.duties import WatchedInstance, read_news
from ampsq.protocol.keepalive import wake_channel
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import key
from ampsq.transport.store import Store


def watched(world, **known):
    """The instance as a coordinator knows it: all that there is now."""
    found = WatchedInstance(world.store.instance, catalog=world.version())
    found.clients = (world.store.redis.hget(world.key(":instance"), "registered") or b"").decode() + " "
    for name, value in known.items():
        setattr(found, name, value)
    return found


def news_of(world, known, now=None, *, rare=True):
    return world.store.call(read_news([known], now=world.now if now is None else now, rare=rare)).news.get(
        world.store.instance
    )


def resting(world):
    return world.store.redis.hget(world.key(":instance"), "resting")


@pytest.fixture
def heard(world):
    """Return a function that gives what scripts have sent to coordinators since the last question."""
    with contextlib.closing(world.store.redis.pubsub()) as listening:
        listening.ssubscribe(wake_channel(world.store.instance))
        while listening.get_sharded_message(timeout=5.0)["type"] != "ssubscribe":
            pass

        def take():
            found = []
            while message := listening.get_sharded_message(timeout=0.05):
                found.append(message["data"].decode())
            return found

        yield take


def acknowledge(world, us):
    (message,) = world.take(us)
    assert world.settle("acknowledged", [message]) == {}


# -- what a look tells


def test_where_nothing_happened_a_look_tells_nothing_and_lets_the_coordinator_rest(world):
    world.topic("orders")
    world.queue("work", "orders")
    assert news_of(world, watched(world)) is None
    assert resting(world) == b"1"
    assert news_of(world, watched(world, follows=True)) is None
    assert resting(world) == b"2"


def test_a_look_tells_of_the_catalog_of_streams_that_go_on_and_of_new_clients(world):
    log = key(world.store.instance, "log", "orders")
    world.topic("orders")
    known = watched(world, streams={log: "0-0", key(world.store.instance, "journal", "work"): "0-0"})
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    last = world.store.redis.xinfo_stream(log)["last-generated-id"].decode()
    world.subscribe("work")
    found = news_of(world, known)
    assert found.what == {"catalog", "clients"}
    assert found.streams == {log: last}
    assert found.clients.split(" ")[0] == world.store.redis.hget(world.key(":instance"), "registered").decode()


def test_a_look_tells_of_what_is_due_soon_and_not_of_what_is_due_later(world):
    due = world.key(":due")
    world.store.redis.zadd(due, {"departed s1": world.now + 700})
    assert news_of(world, watched(world)).wait == 0.7
    world.store.redis.zadd(due, {"departed s1": world.now - 5})
    assert news_of(world, watched(world)).wait == 0.0
    world.store.redis.zadd(due, {"departed s1": world.now + 60_000})
    assert news_of(world, watched(world)) is None


@pytest.mark.parametrize(
    ("name", "what"), [("subscriptions", "clients"), ("wanted", "names"), ("rebuilding", "rebuilds")]
)
def test_a_rare_look_tells_of_what_waits_for_a_duty(world, name, what):
    world.store.redis.zadd(world.key(f":{name}"), {"one": world.now - 1})
    assert news_of(world, watched(world), rare=False) is None
    assert news_of(world, watched(world)).what == {what}


def test_a_look_tells_of_messages_that_others_own_where_somebody_is_subscribed(world):
    world.store.redis.zadd(key(world.store.instance, "remote", "work"), {ref("1-0"): 0})
    assert news_of(world, watched(world, queues=("other", "work"))) is None
    world.store.redis.sadd(key(world.store.instance, "members", "work"), "one")
    assert news_of(world, watched(world, queues=("other",))) is None
    assert news_of(world, watched(world, queues=("other", "work"))).what == {"remote"}


# -- what wakes


def test_nothing_is_sent_while_no_coordinator_rests(world, heard):
    world.topic("orders")
    world.queue("work", "orders", lease=100)
    world.publish("orders", "one")
    world.take(world.subscribe("work"))
    assert heard() == []


def test_what_is_due_soon_wakes_once_until_the_coordinator_rests_again(world, heard):
    world.topic("orders")
    world.queue("work", "orders", lease=200)
    us = world.subscribe("work", asked=10)
    news_of(world, watched(world))
    world.publish("orders", "one")
    assert (heard(), resting(world)) == (["due"], None)
    world.publish("orders", "two")
    assert heard() == []
    # What is pushed beside a lease that stands ends later than that, of which the look told: it wakes nobody.
    news_of(world, watched(world))
    world.publish("orders", "three")
    assert heard() == []
    world.take(us)
    world.publish("orders", "four")
    assert heard() == ["due"]


def test_what_is_due_later_wakes_nobody(world, heard):
    world.topic("orders")
    world.queue("work", "orders", lease=60_000)
    us = world.subscribe("work", asked=10)
    news_of(world, watched(world))
    world.publish("orders", "one")
    world.take(us)
    assert (heard(), resting(world)) == ([], b"1")


def test_logs_and_journals_wake_who_follows_them_and_nobody_else(world, heard):
    world.topic("orders")
    world.queue("work", "orders", lease=60_000)
    us = world.subscribe("work", asked=10)
    news_of(world, watched(world))
    world.publish("orders", "one")
    acknowledge(world, us)
    assert heard() == []
    news_of(world, watched(world, follows=True))
    world.publish("orders", "two")
    assert heard() == ["news"]
    news_of(world, watched(world, follows=True))
    acknowledge(world, us)
    assert heard() == ["news"]


def test_a_change_of_the_catalog_and_a_new_subscription_wake(world, heard):
    world.topic("orders")
    news_of(world, watched(world))
    world.queue("work", "orders")
    assert heard() == ["catalog"]
    news_of(world, watched(world))
    world.subscribe("work")
    assert heard() == ["clients"]


def test_a_user_who_may_not_send_is_not_refused_and_the_coordinator_goes_on_resting(world, heard):
    # Given a user whose rules an older release made
    redis = world.store.redis
    redis.execute_command("ACL", "SETUSER", "old", "on", "nopass", "~*", "+@all", "-spublish", "resetchannels")
    world.topic("orders")
    world.queue("work", "orders", lease=200)
    world.subscribe("work", asked=10)
    news_of(world, watched(world))
    address = dict(redis.connection_pool.connection_kwargs)
    url = f"unix://old:any@{address['path']}"
    try:
        with contextlib.closing(Store(url, world.store.instance)) as other:
            other.call(script_call("publish", [world.now, "orders", "", "", "b", "one"], list))
    finally:
        redis.execute_command("ACL", "DELUSER", "old")
    assert (heard(), resting(world)) == ([], b"1")


# -- who rests long


def test_who_rests_long_is_told_of_what_is_due_before_its_next_look(world):
    due, known = world.key(":due"), watched(world, rests_long=True)
    world.store.redis.zadd(due, {"departed s1": world.now + 8_000})
    assert news_of(world, known).wait == 8.0
    assert resting(world) == b"3"
    world.store.redis.zadd(due, {"departed s1": world.now + 60_000})
    assert news_of(world, watched(world, rests_long=True, follows=True)) is None
    assert resting(world) == b"4"


@pytest.mark.parametrize(
    ("name", "what"), [("subscriptions", "clients"), ("wanted", "names"), ("rebuilding", "rebuilds")]
)
def test_who_rests_long_looks_again_when_something_will_wait_for_a_duty(world, name, what):
    world.store.redis.zadd(world.key(f":{name}"), {"one": world.now + 3_000})
    assert news_of(world, watched(world)) is None
    found = news_of(world, watched(world, rests_long=True))
    assert (found.again, found.what) == (3.0, set())
    later = news_of(world, watched(world, rests_long=True), now=world.now + 3_000)
    assert (later.again, later.what) == (None, {what})


def test_what_is_due_before_the_next_look_wakes_who_rests_long(world, heard):
    world.topic("orders")
    world.queue("work", "orders", lease=8_000)
    us = world.subscribe("work", asked=10)
    news_of(world, watched(world))
    world.publish("orders", "one")
    assert heard() == []
    world.take(us)
    news_of(world, watched(world, rests_long=True))
    world.publish("orders", "two")
    # The lease of the first one ends sooner.
    assert (heard(), resting(world)) == (["due"], None)


def test_logs_wake_who_follows_them_while_it_rests_long_too(world, heard):
    world.topic("orders")
    news_of(world, watched(world, rests_long=True))
    world.publish("orders", "one")
    assert heard() == []
    news_of(world, watched(world, follows=True, rests_long=True))
    world.publish("orders", "two")
    assert heard() == ["news"]


def test_a_look_counts_the_server_s_keys(world):
    reply = world.store.call(read_news([watched(world)], now=world.now))
    assert reply.keys == world.store.redis.dbsize()
