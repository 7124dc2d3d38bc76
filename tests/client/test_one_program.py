"""A program written for one instance runs on one with partitions by changing its address, for threads and for asyncio.

Each program below is one text. It runs at an address without partitions and at one with them, and what it gives is the
same; so it gives no order of messages of different keys. one_program.json has what each calls, with which arguments:
together every method and every argument of the exported classes, but what `REFUSED` has. So a new method fails a test
until a program calls it. `python tests/client/test_one_program.py --write` writes the list anew.
"""

# Long: one table, a program for each part of the interface.

from __future__ import annotations

import json
import sys
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from observing import eventually
from one_program import HELD, PLACES, Place, arguments_of, members_of

import ampsq
from ampsq import (
    Action,
    AddressSetting,
    App,
    ConflatedTopic,
    Destination,
    Do,
    GroupLocalQueue,
    Hooks,
    Instance,
    MemoryBookmarkStore,
    MemoryPublishStore,
    On,
    Queue,
    Reject,
    Topic,
    View,
)
from ampsq.base.errors import AmpsqError, DefinitionError

TABLE = Path(__file__).with_name("one_program.json")
KINDS = ("threads", "asyncio")
LONG = "20s"
WRITE = "python tests/client/test_one_program.py --write"
#: What keeps something beside an instance: the programs give them to the calls that take them.
STORES = {"FilePublishStore", "MemoryPublishStore", "MemoryBookmarkStore", "RedisBookmarkStore", "SqliteBookmarkStore"}
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


# -- topics and records


@program
def reading_topics(place):
    client, heard, since = place.client, [], datetime.now(UTC)
    client.apply(Topic(name="orders"), Topic(name="prices", key="/id"))
    client.publish_many("orders", orders(20), key=key_of, headers={"h": "1"})

    def numbers(subscription, number):
        return by_key([subscription.get(LONG).data for _ in range(number)])

    with client.subscribe_topic("orders", bookmark="[epoch:now]", filter="/number < 15") as topic:
        first = topic.get(LONG)
        given = [
            *(
                first.topic,
                first.headers,
                first.message_type,
                json.loads(first.raw) == first.data,
                first.bookmark.topic,
            ),
            abs(datetime.now(UTC) - first.timestamp) < timedelta(hours=1),
        ]
        given += [by_key([first.data, *(each.data for each in topic)]), topic.completed, topic.missed, topic.is_paused]
    with client.subscribe_topic("orders", bookmark="epoch", filter="/number < 15", rate=10_000) as topic:
        given += [numbers(topic, 15)]
        position = topic.position
    with client.subscribe_topic("orders", bookmark=position) as topic:
        given += [numbers(topic, 5), topic.get("10ms")]
        topic.pause()
        client.publish("orders", {"key": "a", "number": 21})
        given += [topic.get("50ms"), topic.is_paused, len(topic.id) > 0]
        topic.resume()
        given += [topic.get(LONG).data]
        topic.close()
    with client.subscribe_topic("orders", bookmark=since, rate="1X", rate_max_gap="1ms") as topic:
        given += [numbers(topic, 21)]
    with client.subscribe_topic("^ord", bookmark="epoch", on_message=lambda message: heard.append(message.data)):
        eventually(lambda: len(heard) == 21)
    given += [by_key(heard)]
    store = MemoryBookmarkStore()
    for number in (8, 13):
        durable = {"sub_id": "audit", "bookmark_store": store, "auto_ack": False, "bookmark_not_found": "epoch"}
        found = []
        with client.subscribe_topic("orders", **durable) as topic:
            for _ in range(number):
                message = topic.get(LONG)
                found.append(message.data)
                message.ack(wait=True)
            topic.flush()
            given += [topic.id]
        given += [len(found)]
    with client.subscribe_topic("orders", bookmark="epoch", sub_id="beside") as topic:
        given += [len([topic.get(LONG) for _ in range(21)])]
    with client.subscribe_topic("prices", conflation="50ms", conflation_key=["/id"]) as topic:
        client.publish_many("prices", [{"id": 1, "n": number} for number in range(50)])
        given += [next(each.data for each in topic if each.data["n"] == 49)]
    return given


