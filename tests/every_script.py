"""Real work that makes every script run, with arguments that do something: for tests that ask something of each call.

`WORK` is functions of a `Work`, in order, each of which expects what those before it made. A test gives the `Work` a
store that does what it asks with each call. Whoever adds a script adds work here.
"""
# Long: one scene that calls every script; its steps need each other's messages.

from __future__ import annotations

import contextlib
import time

import pytest
from observing import eventually

from ampsq import Action, ConflatedTopic, Destination, Do, Instance, On, Queue, Topic, Transport, View
from ampsq.base.errors import NameInUse
from ampsq.base.message_types import JSON
from ampsq.catalog.partitioned import Intent
from ampsq.catalog.read_definitions import read_definitions
from ampsq.catalog.remove import remove
from ampsq.client.session import Session
from ampsq.coordinator.actions import Actions, OutsidePermissions
from ampsq.coordinator.flush_settings import FlushSettings
from ampsq.coordinator.foreign_entries import ForeignEntries
from ampsq.coordinator.lost_clients import LostClients
from ampsq.coordinator.retention import Retention
from ampsq.coordinator.sweep import SweepDue
from ampsq.coordinator.views import Views
from ampsq.definitions.address_setting import AddressSetting
from ampsq.operations.actions import failed_events, retry_action
from ampsq.operations.check.queue import check, rebuild_queue
from ampsq.operations.groups import drop_group, pause_group, read_groups, release_group
from ampsq.operations.upgrade import upgrade_instance
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import browse as browse_calls
from ampsq.protocol.calls import check as check_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.calls import groups as group_calls
from ampsq.protocol.calls import incarnations as incarnation_calls
from ampsq.protocol.calls import ownership as ownership_calls
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls import readers as reader_calls
from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.calls import retention
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.calls.jobs import (
    Committed,
    PartitionProgress,
    StagedRows,
    commit_job,
    drop_stages,
    finish_job,
    keep_stages,
    record_stage,
    stage_rows,
    write_rows,
)
from ampsq.protocol.calls.queue_ages import measure_ages
from ampsq.protocol.calls.requests import relay
from ampsq.protocol.reads.log_index import complete, cuts
from ampsq.protocol.reads.message_names import find_bookmark, name_message
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.schema import FIELDS, FORMAT, key
from ampsq.publishing.deduplication import DeduplicationWindow
from ampsq.publishing.envelope import Envelope
from ampsq.publishing.plain import PlainPublisher
from ampsq.queues.explain import explain
from ampsq.queues.history import history
from ampsq.queues.query import Query, parse_query_filter
from ampsq.queues.subscription_core import SubscriptionCore
from ampsq.records.deletion import delete_by_key, delete_matching
from ampsq.replication import recovery as recovering
from ampsq.replication.destinations import read_destinations, remove_destination
from ampsq.replication.incarnations import new_incarnation
from ampsq.replication.link import Link
from ampsq.replication.selection import EntrySelector, Peer
from ampsq.transport.store import Store

PLAIN = Envelope.of(None, None, None, None)


class Work:
    """Real work of one client and one coordinator, without threads."""

    def __init__(self, store, publisher="till-1"):
        self.store = store
        self.session = Session(store.instance)
        self.run(self.session.connect())
        self.publisher = PlainPublisher(self.session, publisher)
        self.number = 0

    def run(self, flow):
        return self.store.run(flow)

    def apply(self, *definitions):
        self.run(self.session.apply(definitions))

    def publish(self, topic, *bodies, envelope=PLAIN):
        return [self.run(self.publisher.publish(topic, body, envelope)).bookmark for body in bodies]

    @contextlib.contextmanager
    def subscription(self, name, backlog=10, text=None):
        core = SubscriptionCore(self.store.instance, name, backlog, self.session.request(), text=text)
        self.run(core.registration.register())
        channel = self.store.pipeline()
        try:
            yield core, channel
        finally:
            self.run(core.close(channel))
            channel.close()

    def take(self, core, channel, number, within=30.0):
        """Return the messages that are handed out: (body, delivery)."""
        got, until = [], time.monotonic() + within
        while len(got) < number and time.monotonic() < until:
            self.run(core.inbox.fetch(channel, 0.05))
            while core.inbox.buffer:
                parts, body = core.inbox.buffer.popleft()
                got.append((parts, body))
        return got

    def sweep(self):
        SweepDue().run_once(self.store)


