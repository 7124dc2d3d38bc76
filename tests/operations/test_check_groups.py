"""`check` finds what is wrong with the groups of a queue, and `repair` mends it; a rebuild leaves them as they were."""

from __future__ import annotations

import re

import pytest
from scene import pick_up

from ampsq import Queue
from ampsq.protocol.limits import LONGEST_GROUP
from ampsq.protocol.schema import LEASES_ANCHOR, key


@pytest.fixture
def world(client):
    """Of group a one is leased and two wait, of b one is leased; of c one failed and is delayed, and one waits."""
    client.apply(
        Queue(name="work", underlying_topic="orders", lease_period="1h", group_by="/g", max_per_subscription_backlog=9)
    )
    client.publish_many("orders", [{"g": group, "n": n} for n, group in enumerate("cabaac")])
    subscription = client.subscribe("work", max_backlog=9)
    failed, *_ = pick_up(subscription, 3)
    failed.cancel(delay="1h")
    assert subscription.get(0.05) is None
    return client


@pytest.fixture
def placed(world):
    """The same, where what waits has its place, as after a repair of lists."""
    redis, name = world._store.redis, key(world.instance, "queue", "work")
    redis.hset(name, "listed", re.sub(rb" 0 (\S+)$", rb" 1 \1", redis.hget(name, "listed")))
    with world.subscribe("work", max_backlog=9) as subscription:
        assert subscription.get(0.05) is None
    return world


def kept(client):
    """Keys that the queue keeps of its groups."""
    redis = client._store.redis
    groups = redis.hgetall(key(client.instance, "groups", "work"))
    grouped = redis.zrange(key(client.instance, "grouped", "work"), 0, -1)
    going = redis.zrange(key(client.instance, "going", "work"), 0, -1)
    return groups, grouped, going, redis.hgetall(key(client.instance, "pinned", "work"))


def seen(client):
    """Return what everybody may see of the groups, and of what waits in the queue."""
    groups = {each.group: (each.leased, each.waiting, each.failed) for each in client.admin.groups("work").groups}
    return groups, [message.data for message in client.sow("work")]


def names(client, **options):
    (found,) = client.admin.check("work", **options)
    return {one.name: one.number for one in found.differences}


def lose_all_counts(client, redis):
    for name in ("a", "b", "c"):
        redis.hdel(key(client.instance, "groups", "work"), name)


def count_too_much(client, redis):
    name = key(client.instance, "groups", "work")
    redis.hset(name, "a", redis.hget(name, "a").replace(b"1 0 2 0 0", b"2 0 2 0 0"))


def let_the_wrong_one_go(client, redis):
    member = redis.zrange(key(client.instance, "grouped", "work"), 0, 0)[0]
    redis.zadd(key(client.instance, "going", "work"), {member[3:] + b" a": 0})


def lose_a_place(client, redis):
    redis.zremrangebyrank(key(client.instance, "grouped", "work"), 0, 0)
    redis.hset(key(client.instance, "groups", "work"), "a", "1 0 1 0 0")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (count_too_much, {"group_count"}),
        (let_the_wrong_one_go, {"group_place"}),
        (lose_all_counts, {"group_count"}),
        (lose_a_place, {"group_place"}),
    ],
)
def test_what_is_wrong_with_groups_is_found_and_mended(placed, redis, damage, found):
    before = kept(placed)
    assert names(placed) == {}
    damage(placed, redis)

    assert set(names(placed)) == found
    assert set(names(placed, repair=True)) == found

    assert names(placed) == {}
    with placed.subscribe("work", max_backlog=9) as subscription:
        # What was placed anew has its place with the next dispatch.
        assert subscription.get(0.05) is None
    assert kept(placed) == before


def forget_a_message(client, redis):
    name = key(client.instance, "groups", "work")
    found = re.fullmatch(rb"1 0 2 0 0\nl(\d+) 2 0 (\S+) \S+", redis.hget(name, "a"))
    redis.hset(name, "a", b"1 0 1 0 0\nl%s 1 0 %s" % found.groups())


def count_more_than_is_listed(client, redis):
    name = key(client.instance, "groups", "work")
    redis.hset(name, "a", redis.hget(name, "a").replace(b"\nl1 2 0 ", b"\nl1 3 0 "))