@program
def reading_conflated_topics(place):
    client = place.client
    client.apply(
        Topic(name="prices", key="/id"), ConflatedTopic(name="slow", underlying_topic="prices", interval="50ms")
    )
    with client.subscribe_topic("slow", filter="/n > 3") as topic:
        client.publish_many("prices", [{"id": 1, "n": number} for number in range(50)])
        return next(each.data for each in topic if each.data["n"] == 49)


@program
def reading_what_is_on_disk(place):
    client = place.client
    client.publish_many("orders", orders(9), key=key_of)
    with client.subscribe_topic("orders", fully_durable="fsync", bookmark="epoch") as topic:
        return by_key([topic.get(LONG).data for _ in range(9)])


@program
def records_as_they_were(place):
    client = place.client
    client.apply(Topic(name="states", key="/id"))
    client.publish_many("states", [{"id": number, "qty": 1} for number in range(9)])
    eventually(lambda: client.publish("states", {"id": 0, "qty": 1}))
    moment = datetime.now(UTC) + timedelta(milliseconds=5)
    eventually(lambda: datetime.now(UTC) > moment + timedelta(milliseconds=5))
    client.publish_many("states", [{"id": number, "qty": 2} for number in range(9)])
    before = client.sow("states", bookmark=moment, order_by="/id")
    with client.sow_and_subscribe("states", bookmark=moment) as changes:
        found = [changes.get(LONG) for _ in range(18)]
    return [
        [each.data for each in before],
        sorted((each.command, each.data["id"], each.data["qty"]) for each in found),
    ]


# -- definitions and administration


@program
def defining(place):
    client, admin = place.client, place.client.admin
    wanted = [Topic(name="orders", partition_by="/key"), WORK, AddressSetting(match="or.*", max_delivery_attempts=3)]
    given = [[(each.definition.name, each.outcome) for each in admin.plan(*wanted)]]
    given += [[(each.name, outcome) for each, outcome in client.apply(*wanted)] for _ in range(2)]

    def elements():
        # An instance with partitions has none of itself.
        return [each.to_json() for each in admin.definitions() if not isinstance(each, Instance)]

    changed = Queue(**{**WORK.elements(), "max_deliveries": 3})
    given += [[(each.outcome, each.changes) for each in admin.plan(changed, removing=[wanted[2]])]]
    return [
        *given,
        *(elements(), sorted(admin.queues()), admin.queues()["work"].to_json()),
        *(admin.message_type("orders"), admin.message_type("work"), sorted(admin.address_settings())),
        *(admin.pause_queue("work"), admin.pause_queue("work"), admin.resume_queue("work"), admin.remove(*wanted)),
        *(elements(), admin.queues(), admin.views(), admin.destinations()),
        *(admin.sync_states(), admin.readers(), admin.actions()),
    ]


@program
def caring_for_queues_and_topics(place):
    client, admin = place.client, place.client.admin
    client.apply(Topic(name="orders", retention_count=5), WORK)
    client.publish_many("orders", orders(30), key=key_of)
    client.publish("letters", 1)
    with client.subscribe("work", max_backlog=9) as work:
        taken(work, 20)
    reports = admin.check("work", repair=True)
    rebuilt = admin.rebuild("work")
    trimmed = [admin.trim("orders", age="0s", dry_run=True), admin.trim("orders", age="0s")]
    eventually(lambda: admin.trim("orders", age="0s", dry_run=True).removed == 0)
    topics = admin.topics()
    return [
        *(all(each.clean for each in reports), sum(each.messages for each in reports), len(admin.check()) > 0),
        *(rebuilt.queue, rebuilt.messages, rebuilt.settled, trimmed[0].removed == trimmed[1].removed, trimmed[0].topic),
        *(sorted(topics), topics["orders"].recorded, topics["orders"].queues, topics["orders"].retention),
    ]