def publish_once(work):
    """A message whose ID is known is not recorded again."""
    window = DeduplicationWindow.of("invoice-17", "1h")
    first = work.run(work.publisher.publish_once("invoices", {"id": 17}, PLAIN, window))
    assert work.run(work.publisher.publish_once("invoices", {"id": 17}, PLAIN, window)) == first


def consume(work):
    """A queue's whole way, every call in doubt: each message handed out once, in order, and settled once."""
    work.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=20, max_deliveries=3))
    work.publish("orders", *({"id": number} for number in range(12)))
    with work.subscription("work", 5) as (core, channel):
        got = []
        until = time.monotonic() + 60
        while len(got) < 12:
            assert time.monotonic() < until, got
            for parts, body in work.take(core, channel, 1):
                got.append(body)
                core.leases.acks.append(parts)
            work.run(core.leases.flush())
        assert got == [b'{"id":%d}' % number for number in range(12)]
        assert list(core.leases.late.errors) == []
    stats = work.run(work.session.queue_stats("work"))
    assert (stats.depth, stats.acknowledged, stats.delivered) == (0, 12, 12)


def settle_in_every_way(work):
    work.publish("orders", *({"id": number} for number in range(20, 26)))
    with work.subscription("work", 6) as (core, channel):
        got, ours = [parts for parts, _ in work.take(core, channel, 6)], core.registration.id
        assert len(got) == 6
        for verb, parts in zip(("acknowledged", "cancelled", "expired", "extended", "given_back"), got, strict=False):
            refs, why = [parts[5].split(b"\n")[0]], "not now" if verb in ("cancelled", "expired") else ""
            work.store.call(calls.settle(verb, b"work", refs, [parts[1]], period=60_000, by=ours, reason=why))
        work.store.call(subscription_calls.resize(ours, 3))
        assert work.store.call(subscription_calls.end_wait(ours))
        assert work.store.call(subscription_calls.heartbeat(30_000, [ours, "s99999999"])).gone == ["s99999999"]
        # What was measured is counted as often as it is sent, so that is not repeated
        work.store.call(subscription_calls.heartbeat(30_000, [ours], "work|2000 1 1|0"))
        work.run(core.replace(channel, "work", 4, "/id > 21"))
    work.sweep()
    # Messages by bookmark: no token tells a second run, so the caller is told
    bookmark = work.publish("orders", {"id": 30})[0]
    assert work.run(work.session.ack("work", [bookmark], "expire", reason="void")) == 1
    work.run(work.session.ack("work", None, "ack", "/id >= 0"))


def hold_a_group(work):
    """A message that fails holds its group, until somebody releases it."""
    work.apply(Queue(name="payments", group_by="/customer", max_per_subscription_backlog=5, redelivery_delay="1h"))
    work.publish("payments", *({"customer": "alice", "id": number} for number in range(2)))
    with work.subscription("payments", 1) as (core, channel):
        ((parts, _),) = work.take(core, channel, 1)
        refs = [parts[5].split(b"\n")[0]]
        work.store.call(calls.settle("cancelled", b"payments", refs, [parts[1]], by=core.registration.id))
    (held,) = work.run(read_groups("payments", 10)).groups
    assert (held.group, held.waiting, held.failed) == ("alice", 1, 1)
    assert work.store.call(group_calls.count_groups("payments", 0, 10)).on_hold == 1
    assert work.run(release_group("payments", "alice"))
    assert not work.run(release_group("payments", "alice"))
    assert work.run(pause_group("payments", "alice", "c", paused=True))
    assert work.run(pause_group("payments", "alice", "c", paused=False))
    work.publish("payments", {"customer": "bob", "id": 9})
    assert work.run(drop_group("payments", "bob", "void", dry_run=True)) == 1
    assert work.run(drop_group("payments", "bob", "void", dry_run=False)) == 1
    work.run(work.session.ack("payments", None, "ack", "/id >= 0"))