def let_a_listed_one_go(client, redis):
    found = re.search(rb"\nl\d+ 2 0 (\S+) ", redis.hget(key(client.instance, "groups", "work"), "a"))
    redis.zadd(key(client.instance, "going", "work"), {found[1] + b"/orders\ta": 0})


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (count_too_much, {"group_count"}),
        (let_a_listed_one_go, {"group_place"}),
        (lose_all_counts, {"group_count", "group_place"}),
        (forget_a_message, {"group_place"}),
        (count_more_than_is_listed, {"group_count"}),
    ],
)
def test_what_is_wrong_with_lists_is_found_and_mended(world, redis, damage, found):
    before = seen(world)
    assert names(world) == {}
    damage(world, redis)

    assert set(names(world)) == found
    assert set(names(world, repair=True)) == found

    assert names(world) == {}
    with world.subscribe("work", max_backlog=9) as subscription:
        # What is in no list, or in a wrong one, is read and has its place with the next dispatch.
        assert subscription.get(0.05) is None
    assert seen(world) == before
    assert names(world) == {}


@pytest.fixture
def many(client):
    """Of group a two are leased and settled since, behind one that waits of a group that is leased: b and a in turn."""
    client.apply(
        Queue(name="work", underlying_topic="orders", lease_period="1h", group_by="/g", max_per_subscription_backlog=9)
    )
    client.publish_many("orders", [{"g": group, "n": n} for n, group in enumerate("bb" + "a" * 60)])
    subscription = client.subscribe("work", max_backlog=2)
    client.held, client.first = pick_up(subscription, 2)
    client.subscription = subscription
    return client


def test_a_piece_of_a_list_that_is_lost_is_read_again(many, redis):
    before = seen(many)
    assert names(many) == {}
    assert redis.hdel(key(many.instance, "listed", "work"), "a\0000") == 1

    assert set(names(many)) == {"group_count", "group_place"}
    assert set(names(many, repair=True)) == {"group_count", "group_place"}

    assert names(many) == {}
    with many.subscribe("work", max_backlog=9) as subscription:
        assert subscription.get(0.05) is None
    assert seen(many) == before
    assert redis.exists(key(many.instance, "listed", "work")) == 0
    many.first.ack(wait=True)
    for number in range(3, 62):
        (message,) = pick_up(many.subscription, 1)
        assert message.data == {"g": "a", "n": number}
        message.ack(wait=True)
    many.held.ack(wait=True)
    assert pick_up(many.subscription, 1)[0].data == {"g": "b", "n": 1}


def test_a_message_that_is_noted_beyond_the_cursor_and_nowhere_else_is_read_again(many, redis):
    """As where the server lost a lease, and not what was noted."""
    (ref,) = redis.hkeys(key(many.instance, "ahead", "work"))
    assert redis.hdel(key(many.instance, "leases", "work"), ref) == 1

    assert "ahead_unsettled" in names(many, repair=True)
    names(many, repair=True)

    assert names(many) == {}
    with many.subscribe("work", max_backlog=9) as subscription:
        assert subscription.get(0.5).data == {"g": "a", "n": 2}
    assert names(many) == {}


def test_a_rebuild_gives_the_same_messages_in_their_order(world):
    before = seen(world)
    world.admin.rebuild("work")
    with world.subscribe("work", max_backlog=9) as subscription:
        assert subscription.get(0.05) is None
    assert seen(world) == before
    assert names(world) == {}


def test_a_second_rebuild_gives_the_same_state(placed):
    before = kept(placed)
    placed.admin.rebuild("work")
    with placed.subscribe("work", max_backlog=9) as subscription:
        assert subscription.get(0.05) is None
    assert kept(placed) == before
    assert names(placed) == {}


def test_the_keys_of_groups_keep_their_anchors(world):
    groups, _, going, _ = kept(world)
    assert groups[b"." * (LONGEST_GROUP + 1)] == b"0 0 0 0 0"
    assert going == [LEASES_ANCHOR.encode()]