@program
def actions(place):
    client, admin = place.client, place.client.admin
    steps = [Do.extract(value="TO=/to"), Do.publish(topic="{{TO}}", data="{{AMPS_DATA}}")]
    client.apply(Action(name="route", on=On.publish(topic="orders"), do=steps))
    place.coordinate()
    client.publish_many("orders", [{"key": f"k{n}", "number": n, "to": "no name"} for n in range(6)], key=key_of)
    client.publish("orders", {"key": "k", "number": 7, "to": "routed"}, key="k")
    eventually(lambda: admin.actions()["route"].failed == 6 and "routed" in admin.topics())
    failed = admin.failed_events("route")
    numbers = sorted(json.loads(each.variables["AMPS_DATA"])["number"] for each in failed)
    given = [len({each.number for each in failed}), numbers, admin.drop_failed("route", events=failed[2].number)]
    given += [len(admin.failed_events("route")), admin.drop_failed("route"), admin.actions()["route"].failed]
    client.publish_many("orders", [{"key": f"k{n}", "number": n, "to": "no name"} for n in range(2)], key=key_of)
    eventually(lambda: admin.actions()["route"].failed == 2)
    given += [admin.retry_action("route", events=[admin.failed_events("route")[0].number])]
    eventually(lambda: len(admin.failed_events("route")) == 2)
    return [*given, admin.retry_action("route")]


@program
def knowing_the_place(place):
    client, heard = place.client, []
    client.add_connection_state_listener(heard.append)
    eventually(lambda: heard)
    client.remove_connection_state_listener(heard.append)
    other = place.connect(ack_timeout="10ms", retry_timeout="5s", heartbeat="1s", transport="*", failover="refuse")
    # A name of each partition, or none.
    assert all(each.startswith(place.instance) for each in client.partitions)
    given = [client.instance == place.instance, client.url == other.url, str(client.server) == str(other.server)]
    with pytest.raises(TypeError, match=r"retry_time"):
        place.connect(retry_time="5s")
    other.close()
    with pytest.raises(AmpsqError, match=r"closed|not open|not connected"):
        other.publish("orders", 1)
    return [*given, sorted({each.state for each in heard} - {"disconnected"})]