def look(work):
    bookmarks = work.publish("orders", {"id": 40, "symbol": "A"}, {"id": 41, "symbol": "B"})
    assert len(work.run(work.session.sow("work", Query("/id > 0", "/id DESC", 5, None), None, None)).messages()) >= 2
    work.run(explain(work.session, "work"))
    work.run(explain(work.session, "work", bookmarks[0]))
    work.run(history(work.session, bookmarks[0]))
    work.run(work.session.topics())
    work.store.call(measure_ages("work"))
    for source in ("ready", "leases", "log orders"):
        work.store.call(browse_calls.browse("work", source, "", "9-9" if "log" in source else "", ""))
    work.run(work.session.ack("work", None, "ack", "/id >= 0"))


def filters_and_views(work):
    work.apply(
        Queue(name="best", underlying_topic="trades", priority="/price", max_per_subscription_backlog=10),
        View(
            name="by-symbol",
            underlying_topic="trades",
            projection=["/symbol", "SUM(/price) AS /sum"],
            grouping=["/symbol"],
        ),
        View(
            name="waiting", underlying_topic="best", projection=["/symbol", "COUNT(/price) AS /n"], grouping=["/symbol"]
        ),
        Topic(name="trades"),
    )
    views = Views()
    work.publish("trades", *({"symbol": "AB"[n % 2], "price": n} for n in range(6)))
    with work.subscription("best", 3, "/symbol = 'A'") as (core, channel):
        got = work.take(core, channel, 3)
        assert sorted(body for _, body in got) == [b'{"symbol":"A","price":%d}' % n for n in (0, 2, 4)]
        for _ in range(4):
            views.run_once(work.store)
            time.sleep(0.06)  # the view's interval passes
        core.leases.acks.extend(parts for parts, _ in got)
        work.run(core.leases.flush())
    views.run_once(work.store)


def actions(work):
    work.apply(
        Queue(name="jobs", underlying_topic="tasks", max_per_subscription_backlog=10),
        Action.dead_letter("jobs", "failed"),
        Action(name="copy", on=On.publish(topic="tasks"), do=Do.publish(topic="copies")),
        Action(
            name="late",
            on=On.timeout(topic="tasks", key=["/id"], duration="1s", filter="/id > 0"),
            do=Do.publish(topic="alarms"),
        ),
        Action(name="hook", on={"expire": "jobs"}, do=Do.webhook(url="http://127.0.0.1:9/x")),
        Action(name="who", on="connect", do=Do.publish(topic="log", data="{{AMPS_CLIENT_NAME}}")),
        Action(name="heard", on={"event": "lost"}, do=Do.publish(topic="log", data="{{AMPS_EVENT}}")),
        Queue(name="failed", underlying_topic="failed", max_per_subscription_backlog=10),
    )
    duty = Actions(OutsidePermissions(webhooks=("http://127.0.0.1:9/",)))
    work.publish("tasks", {"id": 1}, {"id": 2}, {"id": 0})
    work.store.call(action_calls.emit_event("connect", "somebody"))
    work.store.call(action_calls.emit_event("event", "somebody", "lost", b"x"))
    bookmarks = work.publish("tasks", {"id": 3})
    work.run(work.session.ack("jobs", bookmarks, "expire"))

    def length(topic):
        return work.store.redis.xlen(key(work.store.instance, "log", topic))

    def is_done():
        duty.run_once(work.store)
        failed = work.run(failed_events(work.store.instance, "hook"))
        return len(failed) == 1 and length("copies") >= 4 and length("failed") >= 1 and length("alarms") >= 3

    eventually(is_done, within=30.0)
    # Each copy and each letter is there once
    assert (length("copies"), length("failed"), length("alarms")) == (4, 1, 3)
    letters = work.run(work.session.dead_letters("failed", None, source=None, reason=None, top_n=None, bookmarks=None))
    assert len(letters) == 1
    letters = work.run(
        work.session.dead_letters("failed", None, source=None, reason=None, top_n=None, bookmarks=[letters[0].bookmark])
    )
    assert len(letters) == 1
    # What failed is tried again
    tries = work.run(failed_events(work.store.instance, "hook"))[0].tries
    assert work.run(retry_action(work.store.instance, "hook")) == 1

    def is_tried_again():
        duty.run_once(work.store)
        return work.run(failed_events(work.store.instance, "hook"))[0].tries > tries

    eventually(is_tried_again, within=30.0)
    redriven = work.run(
        work.session.redrive(
            "failed", filter=None, bookmarks=None, source=None, reason=None, to=None, dry_run=False, rate=None,
            progress=None, edit=None,
        )
    )  # fmt: skip
    assert redriven == 1
    work.store.call(action_calls.count("copy", "p", 1, b"N"))


