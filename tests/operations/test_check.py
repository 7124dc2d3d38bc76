"""`check` finds each damage by its name and nothing else; `repair` mends it, and delivery is as if nothing had been."""

from __future__ import annotations

import time

import pytest
from observing import eventually
from scene import pick_up, rest_of

from ampsq import Queue
from ampsq.base.bookmarks import ref_of
from ampsq.base.errors import Rebuilding, UnknownQueue
from ampsq.operations.check.findings import DIFFERENCES
from ampsq.protocol.schema import LEASES_ANCHOR, key

LAST = 11


class World:
    """A queue with a message of every kind, the server's plain commands, and what is still to be delivered."""

    def __init__(self, client, redis, **elements):
        self.client, self.redis, self.name = client, redis, client.instance
        client.apply(
            Queue(
                name="work", underlying_topic="orders", lease_period="1h", max_per_subscription_backlog=10, **elements
            )
        )
        self.bookmarks = client.publish_many("orders", [{"n": number} for number in range(LAST + 1)])
        self.refs = [ref_of("orders", bookmark.id) for bookmark in self.bookmarks]
        self.holder = client.subscribe("work", max_backlog=4)
        acked, leased, cancelled, delayed = pick_up(self.holder, 4)
        self.leased = leased
        delayed.cancel(delay="1h")
        self.holder.replace(max_backlog=1)
        cancelled.cancel()
        acked.ack(wait=True)
        client.ack("work", [self.bookmarks[LAST]])
        # 0 is acknowledged, 1 leased, 2 ready, 3 delayed, 4 to 10 wait, 11 is acknowledged ahead
        assert client.admin.queue_stats("work").depth == 10

    def key(self, suffix):
        return key(self.name, suffix, "work")

    def lease(self, number, holder, token=900):
        self.redis.hset(self.key("leases"), self.refs[number], f"{token} {holder} 1 {self.soon()} 3600000")

    @staticmethod
    def soon():
        return int(time.time() * 1000) + 3_600_000

    def check(self, **options):
        (found,) = self.client.admin.check("work", **options)
        return found

    def names(self, **options):
        return {one.name: one.number for one in self.check(**options).differences}

    def delivered(self):
        """Everything that is delivered from now on, of those that nobody holds."""
        with self.client.subscribe("work", max_backlog=10) as messages:
            found = []
            while batch := rest_of(messages):
                for message in batch:
                    found.append(message.data["n"])
                    message.ack(wait=True)
        return sorted(found)


@pytest.fixture
def damaged(client, redis):
    world = World(client, redis)
    yield world
    world.holder.close()


def lost(world):
    world.redis.zrem(world.key("ready"), world.refs[2])


def lost_with_its_delay(world):
    world.redis.zrem(key(world.name, "due"), f"ready work {world.refs[3]}")
    world.redis.hincrby(world.key("queue"), "delayed", -1)


def settled_but_live(world):
    world.redis.zadd(world.key("ready"), {world.refs[0]: 0})


def settled_but_waiting(world):
    world.redis.hdel(world.key("ahead"), world.refs[LAST])


def ahead_unsettled(world):
    world.redis.hset(world.key("ahead"), world.refs[7], "acknowledged")


def ahead_left(world):
    world.redis.hset(world.key("ahead"), world.refs[0], "acknowledged")


def unread_but_live(world):
    world.redis.zadd(world.key("ready"), {world.refs[9]: 0})


def in_two_places(world):
    world.redis.zadd(world.key("ready"), {world.refs[1]: 0})


def unrecorded(world):
    world.redis.zadd(world.key("ready"), {ref_of("orders", "5-5"): 0})


def holder_gone(world):
    lost(world)
    world.lease(2, "s00009999")


def leased_count(world):
    world.redis.hincrby(key(world.name, "subscription", world.holder.id), "leased", 2)


def free_wrong(world):
    world.redis.zadd(key(world.name, "free", "work", "none"), {world.holder.id: 0.5})


def free_stranger(world):
    world.redis.zadd(key(world.name, "free", "work", "none"), {"s00009999": 0.5})


def member_gone(world):
    world.redis.sadd(world.key("members"), "s00009999")


def member_missing(world):
    world.redis.srem(world.key("members"), world.holder.id)


def cursor_missing(world):
    world.redis.delete(world.key("cursors"))


def anchor_missing(world):
    world.redis.hdel(world.key("leases"), LEASES_ANCHOR)


def run_wrong(world):
    world.redis.hincrby(world.key("queue"), "in_runs", 3)


def pass_missing(world):
    world.redis.zrem(key(world.name, "due"), "leases work")


