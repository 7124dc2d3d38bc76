"""Programs of one text each that read topics and records, define, care for an instance, and run workers.

They stand in the table of program_texts.py, and are run as its programs are.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta

import pytest
from observing import eventually
from program_texts import LONG, WORK, by_key, key_of, orders, program, taken

from ampsq import (
    Action,
    AddressSetting,
    App,
    ConflatedTopic,
    Do,
    Hooks,
    Instance,
    MemoryBookmarkStore,
    On,
    Queue,
    Reject,
    Topic,
)
from ampsq.base.errors import AmpsqError

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