def keep_and_trim(work):
    work.apply(
        Topic(name="short", retention_count=3),
        Topic(name="lossy", retention_count=2, retention_unsettled="discard"),
        Queue(name="slow", underlying_topic="lossy"),
        Queue(name="fast", underlying_topic="short", max_per_subscription_backlog=10),
    )
    work.publish("short", *range(8))
    work.publish("lossy", *range(8))
    ids = [entry.decode() for entry, _ in work.store.redis.xrange(key(work.store.instance, "log", "short"))]
    work.store.call(retention.hold("short", "replay one", ids[5], 60_000))
    work.store.call(retention.pin("short", "action copy", [ids[6]]))
    with work.subscription("fast", 8) as (core, channel):
        core.leases.acks.extend(parts for parts, _ in work.take(core, channel, 8))
        work.run(core.leases.flush())
    duty = Retention()
    for _ in range(12):
        duty.run_once(work.store)
    work.run(work.session.trim("short", "0s", dry_run=True))
    work.store.call(retention.pin("short", "action copy", [ids[6]], wanted=False))
    work.store.call(retention.hold("short", "replay one", None))
    work.store.call(retention.forget_publishers("0"))


def keep_records(work):
    work.apply(
        Topic(name="states", key="/id"),
        Queue(name="changes", underlying_topic="states", max_per_subscription_backlog=20),
    )
    work.publish("states", *({"id": number, "v": 1} for number in range(6)))
    # Somebody else's entry comes into the records when they are let
    work.store.redis.xadd(key(work.store.instance, "log", "states"), {"id": "9"})
    work.run(work.session.plain.publish("states", {"id": 2, "w": 2}, PLAIN, delta=True))

    def records():
        return {each.key: each.data for each in work.run(work.session.sow("states", Query(), None, None)).messages()}

    assert records() == {
        **{str(n): {"id": n, "v": 1} for n in (0, 1, 3, 4, 5)},
        "2": {"id": 2, "v": 1, "w": 2},
        "9": {"id": "9"},
    }
    # By keys and data a number tells the second run, which deletes none; by a filter nothing does
    assert work.run(delete_by_key(work.publisher, "states", [0, 7], None)) in (0, 1)
    assert work.run(delete_by_key(work.publisher, "states", None, {"id": 1})) in (0, 1)
    assert work.run(delete_matching("states", parse_query_filter("/id > 4 AND /id < 9"))) == 1
    assert sorted(records()) == ["2", "3", "4", "9"]
    # The queue has every message and none of the deletions
    with work.subscription("changes", 20) as (core, channel):
        assert len(work.take(core, channel, 8)) == 8
        work.store.call(calls.resume(core.registration.id, b"changes", "0", []))
    assert work.run(work.session.queue_stats("changes")).depth == 8