def delayed_count(world):
    world.redis.hincrby(world.key("queue"), "delayed", 3)


def scheduled_count(world):
    world.redis.hincrby(world.key("queue"), "scheduled", 2)


def unread_count(world):
    stream_id, number = world.redis.hget(world.key("cursors"), "orders").decode().split(" ")
    world.redis.hset(world.key("cursors"), "orders", f"{stream_id} {int(number) + 2}")


def due_stray(world):
    world.redis.zadd(key(world.name, "due"), {f"ready nobody {world.refs[0]}": world.soon()})


def undefined(world):
    world.redis.delete(world.key("queue"))


def paused(world):
    fields = world.redis.hget(world.key("queue"), "compiled").decode().rpartition(" ")
    world.redis.hset(world.key("queue"), mapping={"compiled": f"{fields[0]} ~", "paused": "orders", "rebuild": "me 5"})


#: Damage, what is found, and what of the twelve messages is then delivered; 1 and 3 stay with their holder and delay.
REST = [2, 4, 5, 6, 7, 8, 9, 10]
DAMAGE = {
    lost: ({"lost": 1}, REST),
    lost_with_its_delay: ({"lost": 1}, [2, 3, 4, 5, 6, 7, 8, 9, 10]),
    settled_but_live: ({"settled_but_live": 1}, REST),
    settled_but_waiting: ({"settled_but_waiting": 1}, REST),
    ahead_unsettled: ({"ahead_unsettled": 1}, REST),
    ahead_left: ({"ahead_left": 1}, REST),
    unread_but_live: ({"unread_but_live": 1}, REST),
    in_two_places: ({"in_two_places": 1}, REST),
    unrecorded: ({"unrecorded": 1}, REST),
    leased_count: ({"leased_count": 1}, REST),
    free_wrong: ({"free_wrong": 1}, REST),
    free_stranger: ({"free_stranger": 1}, REST),
    member_gone: ({"member_gone": 1}, REST),
    member_missing: ({"member_missing": 1}, REST),
    cursor_missing: ({"cursor_missing": 1}, REST),
    anchor_missing: ({"anchor_missing": 1}, REST),
    run_wrong: ({"run_wrong": 1}, REST),
    pass_missing: ({"pass_missing": 1}, REST),
    delayed_count: ({"delayed_count": 3}, REST),
    scheduled_count: ({"scheduled_count": 2}, REST),
    unread_count: ({"unread_count": 2}, REST),
    due_stray: ({"due_stray": 1}, REST),
    undefined: ({"undefined": 1}, REST),
    paused: ({"paused": 1}, REST),
}


def test_a_queue_with_a_message_of_every_kind_is_clean(damaged):
    found = damaged.check()
    assert (found.clean, found.undecided, found.messages, found.settled) == (True, (), 12, 2)
    assert damaged.delivered() == REST


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_each_damage_is_found_by_its_name_and_mended(damaged, damage):
    expected, rest = DAMAGE[damage]
    damage(damaged)
    # Found, by its name, as often as one looks
    assert damaged.names() == damaged.names() == expected
    # Mended, and said so
    found = damaged.check(repair=True)
    assert expected.keys() <= {one.name for one in found.differences}
    assert all(one.sentence.endswith(DIFFERENCES[one.name].mended) for one in found.differences)
    # Then all is well, and mending again changes nothing
    assert damaged.names() == {}
    assert damaged.names(repair=True) == {}
    # And everything is delivered as it should be, once each
    assert damaged.delivered() == rest
    assert damaged.names() == {}


def test_leases_of_a_subscription_that_is_gone_come_back(damaged, start_coordinator):
    holder_gone(damaged)
    assert damaged.names() == {"holder_gone": 1}
    assert damaged.names(repair=True) == {"holder_gone": 1}
    assert damaged.names() == {}
    start_coordinator()
    eventually(lambda: damaged.client.admin.queue_stats("work").leased == 1)
    assert damaged.names() == {}
    assert damaged.delivered() == REST


def test_a_subscription_that_counts_too_much_gets_messages_again(damaged):
    # Given one that is full by its own count alone
    damaged.leased.ack(wait=True)
    rest_of(damaged.holder)
    damaged.redis.hset(key(damaged.name, "subscription", damaged.holder.id), "leased", 9)
    damaged.check(repair=True)
    assert damaged.names() == {}