@pytest.fixture
def batched(client):
    """Of group a three are leased in a batch, and one waits; of b one is leased."""
    client.apply(
        Queue(
            name="work", underlying_topic="orders", lease_period="1h", group_by="/g", group_batch=3,
            max_per_subscription_backlog=9,
        )
    )  # fmt: skip
    client.publish_many("orders", [{"g": group, "n": n} for n, group in enumerate("aaaab")])
    subscription = client.subscribe("work", max_backlog=9)
    messages = pick_up(subscription, 4)
    client.batched = messages
    return client


@pytest.mark.parametrize("damage", ["gone", "strange", "incomplete"])
def test_batches_that_are_not_what_is_leased_are_found_and_mended(batched, redis, damage):
    client, name = batched, key(batched.instance, "batches", "work")
    assert names(client) == {}
    text = redis.hget(name, "a")
    if damage == "gone":
        redis.delete(name)
    elif damage == "strange":
        redis.hset(name, "z", text)
    else:
        redis.hset(name, "a", text.rsplit(b" ", 1)[0])

    assert names(client) == {"group_count": 1}
    assert names(client, repair=True) == {"group_count": 1}

    assert names(client) == {}
    assert redis.hgetall(name) == {b"a": text}
    client.batched[0].cancel(delay="1h")
    assert client.admin.queue_stats("work").leased == 1


@pytest.fixture
def bound(client):
    """Groups a and b are bound to a full subscription: of b one is leased and one waits, of a one waits; c is bound."""
    client.apply(
        Queue(
            name="work", underlying_topic="orders", lease_period="1h", group_by="/g", group_affinity="1h",
            group_concurrency=2, max_per_subscription_backlog=9,
        )
    )  # fmt: skip
    subscription = client.subscribe("work", max_backlog=2)
    for group in "ac":
        client.publish("orders", {"g": group})
        pick_up(subscription, 1)[0].ack(wait=True)
    client.publish_many("orders", [{"g": group, "n": n} for n, group in enumerate("ddbba")])
    client.bound = [subscription, *pick_up(subscription, 2)]
    client.bound[1].ack(wait=True)
    (client.held,) = pick_up(subscription, 1)
    with client.subscribe("work", max_backlog=1) as other:
        assert other.get(0.3)
    return client


def bindings(client, redis):
    """Return what the queue keeps of bindings: its lines, who has some, until when each is bound, and its groups."""
    prefix = key(client.instance, "going", "work")
    lines = {name: redis.zrange(name, 0, -1, withscores=True) for name in sorted(redis.keys(f"{prefix}:*"))}
    noted = [redis.zrange(key(client.instance, name, "work"), 0, -1, withscores=True) for name in ("lines", "bound")]
    return lines, noted, redis.hgetall(key(client.instance, "groups", "work"))


@pytest.mark.parametrize("damage", ["line", "stranger", "lines", "bound", "strange", "due"])
def test_bindings_that_are_not_what_waits_are_found_and_mended(bound, redis, damage):
    before, instance = bindings(bound, redis), bound.instance
    assert names(bound) == {}
    line = min(before[0])
    if damage == "line":
        redis.delete(line)
    elif damage == "stranger":
        redis.zadd(line, {b"d1 z": 0})
    elif damage == "lines":
        redis.delete(key(instance, "lines", "work"))
    elif damage == "bound":
        redis.delete(key(instance, "bound", "work"))
    elif damage == "strange":
        redis.zadd(key(instance, "bound", "work"), {b"z": 7})
    else:
        redis.zrem(key(instance, "due"), "affinity work")

    assert set(names(bound)) <= {"group_count", "group_place"} != set()
    assert names(bound, repair=True)

    assert names(bound) == {}
    assert bindings(bound, redis) == before


def test_a_rebuild_leaves_bindings(bound, redis):
    before = bindings(bound, redis)
    bound.admin.rebuild("work")
    assert bindings(bound, redis) == before
    assert names(bound) == {}


def test_a_rebuild_leaves_batches_that_are_leased(batched, redis):
    before = redis.hgetall(key(batched.instance, "batches", "work"))
    batched.admin.rebuild("work")
    assert redis.hgetall(key(batched.instance, "batches", "work")) == before
    assert names(batched) == {}