def damage_and_mend(work):
    work.apply(Queue(name="weak", underlying_topic="goods", max_per_subscription_backlog=10, filter="/id >= 0"))
    work.publish("goods", *({"id": number} for number in range(6)))
    with work.subscription("weak", 3, "/id < 5") as (core, channel):
        work.take(core, channel, 2)
        plain, name = work.store.redis, work.store.instance
        plain.hincrby(key(name, "subscription", core.registration.id), "leased", 2)
        plain.hincrby(key(name, "queue", "weak"), "delayed", 3)
        plain.zadd(key(name, "due"), {"dispatch nowhere": 5e15})
        for repair in (False, True):
            work.run(check(work.session, ["weak"], repair=repair))
        work.run(rebuild_queue(work.session, "weak"))
        for repair in (False, True):
            work.store.call(check_calls.check_due("0", 100, repair=repair))
            work.store.call(check_calls.check_leased(core.registration.id, repair=repair))
        work.store.call(check_calls.correct_count("weak", "goods", 0))
    assert all(not found.differences for found in work.run(check(work.session, ["weak"])))
    assert work.run(work.session.queue_stats("weak")).depth == 6
    work.apply(
        Queue(
            name="weak", underlying_topic="goods", max_per_subscription_backlog=10, filter="/id >= 0",
            recovery_point="now",
        )
    )  # fmt: skip
    assert work.run(work.session.queue_stats("weak")).depth == 0


def notice_and_end(work):
    work.store.redis.xadd(key(work.store.instance, "log", "orders"), {"id": "99"})
    work.publish("first-used", {"id": 1})
    ForeignEntries().run_once(work.store)
    LostClients().run_once(work.store)
    FlushSettings().run_once(work.store)
    work.store.call(duty_calls.read_news([duty_calls.WatchedInstance(work.store.instance)]))
    work.sweep()
    work.apply(AddressSetting(match="auto.#", max_delivery_attempts=3))


def guaranteed(work):
    """A publisher's session: what a lost reply makes it send again is recorded once."""
    session = work.store.call(publish_calls.logon("till-9", "a-client", 1, None)).session
    sent = [
        publish_calls.publish_logged_on("till-9", session, first, ["sold", "b", first, first + 1]) for first in (1, 3)
    ]
    work.apply(Topic(name="sold"))
    for call in sent:
        work.store.call(call)
    assert work.store.call(publish_calls.confirm("till-9", session, 4))
    work.store.call(publish_calls.logoff("till-9", session))
    assert work.store.redis.xlen(key(work.store.instance, "log", "sold")) == 4
    assert work.store.call(publish_calls.logon("till-9", "a-client", 5, 4)).last == 4


def durable_subscriptions(work):
    """Places of a durable subscription, and another one that takes its name."""
    first = work.store.call(reader_calls.claim("audit", "c/1"))
    work.store.call(reader_calls.note_place("audit", first, [("floor", "0-0"), ("beyond a 1-0", "")], []))
    work.store.call(reader_calls.note_place("audit", first, [("at a", "1-0")], ["beyond a 1-0"]))
    second = work.store.call(reader_calls.claim("audit", "c/2"))
    assert work.store.call(reader_calls.holder_of(work.store.instance, "audit")) == (second, "c/2")
    with pytest.raises(NameInUse):
        work.store.call(reader_calls.note_place("audit", first, [("at a", "0-0")], []))


def split(work):
    """A log that somebody else wrote: its index is made, and it is cut in three."""
    log = key(work.store.instance, "log", "foreign")
    work.apply(Topic(name="foreign"))
    pipe = work.store.redis.pipeline(transaction=False)
    for number in range(1, 4_001):
        pipe.xadd(log, {"x": "y"}, id=f"{number}-0")
    pipe.execute()
    work.run(complete("foreign"))
    assert work.run(cuts(work.store.instance, "foreign", (0, 0), (4_000, 0), 3)) == [(1_333, 0), (2_667, 0)]


def limits_of_slow_clients(work):
    """Readers of topics, up to the one that is disconnected: told once, and so again."""
    limits = {"message_memory_limit": "1MB", "message_disk_limit": "1MB", "client_message_age_limit": "1s"}
    work.apply(Transport(name="*", **limits))
    assert work.store.call(reader_calls.lag([("orders", (0, 0))]))[0].added > 0

    def report(state, behind=0, oldest=0):
        told = reader_calls.Report(state, behind, 0, oldest)
        return work.store.call(reader_calls.report("r", "*", told, period=15_000, client="c", facts="{}")).word

    assert [report("online", 5), report("online", 2**21), report("offline", 5)] == ["", "offline", ""]
    assert report("offline", 2**21) == "disconnect"
    assert report("offline") == "disconnect"
    assert not work.store.call(reader_calls.leave_report("r")).word
    assert report("online", 5, oldest=1) == "disconnect"