def test_what_a_filter_kept_out_is_not_lost_though_the_filter_changed_since(client, redis):
    def define(text):
        client.apply(Queue(name="work", underlying_topic="orders", filter=text, max_per_subscription_backlog=100))

    def drain():
        with client.subscribe("work", max_backlog=100) as messages:
            found = rest_of(messages)
            for message in found:
                message.ack(wait=True)
            return [message.data["n"] for message in found]

    for number, text in enumerate(("/n > 4", None, "/n < 2")):
        define(text)
        client.publish_many("orders", [{"n": n} for n in range(6)])
        assert drain() == [[5], [0, 1, 2, 3, 4, 5], [0, 1]][number]
        assert client.admin.check("work")[0].clean
    # Nor is it delivered when the queue is rebuilt
    client.publish("orders", {"n": 1})
    redis.delete(*[key(client.instance, name, "work") for name in ("cursors", "ready", "ahead")])
    client.admin.check("work", repair=True)
    assert client.admin.check("work")[0].clean
    assert drain() == [1]


def test_messages_that_are_missing_in_a_filter_s_index_are_found_and_put_there(client, redis):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10, priority="/n"))
    with client.subscribe("work", max_backlog=1, filter="/n < 5") as messages:
        client.publish_many("orders", [{"n": n} for n in range(10)])
        (first,) = pick_up(messages, 1)
        filters = redis.hget(key(client.instance, "queue", "work"), "sorted").decode().split(" ")
        index = key(client.instance, "sorted", "work", filters[1])
        assert client.admin.check("work")[0].clean
        member = redis.zrange(index, 0, 0)[0]
        redis.zrem(index, member)
        redis.zadd(index, {"m5a0/orders": 1})
        found = {one.name: one.number for one in client.admin.check("work")[0].differences}
        assert found == {"index_missing": 1, "index_stranger": 1}
        client.admin.check("work", repair=True)
        assert client.admin.check("work")[0].clean
        first.ack(wait=True)
        got = []
        while (message := messages.get(0.2)) is not None:
            got.append(message.data["n"])
            message.ack(wait=True)
        assert got == [3, 2, 1, 0]


def test_a_topic_whose_news_a_queue_was_not_told_is_found(client, redis):
    client.apply(Queue(name="work", underlying_topic="^orders", default_publish_target="orders-1"))
    client.publish("orders-1", 1)
    redis.delete(key(client.instance, "behind", "work"))
    assert [one.name for one in client.admin.check("work")[0].differences] == ["behind_missing"]
    client.admin.check("work", repair=True)
    with client.subscribe("work") as messages:
        assert pick_up(messages, 1)[0].data == 1


def test_at_most_once_a_delivery_that_was_not_journaled_is_found(client, redis):
    client.apply(
        Queue(name="work", underlying_topic="orders", semantics="at-most-once", allow_redelivery_after_crash=True)
    )
    client.publish_many("orders", range(3))
    with client.subscribe("work") as messages:
        pick_up(messages, 1)
        assert client.admin.check("work")[0].clean
        redis.xtrim(key(client.instance, "journal", "work"), maxlen=0)
        assert [one.name for one in client.admin.check("work")[0].differences] == ["unjournaled"]
        client.admin.check("work", repair=True)
        assert client.admin.check("work")[0].clean


def test_a_queue_that_somebody_rebuilds_is_left_alone(damaged):
    damaged.redis.hset(damaged.key("queue"), "rebuild", f"me {damaged.soon() - 3_000_000}")
    damaged.redis.hset(damaged.key("queue"), "paused", "orders")
    found = damaged.check()
    assert (found.clean, found.undecided) == (True, ("somebody is rebuilding the queue",))
    with pytest.raises(Rebuilding):
        damaged.client.admin.rebuild("work")
    damaged.redis.hdel(damaged.key("queue"), "rebuild", "paused")


def test_all_queues_are_checked_and_an_unknown_one_is_refused(client):
    client.apply(Queue(name="work"), Queue(name="mail"))
    assert [found.queue for found in client.admin.check()] == ["mail", "work"]
    with pytest.raises(UnknownQueue):
        client.admin.check("nobody")


def test_every_difference_is_seeded_by_a_test():
    others = {"holder_gone", "index_missing", "index_stranger", "behind_missing", "unjournaled"}
    # Of queues with groups: test_check_groups.py
    others |= {"group_count", "group_place"}
    # Of queues that several instances have: tests/replication/test_checking.py
    others |= {"own_but_remote", "remote_but_own", "owner_left", "owner_missing", "copy_missing", "received_behind"}
    others |= {"told_in_vain", "counting_wrong", "request_stray"}
    assert {name for expected, _ in DAMAGE.values() for name in expected} | others == set(DIFFERENCES)
