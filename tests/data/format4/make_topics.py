"""Topics: message types, records, what retention removed, durable and limited subscribers, views."""

from __future__ import annotations

import json
import time

from making import FAR, eventually

from ampsq import ConflatedTopic, Queue, Topic, Transport, View
from ampsq.coordinator.flushing import Flushing
from ampsq.coordinator.notice import Notice
from ampsq.coordinator.retention import Retention
from ampsq.coordinator.views import Views
from ampsq.topics import reader_calls, retention
from ampsq.topics.log_index import complete

__all__ = ["fill_topics"]


def fill_topics(site):
    """All of this module's."""
    message_types(site)
    records(site)
    record_lives(site)
    ticks(site)
    trimmed(site)
    durable(site)
    limited(site)
    views(site)
    foreign(site)


def message_types(site):
    """A topic and a queue of each message type."""
    client = site.client
    data = {"35": "D", "55": "IBM", "44": 120.5, "448": ["A", "B"]}
    for name, options in (
        ("msgpack", {}),
        ("nvfix", {}),
        ("fix", {"field_separator": "|"}),
    ):
        topic = f"type-{name}"
        client.apply(
            Topic(name=topic, message_type=name, **options),
            Queue(name=f"{topic}-queue", underlying_topic=topic, message_type=name, filter="/44 > 100", **options),
        )
        client.publish(topic, data)
        client.publish(topic, {**data, "44": 99})
        client.publish(topic, b"\xc1\xff\x00")
    client.apply(Topic(name="type-keyed", message_type="msgpack", key="/id"))
    client.publish("type-keyed", {"id": 2**60, "name": "Größe", "raw": b"\xff"})


def records(site):
    """Records: changed, merged, deleted, of several parts, with headers, one that somebody else wrote."""
    client = site.client
    client.apply(
        Topic(name="positions", key="/symbol"),
        Topic(name="holdings", key=["/account", "/symbol"]),
        Queue(name="position-changes", underlying_topic="positions", max_per_subscription_backlog=3, lease_period=FAR),
    )
    for number, symbol in enumerate(["EUR", "USD", "JPY", "GBP", "EUR", "CHF"]):
        client.publish("positions", {"symbol": symbol, "qty": number}, headers={"n": str(number)})
    client.delta_publish("positions", {"symbol": "USD", "price": 1.25, "legs": [1, None, {"a": "ü"}]})
    client.sow_delete("positions", keys=["JPY"])
    client.sow_delete("positions", filter="/qty = 3")
    client.publish("positions", {"symbol": "東京", "qty": 7})
    for account in ("a", "b|c"):
        client.publish("holdings", {"account": account, "symbol": "EUR", "qty": 2**53 + 1})
    site.redis.xadd("{" + site.instance + "}:log:positions", {"symbol": "SEK", "qty": "9"})
    site.redis.xadd("{" + site.instance + "}:log:positions", {"no": "key"})
    assert len(client.sow("positions")) == 5
    site.keep(site.subscribe("position-changes", max_backlog=1), 1)


def record_lives(site):
    """Records whose life is over, and those that live on."""
    client = site.client
    client.apply(Topic(name="quotes", key="/symbol", expiration=FAR))
    client.publish("quotes", {"symbol": "EUR", "bid": 1})
    client.publish("quotes", {"symbol": "USD", "bid": 2}, expiration="20000d")
    client.publish("quotes", {"symbol": "JPY", "bid": 3}, expiration="1ms")
    time.sleep(0.02)
    eventually(lambda: site.sweep() or len(client.sow("quotes")) == 2)


def ticks(site):
    """A log that somebody else wrote, whose index was made later; that of `ticks` was made as it was recorded."""
    client = site.client
    client.apply(Topic(name="old-ticks"))
    with site.redis.pipeline(transaction=False) as pipe:
        for number in range(1, 1_201):
            pipe.xadd("{" + site.instance + "}:log:old-ticks", {"x": str(number % 7)}, id=f"{number}-{number % 3}")
        pipe.execute()
    Notice().run_once(site.store)
    site.store.run(complete("old-ticks"))