def destinations(work):
    """One that is defined, changed and removed, of an instance with a group."""
    work.apply(Instance(group="NYC"), Destination(name="nyc-2", sync_type="sync", topics="orders"))
    mark = work.store.call(replication_calls.set_mark())
    assert work.store.call(replication_calls.lacking_destinations(mark, {})) == ["nyc-2"]
    assert work.store.call(replication_calls.behind_since("nyc-2", ["log orders"])).oldest is not None
    work.store.call(replication_calls.report_sent("nyc-2", {"marked": mark}))
    assert work.store.call(replication_calls.lacking_destinations(mark, {})) == []
    work.store.call(replication_calls.downgrade("nyc-2", enabled=True))
    assert work.store.call(replication_calls.lacking_destinations("9999999999999-0", {})) == []
    work.apply(Destination(name="nyc-2", sync_type="async", topics="orders"))
    work.run(remove_destination("nyc-2"))
    assert work.run(read_destinations()) == {}


def removals(work):
    """One of each kind, defined and removed."""
    made = [
        Queue(name="gone", underlying_topic="gone-by"),
        Action.dead_letter("gone", "gone-letters"),
        View(name="gone-totals", underlying_topic="gone", projection=["COUNT(*) AS /n"]),
        AddressSetting(match="gone.#", default_ring_size=3),
        Transport(name="gone"),
        ConflatedTopic(name="gone-slowly", underlying_topic="gone-by", key="/id"),
    ]
    work.apply(*made)
    work.run(remove(made))
    assert not {each.name for each in work.run(read_definitions())} & {each.name for each in made}


def define_in_all_partitions(work):
    """A version that is begun, noted and done, as in the first partition of an instance."""
    intent = work.run(Intent.read(work.store.instance))
    begun = work.run(intent.begin([Topic(name="everywhere")], []))
    work.store.call(define_calls.note_definitions(begun.version))
    work.run(begun.end())
    assert work.run(Intent.read(work.store.instance)).is_done


def write_jobs(work):
    work.apply(Topic(name="rows"))
    store = work.store
    first, second = PartitionProgress(2, 5), PartitionProgress(3, 6)
    for before, after, values in ((PartitionProgress(0, 0), first, [b"1", b"2"]), (first, second, [b"3"])):
        made = write_rows("job", 0, 1, before, topic="rows", checksum=after.checksum, values=values)
        assert store.call(made) == after
    lane = f"{store.instance}/0"
    for attempt in "ab":
        assert store.call(stage_rows("staged", lane, attempt, 0, 60_000, topic="rows", shape="b", values=[b"4"])) == 2
    assert store.call(keep_stages("staged", 60_000, [StagedRows(lane, "a", 1, 2)])) == 1
    committed = store.call(commit_job("staged", 1, [StagedRows(lane, "a", 1)]))
    assert committed == Committed(1, [StagedRows(lane, "a", 1)])
    assert store.call(record_stage("staged", 1, lane)) == 0
    assert store.call(finish_job("staged", 1, [lane])) == 0
    store.call(drop_stages("staged", [StagedRows(lane, "b", 1)]))
    entries = store.redis.xrange(key(store.instance, "log", "rows"))
    assert [fields[b"b"] for _, fields in entries] == [b"1", b"2", b"3", b"4"]
    assert store.redis.keys(key(store.instance, "stage", "*", "*", "*")) == []
    # Rows of several topics, each with its own
    mixed = [b"5", b"orders", b"6", b"rows"]
    assert store.call(write_rows("mixed", 0, 1, PartitionProgress(0, 0), shape="bt", values=mixed)).rows == 2
    assert store.call(stage_rows("both", lane, "a", 0, 60_000, topic="", shape="bt", values=mixed)) == 5
    assert store.call(commit_job("both", 1, [StagedRows(lane, "a", 2)])).epoch == 1
    assert store.call(record_stage("both", 1, lane)) == 0
    assert store.redis.xlen(key(store.instance, "log", "rows")) == 6