@program
def refusals(place):
    client, admin, told = place.client, place.client.admin, []
    client.apply(Topic(name="orders"), Topic(name="states", key="/id"), WORK, Queue(name="mail"))
    client.publish("orders", {"key": "a", "number": 1}, key="a")
    calls = {
        "subscribe unknown": lambda: client.subscribe("wrok"),
        "subscribe topic": lambda: client.subscribe("orders"),
        "subscribe filter": lambda: client.subscribe("work", filter="/a >"),
        "subscribe backlog": lambda: client.subscribe("work", max_backlog=-1),
        "subscribe argument": lambda: client.subscribe("work", sub_id="x"),
        "subscribe publisher": lambda: client.subscribe("work", publisher=3),
        "subscribe handler": lambda: client.subscribe("work", on_message=3),
        "publish topic": lambda: client.publish("no name", 1),
        "publish key": lambda: client.publish("orders", 1, key=3),
        "publish group": lambda: client.publish("orders", 1, group=3),
        "publish headers": lambda: client.publish("orders", 1, headers={"a": 1}),
        "publish data": lambda: client.publish("orders", object()),
        "publish delay": lambda: client.publish("orders", 1, delay="1h", at=datetime.now(UTC)),
        "publish at": lambda: client.publish("orders", 1, at=datetime.now(UTC).replace(tzinfo=None)),
        "publish window": lambda: client.publish("orders", 1, within="1h"),
        "publish record": lambda: client.publish("states", {"qty": 1}),
        "publish_many text": lambda: client.publish_many("orders", "abc"),
        "publish_many batch": lambda: client.publish_many("orders", [1], batch=0),
        "publish_many record": lambda: client.publish_many("states", [{"id": 1}, {"qty": 1}]),
        "delta_publish": lambda: client.delta_publish("states", {"qty": 1}),
        "publisher name": lambda: client.publisher("no name"),
        "publisher level": lambda: client.publisher("till", persisted="fsync"),
        "publisher store": lambda: client.publisher("till", store=3),
        "ack nothing": lambda: client.ack("work"),
        "ack both": lambda: client.ack("work", "orders~a.b~1-0", filter="/a = 1"),
        "ack unknown": lambda: client.ack("wrok", filter="/a = 1"),
        "ack option": lambda: client.ack("work", filter="/a = 1", option="eat"),
        "ack filter": lambda: client.ack("work", filter="/a ="),
        "ack bookmark": lambda: client.ack("work", "nothing"),
        "sow unknown": lambda: client.sow("sattes"),
        "sow keyless": lambda: client.sow("orders"),
        "sow filter": lambda: client.sow("states", "/a ="),
        "sow top": lambda: client.sow("states", top_n=-1),
        "sow skip": lambda: client.sow("states", skip_n=1),
        "sow time": lambda: client.sow("states", bookmark="no time"),
        "sow_delete nothing": lambda: client.sow_delete("states"),
        "sow_delete both": lambda: client.sow_delete("states", keys=[1], filter="/a = 1"),
        "sow_and_subscribe keyless": lambda: client.sow_and_subscribe("orders"),
        "sow_and_subscribe conflation": lambda: client.sow_and_subscribe("states", conflation="no time"),
        "topic unknown": lambda: client.subscribe_topic("ordres", bookmark="[epoch:now]"),
        "topic queue": lambda: client.subscribe_topic("work"),
        "topic bookmark": lambda: client.subscribe_topic("orders", bookmark="no time"),
        "topic argument": lambda: client.subscribe_topic("orders", max_backlog=3),
        "topic place": lambda: client.subscribe_topic("orders", bookmark="most_recent"),
        "topic rate": lambda: client.subscribe_topic("orders", rate="fast"),
        "apply no definition": lambda: client.apply("work"),
        "apply change": lambda: client.apply(Queue(name="work", underlying_topic="letters")),
        "apply type": lambda: client.apply(Topic(name="orders", message_type="msgpack")),
        "remove used": lambda: admin.remove(Topic(name="orders")),
        "stats unknown": lambda: admin.queue_stats("wrok"),
        "latencies unknown": lambda: admin.queue_latencies("wrok"),
        "latencies range": lambda: admin.queue_latencies("work", "3s"),
        "explain unknown": lambda: admin.explain("wrok"),
        "explain bookmark": lambda: admin.explain("work", "nothing"),
        "history": lambda: admin.history("nothing"),
        "check unknown": lambda: admin.check("wrok"),
        "rebuild unknown": lambda: admin.rebuild("wrok"),
        "groups unknown": lambda: admin.groups("wrok"),
        "groups limit": lambda: admin.groups("work", limit=0),
        "group unknown": lambda: admin.pause_group("wrok", "g"),
        "group none": lambda: admin.pause_group("work", "g"),
        "group text": lambda: admin.release_group("work", 3),
        "drop reason": lambda: admin.drop_group("work", "g", reason="a\nb"),
        "pause unknown": lambda: admin.pause_queue("wrok"),
        "letters unknown": lambda: admin.dead_letters("wrok"),
        "letters filter": lambda: admin.dead_letters("work", "/a ="),
        "letters bookmark": lambda: admin.dead_letters("work", bookmarks="nothing"),
        "redrive unknown": lambda: admin.redrive("wrok"),
        "redrive rate": lambda: admin.redrive("work", rate="fast"),
        "redrive to": lambda: admin.redrive("work", to=3),
        "trim unknown": lambda: admin.trim("ordres", age="0s"),
        "trim keeps": lambda: admin.trim("orders"),
        "action unknown": lambda: admin.failed_events("nothing"),
        "retry unknown": lambda: admin.retry_action("nothing"),
        "drop unknown": lambda: admin.drop_failed("nothing", events=1),
        "member": lambda: client.queue_stats,
    }
    for name, call in calls.items():
        try:
            call()
        except (AmpsqError, TypeError, AttributeError, ValueError) as error:
            told += [(name, type(error).__name__)]
        else:
            told += [(name, "nothing")]
    with client.subscribe("work") as work:
        message = work.get(LONG)
        message.ack(wait=True)
        for settle in (message.cancel, message.expire):
            with pytest.raises(AmpsqError) as refused:
                settle()
            told += [type(refused.value).__name__]
    with pytest.raises(AmpsqError) as refused:
        work.get("1s")
    return [*told, type(refused.value).__name__]


# -- workers


@program
def working(place):
    client, lock = place.client, threading.Lock()
    client.apply(Topic(name="orders"), WORK, Queue(name="dead", max_per_subscription_backlog=9))
    client.apply(Action.dead_letter("work", "dead"))
    place.coordinate()
    client.publish_many("orders", orders(30), key=key_of)
    found, before = [], []

    def handle(message):
        if message.data["number"] == 3 and message.delivery == 1:
            raise ValueError("again")
        if message.data["number"] == 5:
            raise Reject("never")
        with lock:
            found.append(message.data)

    hooks = Hooks(before=lambda message: before.append(message.bookmark))
    options = {"concurrency": 3, "max_backlog": 9, "stop_timeout": "5s", "cancel_delay": "10ms", "hooks": hooks}
    worker = place.worker(handle, "work", filter="/number >= 0", time_limit="10s", on_invalid="expire", **options)
    with place.working(worker) as running:
        eventually(lambda: running.processed == 29)
    eventually(lambda: len(client.admin.dead_letters("dead")) == 1)
    return [
        *(running.processed, running.failed, running.rejected, running.invalid, running.halted, len(before)),
        *(sorted(each["number"] for each in found), client.admin.queue_stats("work").depth),
    ]