def trimmed(site):
    """Logs and journals that lost what nobody needs; what a queue, a replay or an action needs is kept."""
    client = site.client
    client.apply(
        Topic(name="short", retention_count=6),
        Topic(name="lossy", retention_count=4, retention_unsettled="discard"),
        Topic(name="aged", retention_age="36500d", retention_size="10MB"),
        Queue(name="slow", underlying_topic="short", max_per_subscription_backlog=10, lease_period=FAR),
        Queue(name="lossy-queue", underlying_topic="lossy", lease_period=FAR),
    )
    sent = client.publish_many("short", ({"n": number} for number in range(20)))
    client.publish_many("lossy", ({"n": number} for number in range(10)))
    client.publish("aged", {"n": 1})
    subscription = site.subscribe("slow", max_backlog=10)
    for message in site.take(subscription, 8):
        message.ack(wait=True)
    # What the two needed already goes, the rest of them is leased.
    subscription.give_back()
    ids = [str(bookmark).rpartition("~")[2] for bookmark in sent]
    site.store.call(retention.hold("short", "replay audit", ids[12], 30_000 * 86_400_000))
    site.store.call(retention.pin("short", "action copy", [ids[3], ids[13]]))
    duty = Retention()

    def is_trimmed():
        duty.run_once(site.store)
        return client.topics()["short"]["messages"] <= 13 and client.topics()["lossy"]["messages"] == 4

    eventually(is_trimmed)
    for _ in range(5):
        duty.run_once(site.store)


def durable(site):
    """Durable subscriptions: one that handled in order, one out of turn."""
    client = site.client
    client.publish_many("audit", ({"n": number} for number in range(12)))
    with client.subscribe("audit", bookmark="epoch", sub_id="in-order") as replay:
        for _ in range(5):
            assert replay.get(30) is not None
    out_of_turn = client.subscribe("^audit$", bookmark="epoch", sub_id="out-of-turn", auto_ack=False)
    found = [out_of_turn.get(30) for _ in range(8)]
    for place in (0, 1, 4, 6):
        found[place].ack(wait=True)


def limited(site):
    """Transports with limits, and readers that report: online, offlined, disconnected."""
    client = site.client
    client.apply(
        Transport(name="*", message_memory_limit="1MB", message_disk_limit="10MB", client_message_age_limit="36500d"),
        Transport(
            name="slow", message_memory_limit="64KB", client_max_capacity=50, message_disk_path="/var/spool/slow"
        ),
        ConflatedTopic(name="slow-positions", underlying_topic="positions", interval="250ms", filter="/qty >= 0"),
        ConflatedTopic(name="slow-seen", underlying_topic="seen", key="/symbol"),
    )
    period = 36_000 * 86_400_000

    def report(reader, transport, state, behind, spooled=0):
        facts = {
            "client": "nyc-till",
            "transport": transport,
            "subscription": f"^{reader}",
            "topics": ["orders", "audit"],
        }
        told = reader_calls.Report(state, behind, spooled, 1_700_000_000_000 if behind else 0)
        call = reader_calls.report(
            reader, transport, told, period=period, client="nyc-till", facts=json.dumps(facts, sort_keys=True)
        )
        return site.store.call(call).word

    assert report("quick", "*", "online", 1_000) == ""
    assert report("still", "*", "durable", 0) == ""
    assert report("late", "slow", "online", 60_000) == "offline"
    assert report("late", "slow", "offline", 60_000, 30_000) == ""
    assert report("lost", "*", "online", 2**21) == "offline"
    assert report("lost", "*", "offline", 0, 2**24) == "disconnect"


def views(site):
    """Rows over topics, over a queue, of all messages, and a queue over a view's rows."""
    client = site.client
    client.apply(
        View(
            name="by-symbol",
            underlying_topic=["bids", "orders"],
            projection=["/symbol", "SUM(/price) AS /sum", "COUNT(*) AS /n", "MAX(/id) AS /last"],
            grouping=["/symbol"],
            filter="/id < 30",
        ),
        View(
            name="waiting-work",
            underlying_topic="work",
            projection=["/symbol", "COUNT(/id) AS /n"],
            grouping=["/symbol"],
        ),
        View(name="rates", underlying_topic="^rates-", projection=["COUNT(*) AS /n", "AVG(/n) AS /average"]),
        View(
            name="seen-dear",
            underlying_topic="seen",
            projection=["/symbol", "MIN(/qty) AS /least"],
            grouping=["/symbol"],
        ),
        Queue(name="row-changes", underlying_topic="by-symbol", lease_period=FAR),
    )
    duty, until = Views(), time.monotonic() + 30

    def is_done():
        duty.run_once(site.store)
        return all(client.sow(name) for name in ("by-symbol", "waiting-work", "rates", "seen-dear"))

    while not is_done():
        assert time.monotonic() < until
        time.sleep(0.02)
    for _ in range(20):
        duty.run_once(site.store)
        time.sleep(0.02)


def foreign(site):
    """A topic that somebody else made with plain commands, and how the server flushes."""
    site.redis.xadd("{" + site.instance + "}:log:plain", {"symbol": "EUR", "qty": "7"})
    site.redis.xadd("{" + site.instance + "}:log:plain", {"a": "\x00\n ", "b": b"\xfe"})
    Notice().run_once(site.store)
    Flushing().run_once(site.store)
    assert "plain" in site.client.topics()
