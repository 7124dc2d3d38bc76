"""Programs of one text each that publish and consume: test_one_program.py runs them at both kinds of address.

What a program gives is the same without partitions and with them, so it gives no order of messages of different keys.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from observing import eventually

from ampsq import (
    Action,
    MemoryPublishStore,
    Queue,
    Topic,
)

LONG = "20s"
PROGRAMS = {}
WORK = Queue(name="work", underlying_topic="orders", lease_period="20s", max_per_subscription_backlog=50)


def program(function):
    """Put a program into the table."""
    PROGRAMS[function.__name__] = function
    return function


def orders(number, keys=7):
    """Make messages of some keys."""
    return [{"key": f"k{each % keys}", "number": each} for each in range(number)]


def key_of(message):
    return message["key"]


def by_key(messages):
    """Return the numbers of each key, in the order of the messages."""
    found = {}
    for each in messages:
        found.setdefault(each["key"], []).append(each["number"])
    return dict(sorted(found.items()))


def taken(subscription, number):
    """Take and acknowledge so many messages."""
    found = []
    for _ in range(number):
        message = subscription.get(LONG)
        found.append(message.data)
        message.ack()
    return found


# -- publishing


@program
def publishing(place):
    client = place.client
    client.apply(Topic(name="orders"), WORK)
    client.publish("orders", {"key": "a", "number": 1}, key="a", headers={"who": "me"})
    client.publish("orders", {"key": "a", "number": 2}, key="a", expiration="1h", group="g")
    client.publish("orders", {"key": "a", "number": 3}, key="a", delay="1h")
    client.publish("orders", {"key": "a", "number": 4}, key="a", at=datetime.now(UTC) + timedelta(hours=1))
    first = client.publish("orders", {"key": "a", "number": 5}, deduplication_id="five", within="1h")
    again = client.publish("orders", {"key": "a", "number": 5}, deduplication_id="five", within="1h")
    recorded = client.publish_many("orders", orders(20), batch=7, headers={"h": "1"}, expiration="1h", key=key_of)
    twice = [
        client.publish_many("orders", orders(5), deduplication_id=lambda each: str(each["number"]), within="1m")
        for _ in range(2)
    ]
    client.publish_many("orders", orders(3), group="g", delay="1h")
    client.publish_many("orders", orders(3), at=datetime.now(UTC) + timedelta(hours=1))
    stats = client.admin.queue_stats("work")
    topic = client.admin.topics()["orders"]
    return [
        *(first == again, first.topic, len(recorded), [*twice[0]] == [*twice[1]]),
        *(topic.messages, topic.queues, stats.depth, stats.scheduled),
    ]


@program
def records(place):
    client = place.client
    client.apply(Topic(name="states", key="/id"))
    client.publish_many("states", [{"id": number, "qty": number % 3} for number in range(12)])
    before = client.publish("states", {"id": 3, "qty": 7})
    client.delta_publish("states", {"id": 3, "more": 1}, headers={"h": "1"}, expiration="1h", key="3")
    client.delta_publish("states", {"id": 4, "more": 1})

    def found(*args, **options):
        return [each.data for each in client.sow("states", *args, **options)]

    given = [
        found(order_by="/id"),
        found("/qty > 0", order_by=["/qty DESC", "/id"], top_n=3, skip_n=1),
        found(filter="/qty = 7"),
        found(sow_keys=[3]),
        sorted(each["id"] for each in found()),
        client.sow_delete("states", keys=[1, 2]),
        client.sow_delete("states", filter="/qty = 2"),
        client.sow_delete("states", data={"id": 9}),
        found(order_by="/id"),
    ]
    with client.sow_and_subscribe("states", "/id < 7", order_by="/id", top_n=5, skip_n=0, oof=True) as changes:
        given += [[(each.command, each.reason, each.data) for each in (changes.get(LONG) for _ in range(4))]]
        client.publish("states", {"id": 3, "qty": 9})
        client.sow_delete("states", keys=[3])
        given += [
            [(each.command, each.reason, each.data) for each in (changes.get(LONG) for _ in range(2))],
            changes.get("10ms"),
        ]
    with client.sow_and_subscribe("states", filter="/id = 4", conflation="100ms") as changes:
        first = next(iter(changes))
        changes.close()
    return [*given, first.data, before.topic]


@program
def publishing_by_name(place):
    client, acknowledged = place.client, []
    client.apply(Topic(name="states", key="/id"), Topic(name="orders"), WORK)
    with client.publisher("till") as till:
        receipt = till.publish("orders", {"key": "a", "number": 1}, key="a", headers={"h": "1"}, expiration="1h")
        given = [till.name, receipt.topic, receipt.bookmark("5s").topic, receipt.sequence]
        assert (receipt.partition is None) == (not client.partitions)
        till.publish("orders", {"key": "a", "number": 2}, key="a", sequence=2, group="g", delay="1h")
        given += [till.publish("orders", {"key": "a", "number": 2}, key="a", sequence=2).sequence]
        till.flush("20s")
        till.delta_publish("states", {"id": 40, "less": 1}, sequence=9_000, key="40")
    options = {"persisted": "memory", "ack_conflation": "10ms", "on_persisted": acknowledged.append}
    failed = []
    with client.publisher("shop", store=MemoryPublishStore(), on_failed_write=failed.append, **options) as shop:
        many = shop.publish_many("orders", orders(20), batch=9, headers={"h": "1"}, expiration="1h", key=key_of)
        later = datetime.now(UTC) + timedelta(hours=1)
        shop.publish_many("orders", orders(2), at=later, group="g")
        shop.publish_many("orders", orders(2), delay="1h")
        shop.publish("orders", {"key": "a", "number": 9}, at=later)
        shop.publish_many("states", [{"id": number} for number in range(8)])
        shop.delta_publish("states", {"id": 3, "more": 1}, headers={"h": "1"}, expiration="1h", key="3")
        shop.delta_publish("states", {"id": 4, "more": 1})
        gone = shop.sow_delete("states", keys=[1, 2])
        given += [gone.topic, gone.deleted("20s"), shop.sow_delete("states", data={"id": 5}).deleted("20s")]
        shop.publish("states", b"no json", key="x")
        given += [len({each.bookmark("20s") for each in many}), sorted(many[0].topic for _ in range(2))]
        shop.flush()
        eventually(lambda: failed)
        shop.close()
    with client.publisher("shop", store=str(place.folder / "shop.db")) as shop:
        shop.publish("orders", {"key": "b", "number": 1}, key="b")
        shop.delta_publish("states", {"id": 4, "less": 1})
    return [
        *given,
        *(len(failed), failed[0].topic, failed[0].kind, len(acknowledged) > 0),
        *([each.data for each in client.sow("states", order_by="/id")], client.admin.topics()["orders"].messages),
        *(sorted({each.name for each in client.admin.publishers()}), client.admin.queue_stats("work").depth),
    ]


# -- queues


@program
def consuming(place):
    client = place.client
    client.apply(Topic(name="orders"), WORK)
    client.publish_many("orders", orders(40), key=key_of, headers={"h": "1"})
    with client.subscribe("work", max_backlog=20, filter="/number >= 0", renew=True) as work:
        given = [work.max_backlog, len(work.id) > 0, by_key(taken(work, 40))]
        client.publish("orders", {"key": "k3", "number": 99}, headers={"h": "1"}, key="k3")
        message = work.get(LONG)
        given += [
            *(message.topic, message.queue, message.headers, message.message_type, message.group, message.is_barrier),
            *(message.group_begins, message.delivery, message.settled, json.loads(message.raw) == message.data),
            *(message.bookmark.topic, message.bookmark.origin == message.origin),
        ]
        until = message.lease_until
        message.extend("1m")
        message.report(0.5, text="half")
        given += [until is not None, client.admin.explain("work", message.bookmark).state]
        message.cancel("0ms", reason="again")
        again = work.get(LONG)
        given += [again.delivery]
        again.expire(reason="never")
        given += [again.settled]
        given += [work.get("100ms")]
        work.flush()
        given += [work.late]
    client.publish_many("orders", orders(9), key=key_of)
    with client.subscribe("work", max_backlog=50) as work:
        for message in work:
            message.ack(wait=True)
            if client.admin.queue_stats("work").depth == 0:
                break
        work.close()
    return [*given, client.admin.queue_stats("work").acknowledged]


@program
def consuming_with_a_handler(place):
    client, found = place.client, []
    client.apply(
        Topic(name="orders"), WORK, Queue(name="more", underlying_topic="letters", max_per_subscription_backlog=9)
    )

    def handle(message):
        found.append(message.data)
        message.ack()

    with client.publisher("keeper", store=MemoryPublishStore()) as keeper:
        client.publish_many("orders", orders(30), key=key_of)
        with client.subscribe("work", max_backlog=9, on_message=handle, publisher=keeper):
            eventually(lambda: len(found) == 30)
        keeper.flush("20s")
        recorded = client.publish_many("orders", orders(4), key=key_of)
        settled = client.ack("work", recorded[:2], publisher=keeper)
        keeper.flush("20s")
    with client.subscribe("work", max_backlog=5) as work:
        left = by_key(taken(work, 2))
        work.replace(name="more", max_backlog=3, filter="/number > 1")
        client.publish_many("letters", orders(5), key=key_of)
        replaced = by_key(taken(work, 3))
        work.replace(filter=None)
        backlog = work.max_backlog
        replaced |= by_key(taken(work, 2))
    return [by_key(found), settled, left, replaced, backlog, client.admin.queue_stats("work").acknowledged]


@program
def settling(place):
    client = place.client
    client.apply(Topic(name="orders"), WORK)
    recorded = client.publish_many("orders", orders(30), key=key_of)
    with client.subscribe("work", max_backlog=3) as work:
        leased = [work.get(LONG).bookmark for _ in range(3)]
        cancelled = client.ack("work", leased[:1], "cancel", reason="again")
    free = [each for each in recorded if each not in leased]
    return [
        *(cancelled, client.ack("work", free[0]), client.ack("work", ",".join(map(str, free[1:3])), option="expire")),
        client.ack("work", [free[3], str(free[4])], reason="void", option="expire"),
        client.ack("work", filter="/number < 10", dry_run=True) > 0,
        client.ack("work", filter="/number >= 0", option="expire", reason="old"),
        client.admin.queue_stats("work").depth,
        [each.data for each in client.sow("work", "/number > 0", top_n=3)],
    ]


@program
def looking_into_a_queue(place):
    client = place.client
    client.apply(Topic(name="orders"), WORK)
    recorded = client.publish_many("orders", orders(12), key=key_of)
    found = client.sow("work", "/number > 3", order_by="/number DESC", top_n=4, skip_n=1)
    history = client.admin.history(recorded[3])
    latencies = client.admin.queue_latencies("work", over="6h")
    stats = client.admin.queue_stats("work")
    given = [
        *([each.data for each in found], sorted(each.data["number"] for each in client.sow("work"))),
        *(client.admin.explain("work", recorded[5]).state, client.admin.explain("work").state),
        *(history.recorded, [(each.queue, each.state) for each in history.queues], [e.event for e in history.events]),
        *(latencies.queue, latencies.over, stats.depth, stats.ready + stats.waiting, stats.subscriptions, stats.topics),
    ]
    with client.subscribe("work"), client.subscribe("work"):
        return [*given, client.admin.queue_stats("work").subscriptions]


@program
def groups(place):
    client, admin = place.client, place.client.admin
    client.apply(
        Queue(
            name="mail", underlying_topic="letters", group_by="/g", group_concurrency=1, max_per_subscription_backlog=9
        )
    )
    client.publish_many("letters", [{"g": f"g{n % 3}", "n": n} for n in range(30)], key=lambda message: message["g"])
    given = [admin.pause_group("mail", "g1"), admin.pause_group("mail", group="g1")]
    with client.subscribe("mail", max_backlog=2) as mail:
        message = mail.get(LONG)
        given += [message.group in ("g0", "g2"), message.group_begins]
        found = admin.groups("mail", limit=5)
        given += [[(e.group, e.paused is not None) for e in found.groups if e.group == "g1"], found.is_all]
        message.ack()
    return [
        *given,
        *(admin.resume_group("mail", "g1"), admin.resume_group("mail", "g1"), admin.release_group("mail", "g1")),
        *(admin.drop_group("mail", "g1", dry_run=True), admin.drop_group("mail", "g1", reason="void")),
        admin.queue_stats("mail").depth,
    ]


@program
def dead_letters(place):
    client, admin, seen = place.client, place.client.admin, []
    failed = Queue(name="failed", underlying_topic="letters", max_per_subscription_backlog=50)
    client.apply(Topic(name="orders"), WORK, failed, Action.dead_letter("work", "letters"))
    place.coordinate()
    client.publish_many("orders", orders(12), key=key_of)
    settled = client.ack("work", filter="/number < 10", option="expire", reason="bad")
    eventually(lambda: len(admin.dead_letters("failed")) == 10)
    letters = admin.dead_letters("failed", "/message/number < 5", source="work", reason="forced_expire", top_n=3)
    one = [each.bookmark for each in letters][:1]
    driven = [
        admin.redrive("failed", bookmarks=one, dry_run=True),
        admin.redrive("failed", bookmarks=one),
        admin.redrive("failed", filter="/message/number = 9", source="work", reason="forced_expire", to="work"),
        admin.redrive("failed", rate="1000/s", progress=seen.append, edit=lambda _: {"key": "e", "number": 99}),
    ]
    return [
        *(
            settled,
            sorted(each.data["number"] < 5 for each in letters),
            len(admin.dead_letters("failed", bookmarks=one * 0 or None)),
        ),
        *([(int(each), each.targets, each.refused) for each in driven], (seen[-1].done, seen[-1].total)),
        sorted(each.data["number"] for each in client.sow("work", filter="/number = 99")),
        client.admin.queue_stats("work").depth,
    ]