@program
def an_app(place):
    found = []
    app = App(Topic(name="orders"), url=place.url)

    def handle(message):
        found.append(message.data["n"])
        if message.data["n"] == 3:
            raise Reject("never")

    client, options = place.client, {"concurrency": 2, "time_limit": "10s", "on_invalid": "cancel", "hooks": Hooks()}
    register = place.stood_for(app).handler("jobs", retries=2, backoff="10ms..1s", dead_letters="lost", **options)
    register(place.handler(handle))
    with place.working(app) as running:
        eventually(lambda: "jobs" in client.admin.queues() and "lost" in client.admin.queues())
        client.publish_many("jobs", [{"n": number} for number in range(12)], key=lambda message: str(message["n"]))
        eventually(lambda: len(found) == 12)
    return [
        running.queues,
        sorted(each.name for each in running.definitions),
        sorted(found),
        sorted(client.admin.queues()),
    ]


# -- what is refused


def aggregate(place):
    place.client.aggregate("work", ["COUNT(*) AS /n"])


def origin(place):
    return place.client.origin


def origin_of_a_topic(place):
    with place.client.subscribe_topic("orders") as topic:
        return topic.origin


def last_persisted(place):
    with place.client.publisher("till", store=MemoryPublishStore()) as till:
        return till.last_persisted


def sequence_of_a_deletion(place):
    place.client.apply(Topic(name="states", key="/id"))
    with place.client.publisher("till", store=MemoryPublishStore()) as till:
        return till.sow_delete("states", keys=[1]).sequence


#: Members that a client of all partitions refuses -> a call that does so.
REFUSED = {
    "Client.aggregate": aggregate,
    "Client.origin": origin,
    "TopicSubscription.origin": origin_of_a_topic,
    "Publisher.last_persisted": last_persisted,
    "DeletionReceipt.sequence": sequence_of_a_deletion,
    "Admin.replication": lambda place: place.client.admin.replication(),
    "Admin.enable_proxied_transfer": lambda place: place.client.admin.enable_proxied_transfer("work"),
    "Admin.disable_proxied_transfer": lambda place: place.client.admin.disable_proxied_transfer("work"),
    "Admin.remove_destination": lambda place: place.client.admin.remove_destination("other"),
    "Admin.downgrade_replication": lambda place: place.client.admin.downgrade_replication("other"),
    "Admin.upgrade_replication": lambda place: place.client.admin.upgrade_replication("other"),
    "Admin.recover_without": lambda place: place.client.admin.recover_without("other"),
    "Admin.begin_incarnation": lambda place: place.client.admin.begin_incarnation(),
}
#: Members that only what is refused gives, and arguments that a test's thread cannot give.
NOT_CALLED = {
    *("RowSubscription.get", "RowSubscription.get timeout", "RowSubscription.close"),
    *("Worker.run signals", "App.run signals"),
}


def with_publisher(use, **options):
    """Return a call that uses a publisher with a store."""

    def call(place):
        with place.client.publisher("till", store=MemoryPublishStore(), **options) as till:
            return use(place, till)

    return call


def at_one_message(use):
    """Return a call that is given the bookmark of a message."""

    def call(place):
        place.client.apply(Topic(name="states", key="/id"))
        return use(place.client, place.client.publish("states", {"id": 1}))

    return call


def change_without_partition_by(place):
    place.client.apply(Topic(name="states", key="/id", partition_by="/region"))
    place.client.delta_publish("states", {"id": 1})