def replicate(work):
    """A link from another instance and one back, a transfer, and what the operator takes over."""
    other = Work(Store(work.store.url, f"{work.store.instance}-b"), "till-2")
    peers = [Peer(each.store.instance, each.session.origin, each.store.instance) for each in (work, other)]
    for each in (work, other):
        each.apply(Topic(name="shared"), Queue(name="both", underlying_topic="shared", max_per_subscription_backlog=9))
    here, there = work.store, other.store
    links = [
        Link(
            q.name,
            one,
            two,
            EntrySelector(p, q, lambda _: False, {}, lambda _: JSON),
            topics=["shared"],
            queues=["both"],
        )
        for one, two, p, q in ((here, there, *peers), (there, here, *peers[::-1]))
    ]

    def run():
        while any(moved.messages or moved.journal_rows or moved.requests for moved in [link.step() for link in links]):
            pass

    bookmarks = other.publish("shared", b"1", b"2", b"3")
    run()
    assert work.run(history(work.session, bookmarks[0])).recorded
    first = here.redis.xrange(key(here.instance, "log", "shared"), count=1)[0][0]
    assert work.run(name_message("shared", first.decode())) == bookmarks[0]
    assert not work.run(find_bookmark("", "nobody|1", ["shared"])).id
    with work.subscription("both", backlog=2) as (core, channel):
        time.sleep(0.05)  # messages are asked for when they have been here for a moment
        here.call(ownership_calls.request_ownership("both"))
        run()
        bodies = [body for _, body in work.take(core, channel, 2)]
        assert bodies == [b"1", b"2"]
    eventually(lambda: work.sweep() or here.redis.zcard(key(here.instance, "ready", "both")) == 2)
    run()
    assert here.call(ownership_calls.count_owners("both", 10)).elsewhere == 1
    here.call(ownership_calls.set_proxied_transfer("both", enabled=True))
    with work.subscription("both", backlog=5):
        here.call(ownership_calls.request_ownership("both"))
        here.call(ownership_calls.assume_ownership("both", 10, [peers[1].name]))
        assert here.call(ownership_calls.count_owners("both", 10)).elsewhere == 0
    run()
    with other.subscription("both") as (core, channel):
        time.sleep(0.05)  # as above
        there.call(ownership_calls.request_ownership("both"))
        run()
        assert len(other.take(core, channel, 3)) == 3
    # A link posts its copies ahead; here the answer is lost
    copies = [
        replication_calls.EntryRun(topic, "x.1", "-", "x.1/x", b"0-0", b"4-0", (b"b",), [(b"4-0", (b"copy",))])
        for topic in ("orders", "shared")
    ]
    here.call(replication_calls.apply(copies))
    for repair in (False, True):
        work.run(check(work.session, ["both"], repair=repair))
    said = {b"queues": b"both", b"owner": b"x.1", b"rooms": b"y.1 1", b"bookmarks": b"shared~x.1~5-0"}
    here.call(relay(b"x.1~5-0", "x/x", said))
    other.store.close()


def begin_anew(work):
    """Begin a new incarnation, so that all that was recorded is of the last one."""
    before = str(work.store.call(read_origin(work.store.instance)))
    work.store.call(incarnation_calls.recover([f"{before.rpartition('.')[0]}.0"]))
    origin = work.store.run(new_incarnation())
    assert origin != before
    # No destination here shares a queue
    assert work.store.run(recovering.resume_recovered(work.store.instance)) is None


def upgrade_it(work):
    """As if the release before had stored it."""
    work.store.redis.hset(key(work.store.instance, "instance"), FIELDS["format"], FORMAT - 1)
    assert work.store.run(upgrade_instance(work.store.instance)) == str(FORMAT)


WORK = [
    *(
        consume,
        publish_once,
        settle_in_every_way,
        hold_a_group,
        look,
        filters_and_views,
        actions,
        keep_and_trim,
        keep_records,
        damage_and_mend,
    ),
    *(
        guaranteed,
        destinations,
        removals,
        define_in_all_partitions,
        write_jobs,
        split,
        replicate,
        durable_subscriptions,
        limits_of_slow_clients,
    ),
    *(notice_and_end, begin_anew, upgrade_it),
]