DEFINITIONS = {
    "a view": View(name="v", underlying_topic="t", projection=["COUNT(*) AS /n"]),
    "a barrier": Queue(name="w", underlying_topic="t", barrier_expression="/end = 1"),
    "affinity": Queue(name="w", underlying_topic="t", group_by="/g", group_affinity="30s"),
    "a shared queue": GroupLocalQueue(name="g", initial_owner="other"),
    "a destination": Destination(name="d", topics="t", sync_type="sync"),
    "an instance": Instance(topics="defined"),
    "a schedule": Action(name="a", on=On.schedule(every="1h"), do=Do.publish(topic="t", data="1")),
}
#: What a client of all partitions refuses because of what it is given.
REFUSED_VALUES = {
    "sequence without a key": with_publisher(lambda _, till: till.publish("orders", {}, sequence=3)),
    "change without partition_by": change_without_partition_by,
    "topic from one message on": at_one_message(lambda client, one: client.subscribe_topic("states", bookmark=one)),
    "topic to one message": at_one_message(
        lambda client, one: client.subscribe_topic("states", bookmark=f"[epoch:{one}]")
    ),
    "records at one message": at_one_message(lambda client, one: client.sow("states", bookmark=one)),
    "changes from one message on": at_one_message(lambda client, one: client.sow_and_subscribe("states", bookmark=one)),
    "publisher's bookmark": lambda place: place.client.ack("work", "till|3"),
    "topic from a publisher's bookmark on": lambda place: place.client.subscribe_topic("orders", bookmark="till|3"),
    "history of a publisher's bookmark": lambda place: place.client.admin.history("till|3"),
    **{name: lambda place, each=each: place.client.apply(each) for name, each in DEFINITIONS.items()},
}


# -- the table


def run(name, place):
    """Run a program; gives what it gave, and what it called."""
    place.folder.mkdir()
    with place:
        found = PROGRAMS[name](place)
    return json.loads(json.dumps(found, default=repr)), {
        method: sorted(arguments) for method, arguments in sorted(place.called.items())
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_at_an_address_with_partitions(request, name, kind, server, instance):
    folder = request.getfixturevalue("tmp_path")
    if name == "reading_what_is_on_disk":
        server = request.getfixturevalue("start_server")(server.kind, appendonly=True)
    (found, called), (of_partitions, _) = (
        run(name, Place(kind, f"{server.url}{suffix}", f"{instance}-{number}", folder / str(number)))
        for number, suffix in enumerate(PLACES)
    )

    assert of_partitions == found
    if kind == KINDS[0]:
        assert called == json.loads(TABLE.read_text())[name], WRITE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_VALUES])
def test_what_is_refused_names_the_partitions_and_what_to_do(name, kind, server, instance, tmp_path):
    with Place(kind, f"{server.url}{PLACES[1]}", instance, tmp_path) as place:
        place.client.apply(Topic(name="orders"), WORK)
        with pytest.raises(DefinitionError, match=r"(?s)partition.*allowed: "):
            {**REFUSED, **REFUSED_VALUES}[name](place)


def test_every_member_and_argument_of_what_works_at_an_instance_is_called():
    table = json.loads(TABLE.read_text())
    called = {name for each in table.values() for name in each}
    called |= {f"{name} {argument}" for each in table.values() for name in each for argument in each[name]}
    members = {f"{name}.{member}" for name in HELD for member in members_of(name)} - REFUSED.keys()
    members |= {f"{name} {each}" for name in members for each in arguments_of(*name.split("."))}

    assert members - called == NOT_CALLED, WRITE
    assert table.keys() == PROGRAMS.keys(), WRITE
    # What is new among the exported classes and works at an instance belongs to `HELD`.
    held = {
        name for name in ampsq.__all__ if "close" in dir(getattr(ampsq, name)) or "run" in dir(getattr(ampsq, name))
    }
    assert {name.removeprefix("Async") for name in held} <= {*HELD, *STORES}


def test_the_page_of_partitions_lists_what_is_refused():
    page = (Path(__file__).parents[2] / "docs/partitions.md").read_text()
    listed = page.partition("## What is refused")[2].partition("\n## ")[0]

    assert [name for name in REFUSED if f"`{name.partition('.')[2]}`" not in listed] == []


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    # `conftest` starts servers.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from conftest import launch

    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        server = launch("valkey", Path(folder, "valkey"), appendonly=True)
        try:
            found = {name: run(name, Place(KINDS[0], server.url, name, Path(folder, name)))[1] for name in PROGRAMS}
        finally:
            server.end()
    TABLE.write_text(json.dumps(found, indent=1) + "\n")
